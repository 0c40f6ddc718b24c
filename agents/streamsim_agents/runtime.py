"""The agent's side of the wire: a socket loop that never blocks, beside the one worker thread.

The loop reads at all times and acknowledges reception at once; it has no say in what the agent does
next. A connection plays one session; after its ``bye``, or where the server gave the session up (1001),
the runtime connects again, until the server says that there is no more to play (4000) or is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.typing import Subprotocol

from streamsim_agents.agent import Agent
from streamsim_agents.loop_lag import LoopLag
from streamsim_agents.outbox import Outbox
from streamsim_agents.worker import Worker
from streamsim_protocol import messages as wire
from streamsim_protocol.codec import decode_server_message, encode
from streamsim_protocol.errors import CloseCode, ProtocolError
from streamsim_protocol.states import Connection

OPEN_TIMEOUT_S = 30.0
PING_TIMEOUT_S = 90.0
MAX_REASON_CHARS = 200
SOCKET_BUFFER_BYTES = 64 << 10
IDLE_GRACE_S = 5.0
"""How long a worker may go on after its connection is gone before the process ends with it inside."""


_Ending = Literal["played", "stopped", "finished"]
"""How a connection ended: after ``bye``, by the server in the middle, or because there is no more."""
_NO_CLOSE_FRAME = 1006
"""What stands for the code where a connection ended without one (RFC 6455 §7.1.5)."""


class ConnectError(Exception):
    """The server could not be reached or refused the connection; the text says why."""


class SessionRefused(Exception):
    """The server ended a session by a close code that tells of a fault; the text is its reason."""


class Runtime:
    """Plays all sessions that one URL offers with one agent."""

    def __init__(
        self,
        url: str,
        make_agent: Callable[[], Agent],
        *,
        name: str,
        memory_folder: Path | None = None,
    ) -> None:
        if urlsplit(url).scheme not in ("ws", "wss"):
            raise ConnectError(
                f"expected a ws:// or wss:// address, got {url!r}: use the one that was printed"
            )
        self._url = url
        self._name = name
        self._worker = Worker(make_agent, memory_folder)
        self._frames: wire.FramePolicy = "all"
        self._libraries: dict[str, str] = {}
        self._load_error: str | None = None
        self.played = 0
        """How many sessions both sides have brought to their end."""
        self.broken_off = 0
        """How many sessions began and ended in another way, however that was."""
        self.last_reason = ""
        """What the server gave as the reason when it last broke a session off."""
        self.stuck = False
        """Whether the agent was still in its own code when ``run`` was over; its thread cannot be ended."""

    async def run(self) -> int:
        """Play until the server has no more; returns ``played``."""
        self._worker.start()
        was_there = False
        try:
            await self._load()
            while True:
                try:
                    ending = await self._play_one()
                except ConnectError:
                    if not was_there:
                        raise
                    break  # nobody is there any more: the run is over
                if ending == "finished":
                    break
                was_there = True
        finally:
            self._worker.quit()
            self.stuck = True  # also if this wait is cut short
            self.stuck = not await asyncio.to_thread(self._worker.join, IDLE_GRACE_S)
        return self.played

    async def _load(self) -> None:
        loop = asyncio.get_running_loop()
        loaded = asyncio.Event()

        def done(name: str, frames: wire.FramePolicy, libraries: dict[str, str], error: str | None) -> None:
            self._frames, self._libraries, self._load_error = frames, libraries, error
            loop.call_soon_threadsafe(loaded.set)

        self._worker.load(done)
        await loaded.wait()

    async def _play_one(self) -> _Ending:
        """One connection, which is one session; ``ConnectError`` if there is none to be had."""
        try:
            async with connect(
                self._url,
                subprotocols=[Subprotocol(wire.SUBPROTOCOL)],
                compression=None,
                max_size=wire.MAX_SERVER_MESSAGE_BYTES,
                ping_timeout=PING_TIMEOUT_S,
                close_timeout=5.0,
                open_timeout=OPEN_TIMEOUT_S,
                user_agent_header=None,
                proxy=None,
            ) as socket_:
                _shrink_buffers(socket_)
                session = _SessionLoop(self, socket_)
                try:
                    return await session.play()
                finally:
                    self.played += session.completed
                    self.broken_off += session.begun and not session.completed
        except (OSError, InvalidHandshake, InvalidURI, TimeoutError) as error:
            raise ConnectError(describe_failure(self._url, error)) from error

    def hello(self) -> wire.Hello:
        """What the agent says of itself."""
        return wire.Hello(
            versions=(wire.MAJOR_VERSION,),
            capabilities=("ticks",),
            agent=self._name,
            frames=self._frames,
            libraries=self._libraries,
        )

    @property
    def worker(self) -> Worker:
        """The thread on which the agent runs."""
        return self._worker

    @property
    def load_error(self) -> str | None:
        """The traceback of an agent that could not be made."""
        return self._load_error


def describe_failure(url: str, error: Exception) -> str:
    """Why there is no connection, in one line that never shows the address's token."""
    try:
        parts = urlsplit(url)
        place = f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'wss' else 80)}"
    except ValueError as invalid:
        return f"cannot read the address: {str(invalid).lower()}"
    if isinstance(error, InvalidStatus):
        return f"the server refused: {_reason_of(error)}"
    if isinstance(error, InvalidHandshake):
        return f"expected a streamsim server at {place}, got another answer: {error}"
    if isinstance(error, TimeoutError) and error.errno is None:
        return f"no answer from {place} within {OPEN_TIMEOUT_S:g} s"
    # a name of several addresses gives one error that has their numbers in its text
    if isinstance(error, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in str(error):
        return f"no server at {place}: start one with streamsim serve"
    return f"cannot connect to {place}: {getattr(error, 'strerror', None) or error}"


def _reason_of(error: InvalidStatus) -> str:
    """What a server said when it refused the handshake: ours says it in one line of plain text."""
    status = error.response.status_code
    kind = error.response.headers.get("Content-Type", "")
    lines = (error.response.body or b"").decode("utf-8", "replace").strip().splitlines()
    if status == 404 and (not lines or lines[0].startswith("404")):
        return "nothing is played at this path: use the address that was printed"
    if not lines or not kind.startswith("text/plain"):
        return f"HTTP status {status}: is it a streamsim server?"
    return lines[0][:MAX_REASON_CHARS]


class _SessionLoop:
    """One connection: reads, acknowledges, hands over, sends what the worker says."""

    def __init__(self, runtime: Runtime, socket_: ClientConnection) -> None:
        self._runtime = runtime
        self._worker = runtime.worker
        self._socket = socket_
        self._connection = Connection()
        self._wake = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._outbox = Outbox(lambda: _wake_threadsafe(loop, self._wake))
        self._said_bye = False
        self.begun = False
        self.completed = False
        self._lag = LoopLag()

    async def play(self) -> _Ending:
        with self._lag:
            return await self._play()

    async def _play(self) -> _Ending:
        fault: ProtocolError | None = None
        async with asyncio.TaskGroup() as group:  # a fault of the sender ends the receiver too
            sender = group.create_task(self._send_all())
            try:
                await self._send(self._runtime.hello())
                async for data in self._socket:
                    message = decode_server_message(data)
                    self._connection.receive(message)
                    self._handle(message)
            except ProtocolError as error:
                fault = error
                await self._socket.close(error.close_code, error.reason)
            except ConnectionClosed:
                pass
            finally:
                self._outbox.close()
                self._worker.abandon("disconnected")
                sender.cancel()
        if fault is not None:
            raise SessionRefused(f"the server broke the contract: {fault}")
        return self._verdict()

    def _verdict(self) -> _Ending:
        code = self._socket.close_code
        reason = self._socket.close_reason or ""
        if code == CloseCode.FINISHED:
            return "finished"
        if code == CloseCode.NORMAL and self._said_bye:
            self.completed = True
            return "played"
        if code == CloseCode.GOING_AWAY:
            self._runtime.last_reason = reason or "it was stopped"
            return "stopped"
        if code == _NO_CLOSE_FRAME and self._said_bye:
            self._runtime.last_reason = "the connection was lost at its end"
            return "stopped"
        if code == _NO_CLOSE_FRAME:
            raise SessionRefused("the connection to the server was lost")
        raise SessionRefused(f"connection closed with code {code}: {reason or 'no reason given'}")

    def _handle(self, message: wire.ServerMessage) -> None:
        match message:
            case wire.Welcome():
                self.begun = True
                self._acknowledge()
                if self._runtime.load_error is not None:
                    self._say(wire.Failed(phase="load", error=self._runtime.load_error))
                else:
                    self._worker.begin(message, self._outbox)
            case wire.Frame():
                self._acknowledge()
                self._worker.put_frame(message)
            case wire.ProbeMessage():
                self._acknowledge()
                self._worker.put_probe(message)
            case wire.TurnClosed():
                self._worker.close_turn(message.turn, message.reason)
            case wire.ChainClosed():
                self._worker.close_chain(message.query)
            case wire.End(reason="completed"):
                self._worker.end()
            case wire.End():
                self._worker.abandon("interrupted")
            case wire.Tick():
                self._worker.tick(message)
            case wire.Gap() | wire.Error():
                pass

    def _acknowledge(self) -> None:
        self._say(wire.Ack())

    def _say(self, message: wire.AgentMessage) -> None:
        self._outbox.put_now(message)
        self._wake.set()

    async def _send_all(self) -> None:
        with contextlib.suppress(ConnectionClosed):  # the receiver learns it too
            while True:
                await self._wake.wait()
                self._wake.clear()
                while (message := self._outbox.take()) is not None:
                    await self._send(message)

    async def _send(self, message: wire.AgentMessage) -> None:
        if self._said_bye:
            return  # late news of work in the background: nobody waits for it any more
        self._said_bye = isinstance(message, wire.Bye)
        if self._said_bye:
            await self._socket.send(encode(self._connection.stamp(self._own_stats())))
        await self._socket.send(encode(self._connection.stamp(message)))

    def _own_stats(self) -> wire.Stats:
        p99_ns, max_ns = self._lag.figures()
        return wire.Stats(values={wire.LOOP_LAG_P99: p99_ns, wire.LOOP_LAG_MAX: max_ns})


def _wake_threadsafe(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has closed: nobody is left to be woken
        loop.call_soon_threadsafe(event.set)


def _shrink_buffers(connection: ClientConnection) -> None:
    """Keep what the kernel holds small: credit then tells the truth, and little is said after a fence."""
    raw = connection.transport.get_extra_info("socket")
    if raw is not None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
        if raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

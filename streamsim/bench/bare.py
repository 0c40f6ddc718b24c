"""A bare ``websockets`` loop that does what a streamsim server must, one part after the other.

    bare      sends a picture when it is due; the client returns one small message
    codec     ... as messages of streamsim.v1, and reads what comes back
    acks      ... of which there are two a frame: received, and settled
    journal   ... and writes one journal line for each of the three

It knows no rules: no session, no clock but the wall's, no credit, no timeouts, no agent. Two processes,
as with a real server; ``BareLoop`` is both of them, seen from outside.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal

import msgspec

from streamsim.errors import StreamsimError
from streamsim.events import Acknowledged, FrameSent, FrameSettled, Instant
from streamsim.journal.write import JournalSync, JournalWriter
from streamsim_protocol import messages as wire
from streamsim_protocol.codec import decode_agent_message, encode

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection
    from websockets.asyncio.server import ServerConnection

Step = Literal["bare", "codec", "acks", "journal"]
STEPS: tuple[Step, ...] = ("bare", "codec", "acks", "journal")
REPLY_BYTES = 40


class BarePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent. ``rate_hz`` is of each connection; connections are spread evenly over its period.

    ``journal`` is a path that does not exist yet.
    """

    step: Step
    connections: int
    rate_hz: float
    seconds: float
    size_bytes: int
    journal: str


class BareLoop:
    """Both processes. A context manager; inside it frames flow."""

    def __init__(self, plan: BarePlan) -> None:
        text = msgspec.json.encode(plan).decode()
        self._server = _start("serve", text)
        self._processes = [self._server]
        try:
            port = self._hear().decode().strip()
            self._processes.append(_start("answer", text, port))
            self._hear()  # all connections are there
        except BaseException:
            self._end()
            raise

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._server.pid

    def finish(self) -> list[int]:
        """Wait until all was sent; how late each frame was, nanoseconds."""
        lateness: list[int] = msgspec.json.decode(self._hear(), type=list[int])
        return lateness

    def __enter__(self) -> BareLoop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()

    def _hear(self) -> bytes:
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        if not line:
            raise StreamsimError(f"the bare loop ended with exit code {self._server.wait()}")
        return line


def _start(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", __name__, *arguments], stdout=subprocess.PIPE)


class _BareServer:
    def __init__(self, plan: BarePlan, journal: JournalWriter | None) -> None:
        self._plan = plan
        self._journal = journal
        self._picture = b"\xff\xd8" + bytes(range(256)) * (plan.size_bytes // 256)
        self._digest = "0" * 64
        self._origin_ns = 0
        self._phases = iter(range(plan.connections))
        self._waiting = plan.connections
        self._begin = asyncio.Event()
        self._left = plan.connections
        self.finished = asyncio.Event()
        self.lateness_ns: list[int] = []

    async def handle(self, connection: ServerConnection) -> None:
        phase = next(self._phases) / self._plan.connections
        self._waiting -= 1
        if not self._waiting:
            self._origin_ns = time.monotonic_ns()
            self._begin.set()
            print("begun", flush=True)
        await self._begin.wait()
        async with asyncio.TaskGroup() as group:
            receiver = group.create_task(self._receive(connection))
            await self._feed(connection, phase)
            receiver.cancel()
        self._left -= 1
        if not self._left:
            self.finished.set()

    async def _feed(self, connection: ServerConnection, phase: float) -> None:
        plan = self._plan
        for k in range(round(plan.seconds * plan.rate_hz)):
            due_ns = self._origin_ns + round((k + phase) / plan.rate_hz * 1e9)
            await asyncio.sleep((due_ns - time.monotonic_ns()) / 1e9)
            now_ns = time.monotonic_ns()
            self.lateness_ns.append(now_ns - due_ns)
            data = self._picture
            if plan.step != "bare":
                frame = wire.Frame(seq=k + 1, ack=k, k=k, media_ns=due_ns, encoding="jpeg", data=data)
                data = encode(frame)
            if self._journal is not None:
                sent = FrameSent(
                    k=k,
                    media_ns=due_ns,
                    due_wall_ns=due_ns,
                    size_bytes=len(self._picture),
                    digest=self._digest,
                    seq=k + 1,
                )
                self._journal.write(Instant(now_ns, now_ns), sent)
            await connection.send(data)

    async def _receive(self, connection: ServerConnection) -> None:
        async for data in connection:
            if self._plan.step == "bare":
                continue
            message = decode_agent_message(data)
            if self._journal is None:
                continue
            now_ns = time.monotonic_ns()
            at = Instant(now_ns, now_ns)
            if isinstance(message, wire.Settled):
                self._journal.write(
                    at,
                    FrameSettled(
                        k=message.k,
                        outcome=message.outcome,
                        waited_ns=message.waited_ns,
                        service_ns=message.service_ns,
                    ),
                )
            else:
                self._journal.write(at, Acknowledged(seq=message.ack))


async def _serve(plan: BarePlan) -> None:
    from websockets.asyncio.server import serve

    with JournalSync() as sync:
        journal = JournalWriter(Path(plan.journal), sync) if plan.step == "journal" else None
        bare = _BareServer(plan, journal)
        async with serve(bare.handle, "127.0.0.1", 0, compression=None, ping_interval=None) as server:
            port: int = next(iter(server.sockets)).getsockname()[1]
            print(port, flush=True)
            await bare.finished.wait()
        if journal is not None:
            journal.close()
    print(msgspec.json.encode(bare.lateness_ns).decode(), flush=True)


async def _answer(plan: BarePlan, port: int) -> None:
    from websockets.asyncio.client import connect
    from websockets.exceptions import ConnectionClosed

    replies = [b"x" * REPLY_BYTES]
    if plan.step != "bare":
        replies = [
            encode(wire.Settled(seq=1, ack=1, k=1, outcome="processed", waited_ns=1000, service_ns=1000))
        ]
    if plan.step in ("acks", "journal"):
        replies.insert(0, encode(wire.Ack(seq=1, ack=1)))

    async def play(connection: ClientConnection) -> None:
        async for _ in connection:
            for reply in replies:
                await connection.send(reply)
                await asyncio.sleep(0)  # a runtime's two messages come one after the other

    async def one() -> None:
        url = f"ws://127.0.0.1:{port}"
        async with connect(
            url, compression=None, max_size=None, ping_interval=None, proxy=None
        ) as connection:
            with contextlib.suppress(ConnectionClosed):
                await play(connection)

    async with asyncio.TaskGroup() as group:
        for _ in range(plan.connections):
            group.create_task(one())


if __name__ == "__main__":
    _plan = msgspec.json.decode(sys.argv[2], type=BarePlan)
    asyncio.run(_serve(_plan) if sys.argv[1] == "serve" else _answer(_plan, int(sys.argv[3])))

"""Many light agents in one process: each settles a frame at once and says A to every probe.

They send what the real runtime sends, message for message, but share one event loop, so that a hundred
of them leave a core free for the server that is measured. Started by ``LightClients``; the first line
of its standard input is the list of their addresses, the second lets all begin at the same moment.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import msgspec

from streamsim.errors import StreamsimError
from streamsim_protocol import messages as wire
from streamsim_protocol.codec import decode_server_message, encode
from streamsim_protocol.errors import CloseCode
from streamsim_protocol.states import Connection

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

RECEIVE_BUFFER_BYTES = 64 << 10
PING_TIMEOUT_S = 90.0
LIGHT = "light"
"""What they call themselves."""


class LightClients:
    """The process of the light agents, seen from outside. A context manager."""

    def __init__(self, urls: Sequence[str]) -> None:
        """One agent an address; they connect at once and wait with ``ready``."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._say(msgspec.json.encode(urls))

    def __enter__(self) -> LightClients:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.kill()
        self._process.communicate()

    def wait_until_greeted(self) -> None:
        """Return when every agent has its ``welcome``."""
        self._hear()

    def begin(self) -> None:
        """All agents say ``ready``."""
        self._say(b"begin")

    def finish(self) -> None:
        """Wait until all have played."""
        self._hear()

    def _say(self, line: bytes) -> None:
        self._stdin.write(line + b"\n")
        self._stdin.flush()

    def _hear(self) -> bytes:
        line = self._stdout.readline()
        if not line:
            raise StreamsimError(f"the light agents ended with exit code {self._process.wait()}")
        return line


class _LightAgent:
    """One agent: plays one session, then asks once more and is told that there is none."""

    def __init__(self, url: str, begin: asyncio.Event) -> None:
        self._url = url
        self._begin = begin
        self.greeted = asyncio.Event()

    async def play(self) -> None:
        while await self._play_one():
            pass

    async def _play_one(self) -> bool:
        from websockets.asyncio.client import connect
        from websockets.exceptions import ConnectionClosed
        from websockets.typing import Subprotocol

        async with connect(
            self._url,
            subprotocols=[Subprotocol(wire.SUBPROTOCOL)],
            compression=None,
            max_size=wire.MAX_SERVER_MESSAGE_BYTES,
            ping_timeout=PING_TIMEOUT_S,
            open_timeout=30.0,
            proxy=None,
        ) as connection:
            raw = connection.transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            order = Connection()
            try:
                await _say(connection, order, wire.Hello(versions=(wire.MAJOR_VERSION,), agent=LIGHT))
                async for data in connection:
                    message = decode_server_message(data)
                    order.receive(message)
                    await self._answer(connection, order, message)
            except ConnectionClosed:
                pass
        return connection.close_code == CloseCode.NORMAL

    async def _answer(
        self, connection: ClientConnection, order: Connection, message: wire.ServerMessage
    ) -> None:
        match message:
            case wire.Frame():
                await _say(connection, order, wire.Ack())
                await _say(connection, order, wire.Settled(k=message.k, outcome="processed"))
            case wire.ProbeMessage():
                await _say(connection, order, wire.Ack())
                await _say(connection, order, wire.TurnStarted(turn=message.turn, seen_media_ns=None))
                await _say(connection, order, wire.Text(turn=message.turn, text="A"))
                await _say(connection, order, wire.TurnEnded(turn=message.turn, reason="finished"))
            case wire.Welcome():
                await _say(connection, order, wire.Ack())
                self.greeted.set()
                await self._begin.wait()
                await _say(connection, order, wire.Ready())
            case wire.End():
                await _say(connection, order, wire.Bye())
            case wire.Gap() | wire.TurnClosed() | wire.ChainClosed() | wire.Tick() | wire.Error():
                pass


async def _say(connection: ClientConnection, order: Connection, message: wire.AgentMessage) -> None:
    await connection.send(encode(order.stamp(message)))


async def _main() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    begin = asyncio.Event()
    agents = [_LightAgent(url, begin) for url in msgspec.json.decode(await reader.readline())]
    async with asyncio.TaskGroup() as group:
        for agent in agents:
            group.create_task(agent.play())
        for agent in agents:
            await agent.greeted.wait()
        print("greeted", flush=True)
        await reader.readline()
        begin.set()
    print("played", flush=True)


if __name__ == "__main__":
    asyncio.run(_main())

"""One agent's connection: read from the moment it is there, so that pings are answered and a loss is seen.

What was received waits in order for whoever plays the session; a flood waits in the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from socket import SHUT_RDWR

from aiohttp import WebSocketError, WSMsgType, web

from streamsim_protocol import messages as wire
from streamsim_protocol.codec import encode
from streamsim_protocol.errors import CloseCode, MessageTooBig, ProtocolError, close_reason

RECEIVED_WAITING = 64
"""So many messages are taken from the kernel before somebody has handled them."""
CLOSE_GRACE_S = 2.0


class ConnectionLost(Exception):
    """The peer is gone; the text says with which close code, if any."""


Received = bytes | str | ProtocolError | ConnectionLost


class AgentSocket:
    """A WebSocket of an agent; ``reading`` it is what keeps it alive."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self._socket = socket
        self._received: deque[Received] = deque()
        self._room = asyncio.Event()
        self._on_news: Callable[[], None] = lambda: None

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AgentSocket]:
        """Receive while the block runs; what comes waits for ``take``."""
        async with asyncio.TaskGroup() as group:
            reader = group.create_task(self._read())
            try:
                yield self
            finally:
                reader.cancel()

    def listen(self, on_news: Callable[[], None]) -> None:
        """Call ``on_news`` whenever something has been received; the newest listener alone is called."""
        self._on_news = on_news

    @property
    def waiting(self) -> int:
        """How much has been received and not been taken."""
        return len(self._received)

    def take(self) -> Received:
        """What was received first; ``waiting`` must not be 0. After an exception nothing more comes."""
        item = self._received.popleft()
        if len(self._received) < RECEIVED_WAITING:
            self._room.set()
        return item

    async def send(self, message: wire.ServerMessage) -> None:
        """Send one message; ``ConnectionError`` if the peer is gone.

        It never waits: the writer's limit is beyond what credit lets through.
        """
        await self._socket.send_bytes(encode(message))

    @property
    def open(self) -> bool:
        """Whether the peer is still there, as far as the kernel has told."""
        raw = self._socket.get_extra_info("socket")
        return not self._socket.closed and raw is not None and raw.fileno() != -1

    async def close(self, code: int, reason: str, grace_s: float = CLOSE_GRACE_S) -> None:
        """Close politely, but not at any price: a peer that does not answer is cut off."""
        self._room.set()
        raw = self._socket.get_extra_info("socket")
        try:
            async with asyncio.timeout(grace_s):
                await self._socket.close(code=code, message=close_reason(reason).encode())
        except (TimeoutError, ConnectionError, RuntimeError):
            if raw is not None and raw.fileno() != -1:
                with contextlib.suppress(OSError):
                    raw.shutdown(SHUT_RDWR)  # what it was never to read is dropped, and its place is free

    async def _read(self) -> None:
        while True:
            message = await self._socket.receive()
            item: Received
            if message.type is WSMsgType.BINARY or message.type is WSMsgType.TEXT:
                item = message.data
            elif isinstance(message.data, WebSocketError) and message.data.code == CloseCode.TOO_BIG:
                item = MessageTooBig(f"expected at most {wire.MAX_AGENT_MESSAGE_BYTES} bytes in a message")
            else:
                item = ConnectionLost(f"the connection ended with code {self._socket.close_code}")
            self._received.append(item)
            self._on_news()
            if isinstance(item, Exception):
                return
            if len(self._received) >= RECEIVED_WAITING:
                self._room.clear()
                await self._room.wait()

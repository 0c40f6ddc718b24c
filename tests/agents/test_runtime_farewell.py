"""A server that has nothing to play says so at once: the agent's process ends well, whoever is faster."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import struct

import pytest

from streamsim_agents.runtime import Runtime
from streamsim_agents.scripted import Null
from streamsim_protocol.errors import CloseCode
from streamsim_protocol.messages import SUBPROTOCOL

_ACCEPT_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 §1.3


@pytest.mark.parametrize("spoken_first", [True, False], ids=["close with the handshake", "close after hello"])
async def test_farewell(spoken_first: bool) -> None:
    reason = b"no more sessions"
    close = struct.pack("!BBH", 0x88, 2 + len(reason), CloseCode.FINISHED) + reason

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        key = next(
            line.split(": ", 1)[1] for line in head.split("\r\n") if line.startswith("Sec-WebSocket-Key")
        )
        accept = base64.b64encode(hashlib.sha1((key + _ACCEPT_GUID).encode()).digest()).decode()
        answer = (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {SUBPROTOCOL}\r\n\r\n"
        )
        if spoken_first:
            writer.write(answer.encode() + close)  # in one segment: the client knows before it says hello
        else:
            writer.write(answer.encode())
            await reader.read(1 << 16)
            writer.write(close)
        await reader.read(1 << 16)  # the client's own close, and it is the server that hangs up
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        played = await Runtime(f"ws://127.0.0.1:{port}/v1/lanes/1", Null, name="null").run()
    assert played == 0

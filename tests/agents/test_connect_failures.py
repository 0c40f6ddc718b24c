"""What an agent says when it gets no connection: from real sockets and a real foreign server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from streamsim_agents.runtime import ConnectError, Runtime, describe_failure
from streamsim_agents.scripted import Null

SECRET = "hush"


async def failure(url: str) -> str:
    """The line of a runtime that cannot connect."""
    with pytest.raises(ConnectError) as caught:
        await Runtime(url, Null, name="null").run()
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
async def foreign() -> AsyncIterator[list[bytes]]:
    """A server that says to everybody what stands second in this list, at the port that stands first."""
    said: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said[1])
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        said.append(str(server.sockets[0].getsockname()[1]).encode())
        yield said


@pytest.mark.parametrize(
    ("response", "shown"),
    [
        (
            b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n\r\nnot you\nat",
            "the server refused: not you",
        ),
        (
            b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>",
            "the server refused: HTTP status 502: is it a streamsim server?",
        ),
        (b"220 mail is here\r\n", "expected a streamsim server at 127.0.0.1:"),
    ],
)
async def test_what_another_server_says(foreign: list[bytes], response: bytes, shown: str) -> None:
    foreign.append(response)
    line = await failure(f"ws://127.0.0.1:{foreign[0].decode()}/v1/lanes/1?token={SECRET}")
    assert line.startswith(shown)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_nobody_listens(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    line = await failure(f"ws://{host}:{port}/v1/lanes/1?token={SECRET}")
    assert line == f"no server at {host}:{port}: start one with streamsim serve"


def test_several_addresses_that_refuse_are_one_server_that_is_not_there() -> None:
    both = OSError(
        "Multiple exceptions: [Errno 111] Connect call failed ('::1', 9, 0, 0), "
        "[Errno 111] Connect call failed ('127.0.0.1', 9)"
    )
    line = describe_failure("ws://localhost:9/", both)
    assert line == "no server at localhost:9: start one with streamsim serve"


def test_an_address_that_is_none() -> None:
    line = describe_failure("ws://h:99999999/", OSError("x"))
    assert line == "cannot read the address: port out of range 0-65535"
    assert describe_failure("wss://h/", TimeoutError()) == "no answer from h:443 within 30 s"

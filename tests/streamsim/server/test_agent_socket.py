"""A connection that waits for its session is alive all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from aiohttp import web
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from streamsim.server.agent_socket import RECEIVED_WAITING, AgentSocket, ConnectionLost
from streamsim.server.app import build_app
from streamsim.server.lane import Lane
from streamsim_protocol import messages as wire

GUARD_S = 10.0


class WaitingLane:
    """A lane whose session has not been prepared yet."""

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self.socket: AgentSocket | None = None
        self.done = asyncio.Event()

    async def attach(self, socket: AgentSocket) -> None:
        self.socket = socket
        self.arrived.set()
        await self.done.wait()


@asynccontextmanager
async def waiting(lane: WaitingLane) -> AsyncIterator[tuple[ClientConnection, AgentSocket]]:
    runner = web.AppRunner(build_app([cast(Lane, lane)], token="t", host="127.0.0.1"))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    try:
        async with (
            asyncio.timeout(GUARD_S),
            connect(
                f"ws://127.0.0.1:{port}/v1/lanes/1?token=t",
                subprotocols=[Subprotocol(wire.SUBPROTOCOL)],
                compression=None,
                ping_interval=None,
                proxy=None,
            ) as client,
        ):
            await lane.arrived.wait()
            assert lane.socket is not None
            yield client, lane.socket
    finally:
        lane.done.set()
        await runner.cleanup()


async def until_received(socket: AgentSocket, count: int) -> None:
    news = asyncio.Event()
    socket.listen(news.set)
    while socket.waiting < count:
        await news.wait()
        news.clear()


async def test_pings_are_answered_before_a_session_is_taken_up() -> None:
    async with waiting(WaitingLane()) as (client, _):
        pong = await client.ping()
        assert await pong >= 0


async def test_a_client_that_leaves_while_it_waits_is_seen_to_have_gone() -> None:
    async with waiting(WaitingLane()) as (client, socket):
        assert socket.open
        await client.close()
        await until_received(socket, 1)
        assert isinstance(socket.take(), ConnectionLost)
        assert not socket.open


async def test_what_was_said_early_waits_in_order_and_a_flood_waits_in_the_kernel() -> None:
    async with waiting(WaitingLane()) as (client, socket):
        count = 3 * RECEIVED_WAITING
        for number in range(count):
            await client.send(number.to_bytes(2, "big"))
        await until_received(socket, RECEIVED_WAITING)
        for _ in range(50):
            await asyncio.sleep(0)
        assert socket.waiting == RECEIVED_WAITING
        taken = []
        for _ in range(count):
            await until_received(socket, 1)
            taken.append(socket.take())
        assert taken == [number.to_bytes(2, "big") for number in range(count)]

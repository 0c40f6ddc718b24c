"""What falls due between two looks at the clock is released all the same, though nothing else wakes us."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from streamsim.clock import make_clock
from streamsim.episodes.decoder import SampleRef
from streamsim.episodes.sampling import Sampling
from streamsim.events import AnyEvent, FrameSent, SessionEnded
from streamsim.journal.write import JournalSync, JournalWriter
from streamsim.server.agent_socket import AgentSocket
from streamsim.server.driver import SessionDriver
from streamsim.server.loop_lag import LoopLag
from streamsim.server.media import Media
from streamsim.testing import tiny_session
from streamsim_protocol import messages as wire
from streamsim_protocol.codec import decode_server_message, encode
from streamsim_protocol.states import Connection

FRAMES = 25
INTERVAL_NS = 20_000_000
READING_S = 0.003
"""So long takes one look at the slow clock: a frame often falls due in the middle of it."""
GUARD_S = 20.0

pytestmark = pytest.mark.slow


class StillMedia(Media):
    """Pictures that are all there from the start."""

    def __init__(self) -> None:
        super().__init__(Path("none"), Sampling())
        self.times_ns = tuple(k * INTERVAL_NS for k in range(FRAMES))
        self.samples = [
            SampleRef(k=k, media_ns=media_ns, size=4, digest=f"{k:064x}")
            for k, media_ns in enumerate(self.times_ns)
        ]
        self.ended = True

    def read(self, sample: SampleRef) -> bytes:
        return b"\xff\xd8\xff\xd9"


def read_slowly() -> int:
    """A clock that takes its time to tell the time."""
    time.sleep(READING_S)
    return time.monotonic_ns()


async def play_lightly(url: str) -> None:
    """Settle every frame at once."""
    order = Connection()
    async with connect(
        url, subprotocols=[Subprotocol(wire.SUBPROTOCOL)], compression=None, proxy=None
    ) as socket:

        async def say(message: wire.AgentMessage) -> None:
            await socket.send(encode(order.stamp(message)))

        await say(wire.Hello(versions=(wire.MAJOR_VERSION,), agent="light"))
        async for data in socket:
            message = decode_server_message(data)
            order.receive(message)
            if isinstance(message, wire.Welcome):
                await say(wire.Ready())
            elif isinstance(message, wire.Frame):
                await say(wire.Settled(k=message.k, outcome="processed"))
            elif isinstance(message, wire.End):
                await say(wire.Bye())


async def test_driver_wake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsim.server.driver.time", SimpleNamespace(monotonic_ns=read_slowly))
    media = StillMedia()
    events: list[AnyEvent] = []

    async def no_explanation() -> str:
        return ""

    async def handle(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=(wire.SUBPROTOCOL,), compress=False)
        await socket.prepare(request)
        journal = JournalWriter(tmp_path / "session.jsonl", JournalSync())
        with LoopLag() as loop_lag:
            driver = SessionDriver(
                tiny_session([], times_ns=media.times_ns, clock="realtime", fps=1e9 / INTERVAL_NS),
                make_clock("realtime", 1.0),
                media,
                journal,
                phase=0.0,
                loop_lag=loop_lag,
                observer=lambda at, event: events.append(event),
                explain_loss=no_explanation,
            )
            async with AgentSocket(socket).reading() as agent:
                await driver.play(agent, asyncio.get_running_loop().time() + GUARD_S)
                await agent.close(1000, "")
        journal.close()
        return socket

    app = web.Application()
    app.router.add_get("/", handle)
    async with TestServer(app, host="127.0.0.1") as server, asyncio.timeout(GUARD_S):
        await play_lightly(f"ws://127.0.0.1:{server.port}/")
    assert sum(isinstance(event, FrameSent) for event in events) == FRAMES
    assert [event.reason for event in events if isinstance(event, SessionEnded)] == ["completed"]

"""Conversations in which no time passes, against the real driver behind its real HTTP server.

Here are also those that the session core knows nothing of: no hello, no ready, a busy lane, no session.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from streamsim.clock import make_clock
from streamsim.episodes.decoder import SampleRef
from streamsim.episodes.sampling import Sampling
from streamsim.events import AnyEvent
from streamsim.journal.write import JournalSync, JournalWriter
from streamsim.server.agent_socket import AgentSocket
from streamsim.server.app import build_app
from streamsim.server.driver import SessionDriver
from streamsim.server.lane import Lane
from streamsim.server.loop_lag import LoopLag
from streamsim.server.media import Media
from streamsim_protocol import messages as wire
from tests.protocol.server_side import keep, make_samples, make_session
from tests.protocol.vectors import Act, Step, Transcript, read_transcripts

GUARD_S = 10.0
READY_TIMEOUT_S = 900.0
TIMED = (4006, 4008, 4009)


def takes_no_time(transcript: Transcript) -> bool:
    """Whether the server's half depends on no instant: what is said follows from what was said."""
    if transcript.session is None or transcript.faulty == "server":
        return False
    code = transcript.close.get("code")
    if any(isinstance(step, Act) for step in transcript.steps):
        return False  # what the agent said before is on its way, and nobody could tell when it is there
    at_once = all(step.at_ns == 0 for step in transcript.steps)
    return code not in TIMED and (transcript.session["clock"] == "lockstep" or at_once)


ALL = {transcript.name: transcript for transcript in read_transcripts()}
PLAYED = [name for name, transcript in ALL.items() if takes_no_time(transcript)]


class HeldMedia(Media):
    """The transcript's pictures, all of them there from the start."""

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(Path("none"), Sampling())
        rows = transcript.table["samples"]
        self.times_ns = tuple(row["media_ns"] for row in rows)
        self._pictures: dict[int, bytes] = {}
        for (_, sample, picture), media_ns in zip(make_samples(transcript), self.times_ns, strict=True):
            if picture is not None:
                self._pictures[sample.k] = picture
            size = None if picture is None else len(picture)
            self.samples.append(SampleRef(k=sample.k, media_ns=media_ns, size=size, digest=sample.digest))
        self.ended = True

    def read(self, sample: SampleRef) -> bytes:
        return self._pictures[sample.k]


class Stage:
    """A lane that plays one transcript to whoever connects."""

    def __init__(self, transcript: Transcript, folder: Path) -> None:
        self.session = make_session(transcript)
        self.events: list[AnyEvent] = []
        self._media = HeldMedia(transcript)
        self._folder = folder

    async def attach(self, socket: AgentSocket) -> None:
        config = self.session.config
        journal = JournalWriter(self._folder / "session.jsonl", JournalSync())
        with LoopLag() as loop_lag:
            driver = SessionDriver(
                self.session,
                make_clock(config.clock, config.rate),
                self._media,
                journal,
                phase=0.0,
                loop_lag=loop_lag,
                observer=lambda at, event: self.events.append(event),
                explain_loss=_no_explanation,
            )
            await driver.play(socket, asyncio.get_running_loop().time() + READY_TIMEOUT_S)
        journal.close()
        await socket.close(self.session.close_code, self.session.close_reason)


async def _no_explanation() -> str:
    return ""


@asynccontextmanager
async def serving(lane: object) -> AsyncIterator[str]:
    """The real application around one lane; its address."""
    runner = web.AppRunner(build_app([cast(Lane, lane)], token="t", host="127.0.0.1"))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        port = runner.addresses[0][1]
        yield f"ws://127.0.0.1:{port}/v1/lanes/1?token=t"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def dialled(url: str) -> AsyncIterator[ClientConnection]:
    async with connect(
        url,
        subprotocols=[Subprotocol(wire.SUBPROTOCOL)],
        compression=None,
        max_size=None,
        ping_interval=None,
        proxy=None,
    ) as socket:
        yield socket


async def hear(socket: ClientConnection) -> bytes | str | int:
    """The next message, or the code of the close in its place."""
    try:
        async with asyncio.timeout(GUARD_S):
            return await socket.recv()
    except ConnectionClosed:
        assert socket.close_code is not None
        return socket.close_code


def put_forward(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let so much time be over for the event loop's timers."""
    loop = asyncio.get_running_loop()
    real = loop.time
    monkeypatch.setattr(loop, "time", lambda: real() + seconds)


@pytest.mark.parametrize("name", PLAYED)
async def test_driver_plays_its_half_to_the_byte(name: str, tmp_path: Path) -> None:
    transcript = ALL[name]
    stage = Stage(transcript, tmp_path)
    async with serving(stage) as url, dialled(url) as socket:
        for index, step in enumerate(transcript.steps):
            assert isinstance(step, Step)
            if step.sender == "agent":
                await socket.send(step.data)
            else:
                assert await hear(socket) == step.data, f"step {index} ({step.tag})"
        assert await hear(socket) == transcript.close["code"]
    assert keep(stage.events) == transcript.kept


@pytest.mark.parametrize("name", ["no-hello", "no-ready"])
async def test_driver_waits_for_hello_and_ready_and_no_longer(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transcript = ALL[name]
    stage = Stage(transcript, tmp_path)
    async with serving(stage) as url, dialled(url) as socket:
        for step in transcript.steps:
            assert isinstance(step, Step)
            if step.sender == "agent":
                await socket.send(step.data)
            else:
                assert await hear(socket) == step.data
        timeout_s = transcript.close["at_ns"] / 1e9
        put_forward(monkeypatch, timeout_s - 5)
        await (await socket.ping())
        assert not stage.session.ended
        put_forward(monkeypatch, 5)
        assert await hear(socket) == transcript.close["code"]
    assert keep(stage.events) == transcript.kept


class IdleLane(Lane):
    """A lane of a run that has nothing to play."""

    def __init__(self) -> None:
        shared: Any = SimpleNamespace(jobs=deque(), stopping=False)
        super().__init__(1, shared)
        self.met = asyncio.Event()

    async def attach(self, socket: AgentSocket) -> None:
        self.met.set()
        await super().attach(socket)


async def test_lane_without_sessions_says_so() -> None:
    transcript, lane = ALL["no-more-sessions"], IdleLane()
    await lane.run()
    async with serving(lane) as url, dialled(url) as socket:
        assert await hear(socket) == transcript.close["code"] == 4000


async def test_lane_holds_one_agent() -> None:
    transcript, lane = ALL["lane-busy"], IdleLane()
    async with serving(lane) as url, dialled(url) as first:
        await lane.met.wait()
        async with dialled(url) as second:
            assert await hear(second) == transcript.close["code"] == 4004
        await lane.run()
        assert await hear(first) == 4000


def test_there_are_enough_of_them() -> None:
    """A change of the criterion must not empty these tests."""
    assert {"lockstep-session", "kinds-of-queries", "unprompted-turn", "refused-too-big"} <= set(PLAYED)
    assert len(PLAYED) >= 28

"""Slow agents: what is skipped, what waits, what is given up, and that all of it is counted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from streamsim.events import (
    ChainClosed,
    FrameSent,
    FrameSettled,
    HarnessReported,
    ProbeSent,
    SessionEnded,
    TurnStarted,
    WarningRaised,
)
from streamsim.journal.read import JournalFile
from tests.end_to_end.dataset_for_tests import write_noise
from tests.end_to_end.harness import Simulator, events_of, read_sessions

pytestmark = pytest.mark.slow

FRAME_NS = 100_000_000


RUNS: dict[str, list[object]] = {
    "latest": [*("--frames", "latest", "--agent", "fixed-delay", "--agent-arg", "frame=0.25")],
    "agent": [*("--agent", "agents_for_tests:Slow", "--agent-arg", "seconds=0.15")],
    "command": [*("--frames", "all", "--agent", "agents_for_tests:Slow", "--agent-arg", "seconds=0.15")],
    "drain": [
        *("--agent", "fixed-delay", "--agent-arg", "frame=0.3"),
        *("--answer-timeout", 0.4, "--drain-timeout", 0.5, "--hang-timeout", 0.5),
    ],
    "credit": [
        *("--credit", 1, "--agent", "fixed-delay", "--agent-arg", "stall=1", "--agent-arg", "stall_every=5")
    ],
}
"""One session each, in realtime, twenty frames in two seconds."""


Played = dict[str, tuple[dict[str, Any], JournalFile]]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, one_clip: Path) -> Played:
    """Report and journal of each of ``RUNS``; they spend their time waiting, so they wait together."""
    simulator = Simulator(tmp_path_factory.mktemp("pressure"))
    common = ("run", one_clip, "--json", "--limit", 1, "--fps", 10)
    done = simulator.call_together(*((*common, "--out", name, *options) for name, options in RUNS.items()))
    assert simulator.processes() == {}
    assert [finished.code for finished in done] == [0] * len(RUNS), [finished.err for finished in done]
    return {
        name: (finished.report, read_sessions(simulator.folder / name)["e00"])
        for name, finished in zip(RUNS, done, strict=True)
    }


def test_latest_skips_up_to_queries_and_counts(played: Played) -> None:
    report, journal = played["latest"]
    sent = [event.k for _, event in events_of(journal, FrameSent)]
    assert sent == list(range(20))
    settled = {event.k: event.outcome for _, event in events_of(journal, FrameSettled)}
    assert sorted(settled) == sent  # each frame is settled, once
    counts = Counter(settled.values())
    assert counts["skipped"] > 0
    assert counts["processed"] + counts["skipped"] == 20
    assert (report["frames"]["sent"], report["frames"]["settled"]) == (20, 20)
    assert (report["frames"]["skipped"], report["frames"]["failed"]) == (counts["skipped"], 0)
    (counted,) = (event for _, event in events_of(journal, HarnessReported))
    assert (counted.frames_sent, counted.frames_settled, counted.frames_failed) == (20, 20, 0)
    assert counted.frames_skipped == counts["skipped"]
    assert counted.frames_late == report["frames"]["late"]
    looked = [event for _, event in events_of(journal, FrameSettled) if event.outcome == "processed"]
    assert all(event.service_ns >= 250_000_000 for event in looked)
    # every query saw its newest visible frame, which was not skipped
    probes = {event.turn: event for _, event in events_of(journal, ProbeSent)}
    for _, event in events_of(journal, TurnStarted):
        newest = min(probes[event.turn].media_ns // FRAME_NS, 19)
        assert event.seen_media_ns == newest * FRAME_NS
        assert settled[newest] == "processed"


def test_policy_of_the_agent_and_of_the_command(played: Played) -> None:
    for name, skips in (("agent", True), ("command", False)):
        frames = played[name][0]["frames"]
        assert (frames["sent"], frames["settled"], frames["skipped"] > 0) == (20, 20, skips)


def test_backlog_that_outlives_the_drain_timeout(played: Played) -> None:
    report, journal = played["drain"]
    ended = journal.ended
    assert isinstance(ended, SessionEnded) and ended.reason == "completed"
    sent, settled = (len(list(events_of(journal, kind))) for kind in (FrameSent, FrameSettled))
    assert sent == 20 and ended.unsettled_frames == sent - settled > 0
    assert "drain_timeout" in [event.code for _, event in events_of(journal, WarningRaised)]
    assert any("drain_timeout" in warning for warning in report["warnings"])
    outcomes = {event.query: event.outcome for _, event in events_of(journal, ChainClosed)}
    assert outcomes["q2"] == outcomes["q3"] == outcomes["q4"] == "timed_out"


def test_slow_agent_runs_out_of_no_credit(played: Played) -> None:
    """Reception is acknowledged at once, however long the worker takes."""
    report, journal = played["credit"]
    assert [event.k for _, event in events_of(journal, FrameSent)] == list(range(20))
    assert {event.outcome for _, event in events_of(journal, FrameSettled)} == {"processed"}
    assert report["complete"] == 1


def test_picture_that_no_message_can_carry(simulator: Simulator, tmp_path: Path) -> None:
    dataset = write_noise(tmp_path / "noise")
    done = simulator.call(
        *("run", dataset, "--out", "run", "--json", "--agent", "null", "--clock", "lockstep"),
        *("--encoding", "png", "--pixel-budget", 1_000_000),
    )
    assert done.code == 1
    ended = read_sessions(simulator.folder / "run")["noise"].ended
    assert ended is not None and ended.reason == "media_failed"
    assert "lower --pixel-budget or --quality, or choose --encoding jpeg" in ended.detail

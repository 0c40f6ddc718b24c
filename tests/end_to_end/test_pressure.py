"""Slow agents: what is skipped, what waits, what is given up, and that all of it is counted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from streamsim.events import (
    ChainClosed,
    FrameSent,
    FrameSettled,
    ProbeSent,
    SessionEnded,
    TurnStarted,
    WarningRaised,
)
from tests.end_to_end.harness import Simulator, events_of, read_sessions

pytestmark = pytest.mark.slow

FRAME_NS = 100_000_000


def test_latest_skips_up_to_queries_and_counts(simulator: Simulator, one_clip: Path) -> None:
    done = simulator.call(
        *("run", one_clip, "--out", "run", "--json", "--limit", 1, "--fps", 10, "--frames", "latest"),
        *("--agent", "fixed-delay", "--agent-arg", "frame=0.25"),
    )
    assert done.code == 0, done.err
    report = done.report
    journal = read_sessions(simulator.folder / "run")["e00"]
    sent = [event.k for _, event in events_of(journal, FrameSent)]
    assert sent == list(range(20))
    settled = {event.k: event.outcome for _, event in events_of(journal, FrameSettled)}
    assert sorted(settled) == sent  # each frame is settled, once
    counts = Counter(settled.values())
    assert counts["skipped"] > 0
    assert counts["processed"] + counts["skipped"] == 20
    assert (report["frames"]["sent"], report["frames"]["settled"]) == (20, 20)
    assert (report["frames"]["skipped"], report["frames"]["failed"]) == (counts["skipped"], 0)
    # at least a quarter of a second lies between two frames that were looked at
    looked = [event for _, event in events_of(journal, FrameSettled) if event.outcome == "processed"]
    assert all(event.service_ns >= 250_000_000 for event in looked)
    # every query saw its newest visible frame, which was not skipped
    probes = {event.turn: event for _, event in events_of(journal, ProbeSent)}
    for _, event in events_of(journal, TurnStarted):
        media_ns = probes[event.turn].media_ns
        newest = max(k for k in sent if k * FRAME_NS <= media_ns + 1_000)
        assert event.seen_media_ns == newest * FRAME_NS
        assert settled[newest] == "processed"
    # lag stays below what `all` would pile up: 20 frames of 0.25 s
    waits = [event.waited_ns for _, event in events_of(journal, FrameSettled)]
    assert max(waits) < 20 * 250_000_000


def test_policy_of_the_agent_and_of_the_command(simulator: Simulator, one_clip: Path) -> None:
    for name, options, skips in (("agent", [], True), ("command", ["--frames", "all"], False)):
        done = simulator.call(
            *("run", one_clip, "--out", name, "--json", "--limit", 1, "--fps", 10, *options),
            *("--agent", "agents_for_tests:Slow", "--agent-arg", "seconds=0.15"),
        )
        assert done.code == 0, done.err
        frames = done.report["frames"]
        assert (frames["sent"], frames["settled"], frames["skipped"] > 0) == (20, 20, skips)


def test_backlog_that_outlives_the_drain_timeout(simulator: Simulator, one_clip: Path) -> None:
    done = simulator.call(
        *("run", one_clip, "--out", "run", "--json", "--limit", 1, "--fps", 10),
        *("--agent", "fixed-delay", "--agent-arg", "frame=0.3", "--agent-arg", "stall=0"),
        *("--answer-timeout", 0.4, "--drain-timeout", 0.5, "--hang-timeout", 0.5),
    )
    assert done.code == 0, done.err
    assert simulator.processes() == {}
    journal = read_sessions(simulator.folder / "run")["e00"]
    ended = journal.ended
    assert isinstance(ended, SessionEnded) and ended.reason == "completed"
    sent, settled = (len(list(events_of(journal, kind))) for kind in (FrameSent, FrameSettled))
    assert sent == 20 and ended.unsettled_frames == sent - settled > 0
    assert "drain_timeout" in [event.code for _, event in events_of(journal, WarningRaised)]
    assert any("drain_timeout" in warning for warning in done.report["warnings"])
    outcomes = {event.query: event.outcome for _, event in events_of(journal, ChainClosed)}
    assert outcomes["q2"] == outcomes["q3"] == outcomes["q4"] == "timed_out"


def test_slow_agent_runs_out_of_no_credit(simulator: Simulator, one_clip: Path) -> None:
    """Reception is acknowledged at once, however long the worker takes."""
    done = simulator.call(
        *("run", one_clip, "--out", "run", "--json", "--limit", 1, "--fps", 10, "--credit", 1),
        *("--agent", "fixed-delay", "--agent-arg", "stall=1", "--agent-arg", "stall_every=5"),
    )
    assert done.code == 0, done.err
    journal = read_sessions(simulator.folder / "run")["e00"]
    assert [event.k for _, event in events_of(journal, FrameSent)] == list(range(20))
    assert {event.outcome for _, event in events_of(journal, FrameSettled)} == {"processed"}


def test_picture_that_no_message_can_carry(simulator: Simulator, tmp_path: Path) -> None:
    from tests.end_to_end.dataset_for_tests import write_noise

    dataset = write_noise(tmp_path / "noise")
    done = simulator.call(
        *("run", dataset, "--out", "run", "--json", "--agent", "null", "--clock", "lockstep"),
        *("--encoding", "png", "--pixel-budget", 1_000_000),
    )
    assert done.code == 1
    ended = read_sessions(simulator.folder / "run")["noise"].ended
    assert ended is not None and ended.reason == "media_failed"
    assert "lower --pixel-budget or --quality, or choose --encoding jpeg" in ended.detail

"""What makes a run DEGRADED or INVALID, and what does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from streamsim.events import (
    AnyEvent,
    FrameSent,
    FrameSettled,
    HarnessReported,
    Instant,
    SessionEnded,
    WarningRaised,
)
from streamsim.scoring.harness import harness_figures
from streamsim.scoring.record import SessionRecord, read_record
from streamsim.scoring.verdict import Verdict, judge
from streamsim.simulation import SimulatedAgent, Utterance, say
from streamsim.testing import seconds, tiny_query, tiny_simulation

MS = 1_000_000
Events = list[tuple[Instant, AnyEvent]]


def play(agent: SimulatedAgent | None = None, **options: Any) -> Events:
    """A session of 20 frames and two queries."""
    agent = agent or SimulatedAgent(observe=lambda k: 10 * MS, answer=lambda probe: say("A", 20 * MS))
    queries = [tiny_query("one", 1.0), tiny_query("two", 2.5)]
    options = {"samples": 20, "audited": False, **options}
    return tiny_simulation(queries, agent, **options).run().events


def record_of(events: Events) -> SessionRecord:
    record = read_record(events)
    assert record is not None
    return record


def verdict_of(*sessions: Events, planned: int | None = None, unplayed: Sequence[str] = ()) -> Verdict:
    records = [record_of(events) for events in sessions]
    return judge(records, planned=len(records) if planned is None else planned, unplayed=unplayed)


def with_report(events: Events, **report: Any) -> Events:
    """The same session with a word about the harness before its end."""
    values = {"watched_ns": seconds(20), "server_lag_p99_ns": 0, "server_lag_max_ns": 0, **report}
    *rest, last = events
    return [*rest, (last[0], HarnessReported(**values)), last]


def test_a_quiet_run_is_valid() -> None:
    quiet = with_report(
        play(), server_lag_p99_ns=49 * MS, agent_lag_p99_ns=99 * MS, agent_lag_max_ns=seconds(2)
    )
    assert verdict_of(quiet) == Verdict(grade="VALID", reasons=(), hints=())


@pytest.mark.parametrize(
    "agent",
    [
        SimulatedAgent(observe=lambda k: seconds(3), answer=lambda probe: say("?", seconds(9))),
        SimulatedAgent(observe=lambda k: 0, answer=lambda probe: Utterance(service_ns=1, error="trace")),
        SimulatedAgent(observe=lambda k: 0, answer=lambda probe: say("A", 1), failing=range(20)),
        SimulatedAgent(observe=lambda k: 0, answer=lambda probe: Utterance(service_ns=None)),
    ],
    ids=["slow", "raising", "blind", "hung"],
)
def test_an_agents_faults_make_no_run_invalid(agent: SimulatedAgent) -> None:
    assert verdict_of(play(agent)).grade == "VALID"


def test_an_early_release_is_invalid() -> None:
    events = play()
    index = next(i for i, (_, event) in enumerate(events) if isinstance(event, FrameSent) and event.k == 5)
    at, frame = events[index]
    assert isinstance(frame, FrameSent)
    events[index] = (at, msgspec.structs.replace(frame, media_ns=frame.media_ns + 1))
    verdict = verdict_of(events)
    assert verdict.grade == "INVALID"
    assert verdict.reasons == ("1 release before due",)


@pytest.mark.parametrize(("late", "grade"), [(0, "VALID"), (1, "DEGRADED"), (2, "INVALID")])
def test_late_releases_count_by_their_share(late: int, grade: str) -> None:
    """One of 22 releases is 4.5 %, two are 9 %."""
    events = play()
    moved: Events = []
    for at, event in events:
        if isinstance(event, FrameSent) and event.k >= 20 - late:
            assert event.due_wall_ns is not None
            event = msgspec.structs.replace(event, due_wall_ns=event.due_wall_ns - 51 * MS)
        moved.append((at, event))
    verdict = verdict_of(moved)
    assert verdict.grade == grade
    if late:
        assert verdict.reasons[0].startswith(f"{late} of 22 releases more than 50 ms late")
        assert len(verdict.hints) == 1


def test_waiting_for_the_agent_to_receive_is_not_the_harnesss() -> None:
    """A window of two frames, each acknowledged 3.5 s later: everything is late, and nothing is ours."""
    events = play(credit=2, to_server_ns=seconds(3.5), credit_timeout_ns=seconds(600))
    record = record_of(events)
    late = [release for release in record.releases if release.late_ns > 50 * MS]
    assert len(late) > 15
    assert {release.held_by for release in late} == {"credit"}
    assert not any("late" in reason for reason in judge([record], planned=1).reasons)
    assert harness_figures([record])["held_by_credit"] == len(late)


def test_a_slow_decoder_counts_in_realtime_and_is_waited_for_in_skip() -> None:
    def decoded(k: int) -> int:
        return 0 if k < 10 else seconds(10.5)

    realtime = verdict_of(play(decoded_ns=decoded))
    assert realtime.grade == "DEGRADED"
    assert any("the decoder was behind: 1 release waited" in reason for reason in realtime.reasons)
    in_skip = record_of(play(decoded_ns=decoded, clock="skip"))
    assert in_skip.decoder_hold_ns > seconds(9)
    assert judge([in_skip], planned=1).grade == "VALID"


@pytest.mark.parametrize(
    ("report", "grade", "reason"),
    [
        ({"server_lag_p99_ns": 51 * MS}, "DEGRADED", "the server's event loop lagged by 51 ms"),
        ({"server_lag_p99_ns": 501 * MS}, "INVALID", "the server's event loop lagged by 501 ms"),
        (
            {"agent_lag_p99_ns": 101 * MS},
            "DEGRADED",
            "the event loop of the agent's runtime lagged by 101 ms",
        ),
        ({"damaged_pictures": 3}, "DEGRADED", "3 damaged pictures in 1 video, the first in episode"),
    ],
)
def test_what_the_harness_reports(report: dict[str, int], grade: str, reason: str) -> None:
    verdict = verdict_of(with_report(play(), **report))
    assert verdict.grade == grade
    assert len(verdict.reasons) == len(verdict.hints) == 1
    assert verdict.reasons[0].startswith(reason)


def test_in_lockstep_only_what_is_seen_counts() -> None:
    lockstep = with_report(play(clock="lockstep"), server_lag_p99_ns=seconds(2), agent_lag_p99_ns=seconds(2))
    assert verdict_of(lockstep).grade == "VALID"
    damaged = with_report(play(clock="lockstep"), damaged_pictures=1)
    assert verdict_of(damaged).grade == "DEGRADED"


def test_a_slow_link_is_named() -> None:
    assert verdict_of(play(to_agent_ns=24 * MS, to_server_ns=24 * MS)).grade == "VALID"
    far = verdict_of(play(to_agent_ns=30 * MS, to_server_ns=30 * MS))
    assert far.grade == "DEGRADED"
    assert far.reasons == ("half of the probes spent more than 60 ms on their way to the agent and back",)


def test_durations_longer_than_the_interval_around_them_are_another_clocks() -> None:
    events = play()
    index = next(i for i, (_, event) in enumerate(events) if isinstance(event, FrameSettled) and event.k == 4)
    at, settled = events[index]
    assert isinstance(settled, FrameSettled)
    # 10 ms between sent and settled; a drift of 1 ms and 0.1 % is let pass
    for service_ns, grade in ((11 * MS, "VALID"), (11 * MS + 20_000, "INVALID")):
        events[index] = (at, msgspec.structs.replace(settled, service_ns=service_ns))
        assert verdict_of(events).grade == grade
    assert "1 duration of the agent's longer than the server's interval" in verdict_of(events).reasons[0]


def test_instants_against_the_pair_are_invalid() -> None:
    events = play()
    at, event = events[30]
    events[30] = (Instant(at.wall_ns + 5, at.media_ns), event)
    verdict = verdict_of(events)
    assert verdict.grade == "INVALID"
    assert verdict.reasons[0].startswith("1 contradiction to the session's clock, the first in episode")


def test_sessions_under_different_clocks_are_no_run() -> None:
    verdict = verdict_of(play(), play(clock="lockstep"))
    assert verdict.grade == "INVALID"
    assert verdict.reasons == ("sessions under different clocks: lockstep, realtime",)


@pytest.mark.parametrize(
    ("code", "one", "two"),
    [
        ("lockstep_timeout", "1 answer ran into", "2 answers ran into"),
        ("drain_timeout", "1 session cut off by", "2 sessions cut off by"),
    ],
)
def test_guards_that_fired_mark_the_run(code: str, one: str, two: str) -> None:
    events = play(clock="lockstep")
    for said in (one, two):
        events.insert(-1, (events[-1][0], WarningRaised(code=code, detail="")))
        verdict = verdict_of(events)
        assert verdict.grade == "DEGRADED" and verdict.reasons[0].startswith(said)


def test_many_that_were_not_played_are_counted_and_some_named() -> None:
    verdict = verdict_of(play(), planned=11, unplayed=[f"e{number}" for number in range(10)])
    (reason,) = verdict.reasons
    assert reason.startswith("10 of 11 sessions not played to the end: e0 (not played), e1 (not played), ")
    assert reason.endswith(", e7 (not played), and 2 more")


def test_what_was_not_played_to_its_end() -> None:
    whole = play()
    killed = whole[:-1]
    *rest, (at, _) = play()
    interrupted: Events = [*rest, (at, SessionEnded(reason="interrupted"))]
    hung: Events = [*rest, (at, SessionEnded(reason="hung"))]
    assert verdict_of(whole, planned=1).grade == "VALID"
    assert verdict_of(whole, hung, planned=2).grade == "VALID"  # the agent's own end
    names = {"episode (no end: the server was killed)": [killed], "episode (interrupted)": [interrupted]}
    for name, sessions in {**names, "b (not played)": []}.items():
        verdict = verdict_of(whole, *sessions, planned=2, unplayed=["b"] if not sessions else [])
        assert verdict.grade == "DEGRADED"
        assert verdict.reasons == (f"1 of 2 sessions not played to the end: {name}",)

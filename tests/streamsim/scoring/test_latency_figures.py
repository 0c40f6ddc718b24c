"""Latency of simulated sessions, whose every duration is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsim.events import ClockTaken, Instant, ProbeSent, TextReceived, TurnEnded
from streamsim.scoring.harness import agent_figures, harness_figures
from streamsim.scoring.latency import latency_figures, slope, withhold_latency
from streamsim.scoring.record import ProbeTiming, SessionRecord, read_record
from streamsim.simulation import SimulatedAgent, Simulation, Utterance, say
from streamsim.testing import seconds, tiny_query, tiny_simulation
from streamsim_protocol import messages as wire

MS = 1_000_000


def record_of(simulation: Simulation) -> SessionRecord:
    record = read_record(simulation.run().events)
    assert record is not None
    return record


def simulate(answer_ms: float = 200, frame_ms: float = 100, **options: Any) -> SessionRecord:
    """Five frames, q1 at 1.0 s and q2 at 2.5 s, both known; 3 ms to the agent, 2 ms back."""
    agent = SimulatedAgent(
        observe=lambda k: round(frame_ms * MS),
        answer=lambda probe: Utterance(
            service_ns=round(answer_ms * MS),
            pieces=((round(answer_ms * MS) // 2, "A"), (round(answer_ms * MS), "")),
        ),
    )
    queries = options.pop("queries", [tiny_query("one", 1.0), tiny_query("two", 2.5)])
    options = {"samples": 5, "to_agent_ns": 3 * MS, "to_server_ns": 2 * MS, **options}
    return record_of(tiny_simulation(queries, agent, **options))


def figures_of(*records: SessionRecord, **options: Any) -> Any:
    return latency_figures(records, **options)


def test_stamps_and_parts_of_one_probe() -> None:
    one = simulate().probes[0]
    assert (one.query, one.probe) == ("q1", "task")
    # due and sent at 1.0 s; received 1.003; F1 (sent 1.0, received 1.003) is observed until 1.103
    assert one.due == one.sent == Instant(seconds(1), seconds(1))
    assert one.delivered == Instant(1_005 * MS, 1_005 * MS)
    assert one.started == Instant(1_105 * MS, 1_105 * MS)
    assert one.texts == [Instant(1_205 * MS, 1_205 * MS), Instant(1_305 * MS, 1_305 * MS)]
    assert one.final == Instant(1_305 * MS, 1_305 * MS)
    assert (one.waited_ns, one.service_ns, one.first_text_ns) == (100 * MS, 200 * MS, 100 * MS)
    assert (one.seen_media_ns, one.backlog) == (seconds(1), 0)
    parts = one.parts()
    assert parts is not None
    assert (parts.dispatch_ns, parts.delivery_ns, parts.queue_ns, parts.service_ns) == (
        0,
        5 * MS,
        100 * MS,
        200 * MS,
    )
    assert (parts.transport_ns, parts.waited_ns, parts.agent_service_ns, parts.held_ns) == (
        5 * MS,
        100 * MS,
        200 * MS,
        0,
    )
    first = one.first_parts()
    assert first is not None
    assert (first.total_ns, first.transport_ns, first.agent_service_ns) == (205 * MS, 5 * MS, 100 * MS)


def test_headline_counts_from_due_and_tells_probes_apart() -> None:
    figures = figures_of(simulate())
    assert list(figures) == ["task", "status"]
    task = figures["task"]
    assert (task["n"], task["timed_out"], task["failed"]) == (2, 0, 0)
    # q2 at 2.5 s has nothing to wait for: 205 ms; q1 waits for its frame: 305 ms
    assert (task["due_to_final"]["p50"], task["due_to_final"]["max"]) == (0.205, 0.305)
    assert (task["due_to_first"]["p50"], task["due_to_first"]["max"]) == (0.105, 0.205)
    assert task["sent_to_final"]["max"] == 0.305
    assert figures["status"]["due_to_final"]["max"] == 0.205
    assert task["parts"]["transport"]["p50"] == 0.005
    assert task["staleness"]["max"] == pytest.approx(0.705)  # 2.5 + 0.205 - frame 2
    assert task["delta_gap"]["n"] == 2 and task["delta_gap"]["max"] == 0.1
    assert task["due_to_final"]["origin"] == "due to final, server's wall clock"


def all_dicts(value: object) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        return [value, *(inner for part in value.values() for inner in all_dicts(part))]
    if isinstance(value, list):
        return [inner for part in value for inner in all_dicts(part)]
    return []


def test_every_figure_names_its_origin() -> None:
    record = simulate()
    told = (
        all_dicts(figures_of(record))
        + all_dicts(harness_figures([record]))
        + all_dicts(agent_figures([record]))
    )
    spreads = [figures for figures in told if "p50" in figures and "from_s" not in figures]
    assert len(spreads) > 20
    assert all(isinstance(figures.get("origin"), str) for figures in spreads)


def test_unanswered_probes_stay_in_n() -> None:
    record = simulate(
        answer_ms=3_000, chain="task", answer_timeout_ns=seconds(2), queries=[tiny_query("one", 1.0)]
    )
    task = figures_of(record, deadlines_s=(1.5, 60.0))["task"]
    assert (task["n"], task["timed_out"], task["failed"]) == (1, 1, 0)
    assert task["due_to_final"]["p50"] == 2.0 and "p50" in task["due_to_final"]["at_least"]
    # text came before the end did: the first is measured, the final is not
    assert task["due_to_first"]["p50"] == pytest.approx(1.605)
    assert task["missed"] == [
        {"deadline_s": 1.5, "n": 1, "share": 1.0},
        {"deadline_s": 60.0, "n": 1, "share": 1.0},  # it never came, whatever one would have waited
    ]


def test_a_raised_answer_counts_as_longer_than_all() -> None:
    agent = SimulatedAgent(
        observe=lambda k: 0,
        answer=lambda probe: (
            Utterance(service_ns=MS, error="Traceback") if probe.query == "q1" else say("A", MS)
        ),
    )
    record = record_of(tiny_simulation([tiny_query("one", 1.0), tiny_query("two", 2.5)], agent, chain="task"))
    task = figures_of(record)["task"]
    assert (task["n"], task["failed"]) == (2, 1)
    assert task["due_to_final"]["max"] is None and "max" in task["due_to_final"]["at_least"]
    assert task["due_to_final"]["p50"] == 0.001


def test_what_the_runs_end_cancelled_is_left_out() -> None:
    agent = SimulatedAgent(observe=lambda k: 0, answer=lambda probe: say("A", seconds(60)))
    simulation = tiny_simulation([tiny_query("one", 1.0)], agent)
    simulation.schedule(seconds(2), lambda session, now: session.interrupt(now))
    assert figures_of(record_of(simulation)) == {}


def test_deadlines_backlog_and_load_of_a_slow_agent() -> None:
    record = simulate(frame_ms=1_500, chain="task")
    one, two = record.probes
    # frames 0 and 1 are observed until 3.003 (F0 came 0.003); q1 starts then: 2.003 s after it was due
    assert one.started == Instant(3_005 * MS, 3_005 * MS) and one.backlog == 2
    task = figures_of(record, deadlines_s=(2.2, 2.3))["task"]
    # q1 ends at 3.203, its chain's close is there at 3.208; F2 takes until 4.708, then q2 starts
    assert two.started == Instant(4_710 * MS, 4_710 * MS) and two.backlog == 2
    assert [missed["n"] for missed in task["missed"]] == [2, 1]
    assert task["backlog"] == {"origin": task["backlog"]["origin"], "n": 2, "p50": 2.0, "max": 2}
    load = agent_figures([record])
    assert load["media"] == 5.0
    assert load["busy"] == pytest.approx(5 * 1.5 + 2 * 0.2)
    assert load["real_time_factor"] == pytest.approx(7.9 / 5)


def test_skip_tells_media_time_without_the_decoders_holds() -> None:
    in_skip = simulate(
        clock="skip", queries=[tiny_query("one", 2.0)], decoded_ns=lambda k: 0 if k < 2 else 4_000 * MS
    )
    realtime = simulate(queries=[tiny_query("one", 2.0)])
    assert in_skip.decoder_hold_ns > seconds(2)
    spans = ("due_to_first", "due_to_final", "sent_to_first", "sent_to_final")
    for span in spans:
        told = figures_of(in_skip)["task"][span]
        assert told["p50"] == figures_of(realtime)["task"][span]["p50"]
        assert told["origin"].endswith("server's media clock (skip)")


def test_a_hold_during_a_turn_is_kept_apart() -> None:
    """Frame 2 is due while q1 is answered, and its picture comes a second late."""
    record = simulate(
        answer_ms=1_500,
        clock="skip",
        chain="task",
        queries=[tiny_query("one", 1.0)],
        decoded_ns=lambda k: 0 if k < 2 else 2_100 * MS,
    )
    one = record.probes[0]
    parts = one.parts()
    assert parts is not None and one.final is not None
    assert parts.held_ns > 0
    assert parts.total_ns + parts.held_ns == one.final.wall_ns - one.due.wall_ns
    assert parts.transport_ns == 5 * MS


def test_latency_is_withheld_where_it_would_mislead() -> None:
    assert withhold_latency("realtime", 8) is None
    assert withhold_latency("skip", 1) is None
    assert "2 sessions" in (withhold_latency("skip", 2) or "")
    assert withhold_latency("lockstep", 1) is not None
    assert withhold_latency("scaled", 1) is not None


def test_repeats_are_combined_with_their_spread() -> None:
    records = [simulate(answer_ms=answer_ms, repeat=repeat) for repeat, answer_ms in ((1, 200), (2, 260))]
    task = figures_of(*records)["task"]
    assert task["n"] == 4
    assert [(run["repeat"], run["n"], run["p50"]) for run in task["repeats"]["runs"]] == [
        (1, 2, 0.205),
        (2, 2, 0.265),
    ]
    assert task["repeats"]["p50_spread"] == pytest.approx(0.06)
    assert figures_of(records[0])["task"]["repeats"] is None


def test_slope_is_the_median_of_pairs_within_sessions() -> None:
    steady = [(60.0 * k, 0.5) for k in range(20)]
    slower = [(60.0 * k, 0.5 + k / 60) for k in range(20)]  # 1/60 s more every minute: 1 s an hour
    assert slope([steady]) == 0.0
    assert slope([slower]) == pytest.approx(1.0)
    outlier = [*slower[:-1], (slower[-1][0], 1e9)]
    assert slope([outlier]) == pytest.approx(1.0)
    # another session's level says nothing about age
    assert slope([slower, [(age, value + 100) for age, value in slower]]) == pytest.approx(1.0)
    assert slope([slower[:10]]) is None  # ten points
    assert slope([[(k, 1.0) for k in range(60)]]) is None  # one minute
    long = [(float(k), 0.1 + k / 36_000) for k in range(1_000)]  # drawn together: 0.1 s an hour
    assert slope([long]) == pytest.approx(0.1)


def test_bins_of_age_are_fixed() -> None:
    agent = SimulatedAgent(observe=lambda k: 0, answer=lambda probe: say("A", 10 * MS))
    queries = [tiny_query(f"q{at}", at) for at in (0.0, 59.9, 60.0, 310.0)]
    record = record_of(tiny_simulation(queries, agent, samples=320, chain="task", audited=False))
    bins = figures_of(record)["task"]["age"]["bins"]
    assert [(part["from_s"], part["to_s"], part["n"]) for part in bins] == [
        (0, 60, 2),
        (60, 300, 1),
        (300, 900, 1),
    ]


def test_marks_are_told_by_name() -> None:
    simulation = tiny_simulation(
        [tiny_query("one", 1.0)],
        SimulatedAgent(observe=lambda k: 0, answer=lambda probe: say("A", 30 * MS)),
        chain="task",
    ).run()
    events: list[Any] = []
    for at, event in simulation.events:
        if isinstance(event, TurnEnded):
            events.append((at, _with_marks(event, {"encode": 10 * MS})))
        else:
            events.append((at, event))
    record = read_record(events)
    assert record is not None
    assert figures_of(record)["task"]["marks"]["encode"]["p50"] == 0.01


def _with_marks(event: TurnEnded, marks: dict[str, int]) -> TurnEnded:
    return TurnEnded(
        turn=event.turn,
        reason=event.reason,
        service_ns=event.service_ns,
        first_text_ns=event.first_text_ns,
        marks=marks,
    )


# -------------------------------------------------------------------------------- parts add up exactly


instants = st.builds(Instant, st.integers(0, 10**12), st.integers(0, 10**12))
durations = st.integers(0, 10**12)


@given(
    stamps=st.lists(instants, min_size=5, max_size=5),
    texts=st.lists(instants, max_size=3),
    clock=st.sampled_from(["realtime", "skip"]),
    waited_ns=durations,
    service_ns=durations,
    first_text_ns=durations,
)
def test_parts_add_up_whatever_the_clocks_say(
    stamps: Sequence[Instant],
    texts: list[Instant],
    clock: wire.ClockMode,
    waited_ns: int,
    service_ns: int,
    first_text_ns: int,
) -> None:
    """Also for durations of a clock that has nothing to do with ours: nothing is clamped."""
    due, sent, delivered, started, final = stamps
    timing = ProbeTiming(
        episode="e",
        repeat=1,
        query="q1",
        probe="task",
        clock=clock,
        due=due,
        sent=sent,
        delivered=delivered,
        started=started,
        texts=texts,
        final=final,
        waited_ns=waited_ns,
        service_ns=service_ns,
        first_text_ns=first_text_ns,
    )
    for parts, end in ((timing.parts(), final), (timing.first_parts(), texts[0] if texts else None)):
        if end is None:
            assert parts is None
            continue
        assert parts is not None
        total_ns = timing.read(end) - timing.read(due)
        assert parts.total_ns == total_ns
        assert parts.dispatch_ns + parts.delivery_ns + parts.queue_ns + parts.service_ns == total_ns
        assert (
            parts.dispatch_ns + parts.transport_ns + parts.waited_ns + parts.agent_service_ns - parts.held_ns
            == total_ns
        )


@given(
    clock=st.sampled_from(["realtime", "skip"]),
    frame_ms=st.integers(0, 2_500),
    answer_ms=st.integers(0, 2_500),
    to_agent_ns=st.integers(0, 50 * MS),
    to_server_ns=st.integers(0, 50 * MS),
    decoded_ms=st.integers(0, 3_000),
)
@settings(max_examples=60, deadline=None)
def test_transport_is_the_way_there_and_back(
    clock: wire.ClockMode, frame_ms: int, answer_ms: int, to_agent_ns: int, to_server_ns: int, decoded_ms: int
) -> None:
    record = simulate(
        answer_ms=answer_ms,
        frame_ms=frame_ms,
        clock=clock,
        to_agent_ns=to_agent_ns,
        to_server_ns=to_server_ns,
        decoded_ns=lambda k: k * decoded_ms * MS,
        audited=False,
    )
    answered = [parts for probe in record.probes if (parts := probe.parts()) is not None]
    assert answered
    assert {parts.transport_ns for parts in answered} == {to_agent_ns + to_server_ns}
    settled = [frame.transport_ns for frame in record.frames if frame.settled is not None]
    assert set(settled) == {to_agent_ns + to_server_ns}
    assert record.early == 0 and record.disagreements == []


def test_events_of_other_kinds_are_what_they_were() -> None:
    """The record's stamps are those of the journal, none made up."""
    simulation = tiny_simulation(
        [tiny_query("one", 1.0)], SimulatedAgent(observe=lambda k: MS, answer=lambda probe: say("A", MS))
    ).run()
    record = read_record(simulation.events)
    assert record is not None
    stamps = {
        at for at, event in simulation.events if isinstance(event, ProbeSent | TextReceived | TurnEnded)
    }
    told = {stamp for probe in record.probes for stamp in (probe.sent, probe.final, *probe.texts)}
    assert told == stamps
    assert not any(
        isinstance(event, ClockTaken) and event.reason != "start" for _, event in simulation.events
    )

"""A session that is played again must be the session that another machine would have had.

The independent side is the simulation itself, run with the other machine's service times.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from random import Random

import msgspec
import pytest

from streamsim.events import (
    AnyEvent,
    ChainClosed,
    FrameSent,
    FrameSettled,
    Instant,
    ProbeSent,
    SessionEnded,
    TextReceived,
    TurnClosed,
    TurnEnded,
    TurnStarted,
)
from streamsim.prompts import load_prompts
from streamsim.scoring.record import read_record
from streamsim.scoring.rescore import (
    Change,
    Rescored,
    ServiceProfile,
    make_pool,
    read_recorded,
    rescore_session,
)
from streamsim.testing import SimulatedAgent, Simulation, Utterance, seconds, tiny_query, tiny_simulation
from streamsim_protocol import messages as wire

WORDS: dict[wire.Probe, str] = {"task": "B", "status": "C", "cause": "A, D"}
QUERIES = [tiny_query("a", 2.0), tiny_query("b", 2.0), tiny_query("c", 5.5), tiny_query("d", 9.0)]
KEPT = (
    FrameSent,
    FrameSettled,
    ProbeSent,
    TurnStarted,
    TextReceived,
    TurnEnded,
    TurnClosed,
    ChainClosed,
    SessionEnded,
)


def work(
    seed: int, factor: Fraction
) -> tuple[Callable[[int], int], Callable[[wire.ProbeMessage], Utterance]]:
    """An agent of uneven speed: service times drawn by what they are for, then scaled."""

    def observe(k: int) -> int:
        return round(Random(f"{seed}:{k}").randrange(seconds(0.05), seconds(0.9)) * factor)

    def answer(probe: wire.ProbeMessage) -> Utterance:
        drawn = Random(f"{seed}:{probe.query}:{probe.probe}").randrange(seconds(0.1), seconds(1.5))
        first, total = round(drawn // 2 * factor), round(drawn * factor)
        return Utterance(service_ns=total, pieces=((first, WORDS[probe.probe]), (total, " ")))

    return observe, answer


def simulate(seed: int, factor: Fraction, frames: wire.FramePolicy, **changes: object) -> Simulation:
    observe, answer = work(seed, factor)
    agent = SimulatedAgent(observe=observe, answer=answer, frames=frames)
    return tiny_simulation(QUERIES, agent, samples=12, **changes).run()  # type: ignore[arg-type]


def rescore(events: list[tuple[Instant, AnyEvent]], change: Change) -> Rescored:
    recorded = read_recorded(events)
    assert recorded is not None
    return rescore_session(
        recorded, make_pool([recorded]), change, load_prompts(), credit_timeout_ns=seconds(60)
    )


def kept(events: list[tuple[Instant, AnyEvent]]) -> list[tuple[int, str, object]]:
    """What happened when, without the recorded words and the stamps that follow from them."""
    story: list[tuple[int, str, object]] = []
    for at, event in events:
        if not isinstance(event, KEPT):
            continue
        what: object = None
        match event:
            case FrameSent():
                what = event.k
            case FrameSettled():
                what = (event.k, event.outcome, event.waited_ns, event.service_ns)
            case ProbeSent():
                what = (event.query, event.probe, event.due_wall_ns)
            case TurnStarted():
                what = (event.turn, event.seen_media_ns, event.waited_ns)
            case TurnEnded():
                what = (event.turn, event.reason, event.service_ns, event.first_text_ns)
            case TurnClosed():
                what = (event.turn, event.reason)
            case ChainClosed():
                what = (event.query, event.outcome)
            case SessionEnded():
                what = event.reason
            case _:
                pass
        story.append((at.wall_ns, type(event).__name__, what))
    return story


@pytest.mark.parametrize("frames", ["all", "latest"])
@pytest.mark.parametrize("factor", [Fraction(1), Fraction(1, 2), Fraction(2), Fraction(3, 10)])
def test_another_compute_factor_is_what_another_machine_gives(
    frames: wire.FramePolicy, factor: Fraction
) -> None:
    for seed in range(5):
        recorded = simulate(seed, Fraction(1), "all")
        rescored = rescore(recorded.events, Change(factor=factor, frames=frames))
        assert kept(rescored.events) == kept(simulate(seed, factor, frames).events)
        assert rescored.drawn_frames == rescored.drawn_probes == rescored.censored == 0


def test_a_skip_run_gives_its_own_order_and_media_stamps() -> None:
    recorded = simulate(3, Fraction(1, 4), "all", clock="skip")
    rescored = rescore(recorded.events, Change())
    media = [(at.media_ns, type(event).__name__) for at, event in recorded.events if isinstance(event, KEPT)]
    again = [(at.media_ns, type(event).__name__) for at, event in rescored.events if isinstance(event, KEPT)]
    assert media == again


def test_what_the_harness_took_does_not_scale() -> None:
    delays = {"to_agent_ns": seconds(0.02), "to_server_ns": seconds(0.02)}
    recorded = simulate(1, Fraction(1), "all", **delays)
    rescored = rescore(recorded.events, Change(factor=Fraction(1, 2)))
    expected = simulate(1, Fraction(1, 2), "all", **delays)
    stamps = [story[:2] for story in kept(rescored.events)]
    assert stamps[:-1] == [story[:2] for story in kept(expected.events)][:-1]  # the bye is no latency


LATE_NS, GAP_NS = seconds(0.005), seconds(0.003)


def record_harness() -> list[tuple[Instant, AnyEvent]]:
    """A session whose probes went out 5 ms late, and whose worker, though free, hesitated for 3 ms.

    The simulation knows neither: a way that is longer and work that is longer are told as what they were.
    """

    def answer(probe: wire.ProbeMessage) -> Utterance:
        return Utterance(service_ns=GAP_NS + seconds(0.01), pieces=((GAP_NS + seconds(0.004), "A"),))

    def way(message: wire.ServerMessage) -> int:
        return seconds(0.02) + LATE_NS * isinstance(message, wire.ProbeMessage)

    agent = SimulatedAgent(observe=lambda k: seconds(0.1), answer=answer)
    played = tiny_simulation(
        [tiny_query("a", 1.5), tiny_query("b", 2.5)],
        agent,
        samples=4,
        chain="task",
        to_agent_ns=way,  # type: ignore[arg-type]
        to_server_ns=seconds(0.02),
    ).run()
    told: list[tuple[Instant, AnyEvent]] = []
    for at, event in played.events:
        match event:
            case ProbeSent():
                told.append((Instant(at.media_ns + LATE_NS, at.wall_ns + LATE_NS), event))
            case TurnStarted():
                later = Instant(at.media_ns + GAP_NS, at.wall_ns + GAP_NS)
                told.append((later, msgspec.structs.replace(event, waited_ns=event.waited_ns + GAP_NS)))
            case TurnEnded(first_text_ns=int(first_ns)):
                service_ns, first_ns = event.service_ns - GAP_NS, first_ns - GAP_NS
                ended = msgspec.structs.replace(event, service_ns=service_ns, first_text_ns=first_ns)
                told.append((at, ended))
            case _:
                told.append((at, event))
    return told


@pytest.mark.parametrize("factor", [Fraction(1), Fraction(1, 2), Fraction(1, 1000), Fraction(3)])
def test_what_the_harness_took_stays_where_it_was_recorded(factor: Fraction) -> None:
    events = record_harness()
    before, after = read_record(events), read_record(rescore(events, Change(factor=factor)).events)
    assert before is not None and after is not None
    assert [probe.query for probe in before.probes] == ["q1", "q2"]
    for was, would_be in zip(before.probes, after.probes, strict=True):
        assert was.final is not None and would_be.final is not None
        parts, scaled = was.parts(), would_be.parts()
        assert parts is not None and scaled is not None
        assert (parts.dispatch_ns, parts.transport_ns) == (LATE_NS, seconds(0.04))
        assert (parts.waited_ns, parts.agent_service_ns) == (GAP_NS, seconds(0.01))
        assert (scaled.dispatch_ns, scaled.transport_ns) == (LATE_NS, seconds(0.04))
        assert (scaled.waited_ns, scaled.agent_service_ns) == (GAP_NS, int(seconds(0.01) * factor))
        saved_ns = seconds(0.01) * (1 - factor)
        for begin in ("sent", "due"):
            was_ns = was.final.wall_ns - getattr(was, begin).wall_ns
            would_be_ns = would_be.final.wall_ns - getattr(would_be, begin).wall_ns
            assert was_ns - would_be_ns == saved_ns


def test_a_shorter_deadline_closes_what_took_longer() -> None:
    recorded = simulate(2, Fraction(1), "all")
    deadline_ns = seconds(0.8)
    rescored = rescore(recorded.events, Change(deadline_ns=deadline_ns))
    expected = simulate(2, Fraction(1), "all", answer_timeout_ns=deadline_ns)
    outcomes = [event.outcome for _, event in expected.events if isinstance(event, ChainClosed)]
    assert "timed_out" in outcomes
    assert kept(rescored.events) == kept(expected.events)


def test_frames_that_were_skipped_get_times_drawn_from_the_run_and_are_counted() -> None:
    recorded = simulate(4, Fraction(3), "latest")
    skipped = sum(
        isinstance(event, FrameSettled) and event.outcome == "skipped" for _, event in recorded.events
    )
    assert skipped > 0
    rescored = rescore(recorded.events, Change(frames="all"))
    assert rescored.drawn_frames == skipped
    again = rescore(recorded.events, Change(frames="all"))
    assert kept(again.events) == kept(rescored.events)


def test_turns_that_were_closed_count_as_censored_and_later_probes_as_drawn() -> None:
    recorded = simulate(2, Fraction(1), "all", answer_timeout_ns=seconds(0.8))
    closed = sum(isinstance(event, TurnEnded) and event.reason == "closed" for _, event in recorded.events)
    assert closed > 0
    rescored = rescore(recorded.events, Change(deadline_ns=seconds(30)))
    assert rescored.censored > 0
    assert rescored.drawn_probes > 0


def test_a_profile_takes_the_place_of_recorded_times() -> None:
    recorded = simulate(5, Fraction(1), "all")
    profile = ServiceProfile(
        name="one second", frame_ns=seconds(0.1), answer_ns={"task": seconds(1), "status": 7, "cause": 9}
    )
    rescored = rescore(recorded.events, Change(profile=profile))
    services = {event.service_ns for _, event in rescored.events if isinstance(event, FrameSettled)}
    assert services == {seconds(0.1)}


def test_a_session_without_end_cannot_be_played_again() -> None:
    recorded = simulate(0, Fraction(1), "all")
    assert read_recorded(recorded.events[:-1]) is None

"""Every timeout at its exact instant, what it closes, and what the journal says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamsim.clock import ScaledClock
from streamsim.events import (
    AnyEvent,
    ChainClosed,
    FrameSent,
    GapSent,
    Instant,
    LateTextReceived,
    ProbeRead,
    ProbeSent,
    SessionEnded,
    TurnClosed,
    TurnEnded,
    WarningRaised,
)
from streamsim.session import Session
from streamsim.testing import (
    SimulatedAgent,
    Simulation,
    Utterance,
    say,
    seconds,
    tiny_query,
    tiny_simulation,
)
from streamsim_protocol import messages as wire
from streamsim_protocol.errors import CloseCode

NEVER = Utterance(service_ns=None)


def agent_of(
    observe: Callable[[int], float | None], answer: Callable[[wire.ProbeMessage], Utterance], **rest: Any
) -> SimulatedAgent:
    """``observe(k)`` in seconds."""

    def observe_ns(k: int) -> int | None:
        duration = observe(k)
        return None if duration is None else seconds(duration)

    return SimulatedAgent(observe=observe_ns, answer=answer, **rest)


def told(simulation: Simulation, *kinds: type[AnyEvent]) -> list[tuple[float, AnyEvent]]:
    """(wall s, event) of some kinds."""
    return [(at.wall_ns / 1e9, event) for at, event in simulation.events if isinstance(event, kinds)]


def outcomes(simulation: Simulation) -> dict[str, str]:
    return {event.query: event.outcome for _, event in simulation.events if isinstance(event, ChainClosed)}


def end(simulation: Simulation) -> tuple[float, SessionEnded]:
    at, event = simulation.events[-1]
    assert isinstance(event, SessionEnded)
    return at.wall_ns / 1e9, event


class TestAnswer:
    def test_runs_from_due_although_the_agent_could_not_begin(self) -> None:
        agent = agent_of(lambda k: 40.0 if k == 0 else 0.1, lambda probe: say("A", seconds(1)))
        simulation = tiny_simulation([tiny_query("a", 2)], agent, samples=3).run()
        assert told(simulation, TurnClosed, ChainClosed, TurnEnded) == [
            (32.0, TurnClosed(turn=1, reason="timed_out")),
            (32.0, ChainClosed(query="q1", outcome="timed_out")),
            (40.0, TurnEnded(turn=1, reason="closed", service_ns=0, first_text_ns=None, marks={})),
        ]

    @pytest.mark.parametrize(
        ("ends_ns", "outcome"), [(seconds(30) - 1, "answered"), (seconds(30), "timed_out")]
    )
    def test_is_exclusive_to_the_nanosecond(self, ends_ns: int, outcome: str) -> None:
        agent = agent_of(lambda k: 0.0, lambda probe: say("A", ends_ns))
        simulation = tiny_simulation([tiny_query("a", 2)], agent, samples=3, chain="task").run()
        assert outcomes(simulation) == {"q1": outcome}

    def test_runs_anew_for_the_status_probe(self) -> None:
        """29 s for each probe: none is late, although the chain takes 87 s."""
        agent = agent_of(
            lambda k: 0.0, lambda probe: say("C" if probe.probe == "status" else "A", seconds(29))
        )
        simulation = tiny_simulation([tiny_query("a", 2)], agent, samples=3).run()
        assert outcomes(simulation) == {"q1": "answered"}
        dues = [(event.probe, event.due_media_ns, event.due_wall_ns) for _, event in probes(simulation)]
        assert dues == [
            ("task", seconds(2), seconds(2)),
            ("status", seconds(31), seconds(31)),
            ("cause", seconds(60), seconds(60)),
        ]

    def test_counts_what_the_client_made_late_itself(self) -> None:
        """Credit ran out, so F2 and the query behind it went out at 20 s: due at 2 s, timed out at once."""
        agent = agent_of(lambda k: 0.0, lambda probe: say("A", 0))
        simulation = tiny_simulation(
            [tiny_query("a", 2)], agent, samples=3, credit=1, answer_timeout_ns=seconds(5)
        )
        simulation.stop_agent(seconds(0.5), seconds(20))
        simulation.run()
        ((at_s, probe),) = probes(simulation)
        assert (at_s, probe.due_wall_ns, probe.held_by) == (20.0, seconds(2), "credit")
        assert told(simulation, TurnClosed) == [(20.0, TurnClosed(turn=1, reason="timed_out"))]

    def test_guards_lockstep_from_sent_and_marks_the_run(self) -> None:
        """Media stands at 2 s, wall time is at 6 s when the probe goes out."""
        agent = agent_of(lambda k: 2.0, lambda probe: NEVER)
        simulation = tiny_simulation(
            [tiny_query("a", 2)], agent, samples=3, clock="lockstep", answer_timeout_ns=seconds(10)
        ).run()
        assert [(at_s, event.due_wall_ns) for at_s, event in probes(simulation)] == [(4.0, seconds(4))]
        assert told(simulation, WarningRaised, TurnClosed) == [
            (14.0, WarningRaised(code="lockstep_timeout", detail="turn 1 ran into the wall-time guard")),
            (14.0, TurnClosed(turn=1, reason="timed_out")),
        ]

    def test_stops_while_time_is_paused(self) -> None:
        agent = agent_of(lambda k: 0.0, lambda probe: NEVER)
        simulation = tiny_simulation([tiny_query("a", 2)], agent, samples=100, clock="scaled", rate=2.0)
        for at_s, control in ((3.0, "pause"), (50.0, "step"), (103.0, "resume")):
            simulation.schedule(seconds(at_s), take_control(simulation, control))
        simulation.run()
        assert [at.wall_ns for at, event in simulation.events if isinstance(event, FrameSent)][6:9] == [
            seconds(3),
            seconds(50),
            seconds(103.5),
        ]
        # due at wall 1 s (rate 2), 2 s had passed before 100 s of pause
        assert told(simulation, TurnClosed) == [(131.0, TurnClosed(turn=1, reason="timed_out"))]


def probes(simulation: Simulation) -> list[tuple[float, ProbeSent]]:
    return [(at.wall_ns / 1e9, event) for at, event in simulation.events if isinstance(event, ProbeSent)]


def sent(simulation: Simulation) -> list[tuple[float, FrameSent]]:
    return [(at.wall_ns / 1e9, event) for at, event in simulation.events if isinstance(event, FrameSent)]


def take_control(simulation: Simulation, control: str) -> Callable[[Session, Instant], None]:
    def act(session: Session, now: Instant) -> None:
        clock = simulation.clock
        assert isinstance(clock, ScaledClock)
        match control:
            case "pause":
                taken = clock.pause(now.wall_ns)
            case "resume":
                taken = clock.resume(now.wall_ns)
            case _:
                taken = clock.step(now.wall_ns, session.next_due_ns())
        assert taken is not None
        session.clock_taken(taken)

    return act


class TestHang:
    def test_ends_the_session_a_hang_timeout_after_the_fence(self) -> None:
        """An agent that looks at no cancel: q1 timed out, q2 open, q3 out of reach."""
        agent = agent_of(lambda k: 0.0, lambda probe: NEVER, idle_after_cancel_ns=None)
        queries = [tiny_query("a", 2), tiny_query("b", 80), tiny_query("c", 95)]
        simulation = tiny_simulation(queries, agent, samples=100).run()
        at_s, ended = end(simulation)
        assert (at_s, ended.reason) == (92.0, "hung")
        assert ended.detail == "the agent went on for 60 s after its turn was closed (--hang-timeout)"
        assert outcomes(simulation) == {"q1": "timed_out", "q2": "failed", "q3": "not_reached"}
        assert simulation.session.close_code == CloseCode.HUNG
        assert ended.unsettled_frames == 89  # F3 to F91: F92 is due as the session ends

    def test_spares_a_worker_that_becomes_idle_just_in_time(self) -> None:
        agent = agent_of(lambda k: 0.0, lambda probe: NEVER, idle_after_cancel_ns=seconds(60) - 1)
        simulation = tiny_simulation([tiny_query("a", 2)], agent, samples=3).run()
        assert end(simulation)[1].reason == "completed"
        assert outcomes(simulation) == {"q1": "timed_out"}


class TestSign:
    def test_a_stuck_observe_is_found_by_silence(self) -> None:
        """F0 given at 0, no sign since: answer timeout + hang timeout = 90 s. Receptions are no sign."""
        agent = agent_of(lambda k: None, lambda probe: NEVER)
        simulation = tiny_simulation([], agent, samples=200).run()
        at_s, ended = end(simulation)
        assert (at_s, ended.reason, ended.unsettled_frames) == (90.0, "hung", 90)
        assert ended.detail.endswith("gave no sign for 90 s (--answer-timeout + --hang-timeout)")

    def test_silence_counts_from_the_work_given_to_an_idle_agent(self) -> None:
        agent = agent_of(lambda k: 1.0 if k == 0 else None, lambda probe: NEVER)
        simulation = tiny_simulation([], agent, times_ns=[0, seconds(200)]).run()
        assert end(simulation)[0] == 290.0

    def test_a_question_is_work_too(self) -> None:
        """Idle since 1 s, asked at 200 s: the silence before counts for nothing."""
        agent = agent_of(lambda k: 1.0, lambda probe: say("A", seconds(1)))
        simulation = tiny_simulation([tiny_query("a", 200)], agent, samples=1).run()
        assert outcomes(simulation) == {"q1": "answered"}

    def test_slow_work_with_signs_is_no_silence(self) -> None:
        agent = agent_of(lambda k: 89.0, lambda probe: NEVER)
        simulation = tiny_simulation([], agent, samples=5).run()
        assert (end(simulation)[0], end(simulation)[1].reason) == (445.0, "completed")

    def test_silent_background_work_cannot_hold_lockstep_for_ever(self) -> None:
        agent = agent_of(lambda k: 0.0, lambda probe: NEVER)
        simulation = tiny_simulation([], agent, samples=3, clock="lockstep")
        simulation.schedule(seconds(1), declare_working(simulation, True))
        simulation.run()
        assert end(simulation)[1].reason == "completed"  # too quick to be held

        agent = agent_of(lambda k: 0.4, lambda probe: NEVER)
        simulation = tiny_simulation([], agent, samples=3, clock="lockstep")
        simulation.schedule(seconds(0.5), declare_working(simulation, True))
        simulation.run()
        # F1 was on the way: settled at 0.8, the last sign
        assert (end(simulation)[0], end(simulation)[1].reason) == (90.8, "hung")

    def test_background_work_in_realtime_ends_with_the_drain(self) -> None:
        agent = agent_of(lambda k: 0.0, lambda probe: NEVER)
        simulation = tiny_simulation([], agent, samples=3)
        simulation.schedule(seconds(1.5), declare_working(simulation, True))
        simulation.run()
        assert told(simulation, WarningRaised)[0][0] == 602.0
        assert (end(simulation)[0], end(simulation)[1].reason) == (602.0, "completed")


def declare_working(simulation: Simulation, active: bool) -> Callable[[Session, Instant], None]:
    """As the agent's runtime would say it, in the middle of its stream."""

    def act(session: Session, now: Instant) -> None:
        simulation.speak(wire.Working(active=active))

    return act


class TestCredit:
    def test_a_client_that_stops_reading_is_cut_off(self) -> None:
        """Credit of 2: F1 and F2 are on their way, F3 is due at 3 s, 60 s later it is over."""
        agent = agent_of(lambda k: 0.0, lambda probe: NEVER)
        simulation = tiny_simulation([tiny_query("a", 4)], agent, samples=100, credit=2)
        simulation.stop_agent(seconds(0.5))
        simulation.schedule(seconds(40), lambda session, now: None)  # somebody looks: it changes nothing
        simulation.run()
        at_s, ended = end(simulation)
        assert (at_s, ended.reason) == (63.0, "disconnected")
        assert ended.detail == "no reception acknowledged for 60 s"
        assert simulation.session.close_code == CloseCode.CREDIT_TIMEOUT
        assert outcomes(simulation) == {"q1": "not_reached"}

    def test_a_sample_without_picture_needs_none(self) -> None:
        agent = agent_of(lambda k: 0.0, lambda probe: NEVER)
        simulation = tiny_simulation([], agent, samples=4, without_picture=(2,), credit=1)
        simulation.stop_agent(seconds(0.5), seconds(10))
        simulation.run()
        assert [(at_s, event.k) for at_s, event in sent(simulation)] == [(0.0, 0), (1.0, 1), (10.0, 3)]
        assert [at_s for at_s, _ in told(simulation, GapSent)] == [2.0]

    def test_any_reception_starts_it_anew(self) -> None:
        agent = agent_of(lambda k: 0.0, lambda probe: NEVER)
        simulation = tiny_simulation([], agent, samples=100, credit=1)
        simulation.stop_agent(seconds(0.5), seconds(61.9))  # F1 went out at 1 s, F2 has waited since 2 s
        simulation.run()
        assert end(simulation)[1].reason == "completed"


class TestDrain:
    def test_completes_the_session_with_frames_unsettled(self) -> None:
        """60 s a frame: when media is over at 9 s and 600 s later, ten frames have been settled."""
        agent = agent_of(lambda k: 60.0, lambda probe: NEVER)
        simulation = tiny_simulation([], agent, samples=13).run()
        assert told(simulation, WarningRaised)[0] == (
            612.0,
            WarningRaised(code="drain_timeout", detail="3 frames unsettled when the drain timeout fired"),
        )
        at_s, ended = end(simulation)
        assert (at_s, ended.reason, ended.unsettled_frames) == (672.0, "completed", 2)
        assert simulation.session.close_code == CloseCode.HUNG  # its process is of no use any more

    def test_a_prompt_farewell_after_it_is_a_normal_end(self) -> None:
        agent = agent_of(lambda k: 62.0, lambda probe: NEVER)
        simulation = tiny_simulation([], agent, samples=10).run()
        at_s, ended = end(simulation)
        assert (at_s, ended.reason, ended.unsettled_frames) == (620.0, "completed", 0)
        assert simulation.session.close_code == CloseCode.NORMAL

    def test_closes_open_turns_and_stays_completed_if_the_worker_hangs_then(self) -> None:
        agent = agent_of(lambda k: 0.0, lambda probe: NEVER, idle_after_cancel_ns=None)
        simulation = tiny_simulation(
            [tiny_query("a", 2)], agent, samples=3, drain_timeout_ns=seconds(20)
        ).run()
        assert outcomes(simulation) == {"q1": "timed_out"}
        assert told(simulation, TurnClosed) == [(22.0, TurnClosed(turn=1, reason="timed_out"))]
        assert (end(simulation)[0], end(simulation)[1].reason) == (82.0, "completed")
        assert simulation.session.close_code == CloseCode.HUNG


class TestBye:
    def test_an_agent_that_never_says_bye_is_hung(self) -> None:
        agent = agent_of(lambda k: 0.0, lambda probe: say("A", 0), save_ns=None)
        simulation = tiny_simulation([tiny_query("a", 2)], agent, samples=3).run()
        assert outcomes(simulation) == {"q1": "answered"}
        assert told(simulation, WarningRaised) == [
            (
                602.0,
                WarningRaised(
                    code="no_bye",
                    detail="the agent did not say bye in time; nothing that it saved counts",
                ),
            )
        ]
        assert (end(simulation)[0], end(simulation)[1].reason) == (602.0, "hung")

    def test_a_pause_is_nobody_s_fault(self) -> None:
        """Paused while the agent saves: it has its whole time left, and no tick follows ``end``."""
        agent = agent_of(lambda k: 0.0, lambda probe: NEVER, save_ns=seconds(1000), capabilities=("ticks",))
        simulation = tiny_simulation([], agent, samples=3, clock="scaled")
        for at_s, control in ((100.0, "pause"), (1000.0, "resume")):
            simulation.schedule(seconds(at_s), take_control(simulation, control))
        simulation.run()
        assert end(simulation)[1].reason == "completed"

    def test_saving_may_take_as_long_as_draining(self) -> None:
        agent = agent_of(lambda k: 0.0, lambda probe: say("A", 0), save_ns=seconds(600) - 1)
        simulation = tiny_simulation([], agent, samples=3).run()
        assert end(simulation)[1].reason == "completed"


def test_two_timeouts_of_one_instant_both_happen() -> None:
    agent = agent_of(lambda k: 0.0, lambda probe: NEVER, idle_after_cancel_ns=0)
    queries = [tiny_query("a", 2), tiny_query("b", 2)]
    simulation = tiny_simulation(queries, agent, samples=3, history="live").run()
    assert [at_s for at_s, _ in told(simulation, TurnClosed)] == [32.0, 32.0]
    assert outcomes(simulation) == {"q1": "timed_out", "q2": "timed_out"}


def test_nothing_is_read_of_a_turn_that_ended_too_late() -> None:
    """The end was on its way when the turn was closed: late text, no reading, no status probe."""
    agent = agent_of(lambda k: 0.0, lambda probe: say("A", seconds(29.9)))
    simulation = tiny_simulation([tiny_query("a", 2)], agent, samples=3, to_server_ns=seconds(0.4)).run()
    assert told(simulation, ProbeRead) == []
    assert [
        (at_s, type(event).__name__)
        for at_s, event in told(
            simulation, TurnClosed, LateTextReceived, TurnEnded, ChainClosed, SessionEnded
        )
    ] == [
        (32.0, "TurnClosed"),
        (32.0, "ChainClosed"),
        (32.3, "LateTextReceived"),
        (32.3, "TurnEnded"),
        (32.7, "SessionEnded"),
    ]

"""What a session makes of its clock: timeouts stand while time is paused, ticks tell of every re-take."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsim.clock import ScaledClock, exact_rate
from streamsim.events import AnyEvent, ClockTaken, EndSent, Instant, SessionEnded, TurnClosed, WarningRaised
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

NEVER = Utterance(service_ns=None)


def take_control(simulation: Simulation, wall_ns: int, control: str, rate: float = 1.0) -> None:
    """At ``wall_ns`` the run's owner pauses, resumes, steps or changes the rate."""

    def act(session: Session, now: Instant) -> None:
        clock = simulation.clock
        assert isinstance(clock, ScaledClock)
        match control:
            case "pause":
                taken = clock.pause(now.wall_ns)
            case "resume":
                taken = clock.resume(now.wall_ns)
            case "rate":
                taken = clock.set_rate(now.wall_ns, exact_rate(rate))
            case _:
                taken = clock.step(now.wall_ns, session.next_due_ns())
        if taken is not None:
            session.clock_taken(taken)

    simulation.schedule(wall_ns, act)


def first_ns(simulation: Simulation, kind: type[AnyEvent]) -> int:
    """The wall time of the first event of a kind."""
    return next(at.wall_ns for at, event in simulation.events if isinstance(event, kind))


# ---------------------------------------------------------------------------------- timeouts and pauses

Wait = tuple[Callable[[], Simulation], type[AnyEvent], float]


def wait_for_answer() -> Simulation:
    agent = SimulatedAgent(observe=lambda k: 0, answer=lambda probe: NEVER)
    return tiny_simulation([tiny_query("a", 4)], agent, samples=5, clock="scaled", rate=2.0)


def wait_for_idleness() -> Simulation:
    agent = SimulatedAgent(observe=lambda k: 0, answer=lambda probe: NEVER, idle_after_cancel_ns=None)
    return tiny_simulation([tiny_query("a", 4)], agent, samples=5, clock="scaled", rate=2.0)


def wait_for_sign() -> Simulation:
    agent = SimulatedAgent(observe=lambda k: None, answer=lambda probe: NEVER)
    return tiny_simulation([], agent, samples=5, clock="scaled", rate=2.0)


def wait_for_credit() -> Simulation:
    agent = SimulatedAgent(observe=lambda k: 0, answer=lambda probe: NEVER)
    simulation = tiny_simulation([], agent, samples=5, credit=2, clock="scaled", rate=2.0)
    simulation.stop_agent(seconds(0.25))
    return simulation


def wait_for_the_drain() -> Simulation:
    agent = SimulatedAgent(observe=lambda k: None, answer=lambda probe: NEVER)
    return tiny_simulation([], agent, samples=5, drain_timeout_ns=seconds(50), clock="scaled", rate=2.0)


def wait_for_bye() -> Simulation:
    agent = SimulatedAgent(observe=lambda k: 0, answer=lambda probe: NEVER, save_ns=None)
    return tiny_simulation([], agent, samples=5, clock="scaled", rate=2.0)


WAITS: dict[str, Wait] = {
    "answer": (wait_for_answer, TurnClosed, 2 + 30),
    "idleness": (wait_for_idleness, SessionEnded, 2 + 30 + 60),
    "sign": (wait_for_sign, SessionEnded, 90),
    "credit": (wait_for_credit, SessionEnded, 1.5 + 60),
    "drain": (wait_for_the_drain, EndSent, 2 + 50),
    "bye": (wait_for_bye, SessionEnded, 2 + 600),
}
"""What is waited for, the event that ends it, and when without a pause: media is over at 2 s."""


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("pauses", ["none", "one before", "one within", "one up to the end", "many"])
def test_a_pause_moves_every_timeout_by_exactly_its_length(wait: str, pauses: str) -> None:
    make, kind, fires_s = WAITS[wait]
    fires_ns = seconds(fires_s)
    planned: dict[str, list[tuple[int, int]]] = {
        "none": [],
        "one before": [(seconds(0.6), seconds(1000))],
        "one within": [(fires_ns - seconds(20), 123_456_789_012)],
        "one up to the end": [(fires_ns - 1, 1)],
        "many": [
            *((seconds(0.1), seconds(5)), (seconds(1.7), 3), (fires_ns // 2, seconds(500))),
            *((fires_ns // 2 + 1, seconds(40)), (fires_ns - 1, seconds(3))),
        ],
    }
    simulation, paused_ns = make(), 0
    for at_ns, length_ns in planned[pauses]:  # as if none had been before
        take_control(simulation, at_ns + paused_ns, "pause")
        paused_ns += length_ns
        take_control(simulation, at_ns + paused_ns, "resume")
    simulation.run()
    assert first_ns(simulation, kind) == fires_ns + paused_ns


def test_a_wait_that_begins_in_a_pause_counts_from_its_end() -> None:
    """Paused at 0.5, stepped to F1 at 10 and to F2 with the query at 20; resumed at 100."""
    agent = SimulatedAgent(observe=lambda k: 0, answer=lambda probe: NEVER)
    simulation = tiny_simulation([tiny_query("a", 2)], agent, samples=4, clock="scaled")
    take_control(simulation, seconds(0.5), "pause")
    take_control(simulation, seconds(10), "step")
    take_control(simulation, seconds(20), "step")
    take_control(simulation, seconds(100), "resume")
    simulation.run()
    assert first_ns(simulation, TurnClosed) == seconds(100 + 30)


def test_nothing_times_out_while_time_is_paused_for_good() -> None:
    agent = SimulatedAgent(observe=lambda k: None, answer=lambda probe: NEVER)
    simulation = tiny_simulation([tiny_query("a", 1)], agent, samples=3, clock="scaled")
    take_control(simulation, seconds(1.5), "pause")
    simulation.run()
    assert not simulation.session.ended
    assert simulation.session.next_wall_deadline() is None


def test_a_held_clock_is_not_paused() -> None:
    """In skip the decoder holds the clock at F1 from 1 s to 500 s; the worker hangs at F0 all the same."""
    agent = SimulatedAgent(observe=lambda k: None, answer=lambda probe: NEVER)
    simulation = tiny_simulation(
        [], agent, samples=2, clock="skip", decoded_ns=lambda k: seconds(500) if k else 0
    ).run()
    assert first_ns(simulation, SessionEnded) == seconds(90)


# ------------------------------------------------------------------------------------------------ ticks

MODES: tuple[wire.ClockMode, ...] = ("realtime", "skip", "scaled", "lockstep")


def play(clock: wire.ClockMode, *capabilities: str, looks: tuple[int, ...] = ()) -> Simulation:
    """Six frames and two queries; the decoder is late with F3, and a scaled clock is controlled."""
    agent = SimulatedAgent(
        observe=lambda k: seconds(0.3), answer=lambda probe: say("C", seconds(0.4)), capabilities=capabilities
    )
    simulation = tiny_simulation(
        [tiny_query("a", 1), tiny_query("b", 4)],
        agent,
        samples=6,
        clock=clock,
        rate=1.5,
        decoded_ns=lambda k: seconds(6) if k == 3 else 0,
    )
    if clock == "scaled":
        for at_s, control, rate in (
            *((1.0, "rate", 3.0), (1.1, "pause", 0), (1.2, "pause", 0), (1.3, "rate", 0.1)),
            *((1.4, "step", 0), (1.5, "step", 0), (2.0, "resume", 0), (2.5, "rate", 29.97)),
        ):
            take_control(simulation, seconds(at_s), control, rate)
    for wall_ns in looks:
        simulation.schedule(wall_ns, lambda session, now: None)
    return simulation.run()


@pytest.mark.parametrize("clock", MODES)
def test_ticks_are_the_pairs_as_they_are_taken(clock: wire.ClockMode) -> None:
    simulation = play(clock, "ticks")
    taken = [event for _, event in simulation.events if isinstance(event, ClockTaken)]
    ticks = [exchange.message for exchange in simulation.exchanges if isinstance(exchange.message, wire.Tick)]
    assert [(tick.media_ns, tick.rate, tick.reason) for tick in ticks] == [
        (pair.media_ns, pair.rate, pair.reason) for pair in taken
    ]
    reasons = [pair.reason for pair in taken]
    assert reasons[0] == "start"
    assert (
        set(reasons[1:])
        == {
            "realtime": set(),
            "skip": {"jump", "hold", "release"},
            "scaled": {"pause", "resume", "rate", "step"},
            "lockstep": {"jump"},
        }[clock]
    )
    if clock == "scaled":
        assert reasons == ["start", "rate", "pause", "step", "step", "resume", "rate"]
    outcome = [event for _, event in simulation.events if isinstance(event, SessionEnded)]
    assert [event.reason for event in outcome] == ["completed"]


@pytest.mark.parametrize("clock", MODES)
def test_a_peer_that_did_not_name_ticks_gets_the_same_session_without_them(clock: wire.ClockMode) -> None:
    plain, ticking = play(clock, "holograms"), play(clock, "ticks")
    assert not any(isinstance(exchange.message, wire.Tick) for exchange in plain.exchanges)

    def told(simulation: Simulation) -> list[tuple[Instant, str]]:
        """What happened when; numbers differ, since ticks are numbered too."""
        return [
            (at, type(event).__name__)
            for at, event in simulation.events
            if type(event).__name__ not in ("Acknowledged", "AgentReady")
        ]

    assert told(plain) == told(ticking)


@given(
    st.sampled_from(MODES), st.lists(st.integers(0, seconds(12)), max_size=30).map(lambda looks: tuple(looks))
)
def test_looking_at_any_time_changes_nothing(clock: wire.ClockMode, looks: tuple[int, ...]) -> None:
    """A loop that wakes early, or for something else, finds nothing to do and moves nothing."""
    undisturbed, disturbed = play(clock, "ticks"), play(clock, "ticks", looks=looks)
    assert disturbed.events == undisturbed.events
    assert [exchange.data for exchange in disturbed.exchanges] == [
        exchange.data for exchange in undisturbed.exchanges
    ]


def test_the_waits_are_what_they_are_called() -> None:
    """The scenarios above show what they claim to show, and no accident."""
    raised = [
        event.code for _, event in wait_for_the_drain().run().events if isinstance(event, WarningRaised)
    ]
    assert raised[0] == "drain_timeout"
    raised = [event.code for _, event in wait_for_bye().run().events if isinstance(event, WarningRaised)]
    assert raised == ["no_bye"]

"""The worked sequences of the design, message by message, with their literal times."""

from __future__ import annotations

from streamsim.testing import (
    Exchange,
    SimulatedAgent,
    Simulation,
    say,
    seconds,
    tiny_query,
    tiny_simulation,
)
from streamsim_protocol import messages as wire

Line = tuple[float, float, str]


def tell(simulation: Simulation) -> list[Line]:
    """(media s, wall s, what) of everything but receptions and pieces of text, whose turns say enough."""
    probes = {
        exchange.message.turn: f"{exchange.message.probe} {exchange.message.query}"
        for exchange in simulation.exchanges
        if isinstance(exchange.message, wire.ProbeMessage)
    }
    lines = []
    for exchange in simulation.exchanges:
        said = describe(exchange, probes)
        if said is not None:
            lines.append((exchange.at.media_ns / 1e9, exchange.at.wall_ns / 1e9, said))
    return lines


def describe(exchange: Exchange, probes: dict[int, str]) -> str | None:
    match exchange.message:
        case wire.Frame(k=k):
            return f"S F{k}"
        case wire.ProbeMessage(turn=turn):
            return f"S {probes[turn]}"
        case wire.TurnClosed(turn=turn, reason=reason):
            return f"S turn closed {probes[turn]}: {reason}"
        case wire.ChainClosed(query=query):
            return f"S chain closed {query}"
        case wire.Settled(k=k, outcome=outcome):
            return f"C F{k} {outcome}"
        case wire.TurnStarted(turn=turn, seen_media_ns=seen):
            return f"C starts {probes[turn]}, seen {(seen or 0) // 10**9}"
        case wire.TurnEnded(turn=turn, reason=reason):
            return f"C ends {probes[turn]}" + ("" if reason == "finished" else f": {reason}")
        case wire.Ack() | wire.Text() | wire.Tick():
            return None
        case message:
            who = "S" if exchange.sender == "server" else "C"
            return f"{who} {type(message).__name__.lower()}"


def real(lines: list[Line]) -> list[tuple[float, str]]:
    """Realtime: both clocks are one."""
    assert all(media == wall for media, wall, _ in lines)
    return [(wall, said) for _, wall, said in lines]


def agent_of(frame_s: float, answer_s: float, *uncertain: str) -> SimulatedAgent:
    """Works ``frame_s`` a frame, ``answer_s`` an answer; unsure of the queries named."""

    def letter(probe: wire.ProbeMessage) -> str:
        return "C" if probe.probe == "status" and probe.query in uncertain else "A"

    return SimulatedAgent(
        observe=lambda k: seconds(frame_s), answer=lambda probe: say(letter(probe), seconds(answer_s))
    )


def test_realtime_with_a_slow_agent() -> None:
    """Trace A: a busy agent delays no release, frozen history holds newer frames back."""
    queries = [tiny_query("a", 5), tiny_query("b", 6)]
    simulation = tiny_simulation(queries, agent_of(3.0, 0.2, "q1")).run()
    assert real(tell(simulation)) == [
        (0.0, "C hello"),
        (0.0, "S welcome"),
        (0.0, "C ready"),
        (0.0, "S F0"),
        (1.0, "S F1"),
        (2.0, "S F2"),
        (3.0, "S F3"),
        (3.0, "C F0 processed"),
        (4.0, "S F4"),
        (5.0, "S F5"),
        (5.0, "S task q1"),
        (6.0, "S F6"),
        (6.0, "S task q2"),
        (6.0, "C F1 processed"),
        (7.0, "S F7"),
        (8.0, "S F8"),
        (9.0, "S F9"),
        (9.0, "C F2 processed"),
        (12.0, "C F3 processed"),
        (15.0, "C F4 processed"),
        (18.0, "C F5 processed"),
        (18.0, "C starts task q1, seen 5"),
        (18.2, "C ends task q1"),
        (18.2, "S status q1"),
        (18.2, "C starts status q1, seen 5"),
        (18.4, "C ends status q1"),
        (18.4, "S cause q1"),
        (18.4, "C starts cause q1, seen 5"),
        (18.6, "C ends cause q1"),
        (18.6, "S chain closed q1"),
        (21.6, "C F6 processed"),
        (21.6, "C starts task q2, seen 6"),
        (21.8, "C ends task q2"),
        (21.8, "S status q2"),
        (21.8, "C starts status q2, seen 6"),
        (22.0, "C ends status q2"),
        (22.0, "S chain closed q2"),
        (25.0, "C F7 processed"),
        (28.0, "C F8 processed"),
        (31.0, "C F9 processed"),
        (31.0, "S end"),
        (31.0, "C bye"),
    ]


def test_realtime_with_the_latest_frame() -> None:
    """Trace A under ``latest``: F3 arrives as the worker becomes free, F5 is never passed over for F6."""
    queries = [tiny_query("a", 5), tiny_query("b", 6)]
    simulation = tiny_simulation(queries, agent_of(3.0, 0.2, "q1"), frames="latest").run()
    work = [(wall, said) for wall, said in real(tell(simulation)) if said.startswith(("C F", "C starts"))]
    assert work == [
        (3.0, "C F0 processed"),
        (3.0, "C F1 skipped"),
        (3.0, "C F2 skipped"),
        (6.0, "C F3 processed"),
        (6.0, "C F4 skipped"),
        (9.0, "C F5 processed"),
        (9.0, "C starts task q1, seen 5"),
        (9.2, "C starts status q1, seen 5"),
        (9.4, "C starts cause q1, seen 5"),
        (12.6, "C F6 processed"),
        (12.6, "C starts task q2, seen 6"),
        (12.8, "C starts status q2, seen 6"),
        (13.0, "C F7 skipped"),
        (13.0, "C F8 skipped"),
        (16.0, "C F9 processed"),
    ]


def test_realtime_with_a_timed_out_query() -> None:
    """A query due at 20 is fenced at 50, taken out of the inbox, and its chain closes."""
    agent = agent_of(3.0, 0.2)
    simulation = tiny_simulation([tiny_query("a", 20)], agent, samples=21).run()
    lines = real(tell(simulation))
    assert [line for line in lines if "q1" in line[1]] == [
        (20.0, "S task q1"),
        (50.0, "S turn closed task q1: timed_out"),
        (50.0, "S chain closed q1"),
        (51.0, "C ends task q1: closed"),
    ]
    assert lines[-3:] == [(63.0, "C F20 processed"), (63.0, "S end"), (63.0, "C bye")]


def test_skip_jumps_while_nothing_is_unsettled() -> None:
    """Trace B: the same latencies as in realtime, in compute time only."""
    simulation = tiny_simulation(
        [tiny_query("a", 2)], agent_of(0.3, 0.2, "q1"), samples=4, clock="skip", rate=1.0
    ).run()
    assert tell(simulation)[3:] == [
        (0.0, 0.0, "S F0"),
        (0.3, 0.3, "C F0 processed"),
        (1.0, 0.3, "S F1"),
        (1.3, 0.6, "C F1 processed"),
        (2.0, 0.6, "S F2"),
        (2.0, 0.6, "S task q1"),
        (2.3, 0.9, "C F2 processed"),
        (2.3, 0.9, "C starts task q1, seen 2"),
        (2.5, 1.1, "C ends task q1"),
        (2.5, 1.1, "S status q1"),
        (2.5, 1.1, "C starts status q1, seen 2"),
        (2.7, 1.3, "C ends status q1"),
        (2.7, 1.3, "S cause q1"),
        (2.7, 1.3, "C starts cause q1, seen 2"),
        (2.9, 1.5, "C ends cause q1"),
        (2.9, 1.5, "S chain closed q1"),
        (3.0, 1.5, "S F3"),
        (3.3, 1.8, "C F3 processed"),
        (3.3, 1.8, "S end"),
        (3.3, 1.8, "C bye"),
    ]


def test_lockstep_stands_while_busy() -> None:
    """Trace C: media stands at 2.0 from F2's sending until the chain is closed."""
    simulation = tiny_simulation(
        [tiny_query("a", 2)], agent_of(0.3, 0.2, "q1"), samples=4, clock="lockstep"
    ).run()
    assert tell(simulation)[3:] == [
        (0.0, 0.0, "S F0"),
        (0.0, 0.3, "C F0 processed"),
        (1.0, 0.3, "S F1"),
        (1.0, 0.6, "C F1 processed"),
        (2.0, 0.6, "S F2"),
        (2.0, 0.6, "S task q1"),
        (2.0, 0.9, "C F2 processed"),
        (2.0, 0.9, "C starts task q1, seen 2"),
        (2.0, 1.1, "C ends task q1"),
        (2.0, 1.1, "S status q1"),
        (2.0, 1.1, "C starts status q1, seen 2"),
        (2.0, 1.3, "C ends status q1"),
        (2.0, 1.3, "S cause q1"),
        (2.0, 1.3, "C starts cause q1, seen 2"),
        (2.0, 1.5, "C ends cause q1"),
        (2.0, 1.5, "S chain closed q1"),
        (3.0, 1.5, "S F3"),
        (3.0, 1.8, "C F3 processed"),
        (3.0, 1.8, "S end"),
        (3.0, 1.8, "C bye"),
    ]

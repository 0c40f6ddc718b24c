"""A stall is charged to the answers that it delayed, wherever it happened.

700 queries, ten a second, to an agent that answers in 1 ms. A release loop that stands for 1.4 s delays
14 of them (2 %): from due that is the 99th percentile, from sent it is as if nothing had happened. An
agent that stands for as long shows in both.
"""

from __future__ import annotations

from typing import Any

from streamsim.scoring.latency import latency_figures
from streamsim.scoring.record import SessionRecord, read_record
from streamsim.scoring.verdict import judge
from streamsim.session import Session
from streamsim.simulation import SimulatedAgent, Simulation, say
from streamsim.testing import seconds, tiny_query, tiny_simulation

MS = 1_000_000
STALL_FROM_NS = 30_050 * MS
STALL_UNTIL_NS = 31_450 * MS
QUERIES = [tiny_query(f"q{number}", number / 10) for number in range(700)]


class StalledServer(Simulation):
    """A server whose loop does nothing from ``STALL_FROM_NS`` to ``STALL_UNTIL_NS``."""

    def _step(self) -> bool:
        if STALL_FROM_NS <= self.wall_ns < STALL_UNTIL_NS:
            return self._deliver_to_agent() or self._work()
        return super()._step()


def play(*, stalled_server: bool = False, stalled_frame_ns: int = 0) -> SessionRecord:
    agent = SimulatedAgent(
        observe=lambda k: stalled_frame_ns if k == 30 else 0, answer=lambda probe: say("A", MS)
    )
    simulation = tiny_simulation(QUERIES, agent, samples=71, chain="task", audited=False)
    if stalled_server:
        simulation.__class__ = StalledServer
        simulation.schedule(STALL_UNTIL_NS, lambda session, now: _wake(session))
    record = read_record(simulation.run().events)
    assert record is not None
    return record


def _wake(session: Session) -> None:
    """Nothing: only that the simulation comes by at this instant."""


def task(record: SessionRecord) -> Any:
    figures: Any = latency_figures([record])
    return figures["task"]


def test_undisturbed_both_agree() -> None:
    figures = task(play())
    assert figures["n"] == 700
    assert figures["due_to_final"]["p99"] == figures["sent_to_final"]["p99"] == 0.001


def test_a_stalled_release_loop_shows_from_due_only() -> None:
    record = play(stalled_server=True)
    figures = task(record)
    assert figures["n"] == 700
    # 14 queries fell due in the stall, released together at 31.45 and answered one by one. The 99th
    # percentile is the eighth longest: that of 30.8 s, answered 8 ms after the release.
    assert figures["due_to_final"]["p99"] == 0.658
    assert figures["due_to_final"]["max"] == 1.351
    assert figures["sent_to_final"]["p99"] == 0.007
    assert figures["sent_to_final"]["max"] == 0.014
    assert figures["parts"]["dispatch"]["max"] == 1.35
    # and the harness says whose fault it was
    verdict = judge([record], planned=1)
    assert verdict.grade == "DEGRADED"
    # 13 queries and frame 31; the last query was late by no more than 50 ms
    assert verdict.reasons[0].startswith("14 of 771 releases more than 50 ms late")


def test_a_stalled_agent_shows_in_both() -> None:
    record = play(stalled_frame_ns=seconds(1.4))
    figures = task(record)
    # queries of 30.0 to 31.3 s wait until 31.4; the eighth longest is that of 30.7, after seven others
    assert figures["due_to_final"]["p99"] == figures["sent_to_final"]["p99"] == 0.708
    assert figures["due_to_final"]["max"] == figures["sent_to_final"]["max"] == 1.401
    assert judge([record], planned=1).grade == "VALID"

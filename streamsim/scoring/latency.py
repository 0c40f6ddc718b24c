"""Latency per probe, from the journal alone: from due on the server's clock, and from sent beside it.

A probe that was never answered stays in n: a timed-out one as a lower bound, a failed or disconnected
one as longer than all others. A percentile is given only where n carries it (early stopping at
confidence 0.99, tolerance 0, as MLPerf LoadGen has it). Times in seconds of wall time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from streamsim.events import (
    Acknowledged,
    AnyEvent,
    ChainClosed,
    Instant,
    ProbeSent,
    SessionStarted,
    TextReceived,
    TurnClosed,
    TurnEnded,
    TurnStarted,
)
from streamsim_protocol.messages import ClockMode, Outcome, Probe

PERCENTILE_NEEDS = {90: 64, 95: 130, 99: 662}
"""The fewest samples that carry a percentile."""


@dataclass(slots=True, kw_only=True)
class ProbeTiming:
    """The stamps of one probe, wall nanoseconds on the server's clock; None for what never happened.

    ``waited_ns``, ``service_ns``, ``first_text_ns`` and ``marks`` are the agent's own durations.
    """

    episode: str
    query: str
    probe: Probe
    clock: ClockMode
    due_ns: int
    sent_ns: int
    delivered_ns: int | None = None
    started_ns: int | None = None
    first_ns: int | None = None
    final_ns: int | None = None
    closed_ns: int | None = None
    waited_ns: int | None = None
    service_ns: int | None = None
    first_text_ns: int | None = None
    marks: dict[str, int] = field(default_factory=dict)
    failed: bool = False
    outcome: Outcome | None = None

    @property
    def timed_out(self) -> bool:
        """The server closed the turn before it ended."""
        return self.closed_ns is not None and not self.failed


def probe_timings(events: Iterable[tuple[Instant, AnyEvent]]) -> list[ProbeTiming]:
    """The timings of all probes that one session sent, in order of sending."""
    timings: dict[int, ProbeTiming] = {}
    undelivered: list[tuple[int, ProbeTiming]] = []
    started: SessionStarted | None = None
    for at, event in events:
        match event:
            case SessionStarted():
                started = event
            case ProbeSent():
                assert started is not None
                timing = ProbeTiming(
                    episode=started.episode,
                    query=event.query,
                    probe=event.probe,
                    clock=started.clock,
                    due_ns=at.wall_ns if event.due_wall_ns is None else event.due_wall_ns,
                    sent_ns=at.wall_ns,
                )
                timings[event.turn] = timing
                undelivered.append((event.seq, timing))
            case Acknowledged():
                for seq, timing in undelivered:
                    if seq <= event.seq:
                        timing.delivered_ns = at.wall_ns
                undelivered = [(seq, timing) for seq, timing in undelivered if seq > event.seq]
            case TurnStarted(turn=turn) if turn in timings:
                timings[turn].started_ns = at.wall_ns
                timings[turn].waited_ns = event.waited_ns
            case TextReceived(turn=turn) if turn in timings:
                if timings[turn].first_ns is None:
                    timings[turn].first_ns = at.wall_ns
            case TurnClosed(turn=turn) if turn in timings:
                timings[turn].closed_ns = at.wall_ns
                timings[turn].failed = event.reason != "timed_out"
            case TurnEnded(turn=turn) if turn in timings:
                _end(timings[turn], event, at)
            case ChainClosed():
                for timing in timings.values():
                    if timing.query == event.query:
                        timing.outcome = event.outcome
            case _:
                pass
    return list(timings.values())


def _end(timing: ProbeTiming, event: TurnEnded, at: Instant) -> None:
    timing.service_ns = event.service_ns
    timing.first_text_ns = event.first_text_ns
    timing.marks = event.marks
    if timing.closed_ns is not None:
        return
    if event.reason == "finished":
        timing.final_ns = at.wall_ns
    else:
        timing.failed = True


def latency_figures(timings: Sequence[ProbeTiming]) -> dict[str, object]:
    """Per probe kind: n, timed_out, and the four spans, each with its percentiles.

    Probes that the run's own end cancelled say nothing about the agent and are left out of n.
    """
    figures: dict[str, object] = {}
    for probe in ("task", "status", "cause"):
        chosen = [timing for timing in timings if timing.probe == probe and timing.outcome != "cancelled"]
        if not chosen:
            continue
        figures[probe] = {
            "n": len(chosen),
            "timed_out": sum(timing.timed_out for timing in chosen),
            "due_to_first": summarise([_span(t, t.due_ns, t.first_ns) for t in chosen]),
            "due_to_final": summarise([_span(t, t.due_ns, t.final_ns) for t in chosen]),
            "sent_to_first": summarise([_span(t, t.sent_ns, t.first_ns) for t in chosen]),
            "sent_to_final": summarise([_span(t, t.sent_ns, t.final_ns) for t in chosen]),
        }
    return figures


def _span(timing: ProbeTiming, begin_ns: int, end_ns: int | None) -> float:
    if end_ns is not None:
        return (end_ns - begin_ns) / 1e9
    if timing.timed_out and timing.closed_ns is not None:
        return (timing.closed_ns - begin_ns) / 1e9
    return math.inf


def summarise(seconds: Sequence[float]) -> dict[str, float | None]:
    """p50, those of p90, p95, p99 that n carries, and max; None where the value is unbounded."""
    ordered = sorted(seconds)
    figures: dict[str, float | None] = {"p50": _finite(nearest_rank(ordered, 50))}
    for percent, needed in PERCENTILE_NEEDS.items():
        if len(ordered) >= needed:
            figures[f"p{percent}"] = _finite(nearest_rank(ordered, percent))
    figures["max"] = _finite(ordered[-1])
    return figures


def nearest_rank(ordered: Sequence[float], percent: int) -> float:
    """The smallest value that at least ``percent`` per cent of the sorted values do not exceed."""
    return ordered[max(1, -(-len(ordered) * percent // 100)) - 1]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None

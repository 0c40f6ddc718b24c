"""Latency per probe: from due on the server's clock, and from sent beside it, with the parts it is made of.

Task probes are told apart from status and cause, whose due time is the end of the probe before. A probe
that was never answered stays in n: a timed-out one as a lower bound, a failed or disconnected one as
longer than all others. Every figure names its origin. All values are seconds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import median

from streamsim.events import Instant
from streamsim.scoring.record import Parts, ProbeTiming, SessionRecord
from streamsim.scoring.spread import Sample, describe
from streamsim_protocol.messages import ClockMode, Probe

PROBES: tuple[Probe, ...] = ("task", "status", "cause")
DEADLINES_S: tuple[float, ...] = (1.0, 2.0, 5.0)
AGE_EDGES_S = (0, 60, 300, 900, 1_800, 3_600, 7_200)
"""Session ages at which a new bin begins; fixed, so that runs can be compared."""
MAX_SLOPE_POINTS = 300
"""More points of one session are first drawn together: medians of neighbours."""
MIN_SLOPE_POINTS = 11
MIN_SLOPE_SPAN_S = 600.0
"""A slope per hour from shorter sessions would be an extrapolation by more than six."""

WITHHELD: dict[ClockMode, str] = {
    "lockstep": "in lockstep media time stands while the agent works: measure with --clock realtime",
    "scaled": "a scaled clock does not scale the agent's work: measure with --clock realtime",
}

PART_ORIGINS = {
    "dispatch": "due to sent, {clock}: the harness's own lateness",
    "delivery": "sent to acknowledged, {clock}: the way to the agent and back",
    "queue": "acknowledged to turn started, {clock}",
    "service": "turn started to final, {clock}",
    "waited": "reception to turn started, the agent's own duration",
    "agent_service": "turn started to final, the agent's own duration",
    "transport": "sent to final, server's wall clock, less the agent's waited and agent_service: "
    "to the agent and back",
    "held": "wall time in which the simulated clock stood for our decoder; not in the figures",
}


def withhold_latency(clock: ClockMode, lanes: int) -> str | None:
    """Why a run's latency is not told; None if it is."""
    if clock == "skip" and lanes > 1:
        return f"{lanes} sessions shared one machine: skip measures latency only with --sessions 1"
    return WITHHELD.get(clock)


def latency_figures(
    records: Sequence[SessionRecord], *, deadlines_s: Sequence[float] = DEADLINES_S
) -> dict[str, object]:
    """Per kind of probe all figures of latency; kinds that were never asked are left out.

    Probes that the run's own end cancelled say nothing about the agent and are left out of n.
    """
    timings = [timing for record in records for timing in record.probes if timing.outcome != "cancelled"]
    figures: dict[str, object] = {}
    for probe in PROBES:
        chosen = [timing for timing in timings if timing.probe == probe]
        if chosen:
            figures[probe] = _probe_figures(chosen, deadlines_s)
    return figures


def _probe_figures(timings: Sequence[ProbeTiming], deadlines_s: Sequence[float]) -> dict[str, object]:
    clock = clock_name(timings[0].clock)
    to_final = [measure(timing, timing.due, timing.final) for timing in timings]
    return {
        "n": len(timings),
        "timed_out": sum(timing.timed_out for timing in timings),
        "failed": sum(timing.final is None and not timing.timed_out for timing in timings),
        "due_to_first": {
            "origin": f"due to first text, {clock}",
            **describe([measure(timing, timing.due, timing.first) for timing in timings], intervals=True),
        },
        "due_to_final": {"origin": f"due to final, {clock}", **describe(to_final, intervals=True)},
        "sent_to_first": {
            "origin": f"sent to first text, {clock}",
            **describe([measure(timing, timing.sent, timing.first) for timing in timings]),
        },
        "sent_to_final": {
            "origin": f"sent to final, {clock}",
            **describe([measure(timing, timing.sent, timing.final) for timing in timings]),
        },
        "parts": _parts(timings, clock),
        "first_text": _first_text(timings),
        "delta_gap": _delta_gaps(timings, clock),
        "marks": _marks(timings),
        "staleness": _staleness(timings),
        "backlog": _backlog(timings),
        "missed": [_missed(to_final, deadline_s) for deadline_s in deadlines_s],
        "age": {
            "bins": _age_bins(timings, to_final),
            "slope_s_per_hour": slope(_by_session(timings, to_final)),
            "origin": f"due to final, {clock}, over the session's media time at due",
        },
        "repeats": _repeats(timings, to_final),
    }


def clock_name(clock: ClockMode) -> str:
    """The clock that stamps are read on, in words."""
    return "server's media clock (skip)" if clock == "skip" else "server's wall clock"


def measure(timing: ProbeTiming, begin: Instant, end: Instant | None) -> Sample:
    """One interval of a probe: measured, cut off by a timeout, or without an end."""
    if end is not None:
        return Sample((timing.read(end) - timing.read(begin)) / 1e9, cluster=timing.episode)
    if timing.timed_out and timing.closed is not None:
        seconds = (timing.read(timing.closed) - timing.read(begin)) / 1e9
        return Sample(seconds, at_least=True, cluster=timing.episode)
    return Sample(math.inf, cluster=timing.episode)


def _parts(timings: Sequence[ProbeTiming], clock: str) -> dict[str, object]:
    """The parts of due to final, over the probes that were answered in time."""
    parts = [split for timing in timings if (split := timing.parts()) is not None]
    take: dict[str, Callable[[Parts], int]] = {
        "dispatch": lambda split: split.dispatch_ns,
        "delivery": lambda split: split.delivery_ns,
        "queue": lambda split: split.queue_ns,
        "service": lambda split: split.service_ns,
        "waited": lambda split: split.waited_ns,
        "agent_service": lambda split: split.agent_service_ns,
        "transport": lambda split: split.transport_ns,
        "held": lambda split: split.held_ns,
    }
    return {
        name: {
            "origin": PART_ORIGINS[name].format(clock=clock),
            **describe([Sample(value_of(split) / 1e9) for split in parts]),
        }
        for name, value_of in take.items()
    }


def _first_text(timings: Sequence[ProbeTiming]) -> dict[str, object]:
    known = [timing.first_text_ns for timing in timings if timing.first_text_ns is not None]
    return {
        "origin": "turn started to first text, the agent's own duration",
        **describe([Sample(duration_ns / 1e9) for duration_ns in known]),
    }


def _delta_gaps(timings: Sequence[ProbeTiming], clock: str) -> dict[str, object]:
    """Gaps between pieces of text as the server received them; pieces are not tokens."""
    gaps = [
        Sample((timing.read(later) - timing.read(earlier)) / 1e9)
        for timing in timings
        for earlier, later in zip(timing.texts, timing.texts[1:], strict=False)
    ]
    return {"origin": f"one piece of text to the next, {clock}", **describe(gaps)}


def _marks(timings: Sequence[ProbeTiming]) -> dict[str, object]:
    durations: dict[str, list[Sample]] = defaultdict(list)
    for timing in timings:
        for name, duration_ns in timing.marks.items():
            durations[name].append(Sample(duration_ns / 1e9))
    return {
        name: {"origin": "turn started to the mark, the agent's own duration", **describe(samples)}
        for name, samples in sorted(durations.items())
    }


def _staleness(timings: Sequence[ProbeTiming]) -> dict[str, object]:
    """How old the newest frame was that the agent had seen, when its answer was there."""
    ages = [
        Sample((timing.final.media_ns - timing.seen_media_ns) / 1e9)
        for timing in timings
        if timing.final is not None and timing.seen_media_ns is not None
    ]
    return {"origin": "media time at final less that of the newest frame seen, as declared", **describe(ages)}


def _backlog(timings: Sequence[ProbeTiming]) -> dict[str, object]:
    counts = [timing.backlog for timing in timings if timing.backlog is not None]
    return {
        "origin": "frames sent and unsettled when the turn was taken up, as the server knew",
        "n": len(counts),
        "p50": median(counts) if counts else None,
        "max": max(counts, default=None),
    }


def _missed(samples: Sequence[Sample], deadline_s: float) -> dict[str, object]:
    missed = sum(sample.seconds > deadline_s or sample.at_least for sample in samples)
    return {"deadline_s": deadline_s, "n": missed, "share": missed / len(samples)}


def _age_bins(timings: Sequence[ProbeTiming], samples: Sequence[Sample]) -> list[dict[str, object]]:
    bins = []
    for low, high in zip(AGE_EDGES_S, (*AGE_EDGES_S[1:], None), strict=True):
        chosen = [
            sample
            for timing, sample in zip(timings, samples, strict=True)
            if low <= timing.due.media_ns / 1e9 and (high is None or timing.due.media_ns / 1e9 < high)
        ]
        if chosen:
            bins.append({"from_s": low, "to_s": high, **describe(chosen)})
    return bins


def _by_session(timings: Sequence[ProbeTiming], samples: Sequence[Sample]) -> list[list[tuple[float, float]]]:
    sessions: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for timing, sample in zip(timings, samples, strict=True):
        sessions[timing.episode, timing.repeat].append((timing.due.media_ns / 1e9, sample.seconds))
    return list(sessions.values())


def slope(sessions: Iterable[Sequence[tuple[float, float]]]) -> float | None:
    """Theil-Sen slope of seconds over age, in seconds per hour: the median over pairs of one session.

    Points are (age in seconds, seconds); what never ended is left out. None for fewer than 11 points,
    and where no session covers ten minutes.
    """
    slopes = []
    points = 0
    span = 0.0
    for session in sessions:
        known = sorted(point for point in session if math.isfinite(point[1]))
        points += len(known)
        span = max(span, known[-1][0] - known[0][0]) if known else span
        drawn = _draw_together(known)
        for number, (age, seconds) in enumerate(drawn):
            slopes += [
                (later[1] - seconds) / (later[0] - age) for later in drawn[number + 1 :] if later[0] > age
            ]
    if not slopes or points < MIN_SLOPE_POINTS or span < MIN_SLOPE_SPAN_S:
        return None
    return median(slopes) * 3_600


def _draw_together(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    size = -(-len(points) // MAX_SLOPE_POINTS) or 1
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [(median(age for age, _ in group), median(value for _, value in group)) for group in groups]


def _repeats(timings: Sequence[ProbeTiming], samples: Sequence[Sample]) -> dict[str, object] | None:
    """Due to final of each repeat, and how far their medians lie apart; None for one repeat."""
    by_repeat: dict[int, list[Sample]] = defaultdict(list)
    for timing, sample in zip(timings, samples, strict=True):
        by_repeat[timing.repeat].append(sample)
    if len(by_repeat) < 2:
        return None
    runs = [{"repeat": repeat, **describe(chosen)} for repeat, chosen in sorted(by_repeat.items())]
    medians = [run["p50"] for run in runs]
    known = [value for value in medians if isinstance(value, float)]
    spread = max(known) - min(known) if len(known) == len(medians) else None
    return {"runs": runs, "p50_spread": spread}

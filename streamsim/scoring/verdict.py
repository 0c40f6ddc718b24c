"""Whether a run's figures can be trusted, judged by what the harness did: VALID, DEGRADED or INVALID.

An agent that is slow, wrong or broken makes no run invalid: that is what is measured. What counts here
is what would make its figures wrong or unclear: releases at the wrong time, a loop that was blocked,
pictures that were not what the video shows, clocks that contradict each other. Each reason names its
count and comes with a hint. Pure: from records to a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from streamsim.events import LATE_NS
from streamsim.plural import counted
from streamsim.scoring.harness import is_late
from streamsim.scoring.record import SessionRecord
from streamsim.scoring.spread import nearest_rank
from streamsim_protocol.messages import ClockMode

Grade = Literal["VALID", "DEGRADED", "INVALID"]
_GRADES: tuple[Grade, ...] = ("VALID", "DEGRADED", "INVALID")

TIMED_CLOCKS: frozenset[ClockMode] = frozenset({"realtime", "skip"})
"""Where latency is told; elsewhere lateness is nobody's."""

LATE_DEGRADED_SHARE = 0.01
"""More than 1 % late releases reach into the 99th percentile, which a report shows."""
LATE_INVALID_SHARE = 0.05
"""More than 5 % reach into the 95th."""
LATE_DEGRADED_NS = 1_000_000_000
"""One release a second late is one that an agent cannot tell from a lost frame, however rare it is."""
SERVER_LAG_DEGRADED_NS = 50_000_000
"""p99 of the server's loop: what makes a release late."""
SERVER_LAG_INVALID_NS = 500_000_000
"""p99 beyond half the frame interval: stamps of what was received are that far off, too."""
AGENT_LAG_DEGRADED_NS = 100_000_000
"""p99 of the runtime's loop. It delays acknowledgements and text, which then reads as transport."""
TRANSPORT_DEGRADED_NS = 50_000_000
"""Median of transport, both ways: a link this slow is a large part of most answers."""
CLOCK_TOLERANCE_NS = 1_000_000
CLOCK_TOLERANCE_SHARE = 0.001
"""Two monotonic clocks drift apart by far less than this; an agent's durations that exceed the
server's interval around them by more come from a clock that does not run as ours does."""

COUNTED_WARNINGS = frozenset({"lockstep_timeout"})
"""Codes of warnings that a verdict counts: a report need not list them once more."""
RESUME_HINT = "continue with --resume"
MAX_NAMED = 8


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The grade, why it is not VALID, and what can be done about it."""

    grade: Grade
    reasons: tuple[str, ...]
    hints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Finding:
    grade: Grade
    reason: str
    hint: str


def judge(records: Sequence[SessionRecord], *, planned: int, unplayed: Sequence[str] = ()) -> Verdict:
    """Judge a run by the attempts that count of its sessions; ``planned`` counts those it should have.

    ``unplayed`` names those that are not among ``records``.
    """
    findings = [finding for check in _CHECKS for finding in check(records)]
    findings += _judge_completeness(records, planned, unplayed)
    worst = max((_GRADES.index(finding.grade) for finding in findings), default=0)
    return Verdict(
        grade=_GRADES[worst],
        reasons=tuple(finding.reason for finding in findings),
        hints=tuple(dict.fromkeys(finding.hint for finding in findings)),
    )


def _judge_early(records: Sequence[SessionRecord]) -> Iterator[_Finding]:
    early = sum(record.early for record in records)
    if early:
        yield _Finding(
            "INVALID", f"{counted(early, 'release')} before due", "report this: streamsim must never do it"
        )


def _judge_clocks(records: Sequence[SessionRecord]) -> Iterator[_Finding]:
    told = [(record, text) for record in records for text in record.disagreements]
    if told:
        record, text = told[0]
        yield _Finding(
            "INVALID",
            f"{counted(len(told), 'contradiction')} to the session's clock, the first in "
            f"{record.started.episode}: {text}",
            "run again; if it stays, the machine's monotonic clock is not one (a virtual machine that was "
            "paused or moved?)",
        )
    modes = sorted({record.started.clock for record in records})
    if len(modes) > 1:
        yield _Finding(
            "INVALID",
            f"sessions under different clocks: {', '.join(modes)}",
            "start a new run for each clock",
        )
    excess = [excess_ns for record in records for excess_ns in _clock_excesses(record)]
    if excess:
        yield _Finding(
            "INVALID",
            f"{counted(len(excess), 'duration')} of the agent's longer than the server's interval around it, "
            f"by up to {max(excess) / 1e6:.1f} ms",
            "measure durations in the agent with a monotonic clock, and only of what lies inside the turn",
        )


def _clock_excesses(record: SessionRecord) -> Iterator[int]:
    """By how much the agent's durations exceed the interval in which they must lie, beyond tolerance."""
    intervals = [
        (frame.transport_ns, frame.settled.wall_ns - frame.sent.wall_ns)
        for frame in record.frames
        if frame.settled is not None and frame.transport_ns is not None
    ]
    intervals += [
        (parts.transport_ns, probe.final.wall_ns - probe.sent.wall_ns)
        for probe in record.probes
        if probe.final is not None and (parts := probe.parts()) is not None
    ]
    for transport_ns, interval_ns in intervals:
        tolerance_ns = CLOCK_TOLERANCE_NS + round(interval_ns * CLOCK_TOLERANCE_SHARE)
        if transport_ns < -tolerance_ns:
            yield -transport_ns


def _judge_lateness(records: Sequence[SessionRecord]) -> Iterator[_Finding]:
    releases = [release for record in _timed(records) for release in record.releases]
    late = [release for release in releases if is_late(release)]
    if not late:
        return
    share = len(late) / len(releases)
    longest = max(release.late_ns for release in late)
    if share > LATE_DEGRADED_SHARE or longest > LATE_DEGRADED_NS:
        starved = sum(release.held_by == "decoder" for release in late)
        yield _Finding(
            "INVALID" if share > LATE_INVALID_SHARE else "DEGRADED",
            f"{len(late)} of {counted(len(releases), 'release')} more than {LATE_NS / 1e6:.0f} ms late "
            f"({share:.1%}), the longest {longest / 1e9:.2f} s"
            + (f"; {starved} of them waited for the decoder" if starved else ""),
            "play fewer --sessions at a time, or stop what else runs on this machine",
        )


def _judge_decoder(records: Sequence[SessionRecord]) -> Iterator[_Finding]:
    starved = sum(
        release.held_by == "decoder" and is_late(release)
        for record in _timed(records)
        for release in record.releases
    )
    if starved:
        yield _Finding(
            "DEGRADED",
            f"the decoder was behind: {counted(starved, 'release')} waited for it",
            "re-encode the videos smaller, play fewer --sessions, or use --clock skip, which waits for "
            "pictures",
        )


def _judge_loops(records: Sequence[SessionRecord]) -> Iterator[_Finding]:
    reports = [record.harness for record in _timed(records) if record.harness is not None]
    server_ns = max((report.server_lag_p99_ns for report in reports), default=0)
    if server_ns > SERVER_LAG_DEGRADED_NS:
        yield _Finding(
            "INVALID" if server_ns > SERVER_LAG_INVALID_NS else "DEGRADED",
            f"the server's event loop lagged by {server_ns / 1e6:.0f} ms (p99)",
            "play fewer --sessions at a time, or stop what else runs on this machine",
        )
    agent_ns = max((report.agent_lag_p99_ns or 0 for report in reports), default=0)
    if agent_ns > AGENT_LAG_DEGRADED_NS:
        yield _Finding(
            "DEGRADED",
            f"the event loop of the agent's runtime lagged by {agent_ns / 1e6:.0f} ms (p99)",
            "the agent keeps the interpreter to itself: let long computations release the GIL, or give its "
            "process more CPU",
        )


def _judge_transport(records: Sequence[SessionRecord]) -> Iterator[_Finding]:
    transports = sorted(
        parts.transport_ns
        for record in _timed(records)
        for probe in record.probes
        if (parts := probe.parts()) is not None
    )
    if not transports:
        return
    middle_ns = transports[nearest_rank(len(transports), 50) - 1]
    if middle_ns > TRANSPORT_DEGRADED_NS:
        yield _Finding(
            "DEGRADED",
            f"half of the probes spent more than {middle_ns / 1e6:.0f} ms on their way to the agent and back",
            "run the agent on the server's machine or nearer to it",
        )


def _judge_pictures(records: Sequence[SessionRecord]) -> Iterator[_Finding]:
    damaged = {
        record.started.episode: record.harness.damaged_pictures
        for record in records
        if record.harness is not None and record.harness.damaged_pictures
    }
    if damaged:
        first = next(iter(damaged))
        yield _Finding(
            "DEGRADED",
            f"{counted(sum(damaged.values()), 'damaged picture')} in {counted(len(damaged), 'video')}, "
            f"the first in {first}",
            "get the video again: `streamsim frames VIDEO` shows what is wrong with it",
        )


def _judge_guards(records: Sequence[SessionRecord]) -> Iterator[_Finding]:
    codes = [warning.code for record in records for warning in record.warnings]
    guards = codes.count("lockstep_timeout")
    if guards:
        yield _Finding(
            "DEGRADED",
            f"{counted(guards, 'answer')} ran into lockstep's wall-time guard",
            "raise --answer-timeout: in lockstep it is only a guard",
        )
    drains = codes.count("drain_timeout")
    if drains:
        yield _Finding(
            "DEGRADED",
            f"{counted(drains, 'session')} cut off by the drain timeout with frames unsettled",
            "raise --drain-timeout, or let the agent skip with --frames latest",
        )


def _nothing_shown(records: Sequence[SessionRecord]) -> tuple[str, str]:
    """Why there is nothing to judge, and what to do; warnings tell of sessions that did not complete."""
    if not records:
        return "no session was played: there is nothing to judge", RESUME_HINT
    reason = "no session showed a single frame: there is nothing to judge"
    if all(record.ended is not None and record.ended.reason == "completed" for record in records):
        return reason, "look at the videos with `streamsim frames`"
    return reason, f"see the warnings for why, then {RESUME_HINT}"


def _judge_completeness(
    records: Sequence[SessionRecord], planned: int, unplayed: Sequence[str]
) -> list[_Finding]:
    """Sessions that the harness, not the agent, left unfinished; runs in which nothing was shown at all."""
    if planned and not any(record.frames for record in records):
        return [_Finding("INVALID", *_nothing_shown(records))]
    names = [name for record in records if (name := _broken_off(record)) is not None]
    missing = len(names) + planned - len(records)
    if missing <= 0:
        return []
    names += [f"{session} (not played)" for session in unplayed]
    named = ", ".join(names[:MAX_NAMED]) + (
        f", and {missing - MAX_NAMED} more" if missing > MAX_NAMED else ""
    )
    return [
        _Finding(
            "DEGRADED",
            f"{missing} of {counted(planned, 'session')} not played to the end"
            + (f": {named}" if named else ""),
            RESUME_HINT,
        )
    ]


def _broken_off(record: SessionRecord) -> str | None:
    """The session and how it ended, if that was none of the agent's doing."""
    started, ended = record.started, record.ended
    name = started.episode + (f", repeat {started.repeat}" if started.repeat > 1 else "")
    if ended is None:
        return f"{name} (no end: the server was killed)"
    return f"{name} ({ended.reason})" if ended.reason in ("interrupted", "media_failed") else None


def _timed(records: Sequence[SessionRecord]) -> list[SessionRecord]:
    return [record for record in records if record.started.clock in TIMED_CLOCKS]


_CHECKS: tuple[Callable[[Sequence[SessionRecord]], Iterator[_Finding]], ...] = (
    _judge_early,
    _judge_clocks,
    _judge_lateness,
    _judge_decoder,
    _judge_loops,
    _judge_transport,
    _judge_pictures,
    _judge_guards,
)

"""The summary of a run: what ended how, what was released when, how long answers took.

Derived from journals alone; scores come from ``run_scores`` beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import msgspec

from streamsim.events import (
    AgentFailed,
    ChainClosed,
    FrameSent,
    FrameSettled,
    ProbeSent,
    SessionStarted,
    WarningRaised,
)
from streamsim.journal.folder import read_last_attempts, read_run_file
from streamsim.journal.read import JournalFile
from streamsim.scoring.latency import latency_figures, probe_timings
from streamsim_protocol.messages import ClockMode, Outcome

WITHHELD: dict[ClockMode, str] = {
    "lockstep": "in lockstep media time stands while the agent works: measure with --clock realtime",
    "scaled": "a scaled clock does not scale the agent's work: measure with --clock realtime",
}


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of ``run --json`` that need no answer key.

    ``frames`` counts in (sent), out (settled), skipped, failed and late (released more than 50 ms after due,
    the client's lack of credit left out). ``complete`` sessions are those that need not be played again.
    """

    run: str
    sessions: int
    complete: int
    queries: int
    outcomes: dict[str, int]
    early_releases: int
    frames: dict[str, int]
    warnings: list[str]
    latency: dict[str, object]
    digests: dict[str, str]


LATE_NS = 50_000_000


def summarise_run(folder: Path) -> RunSummary:
    """Read all journals of a run, the last attempt of each session."""
    run_file = read_run_file(folder)
    journals = read_last_attempts(folder)
    outcomes: Counter[str] = Counter(dict.fromkeys(get_args(Outcome), 0))
    frames: Counter[str] = Counter(sent=0, settled=0, skipped=0, failed=0, late=0)
    warnings: list[str] = []
    early = 0
    repeats = range(1, run_file.config.repeat + 1)
    planned = [(episode, repeat) for repeat in repeats for episode in run_file.config.episodes]
    for journal in journals:
        started = journal.started
        closed = 0
        for entry in journal.entries:
            event = entry.event
            match event:
                case ChainClosed():
                    outcomes[event.outcome] += 1
                    closed += 1
                case FrameSent():
                    frames["sent"] += 1
                    early += entry.at.media_ns < event.media_ns
                    frames["late"] += (
                        is_late(event.due_wall_ns, entry.at.wall_ns) and event.held_by != "credit"
                    )
                case ProbeSent():
                    early += entry.at.media_ns < event.due_media_ns
                case FrameSettled():
                    frames["settled"] += 1
                    frames["skipped"] += event.outcome == "skipped"
                    frames["failed"] += event.outcome == "failed"
                case WarningRaised():
                    warnings.append(f"{started.episode}: {event.code}: {event.detail}")
                case AgentFailed():
                    warnings.append(f"{started.episode}: the agent raised in {event.phase}")
                case _:
                    pass
        outcomes["not_reached"] += len(started.queries) - closed
        warnings += _ending_warnings(journal)
    played = {(journal.started.episode, journal.started.repeat) for journal in journals}
    for episode, repeat in planned:
        if (episode, repeat) not in played:
            outcomes["not_reached"] += run_file.queries[episode]
            warnings.append(f"{episode}: repeat {repeat} has not been played: continue with --resume")
    return RunSummary(
        run=run_file.run,
        sessions=len(planned),
        complete=sum(journal.complete for journal in journals),
        queries=sum(run_file.queries[episode] for episode, _ in planned),
        outcomes=dict(outcomes),
        early_releases=early,
        frames=dict(frames),
        warnings=warnings,
        latency=_latency(journals, run_file.config.clock),
        digests={journal.path.name: journal.digest for journal in journals},
    )


def is_late(due_wall_ns: int | None, wall_ns: int) -> bool:
    """Whether a release came more than 50 ms after it was due."""
    return due_wall_ns is not None and wall_ns - due_wall_ns > LATE_NS


def _ending_warnings(journal: JournalFile) -> list[str]:
    started: SessionStarted = journal.started
    warnings = []
    if journal.fault is not None:
        warnings.append(f"{started.episode}: the journal could be read only up to {journal.fault}")
    if journal.ended is None:
        warnings.append(f"{started.episode}: the session has no end: the server was killed")
    elif journal.ended.reason != "completed":
        detail = f" ({journal.ended.detail})" if journal.ended.detail else ""
        warnings.append(f"{started.episode}: the session ended as {journal.ended.reason}{detail}")
    return warnings


def _latency(journals: Sequence[JournalFile], clock: ClockMode) -> dict[str, object]:
    if clock in WITHHELD:
        return {"withheld": WITHHELD[clock]}
    lanes = max((journal.started.lanes for journal in journals), default=1)
    if clock == "skip" and lanes > 1:
        return {
            "withheld": f"{lanes} sessions shared one machine: skip measures latency only with --sessions 1"
        }
    timings = [timing for journal in journals for timing in probe_timings(journal.events())]
    return latency_figures(timings)

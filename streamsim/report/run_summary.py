"""The summary of a run: what ended how, what was released when, how long answers took.

Derived from journals alone; scores come from ``run_scores`` beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import msgspec

from streamsim.events import ChainClosed, SessionStarted, WarningRaised
from streamsim.journal.folder import altered_journals, read_run_file, read_sessions
from streamsim.journal.read import JournalFile
from streamsim.journal.verify import run_digest
from streamsim.report.agent_faults import AgentFaults
from streamsim.scoring.harness import agent_figures, harness_figures, is_late
from streamsim.scoring.latency import DEADLINES_S, latency_figures, withhold_latency
from streamsim.scoring.record import SessionRecord, read_record
from streamsim.scoring.verdict import COUNTED_WARNINGS, Verdict, judge
from streamsim_protocol.messages import Outcome


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of ``run --json`` that need no answer key.

    ``frames`` counts in (sent), out (settled), skipped, failed and late (released more than 50 ms after due,
    the client's lack of credit left out). ``complete`` sessions are those that need not be played again.
    ``digest`` is over those of all sessions: kept elsewhere, it shows later changes. ``altered`` are places
    (``FILE:LINE``) where a journal's chain is broken; the first ``warnings`` are about these, one each.
    """

    run: str
    sessions: int
    complete: int
    queries: int
    outcomes: dict[str, int]
    early_releases: int
    frames: dict[str, int]
    altered: list[str]
    warnings: list[str]
    verdict: Verdict
    harness: dict[str, object]
    latency: dict[str, object]
    agent: dict[str, object]
    digest: str
    digests: dict[str, str]


def summarise_run(folder: Path, *, deadlines_s: Sequence[float] = DEADLINES_S) -> RunSummary:
    """Read all journals of a run, the last attempt of each session.

    ``deadlines_s`` are those whose misses the latency section counts.
    """
    run_file = read_run_file(folder)
    journals = read_sessions(folder, run_file)
    records = [record for journal in journals if (record := read_record(journal.events())) is not None]
    outcomes: Counter[str] = Counter(dict.fromkeys(get_args(Outcome), 0))
    warnings: list[str] = []
    faults = AgentFaults(run_file.config.repeat)
    repeats = range(1, run_file.config.repeat + 1)
    planned = [(episode, repeat) for repeat in repeats for episode in run_file.config.episodes]
    shown = any(record.frames for record in records)
    for journal in journals:
        faults.see(journal)
        started = journal.started
        closed = 0
        for entry in journal.entries:
            event = entry.event
            match event:
                case ChainClosed():
                    outcomes[event.outcome] += 1
                    closed += 1
                case WarningRaised() if event.code not in COUNTED_WARNINGS:
                    warnings.append(f"{started.episode}: {event.code}: {event.detail}")
                case _:
                    pass
        outcomes["not_reached"] += len(started.queries) - closed
        warnings += _ending_warnings(journal, named=shown)
    played = {(journal.started.episode, journal.started.repeat) for journal in journals}
    unplayed = []
    for episode, repeat in planned:
        if (episode, repeat) not in played:
            outcomes["not_reached"] += run_file.queries[episode]
            unplayed.append(episode + (f", repeat {repeat}" if repeat > 1 else ""))
    if journals and not shown:
        warnings += [f"{session}: not played" for session in unplayed]
    altered = altered_journals(folder, journals)
    lanes = max((record.started.lanes for record in records), default=1)
    withheld = withhold_latency(run_file.config.clock, lanes)
    return RunSummary(
        run=run_file.run,
        sessions=len(planned),
        complete=sum(journal.complete for journal in journals),
        queries=sum(run_file.queries[episode] for episode, _ in planned),
        outcomes=dict(outcomes),
        early_releases=sum(record.early for record in records),
        frames=_count_frames(records),
        altered=list(altered),
        warnings=[*altered.values(), *faults.lines(), *warnings],
        verdict=judge(records, planned=len(planned), unplayed=unplayed),
        harness=harness_figures(records),
        latency={"withheld": withheld} if withheld else latency_figures(records, deadlines_s=deadlines_s),
        agent=agent_figures(records),
        digest=run_digest(run_file, journals),
        digests={journal.path.name: journal.digest for journal in journals},
    )


def _count_frames(records: Sequence[SessionRecord]) -> dict[str, int]:
    frames = [frame for record in records for frame in record.frames]
    return {
        "sent": len(frames),
        "settled": sum(frame.outcome is not None for frame in frames),
        "skipped": sum(frame.outcome == "skipped" for frame in frames),
        "failed": sum(frame.outcome == "failed" for frame in frames),
        "late": sum(
            release.kind == "frame" and is_late(release) for record in records for release in record.releases
        ),
    }


def _ending_warnings(journal: JournalFile, *, named: bool) -> list[str]:
    """What a session's end adds to the verdict, which names those that the harness broke off.

    Without ``named`` it names none.
    """
    started: SessionStarted = journal.started
    warnings = []
    if journal.fault_notice is not None and not journal.altered:
        warnings.append(journal.fault_notice)
    if journal.ended is None:
        if not named:
            warnings.append(f"{started.episode}: the session has no end: the server was killed")
    elif journal.ended.reason != "completed":
        detail = f" ({journal.ended.detail})" if journal.ended.detail else ""
        if detail or journal.ended.reason != "interrupted" or not named:
            warnings.append(f"{started.episode}: the session ended as {journal.ended.reason}{detail}")
    return warnings

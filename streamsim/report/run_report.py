"""The report after a run: one JSON object for programs, tables for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import msgspec
from rich.console import Console

from streamsim.errors import StreamsimError
from streamsim.journal.folder import read_run_file
from streamsim.notice import notice
from streamsim.plural import counted
from streamsim.report.console import report_console, say
from streamsim.report.latency_table import print_time
from streamsim.report.run_scores import score_run, write_scores
from streamsim.report.run_summary import RunSummary, summarise_run
from streamsim.report.score_table import nothing_answered, print_scores, shown_notices
from streamsim.scoring.latency import DEADLINES_S


def report_run(
    folder: Path,
    *,
    as_json: bool,
    deadlines_s: Sequence[float] = DEADLINES_S,
    dataset: Path | None = None,
) -> int:
    """Print the report of a run and write its scores; returns the exit code of the run.

    ``deadlines_s`` are those whose misses are counted; ``dataset`` is where the dataset lies now, if not
    where the run found it. 0: every session completed, no query failed or was cut off; 1: something did.
    """
    summary = summarise_run(folder, deadlines_s=deadlines_s)
    command = "run" if read_run_file(folder).config.agent else "serve"
    scores = _score(folder, dataset, command)
    if as_json:
        report = {
            "folder": str(folder),
            **msgspec.to_builtins(summary),
            "scores": scores,
        }
        print(json.dumps(report))
    else:
        console = report_console()
        print_summary(summary, console)
        if scores is not None:
            for text in shown_notices(scores)[len(scores["altered"]) :]:  # those the summary has told
                say(console, f"notice: {text}")
            print_scores(scores, console)
        for line in (
            f"journals: {folder / 'sessions'}",
            f"digest: {summary.digest}   (keep it: streamsim verify {quote(str(folder))} --digest …)",
            _next_step(
                folder, summary, command=command, scored=scores is not None and not nothing_answered(scores)
            ),
        ):
            say(console, line)
    return run_exit_code(summary)


def run_exit_code(summary: RunSummary) -> int:
    """1 when a query failed, was disconnected or not reached, or a session is not complete."""
    lost = sum(
        summary.outcomes[outcome] for outcome in ("failed", "disconnected", "not_reached", "cancelled")
    )
    return 1 if lost or summary.complete < summary.sessions else 0


def _next_step(folder: Path, summary: RunSummary, *, command: str, scored: bool) -> str:
    """What to try next; the folder as a shell takes it."""
    run = quote(str(folder))
    if summary.complete < summary.sessions:
        return f"next: streamsim {command} --resume --out {run}   (plays what is not complete)"
    if scored:
        return f"next: streamsim score {run}   (the same scores again, from the journals alone)"
    return f"next: streamsim verify {run}   (proof that nothing came early)"


def print_summary(summary: RunSummary, console: Console) -> None:
    """Outcomes, counters, verdict, latency and warnings; before all, what of it was changed afterwards."""
    altered = len(summary.altered)
    for warning in summary.warnings[:altered]:
        say(console, f"warning: {warning}")
    outcomes = ", ".join(f"{name} {count}" for name, count in summary.outcomes.items() if count)
    sessions = f"{counted(summary.sessions, 'session')} ({summary.complete} complete)"
    say(console, f"{sessions}, {counted(summary.queries, 'query')}: {outcomes}")
    frames = ", ".join(f"{name} {count}" for name, count in summary.frames.items())
    say(console, f"frames: {frames}; released early: {summary.early_releases}")
    print_time(summary, console)
    for warning in summary.warnings[altered:]:
        say(console, f"warning: {warning}")


def _score(folder: Path, dataset: Path | None, command: str) -> dict[str, Any] | None:
    """The scores, or None with a notice: a run whose key is not at hand is still a run."""
    try:
        scores = score_run(folder, dataset=dataset)
    except StreamsimError as error:
        notice(f"streamsim {command}: not scored: {error}")
        return None
    try:
        write_scores(folder, scores)
    except StreamsimError as error:
        notice(f"streamsim {command}: the figures are in no file: {error}")
    return scores

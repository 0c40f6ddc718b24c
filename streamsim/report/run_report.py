"""The report after a run: one JSON object for programs, tables for people."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from streamsim.errors import StreamsimError
from streamsim.report.run_scores import score_run, write_scores
from streamsim.report.run_summary import RunSummary, summarise_run
from streamsim.report.score_table import print_scores


def report_run(folder: Path, *, as_json: bool) -> int:
    """Print the report of a run and write its scores; returns the exit code of the run.

    0: every session completed, no query failed or was cut off; 1: something did.
    """
    summary = summarise_run(folder)
    scores = _score(folder)
    if as_json:
        report = {
            "folder": str(folder),
            **msgspec.to_builtins(summary),
            "scores": scores,
        }
        print(json.dumps(report))
    else:
        console = Console()
        print_summary(summary, console)
        if scores is not None:
            print_scores(scores, console)
        console.print(f"journals: {folder / 'sessions'}", soft_wrap=True, highlight=False)
        console.print(
            f"next: streamsim score {folder}   (the same scores again, from the journals alone)",
            soft_wrap=True,
            highlight=False,
        )
    return run_exit_code(summary)


def run_exit_code(summary: RunSummary) -> int:
    """1 when a query failed, was disconnected or not reached, or a session is not complete."""
    lost = sum(
        summary.outcomes[outcome] for outcome in ("failed", "disconnected", "not_reached", "cancelled")
    )
    return 1 if lost or summary.complete < summary.sessions else 0


def print_summary(summary: RunSummary, console: Console) -> None:
    """Outcomes, counters, latency and warnings, as tables."""
    outcomes = ", ".join(f"{name} {count}" for name, count in summary.outcomes.items() if count)
    console.print(
        f"{summary.sessions} sessions ({summary.complete} complete), {summary.queries} queries: {outcomes}"
    )
    frames = ", ".join(f"{name} {count}" for name, count in summary.frames.items())
    console.print(f"frames: {frames}; released early: {summary.early_releases}")
    print_latency(summary.latency, console)
    for warning in summary.warnings:
        console.print(f"warning: {warning}", markup=False, soft_wrap=True)


def print_latency(latency: dict[str, object], console: Console) -> None:
    """due -> first text -> final and sent -> first text -> final, in seconds, per probe."""
    withheld = latency.get("withheld")
    if withheld is not None:
        console.print(f"latency withheld: {withheld}", soft_wrap=True)
        return
    table = Table(title="latency in seconds of wall time, p50 / max; timed-out answers stay in n")
    for name in ("probe", "n", "timed out", "due → first", "due → final", "sent → first", "sent → final"):
        table.add_column(name, justify="right" if name != "probe" else "left")
    for probe, figures in latency.items():
        assert isinstance(figures, dict)
        spans = ("due_to_first", "due_to_final", "sent_to_first", "sent_to_final")
        table.add_row(
            probe, str(figures["n"]), str(figures["timed_out"]), *(_span(figures[span]) for span in spans)
        )
    console.print(table)


def _span(figures: dict[str, float | None]) -> str:
    return f"{_seconds(figures['p50'])} / {_seconds(figures['max'])}"


def _seconds(value: float | None) -> str:
    return "∞" if value is None else f"{value:.3f}"


def _score(folder: Path) -> dict[str, object] | None:
    """The scores, or None with a notice: a run whose key is not at hand is still a run."""
    try:
        scores = score_run(folder)
        write_scores(folder, scores)
    except StreamsimError as error:
        print(f"streamsim run: not scored: {error}", file=sys.stderr)
        return None
    return scores

"""``bench.py rescore``: does simulated time tell what another machine would have shown?"""

from __future__ import annotations

import argparse
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

from streamsim.bench.footage import make_footage
from streamsim.bench.live import read_journals, run_streamsim
from streamsim.bench.report import Report
from streamsim.events import (
    AnyEvent,
    ChainClosed,
    FrameSent,
    FrameSettled,
    Instant,
    ProbeSent,
    TextReceived,
    TurnEnded,
    TurnStarted,
)
from streamsim.journal.read import JournalFile
from streamsim.prompts import load_prompts
from streamsim.report.rescoring import rescore_run
from streamsim.scoring.rescore import Change, make_pool, read_recorded, rescore_session

FRAME_S, ANSWER_S = 0.2, 0.4
SPANS = ("due_to_first", "due_to_final", "sent_to_first", "sent_to_final")
STORY = (FrameSent, FrameSettled, ProbeSent, TurnStarted, TextReceived, TurnEnded, ChainClosed)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The length of the episode."""
    parser.add_argument("--seconds", type=int, default=60, help="of the episode (60)")


def measure(args: argparse.Namespace) -> Report:
    """Rescore at factor 1 against the run itself, at 0.5 and 2 against real runs at those speeds."""
    with tempfile.TemporaryDirectory(prefix="streamsim-bench-") as name:
        folder = Path(name)
        dataset = make_footage(
            folder / "d", seconds=args.seconds, query_seconds=tuple(range(3, args.seconds, 3))
        )
        runs = {factor: folder / f"run-{factor}" for factor in ("1", "0.5", "2")}
        reports = {factor: _run(dataset, out, float(factor)) for factor, out in runs.items()}
        (journal,) = read_journals(runs["1"])
        same, worst_ms, over = _compare_stamps(journal)
        lines = [
            f"factor 1: order {'identical' if same else 'DIFFERENT'}; "
            f"stamps differ by at most {worst_ms:.3f} ms, "
            f"{over} of them by more than 1 ms (target none)"
        ]
        figures: dict[str, Any] = {"same_order": same, "worst_stamp_ms": worst_ms, "stamps_over_1_ms": over}
        met = same and over == 0
        for factor in ("0.5", "2"):
            rescored: Any = rescore_run(runs["1"], Change(factor=Fraction(factor)))["latency"]
            real = reports[factor]["latency"]
            worst = max(
                abs(rescored[probe][span]["p50"] / real[probe][span]["p50"] - 1)
                for probe in real
                for span in SPANS
            )
            lines.append(
                f"factor {factor}: medians of all spans within {100 * worst:.2f} % of a real run (target 3 %)"
            )
            figures[f"worst_median_difference_{factor}"] = worst
            met = met and worst <= 0.03
    return Report(met=met, lines=lines, figures=figures)


def _run(dataset: Path, out: Path, factor: float) -> dict[str, Any]:
    options = ["--agent", "fixed-delay", "--clock", "skip"]
    options += ["--agent-arg", f"frame={FRAME_S * factor}", "--agent-arg", f"answer={ANSWER_S * factor}"]
    return run_streamsim(dataset, out, *options)


def _compare_stamps(journal: JournalFile) -> tuple[bool, float, int]:
    """Same order? Largest difference of media stamps in ms, and how many exceed one."""
    recorded = read_recorded(journal.events())
    assert recorded is not None
    again = rescore_session(
        recorded, make_pool([recorded]), Change(), load_prompts(), credit_timeout_ns=60_000_000_000
    )
    ours, theirs = _story(list(journal.events())), _story(again.events)
    same = [name for name, _ in ours] == [name for name, _ in theirs]
    differences = [abs(a[1] - b[1]) / 1e6 for a, b in zip(ours, theirs, strict=False)]
    return same, max(differences), sum(difference > 1 for difference in differences)


def _story(events: list[tuple[Instant, AnyEvent]]) -> list[tuple[str, int]]:
    story = []
    for at, event in events:
        if isinstance(event, STORY):
            names = (getattr(event, key, "") for key in ("k", "query", "probe", "turn"))
            story.append((" ".join([type(event).__name__, *map(str, names)]), at.media_ns))
    return story

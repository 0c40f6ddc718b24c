"""``streamsim score``: figures of a run, or of predictions made elsewhere."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from streamsim.errors import UsageError
from streamsim.notice import notice

if TYPE_CHECKING:
    from streamsim.reading import Reader

HELP = "score a run against its answer key, or a prediction file against STORM-Bench's questions"
EPILOG = """\
examples:
  streamsim score runs/20260817-120000-random
  streamsim score --questions annotations/storm_cook.questions.jsonl --predictions pred.jsonl --json

prediction rows: {id, pred_index, pred_epistemic_status, pred_uncertainty_sources}
              or {id, task_answer, status, uncertainty_sources}; answers 0-3 or A-D, null for none
In a run a query without an answer counts as wrong; a prediction file must cover the questions exactly.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A run folder, or questions with predictions."""
    parser.add_argument(
        "run", nargs="?", type=Path, metavar="RUN", help="a run folder; scores.json is written into it"
    )
    parser.add_argument(
        "--questions", type=Path, nargs="+", metavar="FILE", help="STORM-Bench questions files"
    )
    parser.add_argument("--predictions", type=Path, nargs="+", metavar="FILE", help="prediction files")
    parser.add_argument(
        "--pred-order",
        choices=("auto", "stored", "presented"),
        default="auto",
        help="which order of options predicted answers count in; auto: presented where the row carries "
        "option_permutation, else stored",
    )
    parser.add_argument(
        "--reader", metavar="NAME", help="read raw texts anew with this reader: strict or storm-evaluator"
    )
    parser.add_argument(
        "--causes",
        choices=("paper", "storm-evaluator"),
        default="paper",
        help="paper: causes count only under a predicted-uncertain status; storm-evaluator: always",
    )
    parser.add_argument("--dataset", type=Path, metavar="DATASET", help="where the run's dataset lies now")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(args: argparse.Namespace) -> int:
    """Score and print; 0 when there are figures."""
    from streamsim.report.run_scores import score_run

    if (args.run is None) == (args.questions is None and args.predictions is None):
        raise UsageError("expected either a run folder, or --questions with --predictions")
    reader = _reader(args.reader)
    unwritten: list[str] = []
    if args.run is not None:
        scores = score_run(args.run, dataset=args.dataset, reader=reader, cause_rule=args.causes)
        unwritten = _write(args.run, scores)
    else:
        if args.questions is None or args.predictions is None:
            raise UsageError("expected --questions and --predictions together, got one of them")
        from streamsim.report.prediction_scores import score_predictions

        scores = score_predictions(
            args.questions, args.predictions, order=args.pred_order, reader=reader, cause_rule=args.causes
        )
    notices = scores["notices"]
    assert isinstance(notices, list)
    if args.json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(scores), indent=2).decode())
    else:
        notices = _print(scores)
    for text in (*notices, *unwritten):
        notice(f"notice: {text}")
    return 0


def _print(scores: dict[str, object]) -> list[str]:
    """The figures, and above them what was changed, wherever they are kept; returns the other notices."""
    from streamsim.report.console import report_console, say
    from streamsim.report.score_table import print_scores, shown_notices

    console = report_console()
    altered = scores.get("altered", [])
    assert isinstance(altered, list)
    notices = shown_notices(scores)
    for text in notices[: len(altered)]:
        say(console, f"notice: {text}")
    print_scores(scores, console)
    return notices[len(altered) :]


def _write(run: Path, scores: dict[str, object]) -> list[str]:
    """Write ``scores.json``; if that cannot be, the figures stand all the same: a notice says so."""
    from streamsim.errors import RunError
    from streamsim.report.run_scores import write_scores

    try:
        write_scores(run, scores)
    except RunError as error:
        return [f"the figures are in no file: {error}"]
    return []


def _reader(name: str | None) -> Reader | None:
    if name is None:
        return None
    from streamsim.reading import READERS

    if name not in READERS:
        raise UsageError(f"no reader {name!r}: expected one of {', '.join(READERS)}")
    return READERS[name]

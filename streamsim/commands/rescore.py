"""``streamsim rescore``: what if the machine were faster, the deadline shorter, the policy another?"""

from __future__ import annotations

import argparse
import json
from fractions import Fraction
from pathlib import Path

from streamsim.errors import UsageError
from streamsim.launch.options import MAX_DEADLINE_S

HELP = "play recorded service times again at another speed, deadline or frame policy (latency only)"
EPILOG = """examples:
  streamsim rescore runs/NAME --compute-factor 0.5          (what if the GPU were twice as fast?)
  streamsim rescore runs/NAME --deadline 2 --frames latest
  streamsim rescore runs/NAME --service-profile h200.toml   (name, frame_s, task_s, status_s, cause_s)

Only service times scale; what the harness took stays as it was recorded. Accuracy is not re-scored."""

MAX_FACTOR = 1_000
"""Machines differ by no more, in either direction; service times stay far from the end of the clock."""
MIN_DEADLINE_S = 0.001


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A run, and what is to be different."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument(
        "--compute-factor",
        default="1",
        metavar="F",
        help="service times are multiplied by F, 0.001 to 1000 (1)",
    )
    parser.add_argument(
        "--deadline",
        type=float,
        metavar="S",
        help="cut answers off S seconds after due: what `run --answer-timeout` does "
        "(`run --deadline` only counts misses)",
    )
    parser.add_argument("--frames", choices=("all", "latest"), help="what a slow agent gets")
    parser.add_argument(
        "--service-profile", type=Path, metavar="FILE", help="service times in place of the recorded ones"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def execute(args: argparse.Namespace) -> int:
    """Rescore and print; 0 when there are figures."""
    from streamsim.report.console import report_console
    from streamsim.report.rescoring import print_rescored, read_profile, rescore_run
    from streamsim.scoring.rescore import Change

    if args.deadline is not None and not MIN_DEADLINE_S <= args.deadline <= MAX_DEADLINE_S:
        raise UsageError(
            f"--deadline: expected seconds from {MIN_DEADLINE_S:g} to {MAX_DEADLINE_S:,}, "
            f"got {args.deadline!r}"
        )
    change = Change(
        factor=read_factor(args.compute_factor),
        deadline_ns=None if args.deadline is None else round(args.deadline * 1e9),
        frames=args.frames,
        profile=None if args.service_profile is None else read_profile(args.service_profile),
    )
    figures = rescore_run(args.run, change)
    if args.json:
        print(json.dumps(figures))
    else:
        print_rescored(figures, report_console())
    return 0


def read_factor(text: str) -> Fraction:
    """A factor as it is written, exactly: ``0.5``, ``2``, ``1/3``."""
    numerator, slash, denominator = text.partition("/")
    try:
        # its size first: the exact number 1e999999999 would not fit in memory
        size = float(numerator) / (float(denominator) if slash else 1.0)
        if 0.9 / MAX_FACTOR < size < 1.1 * MAX_FACTOR:
            factor = Fraction(text)
            if Fraction(1, MAX_FACTOR) <= factor <= MAX_FACTOR:
                return factor
    except (ValueError, ZeroDivisionError):
        pass
    raise UsageError(
        f"--compute-factor: expected a number from {1 / MAX_FACTOR:g} to {MAX_FACTOR:,}, such as 0.5 or 1/3, "
        f"got {text!r}"
    )

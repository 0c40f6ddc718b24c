"""``streamsim make``: synthetic episodes with real ground truth."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from streamsim.errors import DatasetError, UsageError
from streamsim.plural import counted

if TYPE_CHECKING:
    from streamsim.episodes.make.produce import Annotations, Recipe

HELP = "make synthetic episodes whose truth is known"
EPILOG = """\
example:
  streamsim make rooms --count 4 --seed 7 -o rooms

exit codes: 0 made, 2 wrong usage or the folder exists: nothing was written
"""

_ROOMS_HELP = "a camera that wanders through rooms in which things leave, return, move and change"
_MAX_PROCESSES = 1024
_DEFAULT_SECONDS = {"rooms": 60, "revisit": 45}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One sub-command per kind of episode."""
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    rooms = kinds.add_parser(
        "rooms",
        help=_ROOMS_HELP,
        description=_ROOMS_HELP,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    rooms.add_argument("--count", type=int, default=4, metavar="N", help="episodes (default 4)")
    rooms.add_argument(
        "--seed", type=int, default=0, metavar="S", help="same seed, same episodes (default 0)"
    )
    rooms.add_argument("--seconds", type=int, metavar="S", help="length of each (default 60, revisit 45)")
    rooms.add_argument("--fps", type=int, default=10, help="pictures a second (default 10)")
    rooms.add_argument(
        "--style",
        choices=tuple(_DEFAULT_SECONDS),
        default="rooms",
        help="one unbroken view (default), or clips of one room with black between them",
    )
    rooms.add_argument("--processes", type=int, metavar="N", help="at once (default: one per core)")
    rooms.add_argument("-o", "--output", type=Path, required=True, metavar="DATASET", help="a new folder")
    rooms.add_argument("--json", action="store_true", help="print one JSON object")


def execute(args: argparse.Namespace) -> int:
    """Make the data set; 0, or ``UsageError`` with nothing written."""
    from streamsim.episodes.make.produce import Recipe, make_dataset, require_legal
    from streamsim.writing import cannot_write

    recipe = Recipe(
        count=args.count,
        seed=args.seed,
        seconds=_DEFAULT_SECONDS[args.style] if args.seconds is None else args.seconds,
        fps=args.fps,
        style=args.style,
    )
    require_legal(recipe)
    if args.processes is not None and not 1 <= args.processes <= _MAX_PROCESSES:
        raise UsageError(f"expected --processes from 1 to {_MAX_PROCESSES}, got {args.processes}")
    started, cpu_started = time.monotonic(), _cpu_seconds()
    try:
        annotations = make_dataset(
            recipe, args.output, processes=args.processes or os.cpu_count() or 1, progress=_progress(recipe)
        )
    except OSError as error:
        raise DatasetError(cannot_write(args.output, error)) from error
    _report(args, annotations, time.monotonic() - started, _cpu_seconds() - cpu_started)
    return 0


def _progress(recipe: Recipe) -> Callable[[str, int], None]:
    """Says on stderr how far it is: one line that is rewritten on a terminal, plain lines elsewhere."""
    words = {"plan": "planned", "draw": "drawn"}
    on_terminal = sys.stderr.isatty()

    def show(stage: str, done: int) -> None:
        text = f"{done} of {counted(recipe.count, 'episode')} {words[stage]}"
        last = done == recipe.count
        if on_terminal:
            end = "\n" if last and stage == "draw" else ""
            print(f"\r\x1b[K{text}", end=end, file=sys.stderr, flush=True)
        elif stage == "draw":
            print(text, file=sys.stderr, flush=True)

    return show


def _cpu_seconds() -> float:
    """CPU seconds of this process and of those that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _report(args: argparse.Namespace, annotations: Annotations, wall_s: float, cpu_s: float) -> None:
    episodes, key = annotations.episodes, annotations.key
    uncertain = sum(entry.status == "uncertain" for entry in key)
    if args.json:
        import msgspec

        report = {
            "dataset": str(args.output),
            "episodes": len(episodes),
            "queries": len(key),
            "known": len(key) - uncertain,
            "uncertain": uncertain,
            "wall_s": round(wall_s, 3),
            "cpu_s_per_episode": round(cpu_s / len(episodes), 3),
        }
        print(msgspec.json.encode(report).decode())
        return
    print(
        f"{args.output}: {counted(len(episodes), 'episode')}, {counted(len(key), 'query')} "
        f"({uncertain} uncertain), "
        f"in {wall_s:.1f} s, {cpu_s / len(episodes):.1f} s of CPU an episode"
    )
    print(f"next: streamsim check {quote(str(args.output))}")

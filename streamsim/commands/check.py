"""``streamsim check``: is a dataset fit to be played and scored?"""

from __future__ import annotations

import argparse
from pathlib import Path

from streamsim.plural import counted
from streamsim_protocol.terminal import for_terminal

HELP = "check a dataset: structure, causality and videos (errors), balance and cues (warnings)"
EPILOG = """\
example:
  streamsim check storm_cook

exit codes: 0 no error (there may be warnings), 1 some error, 2 there is no dataset
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A dataset folder."""
    parser.add_argument("dataset", type=Path, metavar="DATASET", help="a folder made by import or make")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(args: argparse.Namespace) -> int:
    """Print the findings; 1 if one of them is an error."""
    import msgspec

    from streamsim.episodes.check import check_dataset
    from streamsim.episodes.finding import errors

    checked = check_dataset(args.dataset)
    faults = len(errors(checked.findings))
    counts = {
        "episodes": checked.episodes,
        "queries": checked.queries,
        "errors": faults,
        "warnings": len(checked.findings) - faults,
    }
    if args.json:
        report = {"dataset": str(args.dataset), **counts, "findings": checked.findings}
        print(msgspec.json.encode(report).decode())
    else:
        for finding in checked.findings:
            print(for_terminal(str(finding)))
        nouns = ("episode", "query", "error", "warning")
        told = ", ".join(map(counted, counts.values(), nouns))
        print(f"{args.dataset}: {told}")
    return 1 if faults else 0

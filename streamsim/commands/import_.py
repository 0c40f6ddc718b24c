"""``streamsim import``: annotation files and videos to a dataset folder."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from streamsim.notice import notice
from streamsim.plural import counted

if TYPE_CHECKING:
    from streamsim.episodes.formats.imported import Imported

HELP = "make a dataset of a benchmark's annotation files, or of your own questions and videos"
_STORM_EXAMPLE = """\
  streamsim import storm annotations/storm_cook.questions.jsonl \\
      --manifest manifests/storm_cook.videos.jsonl --videos videos -o storm_cook
"""
_CSV_EXAMPLE = """\
  streamsim import csv questions.csv --videos clips -o mine
"""
_EXIT_CODES = """
exit codes: 0 all imported (absent videos are listed), 1 some rows were illegal and left out,
2 a file cannot be read or parsed, or --strict and an illegal row: nothing was written
"""
EPILOG = f"examples:\n{_STORM_EXAMPLE}{_CSV_EXAMPLE}{_EXIT_CODES}"

_STORM_HELP = "STORM-Bench: questions as a JSON array, JSON lines, or per episode"
_CSV_HELP = "your own questions: CSV or JSON rows of video, time, question, options, answer, …"
_STORM_EPILOG = f"example:\n{_STORM_EXAMPLE}{_EXIT_CODES}"
_CSV_EPILOG = f"""\
columns: video (a file below the videos' root), time (seconds, M:SS or H:MM:SS), question; options
(all in one column, separated by | or a JSON list; a row without any is an open question), answer
(a letter, or an option's whole text) or answer_index (counted from 0); and if you have them id,
episode, subset, kind, status (known, uncertain), causes, intensity (1 to 10), evidence_spans
([[start, end], ...] in seconds), type, subtype

example questions.csv, for a video clips/kitchen.mp4:
  video,time,question,options,answer
  kitchen.mp4,0:12,What is on the table?,a cup|a plate|nothing,B

example:
{_CSV_EXAMPLE}{_EXIT_CODES}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One sub-command per format."""
    formats = parser.add_subparsers(dest="format", metavar="FORMAT", required=True)
    storm = _add_format(formats, "storm", _STORM_HELP, _STORM_EPILOG)
    storm.add_argument(
        "--manifest", type=Path, action="append", default=[], metavar="FILE", help="may be given repeatedly"
    )
    table = _add_format(formats, "csv", _CSV_HELP, _CSV_EPILOG)
    table.add_argument(
        "--permute-options", action="store_true", help="order options per query as STORM-Bench does"
    )


def execute(args: argparse.Namespace) -> int:
    """Import; 0, 1 or 2 as the help page says."""
    from streamsim.episodes.finding import errors
    from streamsim.episodes.formats.imported import write_imported

    imported = _read_storm(args) if args.format == "storm" else _read_csv(args)
    for finding in imported.findings:
        notice(str(finding))
    illegal = bool(errors(imported.findings))
    written = bool(imported.episodes) and not (illegal and args.strict)
    if written:
        write_imported(args.output, imported, copy=args.copy)
    _report(args, imported, written)
    if illegal:
        return 2 if args.strict else 1
    return 0


def _add_format(
    formats: argparse._SubParsersAction[argparse.ArgumentParser], name: str, about: str, epilog: str
) -> argparse.ArgumentParser:
    """A format's sub-command, with the arguments that all formats have."""
    parser = formats.add_parser(
        name,
        help=about,
        description=about,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("questions", type=Path, nargs="+", metavar="QUESTIONS")
    parser.add_argument(
        "--videos", type=Path, metavar="DIR", help="the videos' root; default: beside the annotation files"
    )
    parser.add_argument("--copy", action="store_true", help="copy the videos into the dataset")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DATASET", help="a new folder")
    parser.add_argument("--strict", action="store_true", help="write nothing if any row is illegal")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _read_storm(args: argparse.Namespace) -> Imported:
    from streamsim.episodes.formats.imported import locate_under, probe_ends
    from streamsim.episodes.formats.row import read_json_rows
    from streamsim.episodes.formats.storm import import_storm

    questions = [read_json_rows(path) for path in args.questions]
    manifests = [read_json_rows(path) for path in args.manifest]
    locate = locate_under(_roots(args))
    return import_storm(questions, manifests, name=_name(args), locate=locate, end_of=probe_ends())


def _read_csv(args: argparse.Namespace) -> Imported:
    from streamsim.episodes.formats.csv_rows import import_csv
    from streamsim.episodes.formats.imported import locate_under, probe_ends
    from streamsim.episodes.formats.row import read_table_rows

    questions = [read_table_rows(path) for path in args.questions]
    locate = locate_under(_roots(args))
    return import_csv(
        questions,
        name=_name(args),
        locate=locate,
        end_of=probe_ends(),
        permute_options=args.permute_options,
    )


def _roots(args: argparse.Namespace) -> Sequence[Path]:
    """The folders below which videos are looked for."""
    if args.videos is not None:
        return [args.videos]
    return list(dict.fromkeys(path.parent for path in (*args.questions, *getattr(args, "manifest", ()))))


def _name(args: argparse.Namespace) -> str:
    name: str = args.output.absolute().name
    return name or "dataset"


def _report(args: argparse.Namespace, imported: Imported, written: bool) -> None:
    from streamsim.episodes.formats.imported import suggest_video

    absent = imported.absent_videos
    kinds = Counter(query.kind for episode in imported.episodes for query in episode.queries)
    if args.json:
        import msgspec

        report = {
            "dataset": str(args.output),
            "written": written,
            "episodes": len(imported.episodes),
            "queries": kinds.total(),
            "kinds": kinds,
            "refused": imported.refused,
            "absent_videos": absent,
            "findings": imported.findings,
        }
        print(msgspec.json.encode(report).decode())
    if absent:
        notice(f"absent videos ({len(absent)}), looked for at:")
        for video in absent:
            meant = suggest_video(_roots(args), video)
            notice(f"  {video}" + (f": did you mean {meant!r}?" if meant is not None else ""))
    if not written:
        why = "an illegal row and --strict" if imported.episodes else "no legal row"
        notice(f"nothing written: {why}")
    elif not args.json:
        told = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        left_out = f"; {counted(imported.refused, 'row')} left out" if imported.refused else ""
        episodes, queries = counted(len(imported.episodes), "episode"), counted(kinds.total(), "query")
        print(f"{args.output}: {episodes}, {queries} ({told}){left_out}")
        print(f"next: streamsim check {quote(str(args.output))}")

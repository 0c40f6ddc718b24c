"""``streamsim run``: play a dataset to an agent, then score what it said."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from streamsim.errors import UsageError
from streamsim.launch.options import RunOptions

HELP = "play a dataset to an agent as live sessions and score its answers"
EPILOG = """example:
  streamsim run DATASET --agent random --clock lockstep
  streamsim run DATASET --agent my_package.my_module:MyAgent --agent-arg model=PATH --sessions 2"""

_DEFAULTS = RunOptions(dataset=Path(), agent=None)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a run."""
    parser.add_argument("dataset", type=Path, metavar="DATASET", help="a dataset folder")
    parser.add_argument(
        "--agent", required=True, help="a built-in name, package.module:Class, or an entry point"
    )
    add_agent_arguments(parser)
    add_run_arguments(parser)
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out")
    parser.add_argument("--dry-run", action="store_true", help="print what would be played, and stop")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def add_agent_arguments(parser: argparse.ArgumentParser) -> None:
    """How the agent is made."""
    parser.add_argument(
        "--agent-arg", action="append", default=[], metavar="KEY=VALUE", help="an argument of the agent"
    )
    parser.add_argument(
        "--agent-python", metavar="PATH", help="the interpreter of the agent's own environment"
    )


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """What fixes a run, whoever starts the agents."""
    new = parser.add_argument
    new("--out", type=Path, metavar="DIR", help="the run folder (default: runs/YYYYMMDD-HHMMSS-AGENT)")
    new(
        "--clock",
        choices=("realtime", "skip", "scaled", "lockstep"),
        default=_DEFAULTS.clock,
        help="realtime (default); skip: the same experience in compute time only; scaled: for demos; "
        "lockstep: time stands while the agent works",
    )
    new("--rate", type=float, default=_DEFAULTS.rate, metavar="R", help="of --clock scaled (1)")
    new("--sessions", type=int, default=_DEFAULTS.sessions, metavar="N", help="concurrent sessions (1)")
    new("--repeat", type=int, default=_DEFAULTS.repeat, metavar="N", help="play every episode N times (1)")
    new("--episode", action="append", default=[], metavar="ID", help="play this episode (may be repeated)")
    new("--limit", type=int, metavar="N", help="play the first N episodes")
    new("--available", action="store_true", help="play the episodes whose videos are there (partial)")
    new("--history", choices=("frozen", "live"), default=_DEFAULTS.history, help="default: %(default)s")
    new("--chain", choices=("full", "task"), help="which probes are asked (default: the dataset's)")
    new("--frames", choices=("all", "latest"), help="what a slow agent gets (default: the agent's)")
    new("--fps", type=float, default=_DEFAULTS.fps, metavar="F", help="samples a second (1)")
    new("--pixel-budget", type=int, default=_DEFAULTS.pixel_budget, metavar="N", help="default: %(default)s")
    new("--encoding", choices=("jpeg", "png"), default=_DEFAULTS.encoding, help="png is lossless")
    new("--quality", type=int, default=_DEFAULTS.quality, metavar="Q", help="of JPEG (90)")
    new(
        "--sampling",
        choices=("presentation", "storm-evaluator"),
        default=_DEFAULTS.sampling,
        help="which picture is shown at second k (default: %(default)s)",
    )
    new("--seed", type=int, default=_DEFAULTS.seed, metavar="N", help="of the run (0)")
    new("--prompts", type=Path, metavar="FILE", help="prompt texts in place of ours (TOML)")
    new("--reader", default=_DEFAULTS.reader, help="how letters are read: strict (default), storm-evaluator")
    new("--port", type=int, default=_DEFAULTS.port, metavar="N", help="0 (default) is any free one")
    new("--credit", type=int, default=_DEFAULTS.credit, metavar="N", help="frames in flight (32)")
    new("--credit-timeout", type=float, default=_DEFAULTS.credit_timeout_s, metavar="S", help="60 s")
    new("--ready-timeout", type=float, default=_DEFAULTS.ready_timeout_s, metavar="S", help="900 s")
    new("--answer-timeout", type=float, metavar="S", help="from due: 30 s (in lockstep a guard of 600 s)")
    new("--hang-timeout", type=float, default=_DEFAULTS.hang_timeout_s, metavar="S", help="60 s")
    new(
        "--deadline",
        type=_deadline,
        action="append",
        default=[],
        metavar="S",
        help="count answers later than S seconds after due (may be repeated; default 1, 2 and 5)",
    )
    new("--drain-timeout", type=float, default=_DEFAULTS.drain_timeout_s, metavar="S", help="600 s")


def read_options(args: argparse.Namespace) -> RunOptions:
    """The options as plain data."""
    return RunOptions(
        dataset=args.dataset,
        agent=getattr(args, "agent", None),
        agent_arguments=tuple(getattr(args, "agent_arg", ())),
        agent_python=getattr(args, "agent_python", None),
        out=args.out,
        resume=getattr(args, "resume", False),
        clock=args.clock,
        rate=args.rate,
        sessions=args.sessions,
        repeat=args.repeat,
        episodes=tuple(args.episode),
        limit=args.limit,
        available=args.available,
        history=args.history,
        chain=args.chain,
        frames=args.frames,
        fps=args.fps,
        pixel_budget=args.pixel_budget,
        encoding=args.encoding,
        quality=args.quality,
        sampling=args.sampling,
        seed=args.seed,
        prompts=args.prompts,
        reader=args.reader,
        host=getattr(args, "host", _DEFAULTS.host),
        port=args.port,
        credit=args.credit,
        credit_timeout_s=args.credit_timeout,
        ready_timeout_s=args.ready_timeout,
        answer_timeout_s=args.answer_timeout,
        hang_timeout_s=args.hang_timeout,
        drain_timeout_s=args.drain_timeout,
    )


def execute(args: argparse.Namespace) -> int:
    """Plan, play, summarise, score."""
    from streamsim.launch.planning import plan_run
    from streamsim.report.console import notice

    options = read_options(args)
    if options.resume and options.out is None:
        raise UsageError("--resume: expected --out DIR, the run to go on with")
    planned = plan_run(options, dry=args.dry_run)
    for warning in planned.warnings:
        notice(f"streamsim run: {warning}")
    if args.dry_run:
        from streamsim.launch.schedule import schedule_lines, schedule_object

        print(json.dumps(schedule_object(planned)) if args.json else "\n".join(schedule_lines(planned)))
        return 0
    return play_and_report(planned, as_json=args.json, deadlines_s=args.deadline)


def _deadline(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of seconds above 0, got {text}")
    return seconds


def play_and_report(
    planned: object, *, as_json: bool, announce_urls: bool = False, deadlines_s: Sequence[float] = ()
) -> int:
    """Play a planned run to its end and report it; returns the exit code.

    Without ``deadlines_s`` the report counts misses at its default ones.
    """
    from streamsim.launch.planning import PlannedRun
    from streamsim.launch.running import play
    from streamsim.report.console import notice
    from streamsim.report.run_report import report_run
    from streamsim.scoring.latency import DEADLINES_S

    assert isinstance(planned, PlannedRun)
    where = f"run folder: {planned.folder}"
    if planned.complete:
        where += f" ({planned.complete} sessions are complete, {len(planned.plan.jobs)} to play)"
    notice(where)
    end = play(planned, quiet=as_json, announce_urls=announce_urls)
    code = report_run(planned.folder, as_json=as_json, deadlines_s=deadlines_s or DEADLINES_S)
    return 128 + end.signal if end.signal is not None else code

"""``streamsim run``: play a dataset to an agent, then score what it said."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streamsim.errors import UsageError
from streamsim.launch.options import LOCKSTEP_ANSWER_TIMEOUT_S, MAX_DEADLINE_S, RunOptions
from streamsim.plural import counted

HELP = "play a dataset to an agent as live sessions and score its answers"
EPILOG = """example:
  streamsim run DATASET --agent random --clock lockstep
  streamsim run DATASET --agent my_package.my_module:MyAgent --agent-arg model=PATH --sessions 2
  streamsim run --resume --out runs/NAME"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a run."""
    parser.add_argument(
        "--agent",
        help="a built-in name, package.module:Class, or an entry point (required but with --resume)",
    )
    add_agent_arguments(parser)
    add_run_arguments(parser)
    parser.add_argument("--dry-run", action="store_true", help="print what would be played, and stop")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def add_agent_arguments(parser: argparse.ArgumentParser) -> None:
    """How the agent is made."""
    parser.add_argument(
        "--agent-arg",
        dest="agent_arguments",
        action="append",
        metavar="KEY=VALUE",
        help="an argument of the agent",
    )
    parser.add_argument(
        "--agent-python", metavar="PATH", help="the interpreter of the agent's own environment"
    )


def add_run_arguments(parser: argparse.ArgumentParser, *, serving: bool = False) -> None:
    """What fixes a run; ``serving``: somebody else starts the agents.

    Their destinations are the fields of ``RunOptions``. What is not given stays None: then it is as by
    default or, with ``--resume``, as the run has it.
    """
    default = RunOptions(dataset=Path(), agent=None)
    suffix, anew = ("serve", "--sessions, --host, --port") if serving else ("AGENT", "--sessions, --port")
    new = parser.add_argument
    new(
        "dataset",
        nargs="?",
        type=Path,
        metavar="DATASET",
        help="a dataset folder (required but with --resume)",
    )
    new("--out", type=Path, metavar="DIR", help=f"the run folder (default: runs/YYYYMMDD-HHMMSS-{suffix})")
    new(
        "--resume",
        action="store_true",
        help="go on with the run in --out; takes from the run all that fixes its figures; "
        f"{anew} and --deadline are said anew",
    )
    new(
        "--clock",
        choices=("realtime", "skip", "scaled", "lockstep"),
        help="realtime (default); skip: the same experience in compute time only; scaled: for demos; "
        "lockstep: time stands while the agent works",
    )
    new("--rate", type=float, metavar="R", help=f"of --clock scaled ({default.rate:g})")
    new("--sessions", type=int, metavar="N", help=f"concurrent sessions ({default.sessions})")
    new("--repeat", type=int, metavar="N", help=f"play every episode N times ({default.repeat})")
    new(
        "--episode",
        dest="episodes",
        action="append",
        metavar="ID",
        help="play this episode (may be repeated)",
    )
    new("--limit", type=int, metavar="N", help="play the first N episodes")
    new("--available", action="store_true", help="play the episodes whose videos are there (partial)")
    new("--history", choices=("frozen", "live"), help=f"default: {default.history}")
    new("--chain", choices=("full", "task"), help="which probes are asked (default: the dataset's)")
    new("--frames", choices=("all", "latest"), help="what a slow agent gets (default: the agent's)")
    new("--fps", type=float, metavar="F", help=f"samples a second ({default.fps:g})")
    new("--pixel-budget", type=int, metavar="N", help=f"most pixels of a picture ({default.pixel_budget})")
    new("--encoding", choices=("jpeg", "png"), help=f"default: {default.encoding}; png is lossless")
    new("--quality", type=int, metavar="Q", help=f"of JPEG ({default.quality})")
    new(
        "--sampling",
        choices=("presentation", "storm-evaluator"),
        help=f"which picture is shown at second k (default: {default.sampling})",
    )
    new("--seed", type=int, metavar="N", help=f"of the run ({default.seed})")
    new("--prompts", type=Path, metavar="FILE", help="prompt texts in place of ours (TOML)")
    new("--reader", help=f"how letters are read: {default.reader} (default), storm-evaluator")
    new("--port", type=int, metavar="N", help=f"{default.port} (default) is any free one")
    new("--credit", type=int, metavar="N", help=f"frames in flight ({default.credit})")
    new(
        "--credit-timeout",
        dest="credit_timeout_s",
        type=float,
        metavar="S",
        help=f"{default.credit_timeout_s:g} s",
    )
    new(
        "--ready-timeout",
        dest="ready_timeout_s",
        type=float,
        metavar="S",
        help=f"{default.ready_timeout_s:g} s",
    )
    new(
        "--answer-timeout",
        dest="answer_timeout_s",
        type=float,
        metavar="S",
        help=f"cut an answer off S seconds after due: {default.answer_timeout:g} s "
        f"(lockstep: a guard of {LOCKSTEP_ANSWER_TIMEOUT_S:g} s)",
    )
    new(
        "--hang-timeout", dest="hang_timeout_s", type=float, metavar="S", help=f"{default.hang_timeout_s:g} s"
    )
    new(
        "--deadline",
        type=_deadline,
        action="append",
        default=[],
        metavar="S",
        help="only count the answers later than S seconds after due; --answer-timeout is what cuts off "
        "(may be repeated; default 1, 2 and 5)",
    )
    new(
        "--drain-timeout",
        dest="drain_timeout_s",
        type=float,
        metavar="S",
        help=f"{default.drain_timeout_s:g} s",
    )


def read_options(args: argparse.Namespace) -> RunOptions:
    """The options as plain data: what was given, the rest as by default or as the resumed run has it."""
    given: dict[str, Any] = {}
    for field in dataclasses.fields(RunOptions):
        value = getattr(args, field.name, None)
        if value is not None:
            given[field.name] = tuple(value) if isinstance(value, list) else value
    if not args.resume:
        if args.dataset is None:
            raise UsageError("expected DATASET, the folder of a dataset")
        return RunOptions(**{"agent": None, **given})
    if args.out is None:
        raise UsageError("--resume: expected --out DIR, the run to go on with")
    from streamsim.launch.resuming import recorded_options

    if "clock" in given:
        given.setdefault("rate", 1.0)  # the recorded one is of the recorded clock
    recorded = recorded_options(args.out)
    if given.get("agent", recorded.agent) != recorded.agent:
        recorded = dataclasses.replace(recorded, agent_arguments=())  # they are another agent's
    if "agent_arguments" in given:
        named = {pair.partition("=")[0] for pair in given["agent_arguments"]}
        others = (pair for pair in recorded.agent_arguments if pair.partition("=")[0] not in named)
        given["agent_arguments"] = (*others, *given["agent_arguments"])
    return dataclasses.replace(recorded, **given)


def execute(args: argparse.Namespace) -> int:
    """Plan, play, summarise, score."""
    from streamsim.launch.planning import plan_run
    from streamsim.notice import notice

    options = read_options(args)
    if options.agent is None:
        if options.resume:
            raise UsageError("--resume: this run was served: go on with it by `streamsim serve --resume`")
        raise UsageError(
            "expected --agent, whom to play the dataset to; `streamsim doctor --agents` lists them"
        )
    planned = plan_run(options, dry=args.dry_run)
    for warning in planned.warnings:
        notice(f"streamsim run: {warning}")
    if args.dry_run:
        from streamsim.launch.schedule import schedule_lines, schedule_object

        print(json.dumps(schedule_object(planned)) if args.json else "\n".join(schedule_lines(planned)))
        return 0
    return play_and_report(planned, as_json=args.json, deadlines_s=args.deadline)


def _deadline(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= MAX_DEADLINE_S:
        raise argparse.ArgumentTypeError(
            f"expected a number of seconds above 0, at most {MAX_DEADLINE_S:g}, got {text!r}"
        )
    return seconds


def play_and_report(
    planned: object, *, as_json: bool, announce_urls: bool = False, deadlines_s: Sequence[float] = ()
) -> int:
    """Play a planned run to its end and report it; returns the exit code.

    Without ``deadlines_s`` the report counts misses at its default ones.
    """
    from streamsim.launch.planning import PlannedRun
    from streamsim.launch.running import play
    from streamsim.notice import notice
    from streamsim.report.run_report import report_run
    from streamsim.scoring.latency import DEADLINES_S

    assert isinstance(planned, PlannedRun)
    where = f"run folder: {planned.folder}"
    if planned.complete:
        are = "is" if planned.complete == 1 else "are"
        complete = f"{counted(planned.complete, 'session')} {are} complete"
        where += f" ({complete}, {len(planned.plan.jobs)} to play)"
    notice(where)
    end = play(planned, quiet=as_json, announce_urls=announce_urls)
    code = report_run(
        planned.folder,
        as_json=as_json,
        deadlines_s=deadlines_s or DEADLINES_S,
        dataset=planned.dataset.public,
    )
    return 128 + end.signal if end.signal is not None else code

"""``streamsim serve``: play a dataset to agents that are started by hand, here or on another host."""

from __future__ import annotations

import argparse

from streamsim.commands import run
from streamsim.errors import UsageError

HELP = "play a dataset to agents that you start yourself, also on other hosts"
EPILOG = """example:
  streamsim serve DATASET --port 8765 --out runs/by-hand
  streamsim join 'ws://127.0.0.1:8765/v1/lanes/1?token=…' --agent random    (in another terminal)

One address is printed per lane (--sessions N); each takes one agent, which plays its sessions in turn.
With --host 0.0.0.0 agents on other hosts may connect: the token in the address is what lets them in."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a run, but for the agent's."""
    parser.add_argument("--host", help="the address to listen on (default: 127.0.0.1)")
    run.add_run_arguments(parser, serving=True)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def execute(args: argparse.Namespace) -> int:
    """Serve until every session was tried, then summarise and score."""
    from streamsim.launch.planning import plan_run

    options = run.read_options(args)
    if options.agent is not None:
        raise UsageError("--resume: this run starts its agents: go on with it by `streamsim run --resume`")
    return run.play_and_report(
        plan_run(options), as_json=args.json, announce_urls=True, deadlines_s=args.deadline
    )

"""``streamsim join``: connect an agent to a server that was started elsewhere."""

from __future__ import annotations

import argparse
import os
import sys

from streamsim.errors import UsageError

HELP = "connect an agent to a server that `streamsim serve` started"
EPILOG = """example:
  streamsim join 'ws://127.0.0.1:8765/v1/lanes/1?token=…' --agent random"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """An address and an agent."""
    parser.add_argument("url", metavar="URL", help="the address that the server printed")
    parser.add_argument(
        "--agent", required=True, help="a built-in name, package.module:Class, or an entry point"
    )
    parser.add_argument("--agent-arg", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--agent-python", metavar="PATH", help="the interpreter of the agent's environment")
    parser.add_argument("--memory-dir", metavar="DIR", help="where the agent saves its memory")


def execute(args: argparse.Namespace) -> int:
    """Become the agent process: it is the same program that ``run`` starts."""
    from streamsim.launch.planning import check_agent
    from streamsim_protocol.interrupt import hold_interrupt, raise_on_interrupt

    check_agent(args.agent, args.agent_arg, args.agent_python)
    python = args.agent_python or sys.executable
    command = [python, "-m", "streamsim_agents", args.url, "--agent", args.agent]
    command += ["--called", "streamsim join"]
    for pair in args.agent_arg:
        command += ["--agent-arg", pair]
    if args.memory_dir is not None:
        command += ["--memory-dir", args.memory_dir]
    hold_interrupt()  # until the agent's program can tell of it
    try:
        os.execvp(python, command)
    except OSError as error:
        raise_on_interrupt()
        raise UsageError(
            f"cannot run {python!r}: {error.strerror}; give an interpreter to --agent-python"
        ) from None

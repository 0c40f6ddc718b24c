"""``python -m streamsim_agents URL --agent NAME``: connect an agent to a server, and nothing else.

Exit codes: 0 played until the server had no more, 1 a session was refused or failed, 2 wrong usage or
no server, 3 the agent was stuck when its connection ended.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from streamsim_agents.registry import AgentArgumentError, make_agent, parse_arguments
from streamsim_agents.runtime import ConnectError, Runtime, SessionRefused
from streamsim_protocol.terminal import for_terminal

_PR_SET_PDEATHSIG = 1


def build_parser() -> argparse.ArgumentParser:
    """The parser of this entry point."""
    parser = argparse.ArgumentParser(
        prog="python -m streamsim_agents",
        description="Connect an agent to a streamsim server and play what it offers.",
        epilog="example: python -m streamsim_agents ws://127.0.0.1:8765/v1/lanes/1?token=T --agent null",
    )
    parser.add_argument("url", help="the address that the server printed")
    parser.add_argument(
        "--agent", required=True, help="a built-in name, package.module:Class or an entry point"
    )
    parser.add_argument("--agent-arg", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument(
        "--memory-dir", type=Path, help="where the agent saves its memory (default: it does not)"
    )
    parser.add_argument("--die-with-parent", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--called", default="streamsim agent", help=argparse.SUPPRESS)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Play until the server has no more; returns the exit code."""
    args = build_parser().parse_args(argv)
    if args.die_with_parent:
        die_with_parent()
    try:
        arguments = parse_arguments(args.agent_arg)
        runtime = Runtime(
            args.url,
            lambda: make_agent(args.agent, arguments),
            name=args.agent,
            memory_folder=args.memory_dir,
            called=args.called,
        )
        played = asyncio.run(runtime.run())
    except (AgentArgumentError, ConnectError) as error:
        print(f"{args.called}: {for_terminal(str(error))}", file=sys.stderr)
        return 2
    except SessionRefused as error:
        print(f"{args.called}: {for_terminal(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if not args.die_with_parent:  # else whoever started it counts for itself
        print(f"{args.called}: played {played} session{'' if played == 1 else 's'}", file=sys.stderr)
    return 0


def die_with_parent() -> None:
    """Have the kernel end this process with its parent, however that ends (Linux; elsewhere no-op)."""
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent == 1 or os.getppid() != parent:  # it died in between
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())

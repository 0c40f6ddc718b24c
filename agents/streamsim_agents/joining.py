"""The program behind ``python -m streamsim_agents`` and ``streamsim join``: plays until there is no more.

Exit codes: 0 played until the server had no more, 1 a session was refused, failed or broken off, 2 wrong
usage or no server, 3 the agent was stuck when its connection ended, 130 after Ctrl-C.
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
from streamsim_protocol.interrupt import EXIT_CODE as INTERRUPTED
from streamsim_protocol.interrupt import raise_on_interrupt
from streamsim_protocol.terminal import for_terminal

_PR_SET_PDEATHSIG = 1
_STUCK = 3


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
    runtime: Runtime | None = None
    code, fault = 0, ""
    try:
        raise_on_interrupt()
        arguments = parse_arguments(args.agent_arg)
        runtime = Runtime(
            args.url,
            lambda: make_agent(args.agent, arguments),
            name=args.agent,
            memory_folder=args.memory_dir,
        )
        asyncio.run(runtime.run())
        code = 1 if runtime.broken_off else 0
    except (AgentArgumentError, ConnectError) as error:
        code, fault = 2, str(error)
    except SessionRefused as error:
        code, fault = 1, str(error)
    except KeyboardInterrupt:
        code, fault = INTERRUPTED, "interrupted"
    said = [fault] if fault else []
    if not args.die_with_parent and code != 2:  # whoever started us counts for itself
        said.append(describe_played(runtime, why=not fault))
    stuck = runtime is not None and runtime.stuck
    if stuck:
        said.append("the agent did not become idle, leaving")
    if said:
        print(f"{args.called}: {for_terminal('; '.join(said))}", file=sys.stderr, flush=True)
    if stuck:  # in its own code: no interpreter shutdown would ever finish
        os._exit(code if code == INTERRUPTED else _STUCK)
    return code


def describe_played(runtime: Runtime | None, *, why: bool) -> str:
    """How many sessions were played and how many were not to their end, the last of them with its reason."""
    played = 0 if runtime is None else runtime.played
    text = f"played {played} session{'' if played == 1 else 's'}"
    if runtime is not None and runtime.broken_off:
        text += f", {runtime.broken_off} {'was' if runtime.broken_off == 1 else 'were'} broken off"
        text += f" by the server: {runtime.last_reason}" if why else ""
    return text


def die_with_parent() -> None:
    """Have the kernel end this process with its parent, however that ends (Linux; elsewhere no-op)."""
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent == 1 or os.getppid() != parent:  # it died in between
        os._exit(1)

"""The command line: finds the command, turns errors into one line and an exit code.

Exit codes: 0 good, 1 the thing checked or run is bad, 2 wrong usage or input, 130 after Ctrl-C,
143 after SIGTERM. Each command is a module of ``streamsim.commands`` with ``HELP``,
``add_arguments(parser)`` and ``execute(args) -> int``; no heavy library is imported before
``execute``. Figures go to stdout, notices to stderr.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from streamsim import __version__
from streamsim.errors import StreamsimError
from streamsim.notice import notice
from streamsim.writing import describe, is_full
from streamsim_protocol.interrupt import EXIT_CODE, raise_on_interrupt
from streamsim_protocol.terminal import for_terminal

COMMANDS: tuple[str, ...] = (
    "demo",
    "run",
    "serve",
    "join",
    "score",
    "check",
    "import",
    "make",
    "frames",
    "verify",
    "rescore",
    "doctor",
)
"""In the order of the help page. ``import`` is the module ``import_``."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line and where to read more, in place of the whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {for_terminal(message)}\nsee {self.prog} --help\n")


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = _Parser(
        prog="streamsim",
        description="Replay recorded episodes as live sessions, and score what the agent answers.",
        epilog="example: streamsim demo",
    )
    parser.add_argument("--version", action="version", version=f"streamsim {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name in COMMANDS:
        module = importlib.import_module(f"streamsim.commands.{name}" + ("_" if name == "import" else ""))
        sub = commands.add_parser(
            name,
            help=module.HELP,
            description=module.HELP,
            epilog=module.EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(sub)
        sub.set_defaults(execute=module.execute)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    code = 0
    called = "streamsim"
    try:
        prepare_output()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _leave)
            raise_on_interrupt()
        parser = build_parser()
        args, unknown = parser.parse_known_args(argv)
        if args.command is None and not unknown:
            parser.print_help(sys.stderr)
            return 2
        if unknown:
            parser.prog = " ".join(filter(None, (parser.prog, args.command)))
            parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        called = f"streamsim {args.command}"
        code = args.execute(args)
        if sys.stdout is not None:
            sys.stdout.flush()
    except StreamsimError as error:
        gone = error.exit_code == 2 and not _has_folder()
        notice(f"{called}: {error}" + "; the current folder has been deleted" * gone)
        return error.exit_code
    except KeyboardInterrupt:
        notice(f"{called}: interrupted")
        return EXIT_CODE
    except BrokenPipeError:
        # whoever read our output has gone: say nothing more, also not at interpreter exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        if error.filename is not None:
            notice(
                f"{called}: cannot use {error.filename!r}: {describe(error)}: "
                "check the path, and whether you may read and write there"
            )
            return 2
        if not _has_folder():
            notice(f"{called}: the current folder has been deleted: change to one that exists")
            return 2
        if not is_full(error):
            raise
        notice(f"{called}: no space left for the output: nothing else is lost")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def prepare_output() -> None:
    """Let no terminal, locale or closed descriptor stop a command: what cannot be shown is shown as ``?``."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - to the end
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _has_folder() -> bool:
    """Whether there is a current folder: without one no path can be made absolute."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _leave(number: int, frame: object) -> None:
    """SIGTERM as an exception, so that what was started is ended and temporary files go."""
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())

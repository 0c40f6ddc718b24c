"""Where ``streamsim`` starts: the command line, guarded against a Ctrl-C before it is there."""

from __future__ import annotations

from streamsim_protocol.interrupt import run_guarded


def main() -> int:
    """Load and run the command line; returns the exit code."""
    return run_guarded(_load_and_run)


def _load_and_run() -> int:
    from streamsim import cli

    return cli.main()

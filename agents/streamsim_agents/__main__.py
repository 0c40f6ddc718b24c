"""``python -m streamsim_agents URL --agent NAME``: connect an agent to a server, and nothing else."""

from __future__ import annotations

import sys

from streamsim_protocol.interrupt import run_guarded


def _load_and_run() -> int:
    from streamsim_agents.joining import main

    return main()


if __name__ == "__main__":
    sys.exit(run_guarded(_load_and_run))

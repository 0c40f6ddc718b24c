"""What agents started and left behind: told by a mark in its environment, wherever it has gone.

A process keeps the environment that it was started with, also in a session of its own and after its
parent has died; process groups and parents tell less. Needs Linux; elsewhere nothing is found.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path

MARK = "STREAMSIM_MARK"
"""The variable: a server has it from whoever started it, and all that it starts from the server."""
_ROUNDS = 5
"""A process may start another while we look; one that cannot die is not waited for."""


def new_mark() -> str:
    """A mark that no other process has."""
    return secrets.token_hex(8)


def end_marked(mark: str) -> set[int]:
    """Kill every process that carries ``mark``, this one excepted; returns their ids."""
    ended: set[int] = set()
    for _ in range(_ROUNDS):
        found = set(_kill_marked(f"{MARK}={mark}".encode()))
        ended |= found
        if not found:
            break
    return ended


def _kill_marked(variable: bytes) -> Iterator[int]:
    if not hasattr(os, "pidfd_open"):
        return
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        if pid == os.getpid():
            continue
        with contextlib.suppress(OSError):  # another user's, or gone meanwhile
            descriptor = os.pidfd_open(pid)
            try:
                # read after it was opened: what is killed is what was read, whoever has the id later
                if variable in (entry / "environ").read_bytes().split(b"\0"):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                    yield pid
            finally:
                os.close(descriptor)

"""What a server process is told at its start, as one JSON object on its standard input.

It names the public half of the dataset and never the key. This module knows no sockets.
"""

from __future__ import annotations

import errno
import hashlib
from typing import Annotated, Literal

import msgspec

from streamsim.journal.folder import AgentSpec, RunConfig


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One session to play: the episode by its index in the dataset, repeat and attempt from 1."""

    episode: int
    repeat: int
    attempt: int


class ServerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All that a server needs. Without ``agent`` it waits for agents that are started by hand."""

    folder: str
    run: str
    config: RunConfig
    jobs: tuple[Job, ...]
    lanes: int
    host: str
    port: int
    token: str
    agent: AgentSpec | None


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """A command to a running server, one JSON object a line after the plan; for ``scaled`` clocks alone.

    ``rate`` (media seconds per wall second, above 0) goes with ``do = "rate"``.
    """

    do: Literal["pause", "resume", "step", "rate"]
    rate: Annotated[float, msgspec.Meta(gt=0, le=1000)] = 1.0


def listens_everywhere(host: str) -> bool:
    """Whether ``host`` stands for all addresses of the machine, and is none that one could call."""
    return host in ("", "0.0.0.0", "::")


def describe_listen_error(host: str, port: int, error: OSError) -> str:
    """Why nobody can listen there, and what to do."""
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use: choose another --port, or 0 for any free one"
    return f"cannot listen on {host}:{port}: {error.strerror}"


def session_seed(run_seed: int, episode: int, repeat: int) -> int:
    """The seed an agent is given: the first 63 bits of the SHA-256 of ``"run_seed:episode:repeat"``."""
    digest = hashlib.sha256(f"{run_seed}:{episode}:{repeat}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def session_name(run_seed: int, job: Job) -> str:
    """The opaque name of a session on the wire: says neither episode nor its place in the run."""
    text = f"session:{run_seed}:{job.episode}:{job.repeat}:{job.attempt}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]

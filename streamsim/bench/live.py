"""Running ``streamsim run`` for a benchmark, as a user would, and reading what it left."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from streamsim.errors import StreamsimError
from streamsim.events import FrameSent, FrameSettled, ProbeSent
from streamsim.journal.folder import read_last_attempts
from streamsim.journal.read import JournalFile


def run_command(dataset: Path, out: Path, *options: str) -> list[str]:
    """The command line that plays ``dataset`` into ``out``."""
    return [sys.executable, "-m", "streamsim.cli", "run", str(dataset), "--out", str(out), "--json", *options]


def run_streamsim(
    dataset: Path, out: Path, *options: str, environment: dict[str, str] | None = None
) -> dict[str, Any]:
    """Play ``dataset`` into ``out``; returns the JSON of the run. ``StreamsimError`` with its last words."""
    command = run_command(dataset, out, *options)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise StreamsimError(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr[-500:]}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def read_journals(out: Path) -> list[JournalFile]:
    """All sessions of a run, in the order of their episodes' names."""
    return sorted(read_last_attempts(out), key=lambda journal: journal.path.name)


def delivery_log(journal: JournalFile) -> list[str]:
    """What was sent, in order: frames by number, probes by query and kind."""
    log = []
    for entry in journal.entries:
        if isinstance(entry.event, FrameSent):
            log.append(f"frame {entry.event.k}")
        elif isinstance(entry.event, ProbeSent):
            log.append(f"{entry.event.query} {entry.event.probe}")
    return log


def skip_log(journal: JournalFile) -> list[int]:
    """The frames that the agent passed over, in order."""
    return [
        entry.event.k
        for entry in journal.entries
        if isinstance(entry.event, FrameSettled) and entry.event.outcome == "skipped"
    ]


def frame_lateness_ns(journal: JournalFile) -> list[tuple[int, int]]:
    """(media time, released minus due) of every frame, in nanoseconds."""
    return [
        (entry.event.media_ns, entry.at.wall_ns - entry.event.due_wall_ns)
        for entry in journal.entries
        if isinstance(entry.event, FrameSent) and entry.event.due_wall_ns is not None
    ]


def played_wall_s(journal: JournalFile) -> float:
    """Wall seconds from ``ready`` to the session's end."""
    return journal.entries[-1].at.wall_ns / 1e9

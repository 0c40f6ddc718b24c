"""Two journals, line by line, but for what the wall clock decides.

Two lockstep runs of one configuration tell the same story. What may differ is left out: reception
acknowledgements, line numbers and sequence numbers, wall times and durations, digests, the run's id.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec

from streamsim.events import Acknowledged
from streamsim.journal.folder import read_last_attempts, read_run_file
from streamsim.journal.read import Entry, JournalFile
from streamsim.journal.verify import Offence

WALL_FIELDS = frozenset(
    {
        "run",
        "seq",
        "wall_ns",
        "due_wall_ns",
        "waited_ns",
        "service_ns",
        "first_text_ns",
        "begin_ns",
        "marks",
        "watched_ns",
        "server_lag_p99_ns",
        "server_lag_max_ns",
        "agent_lag_p99_ns",
        "agent_lag_max_ns",
        "frames_late",
    }
)
"""Fields of events that the wall clock decides, and those that merely number."""


def canonical_lines(entries: Sequence[Entry]) -> list[tuple[int, dict[str, Any]]]:
    """Journal lines as they must be equal, each with its line number."""
    lines = []
    for entry in entries:
        if isinstance(entry.event, Acknowledged):
            continue
        fields = msgspec.to_builtins(entry.event)
        line = {name: value for name, value in fields.items() if name not in WALL_FIELDS}
        lines.append((entry.n, {"at_media_ns": entry.at.media_ns, **line}))
    return lines


def compare_journals(one: JournalFile, other: JournalFile) -> Offence | None:
    """The first line of ``one`` that is not as in ``other``; None if they tell the same story."""
    pairs = zip_longest(canonical_lines(one.entries), canonical_lines(other.entries))
    for mine, theirs in pairs:
        if mine is None or theirs is None or mine[1] != theirs[1]:
            return Offence(
                file=one.path.name,
                line=mine[0] if mine else len(one.entries) + 1,
                found=_text(mine),
                expected=_text(theirs) + (f" (line {theirs[0]} there)" if theirs else ""),
            )
    return None


def compare_runs(one: Path, other: Path) -> Offence | None:
    """The first line of the attempts that count of ``one`` that is not as in ``other``.

    ``RunError`` if either is no run.
    """
    for folder in (one, other):
        read_run_file(folder)
    mine = {journal.path.name: journal for journal in read_last_attempts(one)}
    theirs = {journal.path.name: journal for journal in read_last_attempts(other)}
    for name in sorted(mine.keys() | theirs.keys()):
        if name not in mine or name not in theirs:
            where = one if name in mine else other
            return Offence(
                file=name, line=1, found=f"a journal in {str(where)!r} only", expected="one in both"
            )
        offence = compare_journals(mine[name], theirs[name])
        if offence is not None:
            return offence
    return None


def _text(line: tuple[int, dict[str, Any]] | None) -> str:
    return "no more lines" if line is None else msgspec.json.encode(line[1]).decode()

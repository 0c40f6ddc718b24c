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

from streamsim.errors import UsageError
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

SHOWN_CHARS = 80
SHOWN_BEFORE = 20


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
    """The first line of ``one`` that is not as in ``other``; None if they tell the same story.

    Of two lines about the same thing the first field that differs is named.
    """
    for mine, theirs in zip_longest(canonical_lines(one.entries), canonical_lines(other.entries)):
        if mine is None or theirs is None or mine[1] != theirs[1]:
            found, expected = _difference(mine and mine[1], theirs and theirs[1])
            return Offence(
                file=one.path.name,
                line=mine[0] if mine else len(one.entries) + 1,
                found=found,
                expected=expected + (f" (line {theirs[0]} there)" if theirs else ""),
            )
    return None


def require_lockstep(*folders: Path) -> None:
    """``UsageError`` unless all these runs are lockstep runs, ``RunError`` if one is no run."""
    for folder in folders:
        clock = read_run_file(folder).config.clock
        if clock != "lockstep":
            raise UsageError(
                f"run {str(folder)!r} is a {clock} run: --same compares lockstep runs, since elsewhere the "
                "wall clock decides what happens when"
            )


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


def _difference(mine: dict[str, Any] | None, theirs: dict[str, Any] | None) -> tuple[str, str]:
    """What stands in either of two lines that are not equal: the first field, in short."""
    if mine is None or theirs is None or mine["event"] != theirs["event"]:
        return _name(mine), _name(theirs)
    path, one, other = _first_difference("", mine, theirs)
    begin = _common_length(one, other)
    return f"{mine['event']} with {path} {_shorten(one, begin)}", f"{path} {_shorten(other, begin)}"


def _name(line: dict[str, Any] | None) -> str:
    return "no more lines" if line is None else f"{line['event']} at media time {line['at_media_ns']} ns"


def _first_difference(path: str, mine: object, theirs: object) -> tuple[str, str, str]:
    """The path of the first part that differs, and what is there on either side, as JSON."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        steps = [(f"{path}.{key}" if path else key, key) for key in (*mine, *(theirs.keys() - mine.keys()))]
    elif isinstance(mine, list | tuple) and isinstance(theirs, list | tuple) and len(mine) == len(theirs):
        return next(
            _first_difference(f"{path}[{number}]", one, other)
            for number, (one, other) in enumerate(zip(mine, theirs, strict=True))
            if one != other
        )
    else:
        return path, _json(mine), _json(theirs)
    return next(
        _first_difference(step, mine.get(key), theirs.get(key))
        for step, key in steps
        if mine.get(key) != theirs.get(key)
    )


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _common_length(one: str, other: str) -> int:
    return next(
        (number for number, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]),
        min(len(one), len(other)),
    )


def _shorten(text: str, differs_at: int) -> str:
    """At most ``SHOWN_CHARS`` of it, with a little of what stands before the difference."""
    begin = max(0, differs_at - SHOWN_BEFORE) if len(text) > SHOWN_CHARS else 0
    end = begin + SHOWN_CHARS
    return "…" * (begin > 0) + text[begin:end] + "…" * (end < len(text))

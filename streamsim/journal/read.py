"""Reading a session's journal back, also one that was cut off in the middle of a line.

A line that is torn or altered ends what can be trusted; what stands before it is returned, with the
reason. Reading needs neither a clock nor the dataset.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from streamsim.errors import RunError
from streamsim.events import AnyEvent, Instant, SessionEnded, SessionStarted
from streamsim.journal.write import FIRST_DIGEST, line_digest
from streamsim.writing import describe


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line: its number, both clocks of the server, what happened, and the digest of the chain."""

    n: int
    at: Instant
    event: AnyEvent
    digest: str


class JournalFile(msgspec.Struct, frozen=True, kw_only=True):
    """What could be read. ``fault`` says why reading stopped before the end (None: it did not)."""

    path: Path
    entries: tuple[Entry, ...]
    fault: str | None

    @property
    def started(self) -> SessionStarted:
        """The first event; ``RunError`` if even that is missing."""
        if self.entries and isinstance(self.entries[0].event, SessionStarted):
            return self.entries[0].event
        raise RunError(f"{self.path}: expected SessionStarted in the first line, got none")

    @property
    def ended(self) -> SessionEnded | None:
        """How the session ended; None when the journal stops before it."""
        last = self.entries[-1].event if self.entries else None
        return last if isinstance(last, SessionEnded) else None

    @property
    def complete(self) -> bool:
        """The session ran to its end: it need not be played again."""
        return self.ended is not None and self.ended.reason == "completed"

    @property
    def fault_place(self) -> tuple[int, str]:
        """The line at which reading stopped, and why. Only where there is a fault."""
        fault = _FAULT.fullmatch(self.fault or "")
        assert fault is not None
        return int(fault["line"]), fault["text"]

    @property
    def altered(self) -> bool:
        """No server leaves a journal like this; a line that is torn is how a killed one does."""
        return self.fault is not None and (self.ended is not None or self.fault_place[1] != "torn")

    @property
    def fault_notice(self) -> str | None:
        """What a reader of figures must know of ``fault``; None where all could be read."""
        if self.fault is None:
            return None
        if self.ended is not None:
            return (
                f"{self.path.name}: {self.fault}: this stands after the session's end, so nothing is lost; "
                "the file was changed, see `streamsim verify`"
            )
        if self.altered:
            return (
                f"{self.path.name}: the chain is broken at line {self.fault_place[0]}: the file was changed "
                "or damaged since it was written; nothing from there on counts, see `streamsim verify`"
            )
        return f"{self.path.name}: read up to {self.fault}"

    @property
    def digest(self) -> str:
        """The digest of the last line that could be read."""
        return self.entries[-1].digest if self.entries else FIRST_DIGEST

    def events(self) -> Iterator[tuple[Instant, AnyEvent]]:
        """The events with their instants, as scoring takes them."""
        for entry in self.entries:
            yield entry.at, entry.event


class _Head(msgspec.Struct):
    n: int
    at_media_ns: int
    at_wall_ns: int
    digest: str


_FAULT = re.compile(r"line (?P<line>\d+): (?P<text>.*)", re.DOTALL)
_head_decoder = msgspec.json.Decoder(_Head)
_event_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)
_DIGEST_TAIL = len(b',"digest":""}') + 64


def read_journal(path: Path) -> JournalFile:
    """Read as far as the chain holds. ``RunError`` if the file cannot be opened."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RunError(f"cannot read journal {str(path)!r}: {describe(error)}") from error
    entries, fault = read_entries(data)
    return JournalFile(path=path, entries=entries, fault=fault)


def read_entries(data: bytes) -> tuple[tuple[Entry, ...], str | None]:
    """The lines of ``data`` as far as the chain holds, and why reading stopped before the end."""
    entries: list[Entry] = []
    digest = FIRST_DIGEST
    *lines, rest = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            entry = _decode_line(line, number, digest)
        except (msgspec.DecodeError, ValueError) as error:
            return tuple(entries), f"line {number}: {error}"
        entries.append(entry)
        digest = entry.digest
    return tuple(entries), f"line {len(lines) + 1}: torn" if rest else None


def _decode_line(line: bytes, number: int, previous_digest: str) -> Entry:
    head = _head_decoder.decode(line)
    if head.n != number:
        raise ValueError(f"expected n = {number}, got {head.n}")
    if line_digest(previous_digest, line[:-_DIGEST_TAIL] + b"}") != head.digest:
        raise ValueError("the digest does not continue the chain")
    event = _event_decoder.decode(line)
    return Entry(n=head.n, at=Instant(head.at_media_ns, head.at_wall_ns), event=event, digest=head.digest)

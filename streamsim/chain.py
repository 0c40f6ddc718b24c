"""The probes of one query, in turn: task, then status, then cause only after an uncertain status.

Status and cause probes carry the question's stem, never its options. A chain closes at its first
failure. This module knows no messages, no time and no files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from streamsim.episodes.episode import CAUSES, Chain, EpisodeQuery
from streamsim.reading import Reader, status_of
from streamsim_protocol.messages import Outcome, Probe, TurnCloseReason

MAX_TURN_CHARS = 256 * 1024
"""A turn that says more than this is closed as ``too_long``; its query has failed."""

ReadText = Callable[[str], str]


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What a probe's text says: letters, empty where it is invalid. Open answers have no letters."""

    letters: str
    valid: bool


@dataclass(slots=True, kw_only=True)
class Turn:
    """One utterance, from the probe's sending (or the agent's own start) to the worker's idleness."""

    id: int
    chain: QueryChain | None
    probe: Probe | None
    timeout_from_wall_ns: int = 0
    started: bool = False
    ended: bool = False
    fenced: TurnCloseReason | None = None
    fenced_wall_ns: int = 0
    chars: int = 0
    pieces: list[str] = field(default_factory=list)

    def hear(self, text: str) -> bool:
        """Take a piece; False, and nothing is taken, when it makes the turn too long."""
        self.chars += len(text)
        if self.chars > MAX_TURN_CHARS:
            return False
        self.pieces.append(text)
        return True

    def take_text(self) -> str:
        """All that was said, which is forgotten here."""
        text = "".join(self.pieces)
        self.pieces.clear()
        return text


@dataclass(slots=True, kw_only=True)
class QueryChain:
    """Where one query stands. ``outcome`` is set exactly once."""

    index: int
    query: EpisodeQuery
    chain: Chain
    turn: Turn | None = None
    outcome: Outcome | None = None

    @property
    def open(self) -> bool:
        """The task probe was sent and no outcome is known yet."""
        return self.turn is not None and self.outcome is None

    def next_probe(self, probe: Probe, reading: Reading) -> Probe | None:
        """What follows a finished ``probe`` that was read as ``reading``; None closes the chain."""
        if self.chain == "task" or self.query.kind != "choice":
            return None
        if probe == "task":
            return "status"
        if probe == "status" and reading.valid and status_of(reading.letters) == "uncertain":
            return "cause"
        return None


def read_probe(reader: Reader, probe: Probe, query: EpisodeQuery, text: str) -> Reading:
    """Read a finished probe's text; the raw text stays in the journal whatever comes out."""
    if probe == "task" and query.kind != "choice":
        return Reading(letters="", valid=bool(text.strip()))
    if probe == "cause":
        letters = reader.causes(text, len(CAUSES))
    else:
        letters = reader.choice(text, len(query.options) if probe == "task" else 4)
    return Reading(letters=letters, valid=bool(letters))

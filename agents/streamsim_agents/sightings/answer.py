"""From question and memory to a verdict: what was seen, or why it cannot be told.

A verdict rests on the question's stem alone, so that the status and cause probes, which come without
options, are judged as the task was.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from streamsim_agents.sightings.eye import Look, Seen
from streamsim_agents.sightings.memory import Change, Recollection, same_spot
from streamsim_agents.sightings.world import (
    BLIND_PHRASES,
    CHANGES,
    CONTRACT,
    COUNT_PHRASES,
    ORDINALS,
    PLACE_PHRASES,
    ROOM_PHRASES,
    VERBS,
    WORDINGS,
)

MISSING = "missing_observation"
PARTIAL = "partial_observation"
LOW_QUALITY = "low_visual_quality"
AMBIGUOUS_EVIDENCE = "ambiguous_evidence"
AMBIGUOUS_ATTRIBUTE = "ambiguous_attribute"
MULTIPLE = "multiple_candidates"

CAUSE_LETTERS = {
    MISSING: "A",
    PARTIAL: "B",
    LOW_QUALITY: "C",
    AMBIGUOUS_EVIDENCE: "D",
    AMBIGUOUS_ATTRIBUTE: "E",
    MULTIPLE: "F",
}
"""The benchmark's order of causes."""

SEEN, INFERRED, UNSEEN, UNCLEAR = "A", "B", "C", "D"
"""The letters of the status probe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the memory says: ``answer`` as an option words it, or None and the ``causes`` of that."""

    answer: str | None
    status: str
    causes: tuple[str, ...] = ()

    @property
    def cause_letters(self) -> str:
        """The causes as the cause probe wants them."""
        return ", ".join(sorted(CAUSE_LETTERS[cause] for cause in self.causes))


def judge(stem: str, memory: Recollection) -> Verdict:
    """The verdict on a question. A question that it cannot read is one that nothing was seen for."""
    parsed = parse(stem)
    if parsed is None or memory.now is None:
        return _cannot_tell(MISSING)
    form, fields = parsed
    return _JUDGES[form](memory, fields)


def parse(stem: str) -> tuple[str, dict[str, str]] | None:
    """Form and fields of a question, None if it is worded in no known way."""
    text = stem.removesuffix(CONTRACT).strip()
    for form, pattern in _patterns():
        match = pattern.fullmatch(text)
        if match:
            return form, match.groupdict()
    return None


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    found = []
    for form, wordings in WORDINGS.items():
        for wording in wordings:
            parts = re.split(r"\{(\w+)\}", wording)
            pattern = "".join(
                f"(?P<{part}>[a-z -]+)" if place % 2 else re.escape(part) for place, part in enumerate(parts)
            )
            found.append((form, re.compile(pattern)))
    return tuple(found)


def _told(answer: str, *, directly: bool) -> Verdict:
    return Verdict(answer=answer, status=SEEN if directly else INFERRED)


def _cannot_tell(*causes: str) -> Verdict:
    unclear = {AMBIGUOUS_EVIDENCE, AMBIGUOUS_ATTRIBUTE, MULTIPLE, PARTIAL}
    return Verdict(answer=None, status=UNCLEAR if unclear & set(causes) else UNSEEN, causes=causes)


# ------------------------------------------------------------------------------------ states


def _room_now(memory: Recollection, fields: dict[str, str]) -> Verdict:
    return _where(memory, fields["thing"], len(memory.looks) - 1, _room_phrase)


def _place_now(memory: Recollection, fields: dict[str, str]) -> Verdict:
    return _where(memory, fields["thing"], len(memory.looks) - 1, _place_phrase)


def _room_when(memory: Recollection, fields: dict[str, str]) -> Verdict:
    return _where_when(memory, fields, _room_phrase)


def _place_when(memory: Recollection, fields: dict[str, str]) -> Verdict:
    return _where_when(memory, fields, _place_phrase)


def _where_when(
    memory: Recollection, fields: dict[str, str], phrase: Callable[[Look, Seen], str | None]
) -> Verdict:
    change = _anchor(memory, fields)
    if change is None:
        return _cannot_tell(MISSING)
    return _where(memory, fields["thing"], change.second, phrase)


def _blind_now(memory: Recollection, fields: dict[str, str]) -> Verdict:
    position = len(memory.looks) - 1
    look = memory.looks[position]
    if not look.lit and not look.black and memory.last_room_seen(position) == fields["room"]:
        return _cannot_tell(LOW_QUALITY)
    return _blind(look, fields["room"], directly=True)


def _blind_when(memory: Recollection, fields: dict[str, str]) -> Verdict:
    change = _anchor(memory, fields)
    if change is None:
        return _cannot_tell(MISSING)
    return _blind(memory.looks[change.second], fields["room"], directly=False)


def _anchor(memory: Recollection, fields: dict[str, str]) -> Change | None:
    return memory.last_change(CHANGES[fields["change"]], fields["other"])


def _where(
    memory: Recollection, name: str, position: int, phrase: Callable[[Look, Seen], str | None]
) -> Verdict:
    seen = memory.find(name, position)
    answer = None if seen is None else phrase(memory.looks[position], seen)
    if answer is None:
        return _cannot_tell(MISSING)
    return _told(answer, directly=position == len(memory.looks) - 1)


def _room_phrase(look: Look, seen: Seen) -> str | None:
    return None if look.room is None else ROOM_PHRASES[look.room]


def _place_phrase(look: Look, seen: Seen) -> str | None:
    return PLACE_PHRASES.get(seen.place)


def _blind(look: Look, room: str, *, directly: bool) -> Verdict:
    if look.room != room or look.blind is None:
        return _cannot_tell(MISSING)
    return _told(BLIND_PHRASES[look.blind], directly=directly)


# ----------------------------------------------------------------------------------- changes


def _turned_up(memory: Recollection, fields: dict[str, str]) -> Verdict:
    new, edges = _compare(memory, fields["room"], newer=True)
    if len(new) == 1 and not edges:
        return _told(f"the {new[0]}", directly=False)
    return _cannot_tell(PARTIAL, MULTIPLE) if edges else _cannot_tell(MISSING)


def _went_missing(memory: Recollection, fields: dict[str, str]) -> Verdict:
    lost, edges = _compare(memory, fields["room"], newer=False)
    if len(lost) == 1 and not edges:
        return _told(f"the {lost[0]}", directly=False)
    return _cannot_tell(PARTIAL, MULTIPLE) if edges else _cannot_tell(MISSING)


def _shape_of_new(memory: Recollection, fields: dict[str, str]) -> Verdict:
    new, edges = _compare(memory, fields["room"], newer=True)
    shapes = [name.split()[1] for name in new if name.split()[0] == fields["colour"]]
    if len(shapes) == 1:
        return _told(f"a {shapes[0]}", directly=False)
    return _cannot_tell(PARTIAL, AMBIGUOUS_ATTRIBUTE) if fields["colour"] in edges else _cannot_tell(MISSING)


def _compare(memory: Recollection, room: str, *, newer: bool) -> tuple[list[str], list[str]]:
    """Objects and edges in a room after the camera's last look away but not before, or the reverse."""
    after = len(memory.looks) - 1
    while after >= 0 and not _is_clear(memory.looks[after], room):
        after -= 1
    if after < 0:
        return [], []
    start = memory.stay_start(after)
    before = start - 1
    while before >= 0 and not _is_clear(memory.looks[before], room):
        before -= 1
    if before < 0:
        return [], []
    looks = [look for look in memory.looks[start : after + 1] if _is_clear(look, room)]
    old, new = memory.looks[before], looks[0]
    if not newer:
        old, new = new, old
    edges = list(new.edges)
    for colour in old.edges:
        if colour in edges:
            edges.remove(colour)
    return [thing.name for thing in new.things if old.find(thing.name) is None], edges


def _is_clear(look: Look, room: str) -> bool:
    return look.lit and look.room == room and not look.fliers


def _brought_by(memory: Recollection, fields: dict[str, str]) -> Verdict:
    name = fields["thing"]
    position = len(memory.looks) - 1
    seen = memory.find(name, position)
    if seen is None:
        return _cannot_tell(MISSING)
    stay = memory.stay_start(position)
    while position > stay:
        earlier = memory.looks[position - 1]
        then = earlier.find(name)
        if not earlier.lit:
            return _cannot_tell(LOW_QUALITY)
        if then is not None and not same_spot(then, seen):
            # it may have seemed to stand there already while it was still being set down
            for look in (earlier, memory.looks[position]):
                if len(look.fliers) == 1:
                    return _told(f"a {look.fliers[0]}", directly=False)
            return _cannot_tell(MISSING)
        position -= 1
    return _cannot_tell(MISSING)


# ------------------------------------------------------------------------------- continuity


def _moves(memory: Recollection, fields: dict[str, str]) -> Verdict:
    change = _anchor(memory, fields)
    if change is None:
        return _cannot_tell(MISSING)
    gap = _gap(memory, fields["thing"], change.second)
    if gap is not None:
        return _cannot_tell(gap)
    spots = _spots(memory, fields["thing"], change.second)
    moves = sum(not same_spot(one, other) for one, other in pairwise(spots))
    return _told(COUNT_PHRASES[min(moves, len(COUNT_PHRASES) - 1)], directly=False)


def _very_one(memory: Recollection, fields: dict[str, str]) -> Verdict:
    change = _anchor(memory, fields)
    if change is None or _gap(memory, fields["thing"], change.second) is not None:
        return _cannot_tell(AMBIGUOUS_EVIDENCE)
    spots = _spots(memory, fields["thing"], change.second)
    return _told(PLACE_PHRASES[spots[-1].place], directly=False) if spots else _cannot_tell(MISSING)


def _gap(memory: Recollection, name: str, start: int) -> str | None:
    """Why an object cannot have been followed since a look: it was out of view, or dark; None if it was."""
    room = memory.looks[start].room
    cause: str | None = None
    for position in range(start, len(memory.looks)):
        look = memory.looks[position]
        if look.black or (look.lit and look.room != room):
            return MISSING
        if not look.lit:
            cause = LOW_QUALITY
        elif look.find(name) is None and not look.fliers:
            return MISSING
    return cause


def _spots(memory: Recollection, name: str, start: int) -> list[Seen]:
    """Where an object stood, look by look."""
    found = [look.find(name) for look in memory.looks[start:]]
    return [seen for seen in found if seen is not None and seen.place != "air"]


# ------------------------------------------------------------------------------------- order


def _latest(memory: Recollection, fields: dict[str, str]) -> Verdict:
    return _ranked(memory, fields, -1)


def _order(memory: Recollection, fields: dict[str, str]) -> Verdict:
    return _ranked(memory, fields, ORDINALS[fields["ordinal"]])


def _ranked(memory: Recollection, fields: dict[str, str], rank: int) -> Verdict:
    names = [fields["first"], fields["second"], fields["third"]]
    changes = [memory.last_change(VERBS[fields["verb"]], name) for name in names]
    found = sorted((change for change in changes if change is not None), key=lambda change: change.first)
    if len(found) < len(names):
        return _cannot_tell(MISSING)
    asked = found[rank]
    if sum(change.first == asked.first for change in found) > 1:
        return _cannot_tell(MISSING)
    return _told(f"the {asked.name}", directly=False)


_JUDGES: dict[str, Callable[[Recollection, dict[str, str]], Verdict]] = {
    "room_now": _room_now,
    "place_now": _place_now,
    "blind_now": _blind_now,
    "room_when": _room_when,
    "place_when": _place_when,
    "blind_when": _blind_when,
    "latest": _latest,
    "moves": _moves,
    "turned_up": _turned_up,
    "went_missing": _went_missing,
    "brought_by": _brought_by,
    "shape_of_new": _shape_of_new,
    "very_one": _very_one,
    "order": _order,
}

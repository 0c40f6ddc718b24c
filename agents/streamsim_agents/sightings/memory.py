"""What was seen when: the last looks, and what follows from them about presence and change.

Bounded: it holds a fixed number of looks and forgets the oldest. Two clean looks in a row make a
change: one look may err, a flier may be in the way.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from streamsim_agents.sightings.eye import Look, Seen
from streamsim_agents.sightings.world import RETURNED, VANISHED

_SAME_SPOT_PX = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An object was found gone or back: ``first`` and ``second`` are the looks (as positions in the
    memory) that show it so."""

    kind: str
    name: str
    first: int
    second: int


class Memory:
    """The last ``capacity`` looks, oldest first."""

    def __init__(self, capacity: int) -> None:
        self._looks: deque[Look] = deque(maxlen=capacity)

    def add(self, look: Look) -> None:
        """Remember a look; the oldest is forgotten when the memory is full."""
        self._looks.append(look)

    def clear(self) -> None:
        """Forget everything."""
        self._looks.clear()

    @property
    def nbytes(self) -> int:
        """Bytes held, counting the records of looks and objects."""
        return sum(
            sys.getsizeof(look) + sum(sys.getsizeof(thing) for thing in look.things) for look in self._looks
        )

    def recall(self) -> Recollection:
        """Everything there is, ordered for answering."""
        return Recollection(self._looks)


class Recollection:
    """A memory held still, and what can be concluded from it. Positions count looks from the oldest."""

    def __init__(self, looks: Iterable[Look]) -> None:
        self.looks = tuple(looks)
        self.changes = tuple(sorted(self._find_changes(), key=lambda change: change.second))

    @property
    def now(self) -> Look | None:
        """The newest look."""
        return self.looks[-1] if self.looks else None

    def stay_start(self, position: int) -> int:
        """Where the stay in one room that a look belongs to began; the dark does not end a stay."""
        room = self.looks[position].room
        start = position
        for earlier in range(position - 1, -1, -1):
            look = self.looks[earlier]
            if look.black or (look.lit and look.room != room):
                break
            if look.lit:
                start = earlier
        return start

    def last_change(self, kind: str, name: str) -> Change | None:
        """The newest change of a kind of an object."""
        found = [change for change in self.changes if change.kind == kind and change.name == name]
        return found[-1] if found else None

    def is_gone(self, name: str, position: int) -> bool:
        """Whether, at a look, an object had been found gone and not yet back."""
        gone = False
        for change in self.changes:
            if change.name == name and change.first <= position:
                gone = change.kind == VANISHED
        return gone

    def find(self, name: str, position: int) -> Seen | None:
        """The object in a look."""
        return self.looks[position].find(name)

    def last_room_seen(self, position: int) -> str | None:
        """The room of the newest lit look before ``position``: where the camera is in the dark."""
        for look in reversed(self.looks[:position]):
            if look.black:
                return None
            if look.lit:
                return look.room
        return None

    def _find_changes(self) -> list[Change]:
        names = {thing.name for look in self.looks for thing in look.things}
        changes: list[Change] = []
        for name in names:
            home: str | None = None
            gone = False
            run: list[int] = []
            for position, look in enumerate(self.looks):
                seen = look.find(name)
                if gone:
                    run = [*run, position] if seen is not None else []
                    if len(run) == 2:
                        gone, home, run = False, look.room, []
                        changes.append(Change(kind=RETURNED, name=name, first=position - 1, second=position))
                    continue
                if seen is not None:
                    home, run = look.room or home, []
                elif home is not None and look.lit and look.room == home and not look.fliers:
                    run = [*run, position]
                    if len(run) == 2:
                        gone = True
                        changes.append(Change(kind=VANISHED, name=name, first=run[0], second=position))
                        run = []
        return changes


def same_spot(one: Seen, other: Seen) -> bool:
    """Whether two sightings from the same stay are of the same spot."""
    return one.place == other.place and abs(one.x - other.x) <= _SAME_SPOT_PX

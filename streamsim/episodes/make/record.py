"""What one who sees a picture a second can know: the record from which labels are derived.

Visibility comes from the masks alone: a thing is visible at VISIBLE_PX pixels or more, absent at
none, and between them ambiguous: something is there, but not what. A change is confirmed by two
samples in a row. In the dark and in black nothing is visible and nothing is absent. This module
knows no questions.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec
import numpy as np

from streamsim.episodes.make.palette import HEIGHT, ROOM_WIDTH, WIDTH
from streamsim.episodes.make.render import NOTHING, Renderer
from streamsim.episodes.make.scene import Spot, shown_room
from streamsim.episodes.make.script import SECOND, Hidden, Script

VISIBLE_PX = 128
"""From this many pixels on a thing is visible; at none it is absent; between them it is ambiguous."""

IN_THE_AIR = "air"


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """A thing in one sample. ``spot`` is None in the air; ``place`` is what it stands on, or "air"."""

    room: str
    place: str
    spot: Spot | None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One sample. ``room`` is the index of the room whose middle is in view (None: none, or black).

    ``lit`` is False in the dark and in black. ``visible`` by thing; ``edges`` are the things of which
    only an edge shows. ``blind`` and ``fliers`` are those of the room in view.
    """

    n: int
    room: int | None
    lit: bool
    pixels: dict[int, int]
    visible: dict[int, Sighting]
    edges: tuple[int, ...]
    blind: str | None
    fliers: tuple[str, ...]

    def shows(self, room: int) -> bool:
        """Whether everything that stands in a room can be seen, if it is there."""
        return self.lit and self.room == room


class Confirmed(msgspec.Struct, frozen=True, kw_only=True):
    """A disappearance or return of a thing, as seen: ``before`` is the last sample that showed the
    old condition, ``first`` the first of the new one, ``n`` the second, which confirms it."""

    kind: str
    thing: int
    room: int
    before: int
    first: int
    n: int


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """All samples of an episode and the changes that they confirm, in order."""

    samples: tuple[Sample, ...]
    changes: tuple[Confirmed, ...]

    def stay_start(self, n: int) -> int:
        """The first sample of the unbroken stay that sample ``n`` belongs to; the dark breaks none."""
        room = self.samples[n].room
        while n > 0 and self.samples[n - 1].room == room and room is not None:
            n -= 1
        return n

    def unbroken(self, thing: int, start: int, end: int) -> bool:
        """Whether a thing was visible in every sample from ``start`` to ``end``."""
        return all(thing in sample.visible for sample in self.samples[start : end + 1])


def take_record(script: Script, *, samples: int | None = None) -> Record:
    """Look at a script once a second, from 0 to its last second, through its masks."""
    renderer = Renderer(script)
    count = script.seconds + 1 if samples is None else samples
    taken = tuple(_take_sample(script, renderer, n) for n in range(count))
    return Record(samples=taken, changes=_confirm(script, taken))


def count_pixels(renderer: Renderer, media_ns: int) -> dict[int, int]:
    """Pixels of each thing that the mask of an instant shows; things without any are left out."""
    found, counts = np.unique(renderer.mask(media_ns), return_counts=True)
    return {int(thing): int(count) for thing, count in zip(found, counts, strict=True) if thing != NOTHING}


def _take_sample(script: Script, renderer: Renderer, n: int) -> Sample:
    media_ns = n * SECOND
    black = script.is_black(media_ns)
    left = script.view_x(media_ns)
    room = None if black else shown_room(script.scene, left)
    dark = any(
        script.is_dark(other.index, media_ns)
        for other in script.scene.rooms
        if other.left < left + WIDTH and left < other.left + ROOM_WIDTH
    )
    lit = not black and not dark
    pixels = count_pixels(renderer, media_ns) if lit else {}
    visible, edges = {}, []
    for thing, count in pixels.items():
        if count < VISIBLE_PX:
            edges.append(thing)
        else:
            visible[thing] = _sight(script, thing, media_ns)
    return Sample(
        n=n,
        room=room,
        lit=lit,
        pixels=pixels,
        visible=visible,
        edges=tuple(edges),
        blind=script.blind(room, media_ns) if room is not None and lit else None,
        fliers=tuple(flight.flier for flight in script.flights_at(media_ns)) if lit else (),
    )


def _sight(script: Script, thing: int, media_ns: int) -> Sighting:
    flight = script.flight(thing, media_ns)
    if flight is not None:
        return Sighting(room=script.scene.rooms[flight.origin.room].name, place=IN_THE_AIR, spot=None)
    where = script.where(thing, media_ns)
    match where:
        case Spot(room=room, place=place):
            return Sighting(room=script.scene.rooms[room].name, place=place, spot=where)
        case Hidden(room=room):
            return Sighting(room=script.scene.rooms[room].name, place="chest", spot=None)
        case None:
            raise AssertionError(f"thing {thing} is visible at {media_ns} and nowhere")


def _confirm(script: Script, samples: tuple[Sample, ...]) -> tuple[Confirmed, ...]:
    """The disappearances and returns that two samples in a row confirm."""
    index = {room.name: room.index for room in script.scene.rooms}
    changes = []
    for thing in range(len(script.things)):
        last_seen: int | None = None
        gone_since: int | None = None
        for now, after in pairwise(samples):
            if gone_since is None:
                if thing in now.visible:
                    last_seen = now.n
                    continue
                if last_seen is None:
                    continue
                room = index[samples[last_seen].visible[thing].room]
                if all(sample.shows(room) and thing not in sample.pixels for sample in (now, after)):
                    gone_since = now.n
                    changes.append(
                        Confirmed(
                            kind="disappearance",
                            thing=thing,
                            room=room,
                            before=last_seen,
                            first=now.n,
                            n=after.n,
                        )
                    )
            elif thing in now.visible and thing in after.visible:
                room = index[now.visible[thing].room]
                before = max(
                    (s.n for s in samples[gone_since : now.n] if s.shows(room) and thing not in s.pixels),
                    default=gone_since,
                )
                changes.append(
                    Confirmed(kind="return", thing=thing, room=room, before=before, first=now.n, n=after.n)
                )
                last_seen, gone_since = now.n, None
    return tuple(sorted(changes, key=lambda change: (change.n, change.thing)))


assert HEIGHT * WIDTH <= 200_704

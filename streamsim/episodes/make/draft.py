"""A script in the making: what both styles use to put things, moves and spells on the timeline.

A draft keeps the state of the world at its own present and only ever adds to the timelines. It knows
no style: which change happens when is decided by ``rooms`` and ``revisit``.
"""

from __future__ import annotations

from random import Random

from streamsim.episodes.make.palette import BLINDS, COLOURS, FLIERS, SHAPES
from streamsim.episodes.make.scene import Scene, Spot
from streamsim.episodes.make.script import (
    SECOND,
    Event,
    EventKind,
    Flight,
    Hidden,
    Pan,
    Script,
    Spell,
    Thing,
    Whereabouts,
)
from streamsim.episodes.make.sprite import draw_object

EDGE_PX = 105
"""At most this much of a stranger shows above its chest: well below what counts as visible."""


class Draft:
    """The mutable half of a script. ``at`` holds where each thing is now."""

    def __init__(self, random: Random, scene: Scene, seconds: int, *, things: int, strangers: int) -> None:
        self.random = random
        self.scene = scene
        self.seconds = seconds
        looks = [(colour, shape) for colour in COLOURS for shape in SHAPES]
        random.shuffle(looks)
        hideable = [look for look in looks if look[1] != "cube"]
        hidden = hideable[:strangers]
        shown = [look for look in looks if look not in hidden][:things]
        self.things = [Thing(colour=colour, shape=shape) for colour, shape in shown]
        self.things += [Thing(colour=colour, shape=shape, stranger=True) for colour, shape in hidden]
        self.at: list[Whereabouts] = [None] * len(self.things)
        self.whereabouts: list[list[tuple[int, Whereabouts]]] = [[] for _ in self.things]
        self.blinds = [[(0, random.choice(list(BLINDS)))] for _ in scene.rooms]
        self.pans: list[Pan] = []
        self.flights: list[tuple[int, Flight]] = []
        self.dark: list[Spell] = []
        self.black: list[Spell] = []
        self.events: list[Event] = []

    def put(self, thing: int, where: Whereabouts, media_ns: int) -> None:
        """From ``media_ns`` on a thing is somewhere else."""
        self.at[thing] = where
        self.whereabouts[thing].append((media_ns, where))

    def present(self, room: int) -> list[int]:
        """The objects that stand on spots of a room now."""
        found = []
        for index, where in enumerate(self.at):
            if isinstance(where, Spot) and where.room == room:
                found.append(index)
        return found

    def gone(self) -> list[int]:
        """The objects that are nowhere now."""
        return [
            index
            for index, (thing, where) in enumerate(zip(self.things, self.at, strict=True))
            if where is None and not thing.stranger
        ]

    def free_spots(self, room: int) -> list[Spot]:
        """The spots of a room that nothing stands on."""
        taken = [where for where in self.at if isinstance(where, Spot)]
        return [spot for spot in self.scene.rooms[room].spots if spot not in taken]

    def schedule(self, kind: EventKind, thing: int, room: int, media_ns: int, *, spot: Spot | None) -> None:
        """A scheduled event: ``spot`` is where the thing returns to, None for a disappearance."""
        self.events.append(Event(kind=kind, thing=thing, room=room, media_ns=media_ns))
        self.put(thing, spot, media_ns)

    def carry(self, room: int, start_ns: int, end_ns: int, *, thing: int | None = None) -> int | None:
        """A flier carries an object of a room to another spot, in view; which one, None if none can."""
        choice = self._choose_move(room, thing)
        if choice is None:
            return None
        index, origin, target = choice
        flier = self.random.choice(list(FLIERS))
        flight = Flight(flier=flier, origin=origin, target=target, start_ns=start_ns, end_ns=end_ns)
        self.flights.append((index, flight))
        self.put(index, target, flight.lift_ns)
        return index

    def darken(self, room: int, start_ns: int, end_ns: int, *, move: bool) -> None:
        """The light of a room is off for a while; with ``move`` an object changes its spot meanwhile."""
        self.dark.append(Spell(start_ns=start_ns, end_ns=end_ns, room=room))
        choice = self._choose_move(room, None) if move else None
        if choice is not None:
            self.put(choice[0], choice[2], (start_ns + end_ns) // 2)

    def hide(self, thing: int, room: int, media_ns: int) -> None:
        """A stranger comes to stand behind a room's chest, an edge of it showing."""
        sprite = draw_object(self.things[thing].colour, self.things[thing].shape)
        rows = sprite.solid.sum(axis=1).cumsum()
        self.put(thing, Hidden(room=room, showing=int((rows <= EDGE_PX).sum())), media_ns)

    def move_blind(self, room: int, media_ns: int) -> None:
        """A blind takes another position."""
        now = self.blinds[room][-1][1]
        self.blinds[room].append((media_ns, self.random.choice([name for name in BLINDS if name != now])))

    def finish(self, *, camera_x: int, onsets_ns: tuple[int, ...]) -> Script:
        """The script as plain data, every timeline sorted."""
        for timeline in self.whereabouts:
            if not any(media_ns == 0 for media_ns, _ in timeline):
                timeline.append((0, None))
        return Script(
            scene=self.scene,
            seconds=self.seconds,
            things=tuple(self.things),
            camera_x=camera_x,
            pans=tuple(self.pans),
            whereabouts=tuple(tuple(sorted(line, key=lambda entry: entry[0])) for line in self.whereabouts),
            flights=tuple(self.flights),
            blinds=tuple(tuple(sorted(line, key=lambda entry: entry[0])) for line in self.blinds),
            dark=tuple(self.dark),
            black=tuple(self.black),
            events=tuple(sorted(self.events, key=lambda event: event.media_ns)),
            onsets_ns=onsets_ns,
        )

    def _choose_move(self, room: int, thing: int | None) -> tuple[int, Spot, Spot] | None:
        """An object of a room, its spot and a free one, on something else if there is one."""
        movable = [thing] if thing is not None else self.present(room)
        free = self.free_spots(room)
        if not movable or not free:
            return None
        index = self.random.choice(movable)
        origin = self.at[index]
        if not isinstance(origin, Spot):
            return None
        elsewhere = [spot for spot in free if spot.place != origin.place]
        return index, origin, self.random.choice(elsewhere or free)


def sample_ns(n: float) -> int:
    """Media time of the ``n``-th second; tenths of seconds are exact."""
    return round(n * 1000) * (SECOND // 1000)

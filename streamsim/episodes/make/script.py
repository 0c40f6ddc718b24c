"""What happens in one episode, as plain data, and the state of the world at any instant.

A script is complete before anything is drawn: pictures, masks and labels all follow from it. Times
are integer nanoseconds of media time; an entry of a timeline holds from its instant until the next.
This module knows neither drawing nor questions.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import Literal, TypeVar

import msgspec

from streamsim.episodes.make.scene import Scene, Spot

SECOND = 1_000_000_000

BEFORE_NS = 1_050_000_000
AWAY_NS = 100_000_000
AFTER_NS = 1_200_000_000
"""An event at T: seen before at T - BEFORE_NS, out of view at T - AWAY_NS, seen after at T + AFTER_NS."""

_SWAY_PX = 4
_SWAY_PERIOD_NS = 7 * SECOND

EventKind = Literal["disappearance", "return"]
_T = TypeVar("_T")


class Thing(msgspec.Struct, frozen=True, kw_only=True):
    """An object. No two of an episode share colour and shape. A ``stranger`` only hides behind chests."""

    colour: str
    shape: str
    stranger: bool = False

    @property
    def name(self) -> str:
        """How questions call it: colour and shape."""
        return f"{self.colour} {self.shape}"


class Hidden(msgspec.Struct, frozen=True, kw_only=True):
    """Behind the chest of ``room``, showing its top ``showing`` pixel rows."""

    room: int
    showing: int


class Flight(msgspec.Struct, frozen=True, kw_only=True):
    """Carried by a flier from spot to spot. The flier is there for the whole time, the object is
    lifted after a quarter of it and set down after three quarters."""

    flier: str
    origin: Spot
    target: Spot
    start_ns: int
    end_ns: int

    @property
    def lift_ns(self) -> int:
        """When the object leaves its spot."""
        return self.start_ns + (self.end_ns - self.start_ns) // 4

    @property
    def drop_ns(self) -> int:
        """When the object stands on its new spot."""
        return self.end_ns - (self.end_ns - self.start_ns) // 4


Whereabouts = Spot | Hidden | None
"""Where an object is while nothing carries it; None is nowhere in the rooms."""


class Pan(msgspec.Struct, frozen=True, kw_only=True):
    """The camera moves to ``x`` (world x of the view's left edge). Of no duration it is a cut."""

    start_ns: int
    end_ns: int
    x: int


class Spell(msgspec.Struct, frozen=True, kw_only=True):
    """A half-open interval: a room in the dark, or (``room`` None) a black picture."""

    start_ns: int
    end_ns: int
    room: int | None


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduled change of one object while it is out of view, at ``media_ns``.

    ``onset_ns`` is when it counts as begun: when its object was last looked at before.
    """

    kind: EventKind
    thing: int
    room: int
    media_ns: int

    @property
    def onset_ns(self) -> int:
        """Start of the event's interval."""
        return self.media_ns - BEFORE_NS


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """One episode. ``whereabouts`` and ``blinds`` are timelines, by thing and by room, sorted by time.

    ``onsets_ns`` are the instants that change intensity counts: onsets of events, or starts of visits.
    """

    scene: Scene
    seconds: int
    things: tuple[Thing, ...]
    camera_x: int
    pans: tuple[Pan, ...]
    whereabouts: tuple[tuple[tuple[int, Whereabouts], ...], ...]
    flights: tuple[tuple[int, Flight], ...]
    blinds: tuple[tuple[tuple[int, str], ...], ...]
    dark: tuple[Spell, ...]
    black: tuple[Spell, ...]
    events: tuple[Event, ...]
    onsets_ns: tuple[int, ...]

    def intensity(self, media_ns: int) -> int:
        """How many events (or visits) have begun, at least 1 and at most 10."""
        return min(10, max(1, sum(onset <= media_ns for onset in self.onsets_ns)))

    def view_x(self, media_ns: int) -> int:
        """World x of the view's left edge; the camera never stands quite still."""
        x = float(self.camera_x)
        for pan in self.pans:
            if media_ns < pan.start_ns:
                break
            if media_ns >= pan.end_ns:
                x = pan.x
                continue
            done = (media_ns - pan.start_ns) / (pan.end_ns - pan.start_ns)
            x += (pan.x - x) * (0.5 - 0.5 * math.cos(math.pi * done))
        sway = _SWAY_PX * math.sin(2 * math.pi * media_ns / _SWAY_PERIOD_NS)
        return round(x + sway)

    def where(self, thing: int, media_ns: int) -> Whereabouts:
        """Where a thing is, as if nothing carried it."""
        return at(self.whereabouts[thing], media_ns)

    def flight(self, thing: int, media_ns: int) -> Flight | None:
        """The flight that carries a thing at this instant."""
        for carried, flight in self.flights:
            if carried == thing and flight.lift_ns <= media_ns < flight.drop_ns:
                return flight
        return None

    def flights_at(self, media_ns: int) -> list[Flight]:
        """The flights whose flier is in the room."""
        return [flight for _, flight in self.flights if flight.start_ns <= media_ns < flight.end_ns]

    def blind(self, room: int, media_ns: int) -> str:
        """How a room's blind hangs."""
        return at(self.blinds[room], media_ns)

    def is_dark(self, room: int, media_ns: int) -> bool:
        """Whether a room's light is off."""
        return any(spell.room == room and spell.start_ns <= media_ns < spell.end_ns for spell in self.dark)

    def is_black(self, media_ns: int) -> bool:
        """Whether the picture is black, between two clips."""
        return any(spell.start_ns <= media_ns < spell.end_ns for spell in self.black)


def at(timeline: Sequence[tuple[int, _T]], media_ns: int) -> _T:
    """The entry of a timeline that holds at an instant; before the first the first."""
    index = bisect.bisect_right(timeline, media_ns, key=lambda entry: entry[0])
    return timeline[max(0, index - 1)][1]

"""Where things can be: the rooms side by side, their spots, windows and chests.

A scene is a row of rooms, each ``ROOM_WIDTH`` wide; world coordinates count pixels from the left
edge of the first room and from the top. Everything that is asked about lies in a room's middle, so
that a camera that looks at the middle shows all of it. This module knows no time.
"""

from __future__ import annotations

from random import Random

import msgspec

from streamsim.episodes.make.palette import HEIGHT, PLACES, ROOM_WIDTH, WALLS, WIDTH
from streamsim.episodes.make.sprite import CHEST_SIZE, WINDOW_SIZE

SHELF_Y, TABLE_Y, FLOOR_Y = 136, 236, 346
"""The heights at which things stand, as y of their lower edge."""
WALL_END_Y = 276
CHEST_TOP_Y = 316

_SHELF_X = (368, 432, 496)
_TABLE_X = (142, 214, 286)
_FLOOR_X = (196, 330, 396)
_CHEST_X = 500
_WINDOW_X = 178


class Spot(msgspec.Struct, frozen=True, kw_only=True):
    """A place where one object can stand: world x of its middle and y of its lower edge."""

    room: int
    place: str
    x: int
    y: int


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """One room. ``window`` and ``chest`` are world coordinates of upper left corners.

    ``chest_x`` is where the middle of something behind the chest stands. ``mirrored`` swaps left
    and right; ``variant`` picks among its furniture.
    """

    index: int
    name: str
    mirrored: bool
    variant: int
    spots: tuple[Spot, ...]
    window: tuple[int, int]
    chest: tuple[int, int]
    chest_x: int

    @property
    def left(self) -> int:
        """World x of the room's left edge."""
        return self.index * ROOM_WIDTH


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """The rooms from left to right."""

    rooms: tuple[Room, ...]

    @property
    def width(self) -> int:
        """Width of the world in pixels."""
        return len(self.rooms) * ROOM_WIDTH

    def camera_x(self, room: int) -> int:
        """World x of the view's left edge when the camera looks at the middle of a room."""
        return room * ROOM_WIDTH + (ROOM_WIDTH - WIDTH) // 2


def build_scene(random: Random, rooms: int) -> Scene:
    """A scene of ``rooms`` different rooms in random order."""
    names = random.sample(sorted(WALLS), rooms)
    return Scene(rooms=tuple(_build_room(random, index, name) for index, name in enumerate(names)))


def _build_room(random: Random, index: int, name: str) -> Room:
    mirrored = random.random() < 0.5
    left = index * ROOM_WIDTH

    def place_x(x: int) -> int:
        return left + (ROOM_WIDTH - x if mirrored else x)

    spots = []
    for place, xs, y in zip(PLACES, (_SHELF_X, _TABLE_X, _FLOOR_X), (SHELF_Y, TABLE_Y, FLOOR_Y), strict=True):
        spots += [Spot(room=index, place=place, x=place_x(x + random.randint(-6, 6)), y=y) for x in xs]
    chest_x = place_x(_CHEST_X)
    return Room(
        index=index,
        name=name,
        mirrored=mirrored,
        variant=random.randrange(2),
        spots=tuple(spots),
        window=(place_x(_WINDOW_X) - WINDOW_SIZE[0] // 2, 44),
        chest=(chest_x - CHEST_SIZE[0] // 2, CHEST_TOP_Y),
        chest_x=chest_x,
    )


def view_shows(left_x: float, low_x: float, high_x: float) -> bool:
    """Whether a view whose left edge is at ``left_x`` holds the world columns ``low_x`` to ``high_x``."""
    return left_x <= low_x and high_x <= left_x + WIDTH


def shown_room(scene: Scene, left_x: float) -> int | None:
    """The room whose middle, where all its spots are, lies wholly in the view; None between rooms."""
    for room in scene.rooms:
        if view_shows(left_x, room.left + _MARGIN, room.left + ROOM_WIDTH - _MARGIN):
            return room.index
    return None


_MARGIN = 92
assert HEIGHT > FLOOR_Y

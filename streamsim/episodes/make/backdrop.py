"""Paintings of empty rooms: walls, floors and the furniture that nothing is asked about.

Drawn once per episode at twice the size and reduced. No colour in here is as saturated as that of an
object, none is as dark as the bird. This module knows no time and no objects.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from streamsim.episodes.make.palette import HEIGHT, ROOM_WIDTH, WALLS, Colour
from streamsim.episodes.make.scene import SHELF_Y, TABLE_Y, WALL_END_Y, Room, Scene

_SCALE = 2

WOOD: Colour = (168, 146, 124)
DARK_WOOD: Colour = (128, 110, 96)
WHITE: Colour = (232, 230, 226)
STEEL: Colour = (176, 180, 184)
CLOTH: Colour = (150, 146, 150)


def paint_backdrop(scene: Scene) -> NDArray[np.uint8]:
    """The whole world without anything that moves, (HEIGHT, width, 3) uint8 RGB."""
    return np.concatenate([_paint_room(room) for room in scene.rooms], axis=1)


class _Brush:
    """Draws in the room's own pixels; a brush of a mirrored room is mirrored at the end, as a whole."""

    def __init__(self) -> None:
        self.image = Image.new("RGB", (ROOM_WIDTH * _SCALE, HEIGHT * _SCALE))
        self._draw = ImageDraw.Draw(self.image)

    def box(self, x0: float, y0: float, x1: float, y1: float, colour: Colour, *, radius: float = 0) -> None:
        area = tuple(value * _SCALE for value in (x0, y0, x1, y1))
        if radius:
            self._draw.rounded_rectangle(area, radius=radius * _SCALE, fill=colour)
        else:
            self._draw.rectangle(area, fill=colour)

    def oval(self, x0: float, y0: float, x1: float, y1: float, colour: Colour) -> None:
        self._draw.ellipse(tuple(value * _SCALE for value in (x0, y0, x1, y1)), fill=colour)

    def shape(self, points: list[tuple[float, float]], colour: Colour) -> None:
        self._draw.polygon([(x * _SCALE, y * _SCALE) for x, y in points], fill=colour)

    def line(self, x0: float, y0: float, x1: float, y1: float, colour: Colour, *, width: float = 1) -> None:
        area = tuple(value * _SCALE for value in (x0, y0, x1, y1))
        self._draw.line(area, fill=colour, width=round(width * _SCALE))


def _paint_room(room: Room) -> NDArray[np.uint8]:
    brush = _Brush()
    _paint_shell(brush, room.name)
    _FURNISH[room.name](brush, room.variant)
    _paint_shelf(brush)
    _paint_table(brush, room.name)
    image = brush.image.reduce(_SCALE)
    if room.mirrored:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return _light(np.asarray(image, dtype=np.float64))


def _paint_shell(brush: _Brush, name: str) -> None:
    """Wall, floor, skirting, and half a post at each end: two halves make one between two rooms."""
    wall = WALLS[name]
    brush.box(0, 0, ROOM_WIDTH, WALL_END_Y, wall)
    if name == "bathroom":
        for y in range(170, WALL_END_Y, 26):
            brush.line(0, y, ROOM_WIDTH, y, shade(wall, 0.94))
        for x in range(0, ROOM_WIDTH, 26):
            brush.line(x, 170, x, WALL_END_Y, shade(wall, 0.94))
    elif name == "bedroom":
        for x in range(0, ROOM_WIDTH, 40):
            brush.box(x, 24, x + 14, WALL_END_Y, shade(wall, 0.975))
    tiled = name in ("kitchen", "bathroom")
    floor = (190, 188, 184) if tiled else (176, 156, 136)
    brush.box(0, WALL_END_Y, ROOM_WIDTH, HEIGHT, floor)
    rows = [WALL_END_Y + (HEIGHT - WALL_END_Y) * (step / 6) ** 1.6 for step in range(7)]
    for y in rows:
        brush.line(0, y, ROOM_WIDTH, y, shade(floor, 0.88))
    if tiled:
        for x in range(-600, ROOM_WIDTH + 600, 60):
            brush.line(320 + (x - 320) * 0.55, WALL_END_Y, x, HEIGHT, shade(floor, 0.88))
    else:
        for row, (top, bottom) in enumerate(pairwise(rows)):
            for x in range(-40 + 57 * (row % 3), ROOM_WIDTH, 170):
                brush.line(x, top, x, bottom, shade(floor, 0.88))
    brush.box(0, WALL_END_Y - 10, ROOM_WIDTH, WALL_END_Y, WHITE)
    brush.line(0, WALL_END_Y, ROOM_WIDTH, WALL_END_Y, shade(floor, 0.6), width=2)
    for x0, x1 in ((0, 14), (ROOM_WIDTH - 14, ROOM_WIDTH)):
        brush.box(x0, 0, x1, HEIGHT, DARK_WOOD)
        brush.box(x0 + 4, 0, x1 - 4, HEIGHT, shade(DARK_WOOD, 1.12))


def _paint_shelf(brush: _Brush) -> None:
    brush.box(334, SHELF_Y, 530, SHELF_Y + 9, WOOD, radius=2)
    brush.box(334, SHELF_Y + 9, 530, SHELF_Y + 13, shade(WOOD, 0.7))
    for x in (356, 500):
        brush.shape([(x, SHELF_Y + 12), (x + 10, SHELF_Y + 12), (x, SHELF_Y + 34)], DARK_WOOD)


def _paint_table(brush: _Brush, name: str) -> None:
    top = {"kitchen": (204, 198, 188), "bathroom": (222, 220, 216)}.get(name, WOOD)
    legs = shade(top, 0.72)
    for x in (116, 304):
        brush.box(x, TABLE_Y + 8, x + 12, 330, legs)
        brush.box(x + 8, TABLE_Y + 8, x + 12, 330, shade(legs, 0.85))
    brush.box(122, TABLE_Y + 10, 308, TABLE_Y + 26, shade(top, 0.82))
    brush.box(104, TABLE_Y - 3, 326, TABLE_Y + 10, top, radius=3)
    brush.box(104, TABLE_Y + 6, 326, TABLE_Y + 10, shade(top, 0.8), radius=2)


def _kitchen(brush: _Brush, variant: int) -> None:
    brush.box(352, 184, 440, 318, WHITE, radius=3)
    brush.box(362, 222, 430, 298, (92, 94, 98), radius=4)
    brush.box(364, 210, 428, 215, STEEL)
    for x in (366, 384, 402, 420):
        brush.oval(x - 4, 193, x + 4, 201, (120, 122, 126))
    brush.box(352, 180, 440, 185, (110, 112, 116))
    brush.box(444, 168, 548, 320, (214, 216, 218), radius=6)
    brush.line(444, 222, 548, 222, (160, 162, 166), width=2)
    for y in (196, 240):
        brush.box(456, y, 461, y + 24, (140, 142, 146), radius=2)
    if variant:
        brush.box(240, 30, 320, 104, WOOD, radius=2)
        brush.line(280, 34, 280, 100, DARK_WOOD, width=1)
    else:
        for x in (248, 272, 296):
            brush.line(x, 54, x, 80, STEEL, width=2)
            brush.oval(x - 9, 78, x + 9, 100, shade(STEEL, 0.85))
        brush.line(236, 54, 310, 54, DARK_WOOD, width=3)


def _lounge(brush: _Brush, variant: int) -> None:
    cloth = (142, 150, 158) if variant else (164, 148, 140)
    brush.box(350, 206, 552, 300, shade(cloth, 0.88), radius=14)
    brush.box(336, 236, 366, 316, cloth, radius=9)
    brush.box(536, 236, 566, 316, cloth, radius=9)
    brush.box(364, 250, 450, 304, shade(cloth, 1.08), radius=8)
    brush.box(452, 250, 538, 304, shade(cloth, 1.08), radius=8)
    brush.oval(110, 326, 340, 378, (196, 186, 176))
    brush.oval(128, 332, 322, 372, (184, 172, 162))
    _picture(brush, 252, 36, 310, 82, variant)


def _bedroom(brush: _Brush, variant: int) -> None:
    brush.box(340, 186, 560, 270, DARK_WOOD, radius=8)
    brush.box(350, 194, 550, 262, shade(DARK_WOOD, 1.12), radius=6)
    brush.box(340, 256, 560, 322, (206, 204, 210), radius=8)
    brush.box(340, 274, 560, 324, (168, 164, 184) if variant else (184, 170, 164), radius=8)
    for x in (360, 460):
        brush.box(x, 236, x + 82, 268, (238, 236, 234), radius=9)
    _picture(brush, 248, 40, 316, 90, 1 - variant)


def _bathroom(brush: _Brush, variant: int) -> None:
    brush.box(350, 226, 556, 312, (240, 240, 240), radius=22)
    brush.box(344, 222, 562, 238, (248, 248, 248), radius=7)
    for x in (372, 524):
        brush.box(x, 306, x + 14, 322, STEEL, radius=3)
    brush.box(372, 190, 380, 226, STEEL, radius=2)
    brush.box(372, 188, 398, 195, STEEL, radius=2)
    if variant:
        brush.oval(246, 26, 316, 106, shade(STEEL, 0.9))
        brush.oval(252, 32, 310, 100, (214, 220, 222))
    else:
        brush.box(244, 60, 318, 66, STEEL, radius=2)
        brush.box(254, 64, 308, 118, (214, 206, 202))
        brush.line(254, 104, 308, 104, (186, 178, 176), width=3)


def _picture(brush: _Brush, x0: float, y0: float, x1: float, y1: float, variant: int) -> None:
    brush.box(x0, y0, x1, y1, DARK_WOOD)
    brush.box(x0 + 4, y0 + 4, x1 - 4, y1 - 4, (226, 222, 214))
    ground = (y0 + 2 * y1) / 3
    if variant:
        brush.shape([(x0 + 4, y1 - 4), ((x0 + x1) / 2, y0 + 12), (x1 - 4, y1 - 4)], (170, 172, 172))
    else:
        brush.box(x0 + 4, ground, x1 - 4, y1 - 4, (176, 180, 164))
        brush.oval(x0 + 14, y0 + 10, x0 + 28, y0 + 24, (206, 196, 182))


_FURNISH: dict[str, Callable[[_Brush, int], None]] = {
    "kitchen": _kitchen,
    "lounge": _lounge,
    "bedroom": _bedroom,
    "bathroom": _bathroom,
}


def shade(colour: Colour, factor: float) -> Colour:
    """A colour made darker (below 1) or lighter."""
    red, green, blue = (min(255, int(value * factor)) for value in colour)
    return (red, green, blue)


def _light(room: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Light falls off from the middle of the ceiling towards the corners."""
    height, width = room.shape[:2]
    y, x = np.mgrid[0:height, 0:width]
    distance = np.hypot((x - width / 2) / width, (y - height * 0.2) / height * 0.8)
    lit = room * (1.04 - 0.22 * distance**1.5)[..., None]
    return np.asarray(np.clip(lit, 0, 255), dtype=np.uint8)

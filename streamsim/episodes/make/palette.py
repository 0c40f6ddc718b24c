"""What the rooms are made of: names, colours and sizes of everything that can be drawn.

Objects and fliers are saturated, rooms and furniture are not, so that looking is possible and
guessing is not. Colours are sRGB triples. This module draws nothing.
"""

from __future__ import annotations

from typing import Final

Colour = tuple[int, int, int]

WIDTH: Final = 512
HEIGHT: Final = 384
"""Size of the pictures: within the pixel budget of 200,704, so that delivery need not resize them."""

ROOM_WIDTH: Final = 640
"""One room is a quarter wider than the view: a view of a room's middle shows nothing of the next one."""

OBJECT_SIZE: Final = 44

COLOURS: Final[dict[str, Colour]] = {
    "red": (208, 38, 40),
    "orange": (240, 128, 16),
    "yellow": (240, 210, 30),
    "green": (36, 156, 56),
    "blue": (36, 88, 214),
    "purple": (132, 46, 190),
}
SHAPES: Final = ("ball", "cube", "cone", "star", "ring")

FLIERS: Final[dict[str, Colour]] = {
    "drone": (0, 150, 160),
    "bird": (26, 26, 32),
    "hot-air balloon": (232, 58, 168),
}
"""What carries objects from spot to spot in view."""

WALLS: Final[dict[str, Colour]] = {
    "kitchen": (234, 222, 190),
    "lounge": (196, 212, 188),
    "bedroom": (210, 198, 218),
    "bathroom": (190, 212, 224),
}
"""The rooms and the colours of their walls."""

SKY: Final[Colour] = (150, 196, 240)
BLIND: Final[Colour] = (206, 184, 150)
BLINDS: Final[dict[str, float]] = {"raised": 0.08, "halfway down": 0.5, "lowered": 1.0}
"""Positions of a blind, and how much of its window it covers."""

PLACES: Final = ("shelf", "table", "floor")
"""What an object can stand on, in every room."""

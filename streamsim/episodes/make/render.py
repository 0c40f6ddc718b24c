"""From script to pixels: the picture and the mask of any instant.

Both paint the same layers in the same order, so that a mask says exactly what a picture shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamsim.episodes.make.backdrop import paint_backdrop
from streamsim.episodes.make.palette import BLINDS, HEIGHT, OBJECT_SIZE, ROOM_WIDTH, WIDTH
from streamsim.episodes.make.scene import CHEST_TOP_Y, Spot
from streamsim.episodes.make.script import Flight, Hidden, Script
from streamsim.episodes.make.sprite import (
    FLIER_SIZE,
    Sprite,
    draw_chest,
    draw_flier,
    draw_object,
    draw_window,
)

NOTHING = -1
_NIGHT = np.linspace((9, 10, 15), (16, 15, 18), HEIGHT)[:, None].round().astype(np.uint8)
"""A room without light: a shade from top to bottom and nothing else, so that no one can see in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A sprite in the world, by its upper left corner. ``thing`` is the object's index or NOTHING."""

    sprite: Sprite
    x: int
    y: int
    thing: int = NOTHING


class Renderer:
    """Draws the instants of one script; the rooms are painted once, on first use."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._backdrop: NDArray[np.uint8] | None = None

    def picture(self, media_ns: int) -> NDArray[np.uint8]:
        """The picture of an instant, (HEIGHT, WIDTH, 3) uint8 RGB."""
        if self._script.is_black(media_ns):
            return np.zeros((HEIGHT, WIDTH, 3), dtype=np.uint8)
        if self._backdrop is None:
            self._backdrop = paint_backdrop(self._script.scene)
        left = self._script.view_x(media_ns)
        picture = self._backdrop[:, left : left + WIDTH].copy()
        for layer in layers(self._script, media_ns):
            _blend(picture, layer, left)
        for room in self._script.scene.rooms:
            if self._script.is_dark(room.index, media_ns):
                start = max(0, room.left - left)
                picture[:, start : max(0, room.left + ROOM_WIDTH - left)] = _NIGHT
        return picture

    def mask(self, media_ns: int) -> NDArray[np.int16]:
        """Which thing each pixel belongs to, (HEIGHT, WIDTH) int16, NOTHING elsewhere.

        It does not know light: in the dark and in black it shows what a lamp would.
        """
        mask = np.full((HEIGHT, WIDTH), NOTHING, dtype=np.int16)
        left = self._script.view_x(media_ns)
        for layer in layers(self._script, media_ns):
            window = _clip(layer, left)
            if window is not None:
                target, source = window
                mask[target][layer.sprite.solid[source]] = layer.thing
        return mask


def layers(script: Script, media_ns: int) -> Iterator[Layer]:
    """Everything in front of the backdrop, farthest first."""
    for room in script.scene.rooms:
        window = draw_window(BLINDS[script.blind(room.index, media_ns)])
        yield Layer(sprite=window, x=room.window[0], y=room.window[1])
    standing: list[tuple[int, Layer]] = []
    carried: list[tuple[Flight, int, Sprite]] = []
    for index, thing in enumerate(script.things):
        sprite = draw_object(thing.colour, thing.shape)
        flight = script.flight(index, media_ns)
        if flight is not None:
            carried.append((flight, index, sprite))
            continue
        match script.where(index, media_ns):
            case Spot(x=x, y=y):
                corner = (x - OBJECT_SIZE // 2, y - OBJECT_SIZE)
                standing.append((y, Layer(sprite=sprite, x=corner[0], y=corner[1], thing=index)))
            case Hidden(room=place, showing=showing):
                corner = (script.scene.rooms[place].chest_x - OBJECT_SIZE // 2, CHEST_TOP_Y - showing)
                standing.append((0, Layer(sprite=sprite, x=corner[0], y=corner[1], thing=index)))
            case None:
                pass
    yield from (layer for _, layer in sorted(standing, key=lambda entry: entry[0]))
    for room in script.scene.rooms:
        yield Layer(sprite=draw_chest(), x=room.chest[0], y=room.chest[1])
    for flight, index, sprite in carried:
        x, y = _load_position(flight, media_ns)
        yield Layer(sprite=sprite, x=x - OBJECT_SIZE // 2, y=y - OBJECT_SIZE, thing=index)
    for flight in script.flights_at(media_ns):
        x, y = _load_position(flight, media_ns)
        y += _hover(flight, media_ns)
        sprite = draw_flier(flight.flier)
        yield Layer(sprite=sprite, x=x - FLIER_SIZE[0] // 2, y=y - OBJECT_SIZE - FLIER_SIZE[1] + 3)


def _load_position(flight: Flight, media_ns: int) -> tuple[int, int]:
    """World x of the load's middle and y of its lower edge: on a low arc from spot to spot."""
    span = flight.drop_ns - flight.lift_ns
    done = min(1.0, max(0.0, (media_ns - flight.lift_ns) / span))
    done = 0.5 - 0.5 * math.cos(math.pi * done)
    x = flight.origin.x + (flight.target.x - flight.origin.x) * done
    y = flight.origin.y + (flight.target.y - flight.origin.y) * done - 34 * math.sin(math.pi * done)
    return round(x), round(y)


def _hover(flight: Flight, media_ns: int) -> int:
    """How far above its load the flier still is (negative y): it comes from above and leaves upwards."""
    if media_ns < flight.lift_ns:
        left = (flight.lift_ns - media_ns) / (flight.lift_ns - flight.start_ns)
    elif media_ns >= flight.drop_ns:
        left = (media_ns - flight.drop_ns) / (flight.end_ns - flight.drop_ns)
    else:
        return 0
    return -round(left * left * 420)


def _clip(layer: Layer, left: int) -> tuple[tuple[slice, slice], tuple[slice, slice]] | None:
    """Where a layer falls into the view, as slices of the view and of the sprite; None if it does not."""
    height, width = layer.sprite.alpha.shape
    x, y = layer.x - left, layer.y
    x0, x1, y0, y1 = max(0, x), min(WIDTH, x + width), max(0, y), min(HEIGHT, y + height)
    if x0 >= x1 or y0 >= y1:
        return None
    return (slice(y0, y1), slice(x0, x1)), (slice(y0 - y, y1 - y), slice(x0 - x, x1 - x))


def _blend(picture: NDArray[np.uint8], layer: Layer, left: int) -> None:
    window = _clip(layer, left)
    if window is None:
        return
    target, source = window
    alpha = layer.sprite.alpha[source].astype(np.uint16)[..., None]
    under = picture[target].astype(np.uint16)
    picture[target] = ((layer.sprite.rgb[source] * alpha + under * (255 - alpha) + 127) // 255).astype(
        np.uint8
    )

"""From one picture to what is in it: colours are segmented, shapes compared with outlines of its own.

Everything follows from pixels: which room by the colour of the wall, objects as saturated blobs whose
outline is laid over those of five known shapes, what they stand on by their height, the blind by how
much sky is left, fliers by colour or blackness. numpy only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from streamsim_agents.sightings.world import (
    DARK_FLIER,
    FLIER_HUES,
    GLASS_PX,
    HUES,
    OBJECT_PX,
    PICTURE_SIZE,
    PLACE_Y,
    SHAPES,
    SKY,
    WALLS,
)

_BLACK_LEVEL, _DARK_LEVEL = 4.0, 45.0
_SATURATION = 0.45
_HUE_TOLERANCE = 17.0
_MIN_EDGE_PX, _MIN_EDGE_ROWS = 40, 3
_MIN_FLIER_PX = 220
_GRID = 12
_ANGLES = {**HUES, **FLIER_HUES}
_CODES = {name: code for code, name in enumerate(_ANGLES)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An object in a picture: the middle of its lower edge, and what it stands on ("air": nothing)."""

    colour: str
    shape: str
    x: int
    y: int
    place: str

    @property
    def name(self) -> str:
        """As questions call it."""
        return f"{self.colour} {self.shape}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one picture showed.

    ``room`` is the room that fills it (None between rooms, in the dark and in black). ``edges`` are
    the colours of things of which only an edge shows. ``black`` is a picture without anything.
    """

    media_ns: int
    room: str | None
    lit: bool
    black: bool = False
    things: tuple[Seen, ...] = ()
    edges: tuple[str, ...] = ()
    fliers: tuple[str, ...] = ()
    blind: str | None = None

    def find(self, name: str) -> Seen | None:
        """The object of that name, None if it is not in the picture."""
        return next((thing for thing in self.things if thing.name == name), None)


@dataclass(frozen=True, slots=True)
class _Blob:
    """A connected set of pixels: its bounding box (right and bottom exclusive), size and mask."""

    x0: int
    y0: int
    x1: int
    y1: int
    pixels: int
    mask: NDArray[np.bool_]


def look_at(rgb: NDArray[np.uint8], media_ns: int) -> Look:
    """See a picture, (384, 512, 3) uint8 RGB; other sizes are sampled to that one."""
    rgb = _resize(rgb)
    level = float(rgb.mean())
    if level < _DARK_LEVEL:
        return Look(media_ns=media_ns, room=None, lit=False, black=level < _BLACK_LEVEL)
    room = _room(rgb)
    red, green, blue = (rgb[..., channel] for channel in range(3))
    high = np.maximum(np.maximum(red, green), blue).astype(np.int16)
    delta = high - np.minimum(np.minimum(red, green), blue)
    vivid = (delta > _SATURATION * high) & (high > 60)
    hues = _name_hues(rgb, high, delta, vivid)
    things: list[Seen] = []
    edges: list[str] = []
    for colour in HUES:
        for blob in _blobs(hues == _CODES[colour], _MIN_EDGE_PX):
            if blob.y1 - blob.y0 < OBJECT_PX // 2:
                if blob.y1 - blob.y0 >= _MIN_EDGE_ROWS:
                    edges.append(colour)
            elif blob.x1 - blob.x0 >= OBJECT_PX // 2:
                things.append(_identify(colour, blob))
    fliers = [flier for flier in FLIER_HUES if any(_blobs(hues == _CODES[flier], _MIN_FLIER_PX))]
    if any(_blobs(high < 58, _MIN_FLIER_PX)):
        fliers.append(DARK_FLIER)
    return Look(
        media_ns=media_ns,
        room=room,
        lit=True,
        things=tuple(things),
        edges=tuple(edges),
        fliers=tuple(fliers),
        blind=_blind(rgb, vivid) if room is not None else None,
    )


def _resize(rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
    width, height = PICTURE_SIZE
    if rgb.shape[:2] == (height, width):
        return rgb
    rows = (np.arange(height) * rgb.shape[0]) // height
    columns = (np.arange(width) * rgb.shape[1]) // width
    return np.asarray(rgb[rows][:, columns], dtype=np.uint8)


def _room(rgb: NDArray[np.uint8]) -> str | None:
    """The room whose wall fills the upper strip of the picture; None if no one does."""
    columns = np.median(rgb[4:26], axis=0)
    chroma = columns[:, :2] - columns[:, 1:]
    names = list(WALLS)
    walls = np.asarray([WALLS[name] for name in names], dtype=np.float64)
    distance = np.abs(chroma[:, None, :] - (walls[:, :2] - walls[:, 1:])[None]).sum(axis=2)
    nearest = distance.argmin(axis=1)
    counts = np.bincount(nearest[distance.min(axis=1) < 16], minlength=len(names))
    best = int(counts.argmax())
    return names[best] if counts[best] > 0.84 * len(columns) else None


def _name_hues(
    rgb: NDArray[np.uint8], high: NDArray[np.int16], delta: NDArray[np.int16], vivid: NDArray[np.bool_]
) -> NDArray[np.int8]:
    """(H, W) the code of the nearest known hue where ``vivid`` and near enough, -1 elsewhere."""
    named = np.full(high.shape, -1, dtype=np.int8)
    red, green, blue = (rgb[..., channel][vivid].astype(np.float32) for channel in range(3))
    top, span = high[vivid], delta[vivid].astype(np.float32)
    sector = np.where(
        top == red,
        (green - blue) / span % 6,
        np.where(top == green, (blue - red) / span + 2, (red - green) / span + 4),
    )
    angles = np.asarray(list(_ANGLES.values()), dtype=np.float32)
    distance = np.abs((sector[:, None] * 60 - angles + 180) % 360 - 180)
    nearest = distance.argmin(axis=1).astype(np.int8)
    nearest[distance.min(axis=1) >= _HUE_TOLERANCE] = -1
    named[vivid] = nearest
    return named


def _blobs(mask: NDArray[np.bool_], min_pixels: int) -> Iterator[_Blob]:
    """The connected sets of a mask with at least ``min_pixels`` pixels, from runs of rows."""
    if int(mask.sum()) < min_pixels:
        return
    parent: list[int] = []
    runs: list[tuple[int, int, int, int]] = []

    def root(label: int) -> int:
        while parent[label] != label:
            parent[label] = parent[parent[label]]
            label = parent[label]
        return label

    above: list[tuple[int, int, int]] = []
    for y in np.flatnonzero(mask.any(axis=1)).tolist():
        steps = np.flatnonzero(np.diff(np.concatenate(([False], mask[y], [False])).astype(np.int8)))
        here: list[tuple[int, int, int]] = []
        for start, end in zip(steps[::2].tolist(), steps[1::2].tolist(), strict=True):
            label = len(parent)
            parent.append(label)
            for other_start, other_end, other in above:
                if runs[other][0] == y - 1 and start <= other_end and other_start <= end:
                    parent[root(label)] = root(other)
            runs.append((y, start, end, label))
            here.append((start, end, label))
        above = here
    groups: dict[int, list[tuple[int, int, int, int]]] = {}
    for run in runs:
        groups.setdefault(root(run[3]), []).append(run)
    for group in groups.values():
        pixels = sum(end - start for _, start, end, _ in group)
        if pixels < min_pixels:
            continue
        x0, x1 = min(run[1] for run in group), max(run[2] for run in group)
        y0, y1 = group[0][0], group[-1][0] + 1
        part = np.zeros((y1 - y0, x1 - x0), dtype=np.bool_)
        for y, start, end, _ in group:
            part[y - y0, start - x0 : end - x0] = True
        yield _Blob(x0, y0, x1, y1, pixels, part)


def _identify(colour: str, blob: _Blob) -> Seen:
    """Name a blob: the shape whose outline covers it best, and what is at its lower edge."""
    outline = _to_grid(blob.mask)
    shape = min(SHAPES, key=lambda name: float(np.abs(outline - _outline(name)).sum()))
    place, height = min(PLACE_Y.items(), key=lambda entry: abs(entry[1] - blob.y1))
    return Seen(
        colour=colour,
        shape=shape,
        x=(blob.x0 + blob.x1) // 2,
        y=blob.y1,
        place=place if abs(height - blob.y1) <= 8 else "air",
    )


@cache
def _outline(shape: str) -> NDArray[np.float64]:
    """A shape within its bounding box, as coverage of a grid; computed from its geometry."""
    size = _GRID * 8
    y, x = (np.mgrid[0:size, 0:size] + 0.5) / size
    match shape:
        case "ball":
            inside = np.hypot(x - 0.5, y - 0.5) <= 0.5
        case "ring":
            radius = np.hypot(x - 0.5, y - 0.5)
            inside = (radius <= 0.5) & (radius >= 0.22)
        case "cube":
            inside = np.ones_like(x, dtype=np.bool_)
        case "cone":
            inside = np.abs(x - 0.5) <= y / 2
        case "star":
            inside = _star(x, y)
        case _:
            raise ValueError(f"expected a shape, got {shape!r}")
    return _to_grid(np.asarray(inside, dtype=np.bool_))


def _star(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.bool_]:
    """A five-pointed star that fills its bounding box: inside all but one of its five lines' sides."""
    tip = 2 * math.sin(math.radians(72))
    across = (x - 0.5) * tip
    down = y * (1 + math.cos(math.radians(36))) - 1
    beyond = np.zeros_like(x, dtype=np.int64)
    for corner in range(5):
        angle = math.radians(72 * corner)
        reach = math.cos(math.radians(72))
        beyond += across * math.sin(angle) - down * math.cos(angle) > reach
    return np.asarray(beyond <= 1)


def _to_grid(mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Coverage of each cell of a (_GRID, _GRID) grid laid over a mask."""
    cells = 4 * _GRID
    rows = (np.arange(cells) * mask.shape[0]) // cells
    columns = (np.arange(cells) * mask.shape[1]) // cells
    fine = mask[rows][:, columns].astype(np.float64)
    return np.asarray(fine.reshape(_GRID, 4, _GRID, 4).mean(axis=(1, 3)), dtype=np.float64)


def _blind(rgb: NDArray[np.uint8], vivid: NDArray[np.bool_]) -> str:
    """How the blind hangs, by how much sky is left."""
    blueness = rgb[..., 2].astype(np.int16) - rgb[..., 0]
    target = SKY[2] - SKY[0]
    sky = (np.abs(blueness - target) < 32) & (rgb[..., 1] > 120) & ~vivid
    share = float(sky.sum()) / GLASS_PX
    return "raised" if share > 0.68 else "halfway down" if share > 0.2 else "lowered"

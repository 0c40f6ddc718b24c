"""Drawings of the things that move: objects, fliers, blinds and the chest that hides things.

Everything is drawn at four times its size and reduced, so that edges are smooth. This module knows
no rooms and no time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from streamsim.episodes.make.palette import (
    BLIND,
    COLOURS,
    FLIERS,
    OBJECT_SIZE,
    SKY,
    Colour,
)

OVERSAMPLE = 4
FLIER_SIZE = (76, 52)
WINDOW_SIZE = (92, 100)
CHEST_SIZE = (96, 62)
SHADOW_HEIGHT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Sprite:
    """A picture with holes: ``rgb`` (H, W, 3) uint8 and ``alpha`` (H, W) uint8, 255 where it covers."""

    rgb: NDArray[np.uint8]
    alpha: NDArray[np.uint8]

    @property
    def solid(self) -> NDArray[np.bool_]:
        """(H, W) bool: the pixels that count as the thing itself."""
        return self.alpha >= 128


@lru_cache(maxsize=64)
def draw_object(colour: str, shape: str) -> Sprite:
    """An object of ``OBJECT_SIZE`` squared, and below it a shadow, which is no part of it."""
    size = OBJECT_SIZE * OVERSAMPLE
    mask = Image.new("L", (size, size), 0)
    draw = ImageDraw.Draw(mask)
    edge = OVERSAMPLE
    low, high, middle = edge, size - 1 - edge, (size - 1) / 2
    top: list[tuple[float, float]] = []
    match shape:
        case "ball":
            draw.ellipse((low, low, high, high), fill=255)
        case "cube":
            draw.rectangle((low, low, high, high), fill=255)
            top = [
                (low, low),
                (high, low),
                (high - 7 * edge, low + 8 * edge),
                (low + 7 * edge, low + 8 * edge),
            ]
        case "cone":
            draw.polygon([(middle, low), (high, high), (low, high)], fill=255)
        case "star":
            draw.polygon(_star_points(middle, middle + 1.6 * edge, middle), fill=255)
        case "ring":
            draw.ellipse((low, low, high, high), fill=255)
            hole = 0.27 * size
            draw.ellipse((low + hole, low + hole, high - hole, high - hole), fill=0)
        case _:
            raise ValueError(f"expected a shape, got {shape!r}")
    shade = _shade(size)
    if top:
        lid = Image.new("L", (size, size), 0)
        ImageDraw.Draw(lid).polygon(top, fill=255)
        shade = np.where(np.asarray(lid) > 0, 1.12, shade * 0.94)
    if shape == "cone":
        side = np.linspace(1.12, 0.72, size)[None, :]
        shade = np.broadcast_to(side, (size, size))
    return _add_shadow(_finish(COLOURS[colour], mask, shade), broad=shape not in ("ball", "ring"))


@lru_cache(maxsize=8)
def draw_flier(name: str) -> Sprite:
    """A flier of ``FLIER_SIZE``; what it carries hangs from the middle of its lower edge."""
    width, height = FLIER_SIZE[0] * OVERSAMPLE, FLIER_SIZE[1] * OVERSAMPLE
    image = Image.new("RGBA", (width, height), (*FLIERS[name], 0))
    draw = ImageDraw.Draw(image)
    body = (*FLIERS[name], 255)
    grey = (120, 120, 126, 255)

    def box(left: float, top: float, right: float, bottom: float) -> tuple[float, float, float, float]:
        return (left * width, top * height, right * width, bottom * height)

    match name:
        case "drone":
            for left in (0.02, 0.66):
                draw.ellipse(box(left, 0.08, left + 0.32, 0.24), fill=(150, 152, 158, 255))
                draw.line(box(left + 0.16, 0.16, left + 0.16, 0.45), fill=grey, width=OVERSAMPLE * 3)
            draw.line(box(0.16, 0.45, 0.84, 0.45), fill=grey, width=OVERSAMPLE * 4)
            draw.rounded_rectangle(box(0.26, 0.34, 0.74, 0.80), radius=width * 0.08, fill=body)
            draw.ellipse(box(0.44, 0.46, 0.56, 0.64), fill=(214, 224, 226, 255))
        case "bird":
            draw.polygon(
                _scaled([(0.02, 0.10), (0.40, 0.34), (0.44, 0.70), (0.24, 0.50)], width, height), fill=body
            )
            draw.polygon(
                _scaled([(0.98, 0.10), (0.60, 0.34), (0.56, 0.70), (0.76, 0.50)], width, height), fill=body
            )
            draw.ellipse(box(0.34, 0.30, 0.66, 0.86), fill=body)
            draw.ellipse(box(0.40, 0.12, 0.62, 0.46), fill=body)
            draw.polygon(
                _scaled([(0.61, 0.24), (0.75, 0.30), (0.61, 0.36)], width, height), fill=(196, 178, 150, 255)
            )
        case "hot-air balloon":
            draw.ellipse(box(0.28, 0.0, 0.72, 0.68), fill=body)
            draw.polygon(
                _scaled([(0.36, 0.56), (0.64, 0.56), (0.54, 0.78), (0.46, 0.78)], width, height), fill=body
            )
            draw.rectangle(box(0.43, 0.80, 0.57, 0.98), fill=(150, 132, 112, 255))
        case _:
            raise ValueError(f"expected a flier, got {name!r}")
    return _reduce(image)


@lru_cache(maxsize=8)
def draw_window(covered: float) -> Sprite:
    """A window of ``WINDOW_SIZE`` with a blind over its upper ``covered`` part (0 to 1)."""
    width, height = WINDOW_SIZE[0] * OVERSAMPLE, WINDOW_SIZE[1] * OVERSAMPLE
    image = Image.new("RGBA", (width, height), (236, 234, 230, 255))
    draw = ImageDraw.Draw(image)
    frame = 5 * OVERSAMPLE
    draw.rectangle((frame, frame, width - frame, height - frame), fill=(*SKY, 255))
    glass = height - 2 * frame
    draw.rectangle((width / 2 - 5, frame, width / 2 + 5, height - frame), fill=(236, 234, 230, 255))
    bottom = frame + covered * glass
    draw.rectangle((frame, frame, width - frame, bottom), fill=(*BLIND, 255))
    y = frame + 5.0 * OVERSAMPLE
    while y < bottom:
        draw.line((frame, y, width - frame, y), fill=_dim(BLIND, 0.82), width=OVERSAMPLE)
        y += 6 * OVERSAMPLE
    draw.line((frame, bottom, width - frame, bottom), fill=_dim(BLIND, 0.7), width=2 * OVERSAMPLE)
    return _reduce(image)


@lru_cache(maxsize=2)
def draw_chest() -> Sprite:
    """The chest in the foreground, ``CHEST_SIZE``: what stands behind it shows at most its top."""
    width, height = CHEST_SIZE[0] * OVERSAMPLE, CHEST_SIZE[1] * OVERSAMPLE
    image = Image.new("RGBA", (width, height), (0, 0, 0, 0))
    draw = ImageDraw.Draw(image)
    wood = (150, 134, 118)
    draw.rounded_rectangle((0, 0, width - 1, height - 1), radius=5 * OVERSAMPLE, fill=_dim(wood, 0.78))
    draw.rounded_rectangle((0, 0, width - 1, height * 0.34), radius=5 * OVERSAMPLE, fill=_dim(wood, 1.0))
    for share in (0.2, 0.8):
        x = share * width
        draw.rectangle((x - 12, 0, x + 12, height - 1), fill=_dim(wood, 0.62))
    draw.rectangle((width * 0.45, height * 0.26, width * 0.55, height * 0.46), fill=(176, 170, 160, 255))
    return _reduce(image)


def _star_points(cx: float, cy: float, radius: float) -> list[tuple[float, float]]:
    """The ten corners of a five-pointed star, the first at the top."""
    points = []
    for corner in range(10):
        length = radius * (1.0 if corner % 2 == 0 else 0.42)
        angle = math.pi * corner / 5
        points.append((cx + length * math.sin(angle), cy - length * math.cos(angle)))
    return points


def _scaled(points: Sequence[tuple[float, float]], width: int, height: int) -> list[tuple[float, float]]:
    return [(x * width, y * height) for x, y in points]


def _dim(colour: Colour, factor: float) -> tuple[int, int, int, int]:
    red, green, blue = (min(255, int(value * factor)) for value in colour)
    return (red, green, blue, 255)


def _shade(size: int) -> NDArray[np.float64]:
    """(size, size): light from the upper left, darker towards the lower right."""
    y, x = np.mgrid[0:size, 0:size] / size
    return np.asarray(1.14 - 0.42 * np.hypot(x - 0.32, y - 0.26), dtype=np.float64)


def _finish(colour: Colour, mask: Image.Image, shade: NDArray[np.float64]) -> Sprite:
    """Colour times shade inside the mask, reduced to the final size."""
    flat = np.clip(np.asarray(colour, dtype=np.float64)[None, None, :] * shade[..., None], 0, 255)
    image = Image.fromarray(flat.astype(np.uint8), "RGB")
    image.putalpha(mask)
    return _reduce(image)


def _add_shadow(sprite: Sprite, *, broad: bool) -> Sprite:
    """The sprite with a faint dark ellipse under its lower edge."""
    height, width = sprite.alpha.shape
    y, x = np.mgrid[0 : height + SHADOW_HEIGHT, 0:width]
    half = width * (0.46 if broad else 0.3)
    distance = np.hypot((x - (width - 1) / 2) / half, (y - height + 1) / SHADOW_HEIGHT)
    alpha = np.asarray(np.clip(1.2 - distance, 0, 1) * 100, dtype=np.uint8)
    rgb = np.zeros((*alpha.shape, 3), dtype=np.uint8)
    over = sprite.alpha > 0
    rgb[:height][over] = sprite.rgb[over]
    alpha[:height] = np.maximum(alpha[:height], sprite.alpha)
    return Sprite(rgb=rgb, alpha=alpha)


def _reduce(image: Image.Image) -> Sprite:
    """A drawing at ``OVERSAMPLE`` times its size becomes a sprite; colour does not bleed at its edge."""
    small = image.convert("RGBa").reduce(OVERSAMPLE)
    pixels = np.array(small.convert("RGBA"), dtype=np.uint8)
    return Sprite(rgb=np.ascontiguousarray(pixels[..., :3]), alpha=np.ascontiguousarray(pixels[..., 3]))

"""Clips that carry their own time, rendered for the tests of everything that plays video.

Each picture shows 16 blocks in two rows of eight across its top third, light for 1 and dark for 0,
most significant first: the number is the picture's time in units of 10 ms.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:  # so that these tests share `tests.streamsim.…` however pytest was called
    sys.path.insert(0, str(ROOT))

COLUMNS, ROWS = 8, 2


def draw_time(time_ms: int, size: tuple[int, int]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A picture (H, W, 3) uint8 RGB that shows ``time_ms`` and has a red bar at its lower left."""
    width, height = size
    picture = np.full((height, width, 3), 90, np.uint8)
    for bit in range(COLUMNS * ROWS):
        row, column = divmod(bit, COLUMNS)
        light = time_ms // 10 >> (COLUMNS * ROWS - 1 - bit) & 1
        picture[
            row * height // 6 : (row + 1) * height // 6,
            column * width // COLUMNS : (column + 1) * width // COLUMNS,
        ] = 235 if light else 20
    picture[height // 2 :, : width // 8] = (200, 30, 30)
    return picture


def read_time_ms(file: bytes) -> int:
    """The time that a picture file shows."""
    grey = np.asarray(Image.open(io.BytesIO(file)).convert("L")).astype(float)
    height, width = grey.shape
    number = 0
    for bit in range(COLUMNS * ROWS):
        row, column = divmod(bit, COLUMNS)
        block = grey[
            round((row + 0.25) * height / 6) : round((row + 0.75) * height / 6),
            round((column + 0.25) * width / COLUMNS) : round((column + 0.75) * width / COLUMNS),
        ]
        number = number * 2 + int(block.mean() > 128)
    return number * 10


def write_clip(
    path: Path,
    times_ms: Sequence[int],
    *,
    size: tuple[int, int] = (128, 96),
    codec: str = "libx264",
    options: dict[str, str] | None = None,
    container_options: dict[str, str] | None = None,
    pixel_aspect: Fraction | None = None,
    sound_ms: int = 0,
    declared_fps: int = 25,
) -> Path:
    """Encode one picture for each time; with ``sound_ms`` a sound track that begins at 0."""
    with av.open(str(path), "w", options=container_options or {}) as container:
        video = container.add_stream(codec, rate=declared_fps, options=options or {"preset": "veryfast"})
        assert isinstance(video, av.VideoStream)
        video.width, video.height = size
        video.pix_fmt = "yuv420p"
        video.codec_context.time_base = Fraction(1, 1000)
        if pixel_aspect is not None:
            video.codec_context.sample_aspect_ratio = pixel_aspect
        sound = container.add_stream("aac", rate=16_000, layout="mono") if sound_ms else None
        if sound is not None:
            samples = np.zeros((1, 16 * sound_ms), np.float32)
            noise = av.AudioFrame.from_ndarray(samples, format="fltp", layout="mono")
            noise.sample_rate, noise.pts, noise.time_base = 16_000, 0, Fraction(1, 16_000)
            container.mux(sound.encode(noise))
            container.mux(sound.encode())
        for time_ms in times_ms:
            picture = av.VideoFrame.from_ndarray(draw_time(time_ms, size), "rgb24")
            picture.pts, picture.time_base = time_ms, Fraction(1, 1000)
            container.mux(video.encode(picture))
        container.mux(video.encode())
    return path


@pytest.fixture
def make_clip(tmp_path: Path) -> Callable[..., Path]:
    """``make_clip(name, times_ms, **options)`` writes a clip and returns its path; see ``write_clip``."""

    def make(name: str, times_ms: Sequence[int], **options: Any) -> Path:
        return write_clip(tmp_path / name, times_ms, **options)

    return make


@pytest.fixture(scope="session")
def shown_ms() -> Callable[[bytes | None], int | None]:
    """Reads the time that a picture file of such a clip shows; None for None."""
    return lambda file: None if file is None else read_time_ms(file)


@pytest.fixture(scope="session")
def long_clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seconds at 30 pictures a second with reordered pictures, times to 10 ms."""
    times_ms = [round(n * 1000 / 30, -1) for n in range(90)]
    return write_clip(tmp_path_factory.mktemp("clips") / "long.mp4", [int(time) for time in times_ms])

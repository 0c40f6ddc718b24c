"""Which video codecs the installed PyAV has, tried rather than believed."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np

from streamsim.episodes.make.encode import encode_video
from streamsim.episodes.sampling import Sampling
from streamsim.episodes.video import VideoSampler
from streamsim.errors import StreamsimError

DECODERS = ("h264", "hevc", "vp9", "av1", "mpeg4")
"""What benchmark videos come in."""


def missing_decoders() -> tuple[str, ...]:
    """Those of ``DECODERS`` that cannot be opened here."""
    missing = []
    for name in DECODERS:
        try:
            av.CodecContext.create(name, "r")
        except (av.error.FFmpegError, ValueError):
            missing.append(name)
    return tuple(missing)


def try_round_trip(folder: Path) -> None:
    """Encode two seconds of H.264 into ``folder`` and sample them; ``StreamsimError`` if that fails."""
    path = folder / "round-trip.mp4"
    shades = (40, 200)
    pictures = [np.full((48, 64, 3), shade, np.uint8) for shade in shades for _ in range(10)]
    try:
        encode_video(path, pictures, fps=10, size=(64, 48))
    except (av.error.FFmpegError, ValueError, OSError) as error:
        raise StreamsimError(f"cannot encode H.264: {error}") from error
    with VideoSampler(path, Sampling()) as samples:
        times = [sample.source_ns for sample in samples if sample.data is not None]
    if times != [0, 1_000_000_000]:
        raise StreamsimError(f"expected pictures at 0 and 1 s out of an H.264 clip, got {times}")

"""Encodes pictures to H.264 in an MP4 file: the makers' door to PyAV."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray


def encode_video(
    path: Path, pictures: Iterable[NDArray[np.uint8]], *, fps: int, size: tuple[int, int]
) -> None:
    """Write pictures, each (height, width, 3) uint8 RGB, as an H.264 video of constant frame rate.

    ``size`` is (width, height), both even. The k-th picture is presented at k / fps. One thread, so
    that several encoders share the cores evenly; no B-frames, so that the first picture is at time 0.
    """
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=fps)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        stream.time_base = Fraction(1, fps)
        stream.codec_context.thread_count = 1
        stream.options = {"preset": "veryfast", "crf": "18", "bf": "0", "g": str(4 * fps)}
        for k, pixels in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts = k
            frame.time_base = Fraction(1, fps)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())

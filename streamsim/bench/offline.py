"""The usual offline ways of showing a model what came before each question, as an outside script has them.

Three of them: decode the prefix anew for every query; cut a clip for every query, by copying packets or
by encoding anew, and decode the clip. Straight PyAV, the rule of the STORM-Bench evaluator (source
index = rint(k × average fps / fps), stamped index / average fps), pictures fitted to the pixel budget.
What each shows a query is returned, so that it can be held against what a session showed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from streamsim.episodes.sampling import fit_size

EPSILON_S = 1e-6


def redecode_prefixes(video: Path, query_seconds: Sequence[float], fps: float, budget: int) -> list[int]:
    """Decode from the beginning for every query; how many pictures each was shown."""
    return [len(_decode_prefix(video, second, fps, budget)) for second in query_seconds]


def copy_clips(
    video: Path, folder: Path, query_seconds: Sequence[float], fps: float, budget: int
) -> list[int]:
    """Cut a clip for every query without encoding, and decode it."""
    shown = []
    for number, second in enumerate(query_seconds):
        clip = folder / f"copied-{number}.mp4"
        with av.open(str(video)) as source, av.open(str(clip), "w") as target:
            stream = source.streams.video[0]
            out = target.add_stream_from_template(stream)
            for packet in source.demux(stream):
                if packet.pts is not None and float(packet.pts * packet.time_base) <= second + EPSILON_S:
                    packet.stream = out
                    target.mux(packet)
        shown.append(len(_decode_prefix(clip, second, fps, budget)))
    return shown


def encode_clips(
    video: Path, folder: Path, query_seconds: Sequence[float], fps: float, budget: int
) -> list[int]:
    """Cut a clip for every query by encoding anew (libx264 veryfast), and decode it."""
    shown = []
    for number, second in enumerate(query_seconds):
        clip = folder / f"encoded-{number}.mp4"
        with av.open(str(video)) as source, av.open(str(clip), "w") as target:
            stream = source.streams.video[0]
            rate = stream.average_rate or Fraction(1)
            out = target.add_stream("libx264", rate=rate, options={"preset": "veryfast"})
            assert isinstance(out, av.VideoStream)
            out.width, out.height, out.pix_fmt = stream.width, stream.height, "yuv420p"
            for picture in source.decode(stream):
                if picture.time is None or picture.time > second + EPSILON_S:
                    break
                picture.pict_type = av.video.frame.PictureType.NONE
                target.mux(out.encode(picture))
            target.mux(out.encode())
        shown.append(len(_decode_prefix(clip, second, fps, budget)))
    return shown


def _decode_prefix(video: Path, second: float, fps: float, budget: int) -> list[NDArray[np.uint8]]:
    """The pictures a query may see, (H, W, 3) uint8 RGB, as a processor takes them."""
    with av.open(str(video)) as container:
        stream = container.streams.video[0]
        average = float(stream.average_rate or 1)
        size = fit_size(stream.width, stream.height, budget)
        wanted = {round(k * average / fps) for k in range(math.floor((second + EPSILON_S) * fps) + 1)}
        last = max(wanted)
        pictures: list[NDArray[np.uint8]] = []
        for index, picture in enumerate(container.decode(stream)):
            if index in wanted and index / average <= second + EPSILON_S:
                pixels = picture.to_ndarray(format="rgb24", width=size[0], height=size[1])
                pictures.append(np.asarray(pixels, dtype=np.uint8))
            if index >= last:
                break
    return pictures

"""Plain episodes for benchmarks: moving blocks, questions at even intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streamsim.episodes.dataset import DatasetInfo, write_dataset
from streamsim.episodes.episode import Episode, EpisodeQuery, KeyEntry
from streamsim.episodes.make.encode import encode_video

PICTURE_SIZE = (448, 448)
NOISE_OF_40_KB = 23
"""With this much noise a picture of that size takes some 40 KB as a JPEG of quality 90."""
OPTIONS = ("red", "green", "blue", "it cannot be told")


def make_footage(
    folder: Path,
    *,
    seconds: int,
    query_seconds: Sequence[float],
    episodes: int = 1,
    fps: int = 2,
    size: tuple[int, int] = (320, 240),
    noise: int = 0,
) -> Path:
    """Write a dataset of ``episodes`` that share one video; returns its folder.

    ``noise`` (0 to 255) is added to the pixels, so that pictures have the size of real ones.
    """
    video = folder.with_name(f"{folder.name}.mp4")
    encode_video(video, _pictures(seconds * fps + 1, size, noise), fps=fps, size=size)
    played = []
    key = []
    for number in range(episodes):
        queries = tuple(
            EpisodeQuery(
                id=f"e{number}-q{index}",
                kind="choice",
                media_ns=round(second * 1e9),
                stem="What colour is the block?",
                options=OPTIONS,
            )
            for index, second in enumerate(query_seconds)
        )
        played.append(Episode(id=f"e{number}", subset="bench", video="videos/v.mp4", queries=queries))
        key += [
            KeyEntry(
                id=query.id,
                episode_id=f"e{number}",
                subset="bench",
                media_ns=query.media_ns,
                answer_index=index % len(OPTIONS),
                permutation=(0, 1, 2, 3),
                status="known" if index % 2 else "uncertain",
                causes=() if index % 2 else ("missing_observation",),
                intensity=1 + index % 10,
            )
            for index, query in enumerate(queries)
        ]
    info = DatasetInfo(name="bench", chain="full", source="made by bench.py")
    write_dataset(folder, info, played, key, copy={"videos/v.mp4": video})
    video.unlink()
    return folder


def _pictures(count: int, size: tuple[int, int], noise: int) -> Iterator[NDArray[np.uint8]]:
    width, height = size
    random = np.random.default_rng(0)
    for k in range(count):
        pixels = np.full((height, width, 3), 90, dtype=np.uint8)
        if noise:
            pixels = random.integers(0, noise, (height, width, 3), dtype=np.uint8)
        left = (k * 7) % (width - 40)
        pixels[height // 3 : height // 3 + 40, left : left + 40] = (200, 40, 40)
        yield pixels

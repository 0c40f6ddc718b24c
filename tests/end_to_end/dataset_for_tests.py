"""Datasets small enough to be played in a second: rendered clips, questions with known answers.

Every episode asks four queries: ``q1`` at 0 s, ``q2`` and ``q3`` at the same second, ``q4`` at the
last moment of the video. ``q2`` and ``q4`` are uncertain, so an agent that says so is asked for causes.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from streamsim.episodes.dataset import DatasetInfo, write_dataset
from streamsim.episodes.episode import Episode, EpisodeQuery, KeyEntry, Status

TINY_SECONDS = (2, 3, 4)
ONE_CLIP_EPISODES = 64
ONE_CLIP_SECONDS = 2
CLIP_FPS = 10
OPTIONS = ("the red one", "the green one", "the blue one", "it cannot be told")
NS = 1_000_000_000


def write_clip(path: Path, seconds: int) -> Path:
    """A clip of 64 × 48 whose grey changes with every picture."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=CLIP_FPS, options={"preset": "ultrafast"})
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(seconds * CLIP_FPS):
            grey = np.full((48, 64, 3), 20 + 5 * number, np.uint8)
            picture = av.VideoFrame.from_ndarray(grey, "rgb24")
            picture.pts, picture.time_base = number, Fraction(1, CLIP_FPS)
            container.mux(stream.encode(picture))
        container.mux(stream.encode())
    return path


def make_episode(name: str, video: str, seconds: int) -> tuple[Episode, list[KeyEntry]]:
    """One episode and its half of the key."""
    times_ns = (0, NS, NS, seconds * NS)
    statuses: tuple[Status, ...] = ("known", "uncertain", "known", "uncertain")
    queries = tuple(
        EpisodeQuery(
            id=f"{name}/{number}",
            kind="choice",
            media_ns=media_ns,
            stem=f"Which one was moved {'perhaps' if status == 'uncertain' else 'surely'}, at {number}?",
            options=OPTIONS,
        )
        for number, (media_ns, status) in enumerate(zip(times_ns, statuses, strict=True), 1)
    )
    key = [
        KeyEntry(
            id=query.id,
            episode_id=name,
            subset="tiny",
            media_ns=query.media_ns,
            answer_index=number % len(OPTIONS),
            permutation=(0, 1, 2, 3),
            status=status,
            causes=("missing_observation", "low_visual_quality") if status == "uncertain" else (),
            intensity=1 + 3 * (number % 3),
            question_type="current_state",
        )
        for number, (query, status) in enumerate(zip(queries, statuses, strict=True), 1)
    ]
    return Episode(id=name, subset="tiny", video=video, queries=queries), key


def write_tiny(folder: Path) -> Path:
    """Three episodes of different length, a clip each."""
    clips = {
        f"videos/{seconds}.mp4": write_clip(folder.parent / f"{seconds}.mp4", seconds)
        for seconds in TINY_SECONDS
    }
    made = [make_episode(f"tiny-{seconds}", f"videos/{seconds}.mp4", seconds) for seconds in TINY_SECONDS]
    return _write(folder, made, clips)


def write_one_clip(folder: Path, episodes: int) -> Path:
    """So many episodes over one clip of 2 s."""
    clip = write_clip(folder.parent / "clip.mp4", ONE_CLIP_SECONDS)
    made = [make_episode(f"e{number:02}", "clip.mp4", ONE_CLIP_SECONDS) for number in range(episodes)]
    return _write(folder, made, {"clip.mp4": clip})


def write_noise(folder: Path) -> Path:
    """One episode whose single picture of 800 × 800 has no pattern that a lossless file could use."""
    noise = np.random.default_rng(0).integers(0, 256, (800, 800, 3), np.uint8)
    clip = folder.parent / "noise.mp4"
    with av.open(str(clip), "w") as container:
        stream = container.add_stream("libx264", rate=1, options={"preset": "ultrafast", "qp": "0"})
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height, stream.pix_fmt = 800, 800, "yuv444p"
        container.mux(stream.encode(av.VideoFrame.from_ndarray(noise, "rgb24")))
        container.mux(stream.encode())
    episode, key = make_episode("noise", "noise.mp4", 1)
    return _write(folder, [(episode, key)], {"noise.mp4": clip})


def _write(folder: Path, made: list[tuple[Episode, list[KeyEntry]]], clips: dict[str, Path]) -> Path:
    write_dataset(
        folder,
        DatasetInfo(name=folder.parent.name, chain="full", source="rendered for tests"),
        [episode for episode, _ in made],
        [entry for _, key in made for entry in key],
        copy=clips,
    )
    return folder

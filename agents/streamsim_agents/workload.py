"""Agents for benchmarks of the simulator itself: one that really looks and saves, one that stands still."""

from __future__ import annotations

import time
from pathlib import Path

from streamsim_agents.agent import Frame, SessionInfo
from streamsim_agents.scripted import Null, Random


class Looker(Random):
    """Decodes every picture, as a model's processor would."""

    def observe(self, frame: Frame) -> None:
        """Look at it."""
        assert frame.rgb.ndim == 3


class Witness(Looker):
    """Decodes every picture, keeps its file, and saves all of them, one file a picture.

    It answers as ``random`` does, so its scores follow from the session's seed alone; what it saves
    follows from the pictures alone, so two sessions that showed the same saved the same.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, bytes] = {}

    def begin(self, session: SessionInfo) -> None:
        """Remember nothing of the session before."""
        super().begin(session)
        self._seen = {}

    def observe(self, frame: Frame) -> None:
        """Look at it, and keep its file."""
        super().observe(frame)
        height, width, _ = frame.rgb.shape
        self._seen[f"{frame.k:05}-{frame.media_ns}-{width}x{height}.jpg"] = frame.data

    def save(self, folder: Path) -> None:
        """One file a picture: number, media time in nanoseconds and size in its name."""
        for name, data in self._seen.items():
            (folder / name).write_bytes(data)

    def load(self, folder: Path) -> None:
        """Remember what was saved."""
        self._seen = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


class Blocked(Null):
    """Stands still once, for ``seconds``, when it observes the first frame from ``at`` (seconds) on."""

    def __init__(self, *, at: float, seconds: float) -> None:
        self._at_s = at
        self._seconds = seconds
        self._done = False

    def begin(self, session: SessionInfo) -> None:
        """Once in every session."""
        self._done = False

    def observe(self, frame: Frame) -> None:
        """Pass over the frame, or stand still."""
        if frame.seconds >= self._at_s and not self._done:
            self._done = True
            time.sleep(self._seconds)

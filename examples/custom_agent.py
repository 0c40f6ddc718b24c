"""An agent of your own: it counts how often the scene changed, in a small memory that it keeps.

    streamsim run DATASET --agent examples.custom_agent:ChangeCounter --agent-arg threshold=30

It answers questions whose options are numbers ("How often did the scene change?"); to all others it
says that it has not seen the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from streamsim_agents import Agent, Frame, Query, SessionInfo, Turn


class ChangeCounter(Agent):
    """Counts scene changes: seconds in which the whole picture became another."""

    def __init__(self, *, threshold: float = 30.0) -> None:
        """``threshold``: mean difference in grey levels, 0 to 255, that makes a scene change."""
        self._threshold = threshold
        self._changes: list[int] = []
        self._last: np.ndarray[Any, Any] | None = None

    def begin(self, session: SessionInfo) -> None:
        self._changes, self._last = [], None

    def observe(self, frame: Frame) -> None:
        grey = frame.rgb[::8, ::8].mean(axis=2)
        if self._last is not None and np.abs(grey - self._last).mean() > self._threshold:
            self._changes.append(frame.media_ns)
        self._last = grey

    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        numbers = [re.search(r"\d+", option) for option in query.options]
        hits = [index for index, found in enumerate(numbers) if found and int(found[0]) == len(self._changes)]
        yield "ABCDEFG"[hits[0]] if hits else {"task": "A", "status": "C", "cause": "A"}[query.probe]

    def save(self, folder: Path) -> None:
        (folder / "changes.json").write_text(json.dumps(self._changes))

    def load(self, folder: Path) -> None:
        self._changes = json.loads((folder / "changes.json").read_text())

    def stats(self) -> dict[str, float]:
        return {"memory_items": len(self._changes), "memory_bytes": 8 * len(self._changes)}

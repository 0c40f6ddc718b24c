"""A memory of your own: it keeps a frame only if it shows something new.

    streamsim run DATASET --agent vlm --agent-arg model=PATH \\
        --agent-arg memory=examples.custom_memory:Novel,frames=64,threshold=12

It works with any model, since it stores frames. When it is full, the frame that was least new goes.
"""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from streamsim_agents.memory import Cue, Entry, Memory, Part
from streamsim_agents.memory.memory import State, entries


class Novel(Memory):
    """Keeps up to ``frames`` frames that differ from the one kept before by ``threshold`` grey levels."""

    def __init__(self, frames: int = 64, threshold: float = 12.0) -> None:
        self._frames, self._threshold = frames, threshold
        self._kept: list[Entry] = []

    def write(self, entry: Entry) -> None:
        if self._kept and novelty(self._kept[-1], entry) < self._threshold:
            return
        self._kept.append(entry)
        if len(self._kept) > self._frames:
            pairs = zip(self._kept, self._kept[1:], strict=False)
            self._kept.pop(1 + int(np.argmin([novelty(*pair) for pair in pairs])))

    def read(self, cue: Cue) -> list[Part]:
        return [Part(entries=tuple(self._kept))]

    def state(self) -> State:
        return {"kept": tuple(self._kept)}

    def restore(self, state: State) -> None:
        self._kept = entries(state, "kept")

    def clear(self) -> None:
        self._kept = []


def novelty(before: Entry, after: Entry) -> float:
    """Mean difference of two frames in grey levels."""
    return float(np.abs(thumbnail(before) - thumbnail(after)).mean())


def thumbnail(entry: Entry) -> NDArray[np.float32]:
    assert isinstance(entry.value, bytes)
    with Image.open(io.BytesIO(entry.value)) as picture:
        return np.asarray(picture.convert("L").resize((16, 16)), dtype=np.float32)

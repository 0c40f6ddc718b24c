"""A sliding window in full, and a few slots for everything before it.

Follows RIVER's baseline memory (arXiv 2603.03985, section 3.3 and algorithm 1): a short-term window of
encoded frames, and a long-term memory of M = 16 slots, in which the most similar neighbours are
averaged whenever there are too many; the prompt states the time range of each part. Kept: the window,
the slots, adjacent merging, and that a slot has as many tokens as a frame. Changed: similarity is the
cosine of tokens at the same place, averaged over them; an average is weighted by how many frames each
side stands for; tokens are not pooled before they are stored; slots of different sessions are not
averaged (the oldest slot goes if nothing else can be).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from streamsim_agents.memory.entry import Cue, Entry, Kind, Part
from streamsim_agents.memory.memory import Memory, State, entries

if TYPE_CHECKING:
    from numpy.typing import NDArray


class LongShort(Memory):
    """Keeps the latest ``window`` encoded steps in full and the rest in ``slots`` averages."""

    kind: ClassVar[Kind] = "tokens"

    def __init__(self, window: int = 32, slots: int = 16) -> None:
        if window < 1 or slots < 1:
            raise ValueError(f"window and slots must be at least 1, got {window} and {slots}")
        self._window_size, self._slots_size = window, slots
        self._window: list[Entry] = []
        self._slots: list[Entry] = []

    def write(self, entry: Entry) -> None:
        """Keep the step; what leaves the window goes to the slots."""
        self._window.append(entry)
        if len(self._window) > self._window_size:
            self._slots.append(self._window.pop(0))
        while len(self._slots) > self._slots_size:
            self._merge()

    def read(self, cue: Cue) -> list[Part]:
        """The slots as "long", the window as "short"."""
        parts = (
            Part(entries=tuple(self._slots), label="long"),
            Part(entries=tuple(self._window), label="short"),
        )
        return [part for part in parts if part.entries]

    def state(self) -> State:
        """Window and slots."""
        return {"window": tuple(self._window), "slots": tuple(self._slots)}

    def restore(self, state: State) -> None:
        """Window and slots again."""
        self._window, self._slots = entries(state, "window"), entries(state, "slots")

    def clear(self) -> None:
        """Nothing."""
        self._window, self._slots = [], []

    def _merge(self) -> None:
        pairs = [
            (similarity(_tokens(left), _tokens(right)), index)
            for index, (left, right) in enumerate(zip(self._slots, self._slots[1:], strict=False))
            if left.session == right.session
        ]
        if not pairs:
            self._slots.pop(0)
            return
        # the earliest of equally similar pairs
        _, index = max(pairs, key=lambda pair: (pair[0], -pair[1]))
        self._slots[index : index + 2] = [averaged(self._slots[index], self._slots[index + 1])]


def similarity(left: NDArray[np.float32], right: NDArray[np.float32]) -> float:
    """Mean cosine of the first level's tokens at the same place; both (levels, count, width)."""
    first, second = left[0].astype(np.float64), right[0].astype(np.float64)
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return float(np.mean(np.sum(first * second, axis=1) / np.maximum(norms, 1e-12)))


def averaged(left: Entry, right: Entry) -> Entry:
    """One entry for two neighbours, each weighted by the frames that it stands for."""
    weight = np.float32(left.frames / (left.frames + right.frames))
    value = _tokens(left) * weight + _tokens(right) * (np.float32(1) - weight)
    return Entry(
        session=left.session,
        first_ns=left.first_ns,
        last_ns=right.last_ns,
        frames=left.frames + right.frames,
        grid=left.grid,
        value=value.astype(np.float32),
    )


def _tokens(entry: Entry) -> NDArray[np.float32]:
    assert isinstance(entry.value, np.ndarray)
    return entry.value

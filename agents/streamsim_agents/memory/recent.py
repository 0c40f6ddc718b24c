"""The latest frames and nothing else.

Follows SimpleStream (arXiv 2604.02317): the latest N frames, N = 4 by default, go to an unchanged
model together with the question. It is the baseline that every other memory has to beat. Kept: all of
it. Changed: frames are kept as the files in which they came, so that a saved memory is small.
"""

from __future__ import annotations

from collections import deque

from streamsim_agents.memory.entry import Cue, Entry, Part
from streamsim_agents.memory.memory import Memory, State, entries


class Recent(Memory):
    """Keeps the latest ``frames`` frames, across sessions."""

    def __init__(self, frames: int = 4) -> None:
        if frames < 1:
            raise ValueError(f"frames must be at least 1, got {frames}")
        self._entries: deque[Entry] = deque(maxlen=frames)

    def write(self, entry: Entry) -> None:
        """Keep the frame; the oldest goes when there are too many."""
        self._entries.append(entry)

    def read(self, cue: Cue) -> list[Part]:
        """All that is kept, whatever the question."""
        return [Part(entries=tuple(self._entries))]

    def state(self) -> State:
        """The frames."""
        return {"entries": tuple(self._entries)}

    def restore(self, state: State) -> None:
        """The frames again."""
        self._entries = deque(entries(state, "entries"), maxlen=self._entries.maxlen)

    def clear(self) -> None:
        """No frames."""
        self._entries.clear()

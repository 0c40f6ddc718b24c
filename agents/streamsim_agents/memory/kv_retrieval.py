"""Keys and values of everything seen, of which a question finds the frames that it needs.

Follows ReKV (in-context retrieval of a video's key-value cache): each step is prefilled with sight of
the prompt's head and a local window only, its keys and values are kept outside the model, and a
question attends to the head, the steps whose keys fit it best, in the order of time, and the window.
Kept: the window, blocks of one step, retrieval by the model's own keys and queries, at most ``top``
blocks. Changed: one choice of blocks for all layers, made by the cosine of averaged queries and keys of
three layers (ReKV chooses in each layer by a dot product); retrieved blocks keep the positions at which
they were seen; the window counts steps, not tokens. Storage grows without bound, as there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from streamsim_agents.memory.entry import Cue, Entry, Kind, Part
from streamsim_agents.memory.whole import Whole

if TYPE_CHECKING:
    from numpy.typing import NDArray


class KvRetrieval(Whole):
    """Keeps the keys and values of every step; shows ``top`` found ones and the ``local`` latest."""

    kind: ClassVar[Kind] = "keys"

    def __init__(self, local: int = 32, top: int = 32) -> None:
        if local < 1 or top < 0:
            raise ValueError(f"local must be at least 1 and top at least 0, got {local} and {top}")
        super().__init__()
        self.local, self.top = local, top

    def read(self, cue: Cue) -> list[Part]:
        """The best older steps as "retrieved" (none without a cue's vector), then the latest as "local"."""
        older, local = self._entries[: -self.local], self._entries[-self.local :]
        parts = [Part(entries=tuple(local), label="local")] if local else []
        if cue.vector is None or not older or not self.top:
            return parts
        scores = cosines(np.stack([index(entry) for entry in older]), cue.vector)
        # the best; among equals the latest
        order = sorted(range(len(older)), key=lambda at: (scores[at], at), reverse=True)[: self.top]
        found = tuple(older[at] for at in sorted(order))
        return [Part(entries=found, label="retrieved"), *parts]


def index(entry: Entry) -> NDArray[np.float32]:
    """By what an entry is found, (width,)."""
    assert isinstance(entry.value, dict)
    found: NDArray[np.float32] = entry.value["index"]
    return found


def cosines(rows: NDArray[np.float32], vector: NDArray[np.float32]) -> NDArray[np.float64]:
    """Cosine of each row of (n, width) with ``vector`` (width,), in float64."""
    matrix, wanted = rows.astype(np.float64), vector.astype(np.float64)
    norms = np.linalg.norm(matrix, axis=1) * np.linalg.norm(wanted)
    scores: NDArray[np.float64] = matrix @ wanted / np.maximum(norms, 1e-12)
    return scores

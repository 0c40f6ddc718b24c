"""The raw video as memory: everything is kept, and a question sees an even sample of it.

Follows the raw-video protocol of APM-Bench: all earlier frames, sampled uniformly to a budget (128
and 1,024 there). Kept: that the whole past is on disk and none of it is chosen by content. Changed:
the sample always holds the newest frame, and a history within the budget is shown whole. Storage
grows without bound; ``nbytes`` says how fast.
"""

from __future__ import annotations

import numpy as np

from streamsim_agents.memory.entry import Cue, Part
from streamsim_agents.memory.whole import Whole


class Uniform(Whole):
    """Keeps every frame; shows at most ``budget`` of them, evenly spaced in their order."""

    def __init__(self, budget: int = 128) -> None:
        if budget < 2:
            raise ValueError(f"budget must be at least 2, got {budget}")
        super().__init__()
        self._budget = budget

    def read(self, cue: Cue) -> list[Part]:
        """An even sample with the first and the newest frame; its ``fps`` follows from its times."""
        count = len(self._entries)
        if count <= self._budget:
            return [Part(entries=tuple(self._entries))]
        chosen = np.rint(np.linspace(0, count - 1, self._budget)).astype(int)
        sample = tuple(self._entries[index] for index in chosen)
        seconds = (sample[-1].last_ns - sample[0].first_ns) / 1e9
        same_session = sample[0].session == sample[-1].session
        return [
            Part(entries=sample, fps=(len(sample) - 1) / seconds if same_session and seconds > 0 else None)
        ]

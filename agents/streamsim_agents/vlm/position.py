"""Position numbers, counted forward while a prompt grows.

Offline, a model numbers a whole prompt at once; here the same numbers come piece by piece. A
``Cursor`` is where the numbering stands: plain data, so that a branch keeps it and comes back to it.
Three schemes cover the architectures; where one of them departs from what the installed transformers
does, the check at load finds it and streaming prefill is not used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

Scheme = Literal["line", "step", "run"]
"""``line``: one number a token. ``step``: three numbers (time, row, column), each vision step begins
anew (Qwen3-VL, GLM-4.1V). ``run``: three numbers, all steps of a video share one time axis
(Qwen2-VL, Qwen2.5-VL)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """Where the numbering stands.

    ``next`` is the number of a text token that came now; ``run`` and ``steps`` are where the current
    video began and how many steps it has (run None outside one).
    """

    scheme: Scheme
    interval: float = 1.0
    """Time numbers between two steps of a run."""
    next: int = 0
    run: int | None = None
    steps: int = 0

    def text(self, count: int) -> tuple[Any, Cursor]:
        """Numbers of ``count`` text tokens, (1, count) or (3, 1, count), and the cursor behind them."""
        if count == 0:
            return self._shaped(torch.zeros(0, dtype=torch.long)), self
        numbers = torch.arange(self.next, self.next + count)
        return self._shaped(numbers), replace(self, next=self.next + count, run=None, steps=0)

    def vision(self, count: int, grid: tuple[int, int]) -> tuple[Any, Cursor]:
        """Numbers of one vision step of ``count`` tokens on a ``grid`` of (rows, columns)."""
        if self.scheme == "line":
            return self.text(count)
        rows, columns = grid
        assert rows * columns == count
        start = self.next if self.run is None or self.scheme == "step" else self.run
        step = self.steps if self.scheme == "run" else 0
        # float32 arithmetic and truncation, as the models do it
        time = int((torch.arange(step, step + 1) * self.interval).long()) + start
        row = torch.arange(rows).repeat_interleave(columns) + start
        column = torch.arange(columns).repeat(rows) + start
        after = replace(
            self,
            next=start + max(rows, columns),
            run=start if self.scheme == "run" else None,
            steps=step + 1,
        )
        return torch.stack([torch.full((count,), time), row, column]).unsqueeze(1), after

    def _shaped(self, numbers: Any) -> Any:
        return numbers[None] if self.scheme == "line" else numbers.expand(3, 1, -1)

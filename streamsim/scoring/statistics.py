"""Intervals by resampling episodes, for any figures that follow from sums over episodes.

One ``random.Random(seed)``; per replicate ``.choices(sorted(episode_ids), k=n)``; percentiles 2.5 and
97.5 with linear interpolation: STORM-Bench's rule, vectorised but drawing the very same episodes.
This module knows no benchmark.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

SEED = 20260817
REPLICATES = 1_000
_BLOCK_DRAWS = 4_000_000
"""Replicates are worked in blocks of about so many draws, which bounds the memory."""

Figures = Callable[[NDArray[np.float64]], Mapping[str, NDArray[np.float64]]]
"""From sums (R, F) to values (R,) by name; NaN where a figure is undefined."""


def bootstrap(
    sums: NDArray[np.int64], figures: Figures, *, seed: int = SEED, replicates: int = REPLICATES
) -> dict[str, NDArray[np.float64]]:
    """Replicates of each figure, (replicates,) float64 with NaN where it is undefined.

    ``sums`` is (E, F): one row of additive counts per episode, in the order of the sorted episode
    ids. Sums stay exact while a column's total is below 2**53, so the order of adding is no matter.
    """
    per_episode = sums.astype(np.float64)
    blocks: list[Mapping[str, NDArray[np.float64]]] = [
        figures(weights @ per_episode) for weights in _episode_weights(len(sums), replicates, seed)
    ]
    return {name: np.concatenate([block[name] for block in blocks]) for name in (blocks[0] if blocks else {})}


def draw_episodes(count: int, replicates: int, seed: int) -> NDArray[np.intp]:
    """Which of ``count`` episodes each replicate draws, (replicates, count) indices.

    Row r is what the (r + 1)-th call of ``random.Random(seed).choices(range(count), k=count)`` returns.
    """
    return _indices(_generator(seed), count, replicates)


def interval(values: NDArray[np.float64]) -> tuple[float, float] | None:
    """Percentiles 2.5 and 97.5 of the replicates that are defined; None if none is."""
    defined = values[~np.isnan(values)]
    if not len(defined):
        return None
    low, high = np.percentile(defined, (2.5, 97.5), method="linear")
    return float(low), float(high)


def _episode_weights(count: int, replicates: int, seed: int) -> Iterator[NDArray[np.float64]]:
    """How often each replicate holds each episode, in blocks (replicates of the block, count)."""
    generator = _generator(seed)
    block = max(1, _BLOCK_DRAWS // max(count, 1))
    for start in range(0, replicates, block):
        rows = min(block, replicates - start)
        flat = _indices(generator, count, rows) + np.arange(rows)[:, None] * count
        yield np.bincount(flat.ravel(), minlength=rows * count).reshape(rows, count).astype(np.float64)


def _generator(seed: int) -> np.random.RandomState:
    """NumPy's frozen Mersenne Twister in the state of ``random.Random(seed)``: the same doubles follow."""
    _, state, _ = random.Random(seed).getstate()
    generator = np.random.RandomState()
    generator.set_state(("MT19937", np.array(state[:-1], dtype=np.uint32), state[-1], 0, 0.0))
    return generator


def _indices(generator: np.random.RandomState, count: int, replicates: int) -> NDArray[np.intp]:
    # choices() takes floor(random() * n), in doubles
    return (generator.random_sample((replicates, count)) * float(count)).astype(np.intp)

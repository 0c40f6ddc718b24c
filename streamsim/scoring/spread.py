"""Percentiles of durations that n must carry, with lower bounds kept apart, and their intervals.

A percentile is given only where n supports it: the fewest samples by which one can say, with
confidence 0.99 and tolerance 0, that the share of longer ones is as claimed, given that one of them
was longer (early stopping as in MLPerf LoadGen). Values are exact order statistics (nearest rank).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamsim.scoring.statistics import REPLICATES, SEED, draw_episodes

PERCENTILE_NEEDS = {50: 11, 90: 64, 95: 130, 99: 662}
"""The fewest samples that carry a percentile."""
_BLOCK_CELLS = 4_000_000


class Sample(msgspec.Struct, frozen=True):
    """A duration in seconds (inf: it never ended). ``at_least``: it was cut off there, a lower bound.

    Samples of one ``cluster`` (an episode) depend on each other.
    """

    seconds: float
    at_least: bool = False
    cluster: str = ""


def describe(samples: Sequence[Sample], *, intervals: bool = False) -> dict[str, object]:
    """n, mean, p50, those percentiles that n carries, and max, in seconds.

    ``n_too_small_for`` names percentiles that are not carried (p50 is shown all the same);
    ``at_least`` names figures that are lower bounds, None where even that is unbounded. With
    ``intervals``, ``ci95`` holds bootstrap intervals over clusters for p50 and mean, where there are
    two clusters or more. Without samples all figures are None.
    """
    ordered = sorted(samples, key=lambda sample: sample.seconds)
    n = len(ordered)
    figures: dict[str, object] = {"n": n}
    if not n:
        return {**figures, "mean": None, "p50": None, "max": None}
    first_bound = next((rank for rank, sample in enumerate(ordered, 1) if sample.at_least), n + 1)
    bounds = []

    def note(name: str, value: float, rank: int) -> None:
        figures[name] = value if math.isfinite(value) else None
        if rank >= first_bound or math.isinf(value):
            bounds.append(name)

    note("mean", math.fsum(sample.seconds for sample in ordered) / n, n)
    for percent, needed in PERCENTILE_NEEDS.items():
        if n >= needed or percent == 50:
            rank = nearest_rank(n, percent)
            note(f"p{percent}", ordered[rank - 1].seconds, rank)
    note("max", ordered[-1].seconds, n)
    figures["n_too_small_for"] = [f"p{percent}" for percent, needed in PERCENTILE_NEEDS.items() if n < needed]
    figures["at_least"] = bounds
    if intervals:
        found = resample(ordered)
        if found is not None:
            figures["ci95"] = found
    return figures


def nearest_rank(n: int, percent: int) -> int:
    """The rank (from 1) of the smallest value that ``percent`` per cent of n values do not exceed."""
    return max(1, -(-n * percent // 100))


def resample(
    samples: Sequence[Sample], *, seed: int = SEED, replicates: int = REPLICATES
) -> dict[str, list[float | None]] | None:
    """95 % intervals of p50 and mean by drawing clusters; None for fewer than two clusters.

    An end of an interval is None where it is unbounded.
    """
    names = sorted({sample.cluster for sample in samples})
    if len(names) < 2:
        return None
    ordered = sorted(samples, key=lambda sample: sample.seconds)
    values = np.array([sample.seconds for sample in ordered])
    index = {name: number for number, name in enumerate(names)}
    clusters = np.array([index[sample.cluster] for sample in ordered])
    drawn = draw_episodes(len(names), replicates, seed)
    medians, means = [], []
    block = max(1, _BLOCK_CELLS // len(ordered))
    for start in range(0, replicates, block):
        rows = drawn[start : start + block]
        counts = np.zeros((len(rows), len(names)), dtype=np.int64)
        np.add.at(counts, (np.arange(len(rows))[:, None], rows), 1)
        weights = counts[:, clusters]
        medians.append(_weighted_median(values, weights))
        means.append(_weighted_mean(values, weights))
    return {"p50": _bounds(np.concatenate(medians)), "mean": _bounds(np.concatenate(means))}


def _weighted_median(values: NDArray[np.float64], weights: NDArray[np.int64]) -> NDArray[np.float64]:
    """The nearest-rank median of each row's weighted, ascending values."""
    reached = np.cumsum(weights, axis=1)
    ranks = np.maximum(1, -(-reached[:, -1] // 2))
    found: NDArray[np.float64] = values[(reached < ranks[:, None]).sum(axis=1)]
    return found


def _weighted_mean(values: NDArray[np.float64], weights: NDArray[np.int64]) -> NDArray[np.float64]:
    finite = np.isfinite(values)
    means = (weights[:, finite] @ values[finite]) / weights.sum(axis=1)
    return np.where(weights[:, ~finite].any(axis=1), np.inf, means)


def _bounds(replicates: NDArray[np.float64]) -> list[float | None]:
    """Percentiles 2.5 and 97.5 with linear interpolation, also where some replicates are infinite."""
    ordered = np.sort(replicates)
    bounds: list[float | None] = []
    for share in (0.025, 0.975):
        place = share * (len(ordered) - 1)
        low, high = float(ordered[math.floor(place)]), float(ordered[math.ceil(place)])
        value = low if low == high else low + (high - low) * (place - math.floor(place))
        bounds.append(value if math.isfinite(value) else None)
    return bounds

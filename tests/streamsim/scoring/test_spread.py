"""Percentiles that n carries, lower bounds, and intervals, against their definitions."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from math import comb
from statistics import fmean

import pytest

from streamsim.scoring.spread import PERCENTILE_NEEDS, Sample, describe, nearest_rank, resample


@pytest.mark.parametrize(("percent", "needed"), PERCENTILE_NEEDS.items())
def test_fewest_samples_follow_from_the_binomial(percent: int, needed: int) -> None:
    """Early stopping: at most one longer sample in n has a chance of 1 % if the true share is as large."""

    def chance(n: int) -> Fraction:
        longer = 1 - Fraction(percent, 100)
        return sum((comb(n, k) * longer**k * (1 - longer) ** (n - k) for k in (0, 1)), Fraction(0))

    assert chance(needed) <= Fraction(1, 100) < chance(needed - 1)


def test_nearest_rank_is_the_smallest_that_so_many_do_not_exceed() -> None:
    assert [nearest_rank(10, percent) for percent in (1, 10, 11, 50, 51, 99, 100)] == [1, 1, 2, 5, 6, 10, 10]
    assert nearest_rank(662, 99) == 656
    assert nearest_rank(1, 50) == 1


def test_only_carried_percentiles_are_told() -> None:
    few = describe([Sample(float(value)) for value in range(1, 11)])
    assert few == {
        "n": 10,
        "mean": 5.5,
        "p50": 5.0,
        "max": 10.0,
        "n_too_small_for": ["p50", "p90", "p95", "p99"],
        "at_least": [],
    }
    many = describe([Sample(float(value)) for value in range(1, 131)])
    assert (many["p50"], many["p90"], many["p95"], many["max"]) == (65.0, 117.0, 124.0, 130.0)
    assert "p99" not in many and many["n_too_small_for"] == ["p99"]


def test_a_timeout_bounds_what_it_can_have_moved() -> None:
    samples = [Sample(1.0), Sample(2.0), Sample(30.0, at_least=True)]
    figures = describe(samples)
    assert (figures["mean"], figures["p50"], figures["max"]) == (11.0, 2.0, 30.0)
    assert figures["at_least"] == ["mean", "max"]
    # cut off below another's value: had it gone on, the median would have been longer
    figures = describe([Sample(1.0), Sample(1.5, at_least=True), Sample(9.0)])
    assert figures["p50"] == 1.5 and figures["at_least"] == ["mean", "p50", "max"]


def test_what_never_ended_is_longer_than_all() -> None:
    figures = describe([Sample(math.inf), Sample(0.5), Sample(0.25)])
    assert (figures["n"], figures["p50"], figures["max"], figures["mean"]) == (3, 0.5, None, None)
    assert figures["at_least"] == ["mean", "max"]


def test_nothing_measured_is_nothing_told() -> None:
    assert describe([]) == {"n": 0, "mean": None, "p50": None, "max": None}


def plain_bootstrap(samples: list[Sample], replicates: int, seed: int) -> dict[str, list[float]]:
    """The rule in plain Python: draw episodes with ``random.choices``, sort, take ranks."""
    generator = random.Random(seed)
    names = sorted({sample.cluster for sample in samples})
    medians, means = [], []
    for _ in range(replicates):
        values = sorted(
            sample.seconds
            for name in generator.choices(names, k=len(names))
            for sample in samples
            if sample.cluster == name
        )
        medians.append(values[max(1, math.ceil(len(values) / 2)) - 1])
        means.append(fmean(values))
    return {"p50": _interval(medians), "mean": _interval(means)}


def _interval(values: list[float]) -> list[float]:
    ordered = sorted(values)
    bounds = []
    for share in (0.025, 0.975):
        place = share * (len(ordered) - 1)
        low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
        bounds.append(low + (high - low) * (place - math.floor(place)))
    return bounds


def test_intervals_draw_episodes_whole() -> None:
    generator = random.Random(5)
    samples = [
        Sample(generator.expovariate(1.0) + episode, cluster=f"e{episode}")
        for episode in range(6)
        for _ in range(generator.randint(1, 9))
    ]
    expected = plain_bootstrap(samples, replicates=200, seed=3)
    found = resample(samples, seed=3, replicates=200)
    assert found is not None
    assert found["p50"] == pytest.approx(expected["p50"], abs=1e-12)
    assert found["mean"] == pytest.approx(expected["mean"], abs=1e-12)


def test_intervals_need_two_episodes_and_may_be_unbounded() -> None:
    assert resample([Sample(1.0, cluster="a"), Sample(2.0, cluster="a")]) is None
    samples = [Sample(1.0, cluster="a"), Sample(2.0, cluster="b"), Sample(math.inf, cluster="c")]
    found = resample(samples, replicates=300)
    assert found is not None
    assert found["p50"][0] == 1.0 and found["p50"][1] is None
    assert found["mean"][1] is None

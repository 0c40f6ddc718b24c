"""The bootstrap against a plain loop that draws with ``random`` and knows no numpy."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from streamsim.episodes.episode import CAUSES, KeyEntry
from streamsim.scoring import statistics
from streamsim.scoring.answers import Prediction, ScoredItem, join_exact
from streamsim.scoring.statistics import bootstrap, draw_episodes, interval
from streamsim.scoring.storm import figures, scalars, tally
from streamsim.scoring.summary import score_subset

SEED = 20260817


def some_items(seed: int, count: int, episodes: int) -> list[ScoredItem]:
    rng = random.Random(seed)
    key, predictions = {}, []
    for number in range(count):
        uncertain = rng.random() < 0.25
        entry = KeyEntry(
            id=f"q{number}",
            # ids that sort otherwise than they number
            episode_id=f"P{rng.randrange(episodes)}",
            subset="storm_x",
            media_ns=rng.randrange(60) * 1_000_000_000,
            answer_index=rng.randrange(4),
            status="uncertain" if uncertain else "known",
            causes=tuple(rng.sample(CAUSES, rng.randint(1, 3))) if uncertain else (),
            intensity=rng.randint(1, 10),
            spans_ns=((0, rng.randrange(60) * 1_000_000_000),),
        )
        key[entry.id] = entry
        predictions.append(
            Prediction(
                id=entry.id,
                answer_index=rng.choice([entry.answer_index, rng.randrange(4)]),
                status=rng.choice(["known", "uncertain", entry.status]),
                causes=tuple(rng.sample(CAUSES, rng.randint(0, 3))),
            )
        )
    return join_exact(predictions, key)


@pytest.mark.parametrize("count", [1, 2, 16, 314, 630])
def test_draws_are_those_of_the_random_module(count: int) -> None:
    rng = random.Random(SEED)
    expected = [rng.choices(range(count), k=count) for _ in range(5)]
    assert draw_episodes(count, 5, SEED).tolist() == expected


def test_replicates_equal_a_plain_loop_exactly() -> None:
    items = some_items(1, 60, 7)
    ids = sorted({item.episode_id for item in items})
    rng = random.Random(SEED)
    replicates = score_subset(items, seed=SEED, replicates=40).replicates
    undefined = 0
    for replicate in range(40):
        sample = [item for id in rng.choices(ids, k=len(ids)) for item in items if item.episode_id == id]
        loop = scalars(figures(tally(sample).sum(axis=0)[None].astype(np.float64)))
        for name, value in loop.items():
            found = replicates[name][replicate]
            undefined += value is None
            assert (value is None and math.isnan(found)) or found == value, (name, replicate)
    assert undefined, "the data should leave some figure undefined in some replicate"


def test_intervals_equal_a_plain_loop() -> None:
    """Task accuracy, Storm-BR and worst cell, each from its formula on the drawn items."""
    items = some_items(2, 90, 9)
    ids = sorted({item.episode_id for item in items})
    rng = random.Random(SEED)
    values: dict[str, list[float]] = {"task_accuracy": [], "storm_br": [], "worst_cell": []}
    for _ in range(statistics.REPLICATES):
        sample = [item for id in rng.choices(ids, k=len(ids)) for item in items if item.episode_id == id]
        cells: dict[tuple[int, str | None], list[int]] = {}
        for item in sample:
            assert item.intensity is not None
            level = (item.intensity > 3) + (item.intensity > 6)
            right = item.answer_index == item.gold_index and item.status == item.gold_status
            cells.setdefault((level, item.gold_status), []).append(int(right))
        values["task_accuracy"].append(
            sum(item.answer_index == item.gold_index for item in sample) / len(sample)
        )
        smoothed = [(sum(cell) + 1) / (len(cell) + 2) for cell in cells.values()]
        values["storm_br"].append(len(smoothed) / sum(1 / value for value in smoothed))
        values["worst_cell"].append(min(sum(cell) / len(cell) for cell in cells.values()))
    scores = score_subset(items)
    for name, found in values.items():
        limits = interval(scores.replicates[name])
        assert limits is not None
        assert limits == pytest.approx((percentile(found, 0.025), percentile(found, 0.975)), abs=1e-12)


def percentile(values: list[float], share: float) -> float:
    """Linear interpolation between the order statistics around (n − 1)·share."""
    ordered = sorted(values)
    below = math.floor((len(ordered) - 1) * share)
    rest = (len(ordered) - 1) * share - below
    return ordered[below] + rest * (ordered[min(below + 1, len(ordered) - 1)] - ordered[below])


def test_blocks_continue_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    table = tally(some_items(3, 80, 12))
    whole = bootstrap(table, figures, replicates=50)
    monkeypatch.setattr(statistics, "_BLOCK_DRAWS", 7 * 12)
    for name, values in bootstrap(table, figures, replicates=50).items():
        np.testing.assert_array_equal(values, whole[name])


def test_undefined_replicates_are_left_out() -> None:
    assert interval(np.array([np.nan, 1.0, 3.0, np.nan])) == pytest.approx((1.05, 2.95))
    assert interval(np.array([np.nan, np.nan])) is None


def test_one_episode_has_no_width() -> None:
    items = some_items(4, 20, 1)
    scores = score_subset(items)
    assert interval(scores.replicates["task_accuracy"]) == (scores.point["task_accuracy"],) * 2

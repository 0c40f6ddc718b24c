"""``bench.py bootstrap``: intervals of 10,000 items in 630 episodes against a plain loop over resamples."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator, Sequence
from statistics import median
from typing import TYPE_CHECKING

from streamsim.bench.report import Report

if TYPE_CHECKING:
    from streamsim.scoring.answers import ScoredItem

HEADLINE = (
    "task_accuracy",
    "storm_br",
    "storm_br_attr",
    "overconfidence",
    "underconfidence",
    "kci",
    "epi",
    "worst_cell",
    "cause_f1",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Sizes of the data and of the loop's sample."""
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--episodes", type=int, default=630)
    parser.add_argument("--replicates", type=int, default=1_000)
    parser.add_argument(
        "--loop-replicates", type=int, default=20, help="the loop's time is scaled from these"
    )
    parser.add_argument("--rounds", type=int, default=5, help="of the vectorised side; the median counts")
    parser.add_argument("--target", type=float, default=50.0, help="least ratio")


def measure(args: argparse.Namespace) -> Report:
    """The vectorised bootstrap of all figures against a plain loop that computes only the headline ones.

    Both draw the same episodes, so their replicates must agree to 1e-12. The loop gets its items
    prepared (J and F1 computed beforehand) and grouped by episode; the vectorised side is timed
    from the items on.
    """
    from streamsim.scoring.statistics import SEED
    from streamsim.scoring.summary import score_subset

    items = _random_items(args.items, args.episodes)
    score_subset(items[:100], replicates=10)  # the first matrix product starts the library's threads
    rounds = []
    for _ in range(args.rounds):
        start = time.perf_counter()
        scores = score_subset(items, replicates=args.replicates)
        rounds.append(time.perf_counter() - start)
    vectorised_s = median(rounds)

    by_episode = _prepared(items)
    start = time.perf_counter()
    loop = list(_loop_replicates(by_episode, args.loop_replicates, SEED))
    loop_s = (time.perf_counter() - start) * args.replicates / args.loop_replicates

    difference = max(
        abs(values[name] - float(scores.replicates[name][number]))
        for number, values in enumerate(loop)
        for name in HEADLINE
    )
    ratio = loop_s / vectorised_s
    loop_size = f"{len(HEADLINE)} figures, scaled from {args.loop_replicates} replicates"
    return Report(
        met=ratio >= args.target and difference <= 1e-12,
        lines=[
            f"{args.items} items, {args.episodes} episodes, {args.replicates} replicates",
            f"plain loop ({loop_size}): {loop_s:.1f} s",
            f"vectorised, {len(scores.replicates)} figures, from the items on: {1e3 * vectorised_s:.0f} ms "
            f"(median of {args.rounds})",
            f"ratio: {ratio:.0f} (target {args.target:g})",
            f"largest difference between replicates: {difference:.1e} (target 1e-12)",
        ],
        figures={
            "loop_s": loop_s,
            "loop_replicates": args.loop_replicates,
            "vectorised_s": vectorised_s,
            "ratio": ratio,
            "largest_difference": difference,
        },
    )


def _random_items(count: int, episodes: int) -> list[ScoredItem]:
    """Items with STORM-Bench's share of uncertain ones; every episode has at least one."""
    from streamsim.episodes.episode import CAUSES
    from streamsim.scoring.answers import ScoredItem

    rng = random.Random(1)
    items = []
    for number in range(count):
        status = rng.choices(("known", "uncertain"), (4620, 1116))[0]
        said = rng.choice((status, status, "known"))
        items.append(
            ScoredItem(
                id=str(number),
                episode_id=f"episode {number if number < episodes else rng.randrange(episodes)}",
                subset="random",
                question_type="",
                gold_index=rng.randrange(4),
                gold_status="known" if status == "known" else "uncertain",
                gold_causes=frozenset(rng.sample(CAUSES, rng.randint(1, 3)) if status == "uncertain" else ()),
                intensity=rng.randint(1, 10),
                age_ns=rng.randrange(10_000_000_000),
                answered=True,
                answer_index=rng.randrange(4),
                status="known" if said == "known" else "uncertain",
                causes=frozenset(rng.sample(CAUSES, rng.randint(0, 3)) if said == "uncertain" else ()),
                task_valid=True,
                status_valid=True,
                cause_valid=None,
            )
        )
    return items


_PlainItem = tuple[int, bool, bool, bool, str | None, float]
"""Intensity bin, gold uncertain, answer right, J, predicted status, cause F1."""


def _prepared(items: Sequence[ScoredItem]) -> dict[str, list[_PlainItem]]:
    by_episode: dict[str, list[_PlainItem]] = {}
    for item in items:
        assert item.intensity is not None
        size = len(item.causes) + len(item.gold_causes)
        by_episode.setdefault(item.episode_id, []).append(
            (
                (item.intensity > 3) + (item.intensity > 6),
                item.gold_status == "uncertain",
                item.answer_index == item.gold_index,
                item.answer_index == item.gold_index and item.status == item.gold_status,
                item.status,
                2 * len(item.causes & item.gold_causes) / size if size else 1.0,
            )
        )
    return by_episode


def _loop_replicates(
    by_episode: dict[str, list[_PlainItem]], replicates: int, seed: int
) -> Iterator[dict[str, float]]:
    """The plain way: draw episodes, gather their items, compute the figures, again and again."""
    rng = random.Random(seed)
    ids = sorted(by_episode)
    for _ in range(replicates):
        yield _headline([item for id in rng.choices(ids, k=len(ids)) for item in by_episode[id]])


def _headline(items: Sequence[_PlainItem]) -> dict[str, float]:
    cells: dict[tuple[int, bool], list[float]] = {}
    right = over = under = 0
    joint, size, f1_sum = [0, 0], [0, 0], 0.0
    for level, uncertain, task, both, status, f1 in items:
        cell = cells.setdefault((level, uncertain), [0, 0, 0, 0.0])
        cell[0] += 1
        cell[1] += task
        cell[2] += both
        cell[3] += both * f1 if uncertain else both
        right += task
        joint[uncertain] += both
        size[uncertain] += 1
        if uncertain:
            over += status == "known"
            f1_sum += f1
        else:
            under += status == "uncertain"
    attributed = [cell[3] / cell[0] for cell in cells.values()]
    known = [cell[1] / cell[0] for (_, uncertain), cell in cells.items() if not uncertain]
    return {
        "task_accuracy": right / len(items),
        "storm_br": len(cells) / sum((cell[0] + 2) / (cell[2] + 1) for cell in cells.values()),
        "storm_br_attr": len(cells) / sum(1 / value for value in attributed) if all(attributed) else 0.0,
        "overconfidence": over / size[1],
        "underconfidence": under / size[0],
        "kci": sum(known) / len(known),
        "epi": (joint[0] / size[0] + joint[1] / size[1]) / 2,
        "worst_cell": min(cell[2] / cell[0] for cell in cells.values()),
        "cause_f1": f1_sum / size[1],
    }

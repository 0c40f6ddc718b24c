"""Scored items to the figures that ``streamsim score --json`` prints.

Subsets are never pooled: with several, each has its own figures, and ``macro`` is the mean over them.
Repeats of a run are scored one by one: a figure is their mean, its interval that of the mean over
the same resampled episodes. All shares are 0 to 1; None (null) where a figure is undefined.

Keys of one subset:
    subset, n, episodes, answered            items of one repeat, their episodes, answers over all repeats
    scope                                    "full", or "answer_only" without gold or predicted status
    the figures of storm.FIGURES             null where undefined or out of scope
    storm_br_ci95, ci95{figure: [lo, hi]}    bootstrap over episodes, 95 %
    ci95_replicates{figure: k}               only where fewer than all replicates were defined
    worst_cell_name
    cells, cells_n, cells_task               mean J, items, task accuracy by cell; empty cells absent
    cause_labels{label: {support, f1}}
    by_age, by_question_type                 {n, task_accuracy, joint_accuracy[, storm_br]}
    valid_rate{task, status, cause}          share of the texts read that were valid, null where none was read
    repeats, by_repeat[…], spread{figure: {min, max, sd}}    only with more than one repeat
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamsim.episodes.episode import CAUSES
from streamsim.errors import UsageError
from streamsim.scoring import storm
from streamsim.scoring.answers import ScoredItem
from streamsim.scoring.statistics import REPLICATES, SEED, bootstrap, interval

FEW_EPISODES = 10
"""With fewer episodes than this, a notice says that the intervals mean little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsetScores:
    """One subset of one repeat: figures by name, None where undefined, and their replicates (R,)."""

    items: tuple[ScoredItem, ...]
    answer_only: bool
    counts: dict[str, int]
    point: dict[str, float | None]
    replicates: dict[str, NDArray[np.float64]]


def score_subset(
    items: Sequence[ScoredItem],
    *,
    answer_only: bool = False,
    cause_rule: storm.CauseRule = "paper",
    seed: int = SEED,
    replicates: int = REPLICATES,
) -> SubsetScores:
    """Figures and replicates of the items of one subset. ``answer_only``: no status was asked for."""
    table = storm.tally(items, cause_rule)
    total = table.sum(axis=0)
    return SubsetScores(
        items=tuple(items),
        answer_only=answer_only or all(item.gold_status is None for item in items),
        counts=storm.counts(total),
        point=storm.scalars(storm.figures(total[None].astype(np.float64))),
        replicates=bootstrap(table, storm.figures, seed=seed, replicates=replicates),
    )


def summarise(
    repeats: Sequence[Sequence[ScoredItem]],
    *,
    answer_only: bool = False,
    cause_rule: storm.CauseRule = "paper",
    seed: int = SEED,
    replicates: int = REPLICATES,
) -> dict[str, object]:
    """The JSON object of the module's docstring, from the items of each repeat (the same queries in each).

    ``UsageError`` when there is nothing to score.
    """
    names = sorted({item.subset for items in repeats for item in items})
    if not names:
        raise UsageError("nothing to score: expected choice questions with an answer, found none")
    subsets = {}
    for name in names:
        scores = [
            score_subset(
                [item for item in items if item.subset == name],
                answer_only=answer_only,
                cause_rule=cause_rule,
                seed=seed,
                replicates=replicates,
            )
            for items in repeats
        ]
        subsets[name] = _subset_summary(name, scores)
    if len(names) == 1:
        return subsets[names[0]]
    return {"n": len(repeats[0]), "subsets": subsets, "macro": _macro(list(subsets.values()))}


def figure_notices(summary: dict[str, object]) -> list[str]:
    """What a reader of the figures must know: empty cells, and intervals that rest on few episodes."""
    subsets = summary.get("subsets", {"": summary})
    assert isinstance(subsets, dict)
    notices = []
    for name, part in subsets.items():
        prefix = f"{name}: " if name else ""
        empty = [cell.replace("_", " ") for cell in storm.CELLS if cell not in part["cells_n"]]
        if empty and part["scope"] == "full":
            filled = len(storm.CELLS) - len(empty)
            notices.append(f"{prefix}Storm-BR over {filled} of 6 cells: no queries in {', '.join(empty)}")
        if part["episodes"] < FEW_EPISODES:
            notices.append(f"{prefix}too few episodes for meaningful intervals: {part['episodes']}")
    return notices


def _subset_summary(name: str, scores: Sequence[SubsetScores]) -> dict[str, object]:
    point = {figure: _mean([part.point[figure] for part in scores]) for figure in scores[0].point}
    shown = storm.ANSWER_FIGURES if scores[0].answer_only else storm.FIGURES
    intervals = {}
    fewer = {}
    for figure in shown:
        values = np.mean([part.replicates[figure] for part in scores], axis=0)
        limits = interval(values)
        if limits is not None:
            intervals[figure] = list(limits)
        defined = int((~np.isnan(values)).sum())
        if defined < len(values):
            fewer[figure] = defined
    summary: dict[str, object] = {
        "subset": name,
        "n": len(scores[0].items),
        "episodes": len({item.episode_id for item in scores[0].items}),
        "answered": sum(item.answered for part in scores for item in part.items),
        "scope": "answer_only" if scores[0].answer_only else "full",
    }
    summary |= {figure: point[figure] if figure in shown else None for figure in storm.FIGURES}
    summary["storm_br_ci95"] = intervals.get("storm_br")
    summary |= _slices(scores, point)
    summary["valid_rate"] = _valid_rates([item for part in scores for item in part.items])
    summary |= {"ci95": intervals, "ci95_replicates": fewer}
    if len(scores) > 1:
        summary["repeats"] = len(scores)
        summary["by_repeat"] = [{figure: part.point[figure] for figure in shown} for part in scores]
        summary["spread"] = _spread(scores, shown)
    return summary


def _slices(scores: Sequence[SubsetScores], point: dict[str, float | None]) -> dict[str, object]:
    """Figures of parts of the items: cells, causes, evidence ages, question types."""
    counts = scores[0].counts
    full = not scores[0].answer_only
    occupied = [cell for cell in storm.CELLS if counts[f"cell.{cell}"]]
    cells = {cell: point[f"cell.{cell}"] for cell in occupied} if full else {}
    worst = min(cells, key=lambda cell: (cells[cell] or 0.0, storm.CELLS.index(cell)), default=None)
    by_age = {}
    for age in storm.AGES:
        if counts[f"age.{age}"]:
            by_age[age] = {
                "n": counts[f"age.{age}"],
                "task_accuracy": point[f"age.{age}.task_accuracy"],
                "joint_accuracy": point[f"age.{age}.joint_accuracy"] if full else None,
                "storm_br": point[f"age.{age}.storm_br"] if full else None,
            }
    return {
        "worst_cell_name": worst,
        "cells": cells,
        "cells_n": {cell: counts[f"cell.{cell}"] for cell in occupied},
        "cells_task": {cell: point[f"task.{cell}"] for cell in occupied},
        "cause_labels": {
            label: {"support": counts[f"cause.{label}"], "f1": point[f"cause.{label}"]}
            for label in CAUSES
            if full and counts[f"cause.{label}"]
        },
        "by_age": by_age,
        "by_question_type": _by_question_type(scores, full),
    }


def _by_question_type(scores: Sequence[SubsetScores], full: bool) -> dict[str, object]:
    rows: dict[str, object] = {}
    for kind in sorted({item.question_type for item in scores[0].items} - {""}):
        items = [item for part in scores for item in part.items if item.question_type == kind]
        labelled = [item for item in items if item.gold_status is not None]
        rows[kind] = {
            "n": len(items) // len(scores),
            "task_accuracy": sum(item.task_right for item in items) / len(items),
            "joint_accuracy": sum(item.joint for item in labelled) / len(labelled)
            if full and labelled
            else None,
        }
    return rows


def _valid_rates(items: Sequence[ScoredItem]) -> dict[str, float | None]:
    probes: dict[str, Callable[[ScoredItem], bool | None]] = {
        "task": lambda item: item.task_valid,
        "status": lambda item: item.status_valid,
        "cause": lambda item: item.cause_valid,
    }
    rates: dict[str, float | None] = {}
    for probe, valid in probes.items():
        read = [value for item in items if (value := valid(item)) is not None]
        rates[probe] = sum(read) / len(read) if read else None
    return rates


def _spread(scores: Sequence[SubsetScores], shown: Sequence[str]) -> dict[str, object]:
    spread: dict[str, object] = {}
    for figure in shown:
        values = [value for part in scores if (value := part.point[figure]) is not None]
        if len(values) == len(scores):
            spread[figure] = {"min": min(values), "max": max(values), "sd": statistics.stdev(values)}
    return spread


def _macro(parts: Sequence[dict[str, object]]) -> dict[str, object]:
    """Each figure's mean over the subsets where it is defined, and how many those are where not all."""
    macro: dict[str, object] = {}
    fewer = {}
    for figure in storm.FIGURES:
        values = [value for part in parts if isinstance(value := part[figure], float)]
        macro[figure] = sum(values) / len(values) if values else None
        if len(values) < len(parts):
            fewer[figure] = len(values)
    return macro | {"subsets_counted": fewer}


def _mean(values: Sequence[float | None]) -> float | None:
    """None as soon as one of the values is undefined."""
    defined = [value for value in values if value is not None]
    return sum(defined) / len(defined) if len(defined) == len(values) else None

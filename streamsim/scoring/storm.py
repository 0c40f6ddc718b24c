"""The figures of STORM-Bench, from the paper's equations 2 to 4 and its appendix B.2.

Items are counted into a table per episode (``tally``); every figure follows from the table's sums
(``figures``), so the same code gives the point estimate and, over resampled episodes, its replicates.
Cause F1 is a fraction whose denominator is at most 12, so it is counted in units of 1/27720 (the
least common multiple of 1 to 12): all sums are whole numbers and exact. An item without gold status
or intensity counts in the figures that need neither. This module knows no files and no output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from streamsim.episodes.episode import CAUSES
from streamsim.scoring.answers import ScoredItem

BINS = ("low", "mid", "high")
"""Change intensity 1–3, 4–6, 7–10."""
STATUSES = ("known", "uncertain")
CELLS = tuple(f"{level}_{status}" for level in BINS for status in STATUSES)
AGES = ("0-2s", "2-5s", "over_5s")
"""Evidence age in [0, 2], (2, 5], (5, ∞) seconds."""

CauseRule = Literal["paper", "storm-evaluator"]
"""``paper``: causes count only under a predicted-uncertain status. ``storm-evaluator``: always."""

ANSWER_FIGURES = ("task_accuracy", "kci", "kci_all_items", "known_drop")
"""The figures that need no predicted status."""
STATUS_FIGURES = (
    "storm_br",
    "storm_br_unsmoothed",
    "storm_br_attr",
    "overconfidence",
    "underconfidence",
    "epi",
    "known_joint",
    "uncertain_joint",
    "worst_cell",
    "known_joint_drop",
    "uncertain_joint_drop",
    "high_intensity",
    "status_balanced_accuracy",
    "cause_f1",
    "cause_f1_macro",
    "cause_f1_micro",
)
FIGURES = ANSWER_FIGURES + STATUS_FIGURES

F1_UNIT = 27_720
_N, _TASK, _JOINT, _ATTRIBUTED, _SAYS_KNOWN, _SAYS_UNCERTAIN = range(6)
_SHAPE = (len(AGES), len(BINS) + 1, len(STATUSES) + 1, 6)
"""Axes: age, intensity bin (last: none), gold status (last: none), counter."""
_STRATA = int(np.prod(_SHAPE))
_TRUE_POSITIVE, _FALSE_POSITIVE, _FALSE_NEGATIVE = range(3)
_LABELS_END = _STRATA + len(CAUSES) * 3
_WIDTH = _LABELS_END + 1
"""Columns: the strata, then (cause, tp/fp/fn), then the sum of cause F1 over gold-uncertain items."""

_Values = NDArray[np.float64]


def tally(items: Sequence[ScoredItem], cause_rule: CauseRule = "paper") -> NDArray[np.int64]:
    """Additive counts, one row per episode in the order of the sorted episode ids."""
    row_of = {id: row for row, id in enumerate(sorted({item.episode_id for item in items}))}
    table = np.zeros((len(row_of), _WIDTH), dtype=np.int64)
    strata = []
    counters = []
    for item in items:
        row = row_of[item.episode_id]
        f1 = cause_f1_units(item, cause_rule) if item.gold_status == "uncertain" else F1_UNIT
        strata.append((row, *_stratum(item)))
        counters.append(
            (
                1,
                item.task_right,
                item.joint,
                item.joint * f1,
                item.status == "known",
                item.status == "uncertain",
            )
        )
        if item.gold_status == "uncertain":
            table[row, -1] += f1
            said = counted_causes(item, cause_rule)
            for column, label in zip(range(_STRATA, _LABELS_END, 3), CAUSES, strict=True):
                if label in said:
                    table[
                        row, column + (_TRUE_POSITIVE if label in item.gold_causes else _FALSE_POSITIVE)
                    ] += 1
                elif label in item.gold_causes:
                    table[row, column + _FALSE_NEGATIVE] += 1
    by_stratum = np.zeros((len(row_of), *_SHAPE), dtype=np.int64)
    if items:
        np.add.at(by_stratum, tuple(np.array(strata).T), np.array(counters, dtype=np.int64))
    table[:, :_STRATA] = by_stratum.reshape(len(row_of), _STRATA)
    return table


def figures(sums: _Values) -> dict[str, _Values]:
    """Every figure of ``FIGURES``, and those of cells and age slices, from sums of tally rows (R, F).

    Values are (R,) by name, NaN where undefined: ``cell.low_known`` (mean J), ``task.low_known``
    (task accuracy), ``cause.LABEL`` (F1), ``age.0-2s.storm_br``, ``.task_accuracy``, ``.joint_accuracy``.
    """
    strata = sums[:, :_STRATA].reshape(-1, *_SHAPE)
    ages = strata.sum(axis=2).sum(axis=2)  # (R, age, counter)
    levels = strata.sum(axis=1)  # (R, bin, status, counter)
    statuses = levels.sum(axis=1)  # (R, status, counter)
    cells = _cells(levels)
    occupied = cells[..., _N] > 0
    joint = _ratio(cells[..., _JOINT], cells[..., _N])
    task = _ratio(cells[..., _TASK], cells[..., _N])
    attributed = _ratio(cells[..., _ATTRIBUTED], cells[..., _N] * F1_UNIT)
    all_in_bin = levels[:, :3].sum(axis=2)
    known, uncertain = statuses[:, 0], statuses[:, 1]
    known_joint = _ratio(known[:, _JOINT], known[:, _N])
    uncertain_joint = _ratio(uncertain[:, _JOINT], uncertain[:, _N])
    known_recall = _ratio(known[:, _SAYS_KNOWN], known[:, _N])
    uncertain_recall = _ratio(uncertain[:, _SAYS_UNCERTAIN], uncertain[:, _N])
    total = statuses.sum(axis=1)
    values = {
        "task_accuracy": _ratio(total[:, _TASK], total[:, _N]),
        "storm_br": storm_br(cells),
        "storm_br_unsmoothed": _harmonic(joint, occupied),
        "storm_br_attr": _harmonic(attributed, occupied),
        "overconfidence": _ratio(uncertain[:, _SAYS_KNOWN], uncertain[:, _N]),
        "underconfidence": _ratio(known[:, _SAYS_UNCERTAIN], known[:, _N]),
        "kci": _mean_defined(task[:, 0::2]),
        "kci_all_items": _mean_defined(_ratio(all_in_bin[..., _TASK], all_in_bin[..., _N])),
        "epi": _mean_defined(np.stack([known_joint, uncertain_joint], axis=1)),
        "known_joint": known_joint,
        "uncertain_joint": uncertain_joint,
        "worst_cell": _least_defined(joint),
        "known_drop": task[:, 0] - task[:, 4],
        "known_joint_drop": joint[:, 0] - joint[:, 4],
        "uncertain_joint_drop": joint[:, 1] - joint[:, 5],
        "high_intensity": np.where(
            occupied[:, 4:].all(axis=1), _harmonic(joint[:, 4:], occupied[:, 4:]), np.nan
        ),
        "status_balanced_accuracy": _mean_defined(np.stack([known_recall, uncertain_recall], axis=1)),
        "cause_f1": _ratio(sums[:, -1], uncertain[:, _N] * F1_UNIT),
    }
    values |= _cause_figures(sums[:, _STRATA:_LABELS_END].reshape(-1, len(CAUSES), 3))
    for index, name in enumerate(CELLS):
        values[f"cell.{name}"] = joint[:, index]
        values[f"task.{name}"] = task[:, index]
    for index, name in enumerate(AGES):
        values[f"age.{name}.task_accuracy"] = _ratio(ages[:, index, _TASK], ages[:, index, _N])
        values[f"age.{name}.joint_accuracy"] = _ratio(ages[:, index, _JOINT], ages[:, index, _N])
        values[f"age.{name}.storm_br"] = storm_br(_cells(strata[:, index]))
    return values


def storm_br(cells: _Values) -> _Values:
    """Equation 3: the harmonic mean over the occupied cells of (ΣJ + 1) / (n + 2).

    ``cells`` is (R, cell, counter); NaN where no cell is occupied.
    """
    n = cells[..., _N]
    return _harmonic((cells[..., _JOINT] + 1.0) / (n + 2.0), n > 0)


def counts(sums: _Values) -> dict[str, int]:
    """How many items are in each cell, age slice and gold status, from the sums (F,) of one tally."""
    strata = sums[:_STRATA].reshape(_SHAPE)[..., _N]
    levels = strata.sum(axis=0)
    found = {
        f"cell.{level}_{status}": int(levels[row, column])
        for row, level in enumerate(BINS)
        for column, status in enumerate(STATUSES)
    }
    found |= {f"age.{name}": int(strata[index].sum()) for index, name in enumerate(AGES)}
    found |= {status: int(levels[:, column].sum()) for column, status in enumerate(STATUSES)}
    labels = sums[_STRATA:_LABELS_END].reshape(len(CAUSES), 3)
    for row, label in enumerate(CAUSES):
        found[f"cause.{label}"] = int(labels[row, _TRUE_POSITIVE] + labels[row, _FALSE_NEGATIVE])
    return found


def cell_of(item: ScoredItem) -> str | None:
    """The name of an item's cell; None without gold status or intensity."""
    if item.gold_status is None or item.intensity is None:
        return None
    return f"{BINS[_bin(item.intensity)]}_{item.gold_status}"


def counted_causes(item: ScoredItem, rule: CauseRule) -> frozenset[str]:
    """The predicted causes that count for an item under ``rule``."""
    return item.causes if rule == "storm-evaluator" or item.status == "uncertain" else frozenset()


def cause_f1_units(item: ScoredItem, rule: CauseRule) -> int:
    """F1 of predicted and gold causes in units of 1/27720; of two empty sets it is 1."""
    said = counted_causes(item, rule)
    size = len(said) + len(item.gold_causes)
    return F1_UNIT * 2 * len(said & item.gold_causes) // size if size else F1_UNIT


def _stratum(item: ScoredItem) -> tuple[int, int, int]:
    age = 0 if item.age_ns <= 2_000_000_000 else 1 if item.age_ns <= 5_000_000_000 else 2
    status = len(STATUSES) if item.gold_status is None else STATUSES.index(item.gold_status)
    return age, len(BINS) if item.intensity is None else _bin(item.intensity), status


def _bin(intensity: int) -> int:
    return 0 if intensity <= 3 else 1 if intensity <= 6 else 2


def _cells(levels: _Values) -> _Values:
    """(R, bin, status, counter) to the six cells in the order of ``CELLS``: (R, 6, counter)."""
    cells: _Values = levels[:, : len(BINS), : len(STATUSES)].reshape(len(levels), len(CELLS), _SHAPE[-1])
    return cells


def _cause_figures(labels: _Values) -> dict[str, _Values]:
    """Per-label, macro (over labels with gold support) and micro F1 from (R, cause, tp/fp/fn)."""
    doubled = 2.0 * labels[..., _TRUE_POSITIVE]
    denominator = doubled + labels[..., _FALSE_POSITIVE] + labels[..., _FALSE_NEGATIVE]
    supported = labels[..., _TRUE_POSITIVE] + labels[..., _FALSE_NEGATIVE] > 0
    f1 = np.where(supported, _ratio(doubled, denominator), np.nan)
    values = {f"cause.{label}": f1[:, index] for index, label in enumerate(CAUSES)}
    values["cause_f1_macro"] = _mean_defined(f1)
    values["cause_f1_micro"] = _ratio(doubled.sum(axis=1), denominator.sum(axis=1))
    return values


def _ratio(numerator: _Values, denominator: _Values) -> _Values:
    """NaN where the denominator is 0."""
    quotient: _Values = np.full(np.broadcast_shapes(numerator.shape, denominator.shape), np.nan)
    np.divide(numerator, denominator, out=quotient, where=denominator > 0)
    return quotient


def _harmonic(values: _Values, counted: NDArray[np.bool_]) -> _Values:
    """Harmonic mean over the counted columns of (R, k): 0 if one of them is 0, NaN if none counts."""
    positive = counted & (values > 0)
    inverse = np.divide(1.0, values, out=np.zeros(values.shape), where=positive)
    mean = _ratio(counted.sum(axis=1).astype(np.float64), inverse.sum(axis=1))
    return np.where((counted & ~positive).any(axis=1), 0.0, mean)


def _mean_defined(values: _Values) -> _Values:
    """Mean over the columns of (R, k) that are not NaN; NaN if all are."""
    defined = ~np.isnan(values)
    return _ratio(np.where(defined, values, 0.0).sum(axis=1), defined.sum(axis=1).astype(np.float64))


def _least_defined(values: _Values) -> _Values:
    """Least of the columns of (R, k) that are not NaN; NaN if all are."""
    least = np.where(np.isnan(values), np.inf, values).min(axis=1)
    return np.where(np.isinf(least), np.nan, least)


def scalars(values: Mapping[str, _Values]) -> dict[str, float | None]:
    """The first row of each figure as a plain number, None for NaN."""
    return {name: None if np.isnan(row[0]) else float(row[0]) for name, row in values.items()}

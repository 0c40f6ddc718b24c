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

from streamsim.episodes.episode import CAUSES, Status
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

_KNOWN, _UNCERTAIN, _NONE = range(3)
_STATUS_CODE: dict[Status | None, int] = {"known": _KNOWN, "uncertain": _UNCERTAIN, None: _NONE}
_CAUSE_MASK = {
    frozenset(label for bit, label in enumerate(CAUSES) if mask >> bit & 1): mask
    for mask in range(1 << len(CAUSES))
}
_MASK_SIZE = np.array([mask.bit_count() for mask in range(1 << len(CAUSES))])

_Values = NDArray[np.float64]


def tally(items: Sequence[ScoredItem], cause_rule: CauseRule = "paper") -> NDArray[np.int64]:
    """Additive counts, one row per episode in the order of the sorted episode ids."""
    row_of = {id: row for row, id in enumerate(sorted({item.episode_id for item in items}))}
    coded = [
        (
            row_of[item.episode_id],
            item.age_ns,
            item.intensity or 0,
            _STATUS_CODE[item.gold_status],
            _STATUS_CODE[item.status],
            item.task_right,
            _CAUSE_MASK[item.gold_causes],
            _CAUSE_MASK[item.causes],
        )
        for item in items
    ]
    rows, age_ns, intensity, gold, status, right, gold_causes, causes = np.array(
        coded, dtype=np.int64
    ).T.reshape(8, len(items))
    uncertain = gold == _UNCERTAIN
    if cause_rule == "paper":
        causes = np.where(status == _UNCERTAIN, causes, 0)
    f1 = _f1_units(causes, gold_causes)
    joint = right * (status == gold)
    ages = (age_ns > 2_000_000_000).astype(np.int64) + (age_ns > 5_000_000_000)
    bins = np.where(intensity == 0, len(BINS), (intensity > 3).astype(np.int64) + (intensity > 6))
    counters = (
        np.ones_like(rows),
        right,
        joint,
        joint * np.where(uncertain, f1, F1_UNIT),
        status == _KNOWN,
        status == _UNCERTAIN,
    )
    strata = np.zeros((len(row_of), *_SHAPE), dtype=np.int64)
    np.add.at(strata, (rows, ages, bins, gold), np.stack(counters, axis=1))
    table = np.zeros((len(row_of), _WIDTH), dtype=np.int64)
    table[:, :_STRATA] = strata.reshape(len(row_of), _STRATA)
    for place, (said, true) in enumerate(
        ((causes >> bit) & 1, (gold_causes >> bit) & 1) for bit in range(len(CAUSES))
    ):
        column = _STRATA + 3 * place
        np.add.at(table[:, column + _TRUE_POSITIVE], rows, uncertain * said * true)
        np.add.at(table[:, column + _FALSE_POSITIVE], rows, uncertain * said * (1 - true))
        np.add.at(table[:, column + _FALSE_NEGATIVE], rows, uncertain * (1 - said) * true)
    np.add.at(table[:, -1], rows, uncertain * f1)
    return table


def figures(sums: _Values) -> dict[str, _Values]:
    """Every figure of ``FIGURES``, and those of cells and age slices, from sums of tally rows (R, F).

    Values are (R,) by name, NaN where undefined: ``cell.low_known`` (mean J), ``task.low_known``
    (task accuracy), ``cause.LABEL`` (F1), ``age.0-2s.storm_br``, ``.task_accuracy``, ``.joint_accuracy``.
    """
    strata = sums[:, :_STRATA].reshape(-1, *_SHAPE)
    ages = strata.sum(axis=2)  # (R, age, status, counter)
    labelled_ages, all_ages = ages[:, :, : len(STATUSES)].sum(axis=2), ages.sum(axis=2)
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
        values[f"age.{name}.task_accuracy"] = _ratio(all_ages[:, index, _TASK], all_ages[:, index, _N])
        values[f"age.{name}.joint_accuracy"] = _ratio(
            labelled_ages[:, index, _JOINT], labelled_ages[:, index, _N]
        )
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


def _f1_units(said: NDArray[np.int64], true: NDArray[np.int64]) -> NDArray[np.int64]:
    """F1 of two sets of causes, given as bit masks, in units of 1/27720; of two empty sets it is 1."""
    size = _MASK_SIZE[said] + _MASK_SIZE[true]
    units: NDArray[np.int64] = 2 * F1_UNIT * _MASK_SIZE[said & true] // np.maximum(size, 1)
    return np.where(size == 0, F1_UNIT, units)


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

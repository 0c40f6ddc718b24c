"""Prediction files made elsewhere, read into ``Prediction`` records.

Two formats are met: ``{id, pred_index, pred_epistemic_status, pred_uncertainty_sources}``, which
STORM-Bench's evaluator reads and writes, and ``{id, task_answer, status, uncertainty_sources}``, which
its schema page describes; ``predicted_…`` and the singular ``…_source`` are accepted too. Answers are
0–3 or A–D. Rows come decoded: this module knows no files.

Status: a file in which no row has one is scored answer-only. Where only some rows have none, or one
that is neither known nor uncertain, those rows count as invalid, with a notice. (STORM-Bench's own
scorer would score the whole file answer-only in the first case.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from streamsim.episodes.episode import CAUSES, KeyEntry, Status
from streamsim.errors import DatasetError
from streamsim.reading import CAUSE_COUNT, STATUS_COUNT, Reader, status_of
from streamsim.scoring.answers import LETTERS, Prediction, causes_of

PredictionOrder = Literal["auto", "stored", "presented"]
"""What an answer index counts: options as the file stores them, or as they were shown."""

_ANSWER = ("pred_index", "predicted_index", "task_answer")
_STATUS = ("pred_epistemic_status", "predicted_epistemic_status", "status")
_CAUSES = (
    "pred_uncertainty_sources",
    "predicted_uncertainty_sources",
    "pred_uncertainty_source",
    "predicted_uncertainty_source",
    "uncertainty_sources",
    "uncertainty_source",
)
_RAW_TASK, _RAW_STATUS, _RAW_CAUSE = "pred", "pred_epistemic_raw", "pred_uncertainty_raw"
_FEWEST_OPTIONS = 4
"""How many options a question has whose key entry states no permutation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPredictions:
    """``answer_only``: no row gives a status. ``notices`` say what a reader of the figures must know."""

    predictions: tuple[Prediction, ...]
    answer_only: bool
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Row:
    """One decoded row and how to name it in an error."""

    fields: Mapping[str, object]
    where: str

    def first(self, names: Sequence[str]) -> object:
        """The first of these fields that is there and not null."""
        return next((self.fields[name] for name in names if self.fields.get(name) is not None), None)

    def refuse(self, expected: str, got: object) -> DatasetError:
        return DatasetError(f"{self.where}: expected {expected}, got {got!r}")


def parse_predictions(
    rows: Sequence[tuple[str, object]],
    key: Mapping[str, KeyEntry],
    *,
    order: PredictionOrder = "auto",
    reader: Reader | None = None,
) -> ReadPredictions:
    """Read decoded rows, each with its place (such as ``file:line``) for errors.

    ``order`` ``auto`` takes a row with ``option_permutation`` in presented order and any other in
    stored order. With ``reader``, the raw texts in the rows are read anew instead of their fields. Ids
    that are not in ``key`` are kept: joining reports them. ``DatasetError`` names row and field.
    """
    notes: Counter[str] = Counter()
    predictions = []
    asked_status = False
    for place, value in rows:
        row = _checked_row(value, place)
        entry = key.get(str(row.fields["id"]))
        if reader is None:
            prediction = _stated(row, entry, order, notes)
            asked_status |= isinstance(row.first(_STATUS), str)
        else:
            prediction = _reread(row, entry, order, reader, notes)
            asked_status |= isinstance(row.fields.get(_RAW_STATUS), str)
        predictions.append(prediction)
    if asked_status:
        notes["have no valid status and count as wrong in every figure that needs one"] = sum(
            prediction.status is None for prediction in predictions
        )
    return ReadPredictions(
        predictions=tuple(predictions),
        answer_only=not asked_status,
        notices=tuple(f"{count} of {len(rows)} rows {note}" for note, count in notes.items() if count),
    )


def _checked_row(value: object, place: str) -> _Row:
    if not isinstance(value, dict):
        raise DatasetError(f"{place}: expected an object with id and prediction, got {value!r}")
    id = value.get("id")
    if isinstance(id, bool) or not isinstance(id, str | int) or id == "":
        raise DatasetError(f"{place}: expected an id, got {id!r}")
    return _Row(value, f"{place} ({str(id)!r})")


def _stated(row: _Row, entry: KeyEntry | None, order: PredictionOrder, notes: Counter[str]) -> Prediction:
    if not any(name in row.fields for name in _ANSWER):
        raise DatasetError(
            f"{row.where}: expected one of the fields {', '.join(_ANSWER)}, found none of them"
        )
    index = _answer_index(row, row.first(_ANSWER), entry)
    status_text = row.first(_STATUS)
    status = _status(row, status_text, notes)
    causes, causes_stated = _stated_causes(row, notes)
    return Prediction(
        id=str(row.fields["id"]),
        answer_index=None if index is None else _presented(row, index, entry, order, notes),
        status=status,
        causes=causes,
        task_valid=index is not None,
        status_valid=None if status_text is None else status is not None,
        cause_valid=bool(causes) if status == "uncertain" and causes_stated else None,
    )


def _reread(
    row: _Row, entry: KeyEntry | None, order: PredictionOrder, reader: Reader, notes: Counter[str]
) -> Prediction:
    if _RAW_TASK not in row.fields:
        raise DatasetError(
            f"{row.where}: expected raw text in the field {_RAW_TASK!r} to read it anew, found none; "
            "score this file without --reader"
        )
    task, status, cause = (_raw_text(row, name) for name in (_RAW_TASK, _RAW_STATUS, _RAW_CAUSE))
    letter = reader.choice(task or "", _option_count(entry))
    index = LETTERS.index(letter) if letter else None
    status_letter = "" if status is None else reader.choice(status, STATUS_COUNT)
    read_status = status_of(status_letter) if status_letter else None
    letters = reader.causes(cause, CAUSE_COUNT) if cause is not None and read_status == "uncertain" else ""
    return Prediction(
        id=str(row.fields["id"]),
        answer_index=None if index is None else _presented(row, index, entry, order, notes),
        status=read_status,
        causes=causes_of(letters),
        task_valid=index is not None,
        status_valid=None if status is None else read_status is not None,
        cause_valid=bool(letters) if cause is not None and read_status == "uncertain" else None,
    )


def _raw_text(row: _Row, name: str) -> str | None:
    text = row.fields.get(name)
    if text is not None and not isinstance(text, str):
        raise row.refuse(f"text or null in {name}", text)
    return text


def _answer_index(row: _Row, value: object, entry: KeyEntry | None) -> int | None:
    """The index as the row counts it; None for no answer (null or an empty text)."""
    count = _option_count(entry)
    expected = f"an answer 0 to {count - 1} or A to {LETTERS[count - 1]} (null for none)"
    if value is None:
        return None
    if isinstance(value, str):
        letter = value.strip().upper()
        if not letter:
            return None
        if len(letter) != 1 or letter not in LETTERS[:count]:
            raise row.refuse(expected, value)
        return LETTERS.index(letter)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < count:
        raise row.refuse(expected, value)
    return value


def _option_count(entry: KeyEntry | None) -> int:
    if entry is None:
        return len(LETTERS)
    return len(entry.permutation) or max(_FEWEST_OPTIONS, (entry.answer_index or 0) + 1)


def _presented(
    row: _Row, index: int, entry: KeyEntry | None, order: PredictionOrder, notes: Counter[str]
) -> int:
    """The index in the key's presented order, where presented[j] = stored[permutation[j]]."""
    if entry is None:
        return index
    shown = _row_permutation(row, entry)
    if order == "stored" or (order == "auto" and shown is None):
        if order == "auto":
            notes[
                "carry no option_permutation: their answers were taken in stored order "
                "(--pred-order presented takes them as shown)"
            ] += 1
        stored = index
    else:
        if shown is not None and shown != entry.permutation:
            notes[
                "were shown the options in another order than the key's: read by their own permutation"
            ] += 1
        shown = shown or entry.permutation
        stored = shown[index] if shown else index
    return entry.permutation.index(stored) if entry.permutation else stored


def _row_permutation(row: _Row, entry: KeyEntry) -> tuple[int, ...] | None:
    value = row.fields.get("option_permutation")
    if value is None:
        return None
    count = _option_count(entry)
    if not isinstance(value, list) or sorted(map(repr, value)) != sorted(map(repr, range(count))):
        raise row.refuse(f"option_permutation to order the numbers 0 to {count - 1}", value)
    return tuple(value)


def _status(row: _Row, value: object, notes: Counter[str]) -> Status | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise row.refuse("status known, uncertain or null", value)
    text = value.strip().lower()
    if text == "known":
        return "known"
    if text == "uncertain":
        return "uncertain"
    notes[f"have the status {value!r}, which is neither known nor uncertain"] += 1
    return None


def _stated_causes(row: _Row, notes: Counter[str]) -> tuple[tuple[str, ...], bool]:
    """The causes, and whether the row states any field of them."""
    value = row.first(_CAUSES)
    if value is None:
        return (), False
    labels = [value] if isinstance(value, str) else value
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise row.refuse("causes as a list of labels", value)
    for label in labels:
        if label not in CAUSES:
            notes[f"name the cause {label!r}, which is none of the six and was left out"] += 1
    return tuple(label for label in CAUSES if label in labels), True

"""Predictions joined with the answer key: the items that all scoring works on.

A prediction file must cover the key exactly; in a run, a query that got no answer is an item that
counts as wrong. This module knows no files, no events and no figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from streamsim.episodes.episode import CAUSES, KeyEntry, Status
from streamsim.errors import DatasetError, UsageError
from streamsim.plural import counted

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Letter k names option k, in presented order."""
_NAMED_IDS = 3
"""So many ids of a mismatch are named in an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What an agent said to one query.

    ``answer_index`` counts in presented order; None where no option was chosen or the text was
    invalid. ``status`` is None where none was given or read. ``answered`` is False when the query's
    outcome was another than ``answered``: then nothing of it counts. ``…_valid`` says whether the
    text of that probe could be read; None where there was nothing to read.
    """

    id: str
    answer_index: int | None
    status: Status | None = None
    causes: tuple[str, ...] = ()
    answered: bool = True
    task_valid: bool | None = None
    status_valid: bool | None = None
    cause_valid: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredItem:
    """One choice query with its gold labels and what was predicted.

    ``gold_status`` and ``intensity`` (1 to 10) are None where the data set has none. ``age_ns`` is
    the evidence age: max(0, query time − end of the latest evidence span), the query time without spans.
    """

    id: str
    episode_id: str
    subset: str
    question_type: str
    gold_index: int
    gold_status: Status | None
    gold_causes: frozenset[str]
    intensity: int | None
    age_ns: int
    answered: bool
    answer_index: int | None
    status: Status | None
    causes: frozenset[str]
    task_valid: bool | None
    status_valid: bool | None
    cause_valid: bool | None

    @property
    def task_right(self) -> bool:
        """Whether the right option was chosen."""
        return self.answer_index == self.gold_index

    @property
    def joint(self) -> bool:
        """J of STORM-Bench, equation 2: answer right and status right."""
        return self.task_right and self.status is not None and self.status == self.gold_status


def join_exact(predictions: Iterable[Prediction], key: Mapping[str, KeyEntry]) -> list[ScoredItem]:
    """One item per choice query of ``key``, in its order; every one must be predicted, and nothing else.

    ``UsageError`` names some of the missing, extra and repeated ids. Predictions for queries of the
    key that have no options (open questions) are passed over.
    """
    by_id = _unique(predictions)
    gold = _choice_entries(key)
    missing = [id for id in gold if id not in by_id]
    extra = [id for id in by_id if id not in key]
    if missing or extra:
        parts = [
            f"{len(ids)} {word}: {_named(ids)}"
            for word, ids in (("missing", missing), ("extra", extra))
            if ids
        ]
        raise UsageError(
            f"expected predictions for exactly the {len(gold)} choice questions, found {'; '.join(parts)}; "
            "add or remove these rows"
        )
    return [_item(entry, by_id[id]) for id, entry in gold.items()]


def join_run(predictions: Iterable[Prediction], key: Mapping[str, KeyEntry]) -> list[ScoredItem]:
    """One item per choice query of ``key``, in its order; a query without prediction is unanswered.

    ``UsageError`` if a prediction's id is not in the key: run and answer key do not belong together.
    """
    by_id = _unique(predictions)
    extra = [id for id in by_id if id not in key]
    if extra:
        raise UsageError(
            f"{counted(len(extra), 'query')} of the run not in the answer key: {_named(extra)}; "
            "expected the dataset that was run, unchanged"
        )
    return [
        _item(entry, by_id.get(id, Prediction(id=id, answer_index=None, answered=False)))
        for id, entry in _choice_entries(key).items()
    ]


def partial_notice(answered: int, planned: int) -> str | None:
    """The notice of a run in which not every query was answered, else None."""
    if answered == planned:
        return None
    return f"partial: {answered} of {planned} queries were answered; the others count as wrong"


def causes_of(letters: str) -> tuple[str, ...]:
    """The causes that letters A to F stand for."""
    return tuple(CAUSES[LETTERS.index(letter)] for letter in letters)


def evidence_age_ns(entry: KeyEntry) -> int:
    """Evidence age of a query: max(0, query time − end of its latest span); without spans its time."""
    latest_end_ns = max((end for _, end in entry.spans_ns), default=0)
    return max(0, entry.media_ns - latest_end_ns)


def _choice_entries(key: Mapping[str, KeyEntry]) -> dict[str, KeyEntry]:
    return {id: entry for id, entry in key.items() if entry.answer_index is not None}


def _unique(predictions: Iterable[Prediction]) -> dict[str, Prediction]:
    by_id: dict[str, Prediction] = {}
    repeated = []
    for prediction in predictions:
        if prediction.id in by_id:
            repeated.append(prediction.id)
        by_id[prediction.id] = prediction
    if repeated:
        raise UsageError(f"expected one prediction per question, found several for {_named(repeated)}")
    return by_id


def _item(entry: KeyEntry, prediction: Prediction) -> ScoredItem:
    if entry.answer_index is None:
        raise ValueError(f"{entry.id!r} is no choice question")
    unknown = [cause for cause in entry.causes if cause not in CAUSES]
    if unknown:
        raise DatasetError(
            f"answer key, {entry.id!r}: expected causes among {', '.join(CAUSES)}, got {unknown[0]!r}"
        )
    counts = prediction.answered
    return ScoredItem(
        id=entry.id,
        episode_id=entry.episode_id,
        subset=entry.subset,
        question_type=entry.question_type,
        gold_index=entry.answer_index,
        gold_status=entry.status,
        gold_causes=frozenset(entry.causes),
        intensity=entry.intensity,
        age_ns=evidence_age_ns(entry),
        answered=prediction.answered,
        answer_index=prediction.answer_index if counts else None,
        status=prediction.status if counts else None,
        causes=frozenset(prediction.causes) if counts else frozenset(),
        task_valid=prediction.task_valid,
        status_valid=prediction.status_valid,
        cause_valid=prediction.cause_valid,
    )


def _named(ids: Sequence[str]) -> str:
    names = ", ".join(repr(id) for id in ids[:_NAMED_IDS])
    return names + (", …" if len(ids) > _NAMED_IDS else "")

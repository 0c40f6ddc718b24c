"""Scores of a run folder: its journals joined with the answer key of its dataset.

Only this side opens the answer key; the server never does. What is written, ``scores.json``, is
derived and can always be made again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from streamsim.episodes.dataset import Dataset, key_digest, load_answer_key, load_dataset
from streamsim.episodes.episode import KeyEntry
from streamsim.episodes.rule import key_faults
from streamsim.errors import DatasetError, RunError
from streamsim.journal.folder import RunFile, altered_journals, read_run_file, read_sessions
from streamsim.journal.read import JournalFile
from streamsim.plural import counted
from streamsim.reading import Reader
from streamsim.scoring.answers import join_run, partial_notice
from streamsim.scoring.journals import SessionAnswers, read_session
from streamsim.scoring.storm import CauseRule
from streamsim.scoring.summary import figure_notices, summarise
from streamsim.scoring.unreadable import unreadable_notices
from streamsim.writing import cannot_write

SCORES_FILE = "scores.json"


def score_run(
    folder: Path,
    *,
    dataset: Path | None = None,
    reader: Reader | None = None,
    cause_rule: CauseRule = "paper",
) -> dict[str, object]:
    """The figures of a run, also one that was broken off; the keys are those of ``scoring.summary``.

    Beside them: ``run``, ``reader`` (which read the letters), ``partial`` ({answered, planned}, None
    when all were answered), ``altered`` (``FILE:LINE`` where a journal's chain is broken) and ``notices``,
    those about altered files first, one each. ``dataset`` is where the dataset lies now, if not where
    the run found it. With ``reader``, raw texts are read anew. ``RunError`` if the dataset is no
    longer the one that was run.
    """
    run_file = read_run_file(folder)
    config = run_file.config
    loaded = _load_dataset(run_file, dataset)
    key = load_answer_key(loaded.public)
    _check_key(loaded, key)
    played = set(config.episodes)
    planned = {id: entry for id, entry in key.items() if entry.episode_id in played}
    journals = read_sessions(folder, run_file)
    sessions = _read_sessions(journals, loaded, reader)
    repeats = [
        join_run(
            [
                prediction
                for session in sessions
                if session.repeat == repeat
                for prediction in session.predictions
            ],
            planned,
        )
        for repeat in range(1, config.repeat + 1)
    ]
    summary = summarise(repeats, answer_only=config.chain == "task", cause_rule=cause_rule)
    answered = sum(item.answered for items in repeats for item in items)
    asked = sum(len(items) for items in repeats)
    changed = run_file.key_digest is not None and run_file.key_digest != key_digest(loaded.public)
    read_by = config.reader if reader is None else reader.name
    altered = altered_journals(folder, journals)
    notices = [
        *altered.values(),
        *(["the answer key has changed since the run: these scores are by the new one"] if changed else []),
        *_coverage_notices(answered, asked, planned, key),
        *(journal.fault_notice for journal in journals if journal.fault_notice and not journal.altered),
        *unreadable_notices(sessions, read_by),
        *figure_notices(summary),
    ]
    return {
        "run": run_file.run,
        "reader": read_by,
        **summary,
        "partial": None if answered == asked else {"answered": answered, "planned": asked},
        "altered": list(altered),
        "notices": notices,
    }


def write_scores(folder: Path, scores: Mapping[str, object]) -> Path:
    """Write ``scores.json`` into the run folder, whole or not at all; returns its path."""
    path = folder / SCORES_FILE
    temporary = folder / f".{SCORES_FILE}"
    try:
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(scores), indent=2) + b"\n")
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise RunError(cannot_write(path, error)) from error
    return path


def _load_dataset(run_file: RunFile, moved_to: Path | None) -> Dataset:
    config = run_file.config
    if moved_to is None and not (Path(config.dataset) / "dataset.json").is_file():
        raise RunError(
            f"the run's dataset is no longer at {config.dataset!r}: say with --dataset where it lies now"
        )
    loaded = load_dataset(moved_to or Path(config.dataset))
    if loaded.digest != config.dataset_digest:
        raise RunError(
            f"dataset {str(loaded.public)!r} is not the one that was run: expected digest "
            f"{config.dataset_digest[:12]}…, got {loaded.digest[:12]}…; give the right one with --dataset"
        )
    return loaded


def _check_key(dataset: Dataset, key: Mapping[str, KeyEntry]) -> None:
    """Refuse a key that ``check`` calls illegal: figures by it would mean nothing."""
    for episode in dataset.episodes:
        for query in episode.queries:
            entry = key.get(query.id)
            fault = None if entry is None else next(key_faults(query, entry), None)
            if fault is not None:
                raise DatasetError(
                    f"answer key: {query.id}: {fault.field}: {fault.text} (`streamsim check` lists all)"
                )


def _read_sessions(
    journals: list[JournalFile], dataset: Dataset, reader: Reader | None
) -> list[SessionAnswers]:
    option_counts = {
        query.id: len(query.options) for episode in dataset.episodes for query in episode.queries
    }
    read = (
        read_session(journal.events(), reader=reader, option_counts=option_counts) for journal in journals
    )
    return [session for session in read if session is not None]


def _coverage_notices(
    answered: int, asked: int, planned: Mapping[str, KeyEntry], key: Mapping[str, KeyEntry]
) -> list[str]:
    notices = []
    unanswered = partial_notice(answered, asked)
    if unanswered:
        notices.append(unanswered)
    if len(planned) < len(key):
        notices.append(
            f"partial: {len(planned)} of {counted(len(key), 'query')} of the dataset played; "
            "the figures are over these"
        )
    open_queries = sum(entry.answer_index is None for entry in planned.values())
    if open_queries:
        notices.append(f"not in these figures: {counted(open_queries, 'query')} without options")
    return notices

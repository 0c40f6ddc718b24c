"""Scores of predictions made elsewhere, against STORM-Bench's questions files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamsim.episodes.finding import errors
from streamsim.episodes.formats.imported import locate_under
from streamsim.episodes.formats.row import RowFile, read_json_rows
from streamsim.episodes.formats.storm import import_storm
from streamsim.errors import DatasetError
from streamsim.plural import counted
from streamsim.reading import Reader
from streamsim.scoring.answers import join_exact
from streamsim.scoring.predictions import PredictionOrder, parse_predictions
from streamsim.scoring.storm import CauseRule
from streamsim.scoring.summary import figure_notices, summarise


def score_predictions(
    questions: Sequence[Path],
    predictions: Sequence[Path],
    *,
    order: PredictionOrder = "auto",
    reader: Reader | None = None,
    cause_rule: CauseRule = "paper",
) -> dict[str, object]:
    """The figures of prediction files that together cover the questions exactly, and ``notices``.

    Questions must be free of illegal rows: ``DatasetError`` names the first. Coverage and prediction
    errors are those of ``join_exact`` and ``parse_predictions``.
    """
    imported = import_storm(
        [read_json_rows(path) for path in questions], name="", locate=locate_under([Path()])
    )
    illegal = errors(imported.findings)
    if illegal:
        raise DatasetError(
            f"{counted(imported.refused, 'illegal row')} in the questions: mend or remove; "
            "the first: "
            f"{str(illegal[0]).removeprefix('error: ')}"
        )
    key = {entry.id: entry for entry in imported.key}
    files = [read_json_rows(path) for path in predictions]
    read = parse_predictions(
        [row for file in files for row in _placed(file)], key, order=order, reader=reader
    )
    items = join_exact(read.predictions, key)
    summary = summarise([items], answer_only=read.answer_only, cause_rule=cause_rule)
    notices = list(read.notices)
    if read.answer_only:
        notices.append("no row has a status: figures of the answers only, no Storm-BR")
    return {**summary, "notices": [*notices, *figure_notices(summary)]}


def _placed(file: RowFile) -> list[tuple[str, object]]:
    return [
        (f"{file.name}, row {row.number}" if row.line is None else f"{file.name}:{row.line}", row.value)
        for row in file.rows
    ]

"""Your own questions: a CSV or JSONL of rows beside a folder of videos, to episodes.

Columns (CSV) or keys (JSON); the first three are needed, an episode is a video:

    video            file below the videos' folder
    time             seconds, M:SS or H:MM:SS; decimals are allowed
    question         the text
    options          a JSON list, or texts separated by |; none makes the question open
    answer           of a choice: a letter (A is the first option) or an option's whole text;
                     of an open question: any text
    answer_index     of a choice, instead of answer: the option's index, counted from 0
    id               unique; default is the episode and a number in file order
    episode          id of the episode; default is the video's name
    subset           default is the questions file's name up to its first dot
    kind             choice, open, heartbeat or standing; default by options
    status           known or uncertain; uncertain needs causes
    causes           a JSON list, or names separated by |
    intensity        change intensity, an integer from 1 to 10
    evidence_spans   a JSON list of [start, end] in seconds
    type, subtype    of the question, in your words

A bare number is no answer (counted from 0 or from 1?) unless it is the text of an option; a lone
letter is none where there are no options, unless the row says that its kind is open. A column for
each option is refused: taken for open questions, such rows would score as nothing they mean. The
dataset's chain is ``task``, or ``full`` as soon as one row has a status. This module reads no files.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import TypeVar, get_args

from streamsim.episodes.dataset import DatasetInfo
from streamsim.episodes.episode import Chain, EpisodeQuery, KeyEntry, Status, seconds_to_ns
from streamsim.episodes.formats import field
from streamsim.episodes.formats.field import IllegalRow
from streamsim.episodes.formats.imported import Collector, EndOf, Imported, Locate
from streamsim.episodes.formats.row import Row, RowFile
from streamsim.episodes.formats.storm import option_permutation, subset_of
from streamsim.episodes.rule import MAX_MEDIA_NS
from streamsim.errors import DatasetError
from streamsim_protocol.messages import QueryKind

NEEDED = ("video", "time", "question")
COLUMNS = (
    *NEEDED,
    *("options", "answer", "answer_index", "id", "episode", "subset", "kind"),
    *("status", "causes", "intensity", "evidence_spans", "type", "subtype"),
)

_NAMES = {
    "episode_id": "episode",
    "media_ns": "time",
    "stem": "question",
    "spans_ns": "evidence_spans",
    "question_type": "type",
    "question_subtype": "subtype",
}
_KINDS: Mapping[str, QueryKind] = {kind: kind for kind in get_args(QueryKind)}
_STATUSES: Mapping[str, Status] = {status: status for status in get_args(Status)}
_CLOCK_TIME = re.compile(r"(?:(\d+):([0-5]\d)|(\d+)):([0-5]\d(?:\.\d+)?)", re.ASCII)
"""Hours and minutes, or minutes alone; seconds."""
_LETTER = re.compile(r"\(?([A-Za-z])[).:]?")
_OPTION_COLUMN = re.compile(r"(?:option|choice|opt|answer)?[ _.-]?([a-z]|\d)", re.ASCII)
_HOW_OPTIONS_ARE_WRITTEN = "options go into one column options, with | between them: a cup|a plate|nothing"
_T = TypeVar("_T")


def import_csv(
    questions: Sequence[RowFile],
    *,
    name: str,
    locate: Locate,
    end_of: EndOf = lambda video: None,
    permute_options: bool = False,
) -> Imported:
    """Episodes of rows. Options keep the file's order, or STORM-Bench's per-query order if asked.

    A row due after its video's end, where ``end_of`` knows it, is illegal.

    ``DatasetError`` where a file as a whole lacks a needed column.
    """
    collector = Collector(_NAMES, end_of)
    ids = _episode_ids(questions)
    counts: Counter[str] = Counter()
    for file in questions:
        _check_columns(file, collector)
        for row in file.rows:
            _add_row(file.name, row, ids, counts, locate, permute_options, collector)
    bare = [entry.id for entry in collector.key if entry.status is None]
    chain: Chain = "task" if len(bare) == len(collector.key) else "full"
    if chain == "full" and bare:
        text = f"expected a status in every row or in none; {len(bare)} have none and are probed for it too"
        collector.warn(questions[0].name, None, bare[0], "status", text)
    files = ", ".join(Path(file.name).name for file in questions)
    return collector.finish(DatasetInfo(name=name, chain=chain, source=f"rows of {files}"))


def _check_columns(file: RowFile, collector: Collector) -> None:
    found = dict.fromkeys(key for row in file.rows if isinstance(row.value, dict) for key in row.value)
    missing = [column for column in NEEDED if column not in found]
    if missing:
        raise DatasetError(
            f"{file.name}: expected the columns {', '.join(NEEDED)}, found no {missing[0]!r} "
            f"among {', '.join(map(repr, found)) or 'none'}"
        )
    per_option = _option_columns(found)
    if per_option and "options" not in found and "kind" not in found:
        raise DatasetError(
            f"{file.name}: expected no column for each option, got {', '.join(map(repr, per_option))}: "
            f"{_HOW_OPTIONS_ARE_WRITTEN}"
        )
    for column in found:
        if column not in COLUMNS:
            text = f"unknown column, left out; expected some of {', '.join(COLUMNS)}"
            collector.warn(file.name, None, "columns", column, text)


def _option_columns(found: Iterable[str]) -> list[str]:
    """The columns that hold an option each, such as a, b, c or option 1, option 2; empty if none do."""
    labels = {
        column: match[1]
        for column in found
        if column not in COLUMNS and (match := _OPTION_COLUMN.fullmatch(column.lower()))
    }
    starts = ("ab", "01", "12")
    return list(labels) if any(set(start) <= set(labels.values()) for start in starts) else []


def _episode_ids(questions: Sequence[RowFile]) -> dict[PurePosixPath, str]:
    """An episode id per video: its bare name, or all of its path where two share the bare name."""
    values = [
        row.value.get("video") for file in questions for row in file.rows if isinstance(row.value, dict)
    ]
    videos = dict.fromkeys(PurePosixPath(video.strip()) for video in values if isinstance(video, str))
    shared = Counter(video.stem for video in videos)
    return {
        video: video.stem if shared[video.stem] == 1 else re.sub(r"[^\w.-]+", "_", str(video)).lstrip("._")
        for video in videos
    }


def _add_row(
    file: str,
    row: Row,
    ids: Mapping[PurePosixPath, str],
    counts: Counter[str],
    locate: Locate,
    permute_options: bool,
    collector: Collector,
) -> None:
    cells: dict[str, object] = {}
    if isinstance(row.value, dict):
        cells = {key: value for key, value in row.value.items() if value not in (None, "")}
    named = cells.get("id")
    item = str(named) if isinstance(named, str | int) else None

    def read() -> tuple[EpisodeQuery, KeyEntry]:
        field.as_object(row.value)
        video = PurePosixPath(field.as_text(cells.get("video"), "video").strip())
        episode_id = _label(cells, "episode") or ids[video]
        counts[episode_id] += 1
        query_id = _label(cells, "id") or f"{episode_id}_q{counts[episode_id]:02d}"
        subset = _label(cells, "subset") or subset_of(file)
        return _read_row(cells, query_id, episode_id, subset, permute_options)

    def video_of(entry: KeyEntry) -> Path:
        return locate(entry.subset, str(cells["video"]).strip())

    collector.add(file, row, read, video=video_of, item=item)


def _read_row(
    cells: Mapping[str, object], query_id: str, episode_id: str, subset: str, permute_options: bool
) -> tuple[EpisodeQuery, KeyEntry]:
    stored = _listed(cells.get("options"), "options")
    kind = _one_of(cells, "kind", _KINDS) or ("choice" if stored else "open")
    count = len(stored)
    permutation = option_permutation(query_id, count) if permute_options else tuple(range(count))
    answer = _choice(cells, stored) if kind == "choice" and len(stored) > 1 else None
    text = _label(cells, "answer")
    if not stored and "kind" not in cells:
        _refuse_choice_without_options(cells, text)
    question = cells.get("question")
    query = EpisodeQuery(
        id=query_id,
        kind=kind,
        media_ns=_time_ns(cells.get("time")),
        stem="" if question is None and kind == "heartbeat" else field.as_text(question, "question"),
        options=tuple(stored[index] for index in permutation),
    )
    spans = cells.get("evidence_spans")
    entry = KeyEntry(
        id=query_id,
        episode_id=episode_id,
        subset=subset,
        media_ns=query.media_ns,
        answer_index=None if answer is None else permutation.index(answer),
        answer_text=text or None if kind != "choice" else None,
        permutation=permutation,
        status=_one_of(cells, "status", _STATUSES),
        causes=_listed(cells.get("causes"), "causes"),
        intensity=_integer(cells["intensity"], "intensity") if "intensity" in cells else None,
        spans_ns=field.as_spans_ns(_from_json(spans, "evidence_spans"), "evidence_spans"),
        question_type=_label(cells, "type"),
        question_subtype=_label(cells, "subtype"),
    )
    return query, entry


def _refuse_choice_without_options(cells: Mapping[str, object], answer: str) -> None:
    """``IllegalRow`` if the answer of a row without options points to one."""
    if "answer_index" in cells:
        raise IllegalRow("answer_index", f"expected options for it, got none: {_HOW_OPTIONS_ARE_WRITTEN}")
    if _LETTER.fullmatch(answer):
        raise IllegalRow(
            "answer",
            f"expected options where the answer is a letter, got {answer!r} and none: "
            f"{_HOW_OPTIONS_ARE_WRITTEN} (if the letter is no option's, say kind open)",
        )


def _choice(cells: Mapping[str, object], options: Sequence[str]) -> int:
    """The right option's index in file order, by letter, text or index; refused where they differ."""
    named = _named(_label(cells, "answer"), options) if "answer" in cells else None
    if "answer_index" in cells:
        index = _integer(cells["answer_index"], "answer_index")
        if not 0 <= index < len(options):
            raise IllegalRow("answer_index", f"expected an index from 0 to {len(options) - 1}, got {index}")
        if named is not None and index not in named:
            raise IllegalRow("answer_index", f"expected the option that answer names, got {index}")
        return index
    if named is None:
        raise IllegalRow("answer", "expected an answer for a choice, got nothing")
    if len(named) > 1:
        text = f"{cells['answer']!r} is the letter of one option and the text of another: use answer_index"
        raise IllegalRow("answer", text)
    return named.pop()


def _named(text: str, options: Sequence[str]) -> set[int]:
    """The options that a text can mean: by its letter, and by the whole text."""
    named = {index for index, option in enumerate(options) if option.strip() == text}
    if letter := _LETTER.fullmatch(text):
        index = ord(letter[1].upper()) - ord("A")
        named |= {index} if index < len(options) else set()
    if not named:
        last = chr(ord("A") + len(options) - 1)
        raise IllegalRow(
            "answer",
            f"expected a letter from A to {last} or the text of an option, got {text!r}; "
            "an index goes into the column answer_index and counts from 0",
        )
    return named


def _listed(value: object, column: str) -> tuple[str, ...]:
    """Texts of a JSON list, or separated by |; numbers of a JSON list become texts."""
    if isinstance(value, str) and not value.lstrip().startswith("["):
        return tuple(part.strip() for part in value.split("|"))
    items = _from_json(value, column)
    return tuple(
        json.dumps(item)
        if isinstance(item, int | float) and not isinstance(item, bool)
        else field.as_text(item, column)
        for item in field.as_list([] if items is None else items, column)
    )


def _from_json(value: object, column: str) -> object:
    """The value of a cell that holds JSON; values of JSON files are as they are."""
    if not isinstance(value, str):
        return value
    try:
        parsed: object = json.loads(value)
    except ValueError as error:
        raise IllegalRow(column, f"expected a JSON list, got {field.shown(value)}") from error
    return parsed


def _label(cells: Mapping[str, object], column: str) -> str:
    """A text without blanks around it, a number as its text, empty where there is none."""
    value = cells.get(column)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return json.dumps(value)
    return field.as_optional_text(value, column).strip()


def _integer(value: object, column: str) -> int:
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,9}", value, re.ASCII):
        return int(value)
    return field.as_integer(value, column)


def _one_of(cells: Mapping[str, object], column: str, allowed: Mapping[str, _T]) -> _T | None:
    text = _label(cells, column)
    if text and text.lower() not in allowed:
        raise IllegalRow(column, f"expected one of {', '.join(allowed)}, got {text!r}")
    return allowed[text.lower()] if text else None


def _time_ns(value: object) -> int:
    """Seconds as number or text, or M:SS or H:MM:SS as players show it."""
    if not isinstance(value, str):
        return field.as_time_ns(value, "time")
    if match := _CLOCK_TIME.fullmatch(value.strip()):
        hours, minutes = (match[1], match[2]) if match[1] else ("0", match[3])
        seconds = (int(hours) * 60 + int(minutes)) * 60 + Decimal(match[4])
    elif re.fullmatch(r"\d+(\.\d*)?|\.\d+", value.strip(), re.ASCII):
        seconds = Decimal(value.strip())
    else:
        raise IllegalRow("time", f"expected seconds, M:SS or H:MM:SS, got {field.shown(value)}")
    if (media_ns := seconds_to_ns(str(seconds))) > MAX_MEDIA_NS:
        raise IllegalRow("time", f"expected seconds, M:SS or H:MM:SS, got {field.shown(value)}")
    return media_ns

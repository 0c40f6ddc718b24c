"""Your own questions: columns, answers that must not be ambiguous, times, and when the chain is full."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamsim.episodes.episode import EpisodeQuery, KeyEntry
from streamsim.episodes.formats.csv_rows import import_csv
from streamsim.episodes.formats.imported import Imported
from streamsim.episodes.formats.row import RowFile, parse_csv_rows, parse_json_rows
from streamsim.errors import DatasetError


def located(subset: str, video: str) -> Path:
    return Path("/videos") / video


def from_csv(text: str, *, permute_options: bool = False) -> Imported:
    file = RowFile(name="mine.csv", rows=parse_csv_rows(text.encode(), "mine.csv"))
    return import_csv([file], name="d", locate=located, permute_options=permute_options)


def from_json(*rows: Any) -> Imported:
    file = RowFile(name="mine.jsonl", rows=parse_json_rows(json.dumps(rows).encode(), "mine.jsonl"))
    return import_csv([file], name="d", locate=located)


def only(result: Imported) -> tuple[EpisodeQuery, KeyEntry]:
    assert result.findings == ()
    (query,) = result.episodes[0].queries
    (entry,) = result.key
    return query, entry


def choice(**cells: Any) -> dict[str, Any]:
    row = {"video": "a.mp4", "time": 3, "question": "Which?", "options": ["x", "y", "z"], "answer": "B"}
    return {key: value for key, value in (row | cells).items() if value is not None}


def test_the_smallest_csv() -> None:
    result = from_csv(
        "video,time,question,options,answer\n"
        "b.mp4,12,What is on the table?,a cup|a plate|nothing,B\n"
        "a.mp4,2.5,What is said?,,Hello\n"
        'b.mp4,3,"One, or two?","[""one"", ""two|both""]",two|both\n'
    )
    assert result.findings == ()
    assert result.info.chain == "task"
    assert [(e.id, e.subset, e.video) for e in result.episodes] == [
        ("b", "mine", "/videos/b.mp4"),
        ("a", "mine", "/videos/a.mp4"),
    ]
    first, second = result.episodes[0].queries
    assert (first.id, first.media_ns, first.options) == ("b_q02", 3_000_000_000, ("one", "two|both"))
    assert (second.id, second.media_ns) == ("b_q01", 12_000_000_000)
    assert second.options == ("a cup", "a plate", "nothing")
    key = {entry.id: entry for entry in result.key}
    assert [key[i].answer_index for i in ("b_q01", "b_q02", "a_q01")] == [1, 1, None]
    assert (key["a_q01"].answer_text, key["a_q01"].status) == ("Hello", None)
    assert key["b_q01"].permutation == (0, 1, 2)
    assert result.episodes[1].queries[0].kind == "open"


def test_all_columns_in_both_shapes() -> None:
    cells = {
        "video": "clips/a.mp4",
        "time": "0:01:02.5",
        "question": "Which?",
        "options": "x|y",
        "answer_index": "1",
        "id": "mine-7",
        "episode": "ep",
        "subset": "s",
        "kind": "Choice",
        "status": "uncertain",
        "causes": "missing_observation|ambiguous_evidence",
        "intensity": "7",
        "evidence_spans": "[[1, 2.5], [60, 60]]",
        "type": "colour",
        "subtype": "hue",
    }
    quoted = ['"' + text.replace('"', '""') + '"' for text in cells.values()]
    typed = cells | {
        "time": 62.5,
        "options": ["x", "y"],
        "answer_index": 1,
        "causes": ["missing_observation", "ambiguous_evidence"],
        "intensity": 7,
        "evidence_spans": [[1, 2.5], [60, 60]],
    }
    results = [from_csv(",".join(cells) + "\n" + ",".join(quoted)), from_json(typed)]
    assert results[0].episodes == results[1].episodes
    assert results[0].key == results[1].key
    query, entry = only(results[0])
    assert query == EpisodeQuery(
        id="mine-7", kind="choice", media_ns=62_500_000_000, stem="Which?", options=("x", "y")
    )
    assert entry == KeyEntry(
        id="mine-7",
        episode_id="ep",
        subset="s",
        media_ns=62_500_000_000,
        answer_index=1,
        permutation=(0, 1),
        status="uncertain",
        causes=("missing_observation", "ambiguous_evidence"),
        intensity=7,
        spans_ns=((1_000_000_000, 2_500_000_000), (60_000_000_000, 60_000_000_000)),
        question_type="colour",
        question_subtype="hue",
    )
    assert results[0].info.chain == "full"


# ----------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("cells", "index"),
    [
        ({"answer": "B"}, 1),
        ({"answer": "c"}, 2),
        ({"answer": "(A)"}, 0),
        ({"answer": "B."}, 1),
        ({"answer": " z "}, 2),
        ({"answer": None, "answer_index": 0}, 0),
        ({"answer": None, "answer_index": "2"}, 2),
        ({"answer": "B", "answer_index": 1}, 1),
        ({"options": ["1", "2", "3"], "answer": "3"}, 2),  # the text of an option, not an index
        ({"options": [1, 2.5], "answer": 2.5}, 1),
        ({"options": ["A", "B"], "answer": "B"}, 1),  # letter and text agree
        ({"options": ["B", "A"], "answer": "B", "answer_index": 0}, 0),
    ],
)
def test_answers(cells: dict[str, Any], index: int) -> None:
    _, entry = only(from_json(choice(**cells)))
    assert entry.answer_index == index


@pytest.mark.parametrize(
    ("cells", "field", "text"),
    [
        ({"answer": "D"}, "answer", "from A to C"),
        ({"answer": "1"}, "answer", "answer_index and counts from 0"),
        ({"answer": 1}, "answer", "answer_index and counts from 0"),
        ({"answer": "the x"}, "answer", "text of an option"),
        ({"answer": None}, "answer", "got nothing"),
        ({"options": ["B", "A"], "answer": "A"}, "answer", "letter of one option and the text of another"),
        ({"answer": "A", "answer_index": 1}, "answer_index", "the option that answer names"),
        ({"answer": None, "answer_index": 3}, "answer_index", "from 0 to 2"),
        ({"answer": None, "answer_index": -1}, "answer_index", "from 0 to 2"),
        ({"answer": None, "answer_index": "1.0"}, "answer_index", "integer"),
        ({"options": "x"}, "options", "at least two"),
        ({"options": "x||z"}, "options", "a text in every option"),
        ({"options": ["x", "x", "z"]}, "options", "'x' twice"),
        ({"options": "[x, y"}, "options", "JSON list"),
        ({"options": {"A": "x"}}, "options", "a list"),
        ({"kind": "guess"}, "kind", "choice, open, heartbeat, standing"),
        ({"kind": "open"}, "options", "no options for kind 'open'"),
        ({"kind": "choice", "options": None}, "options", "at least two"),
        ({"video": None}, "video", "a text"),
        ({"video": 5}, "video", "a text"),
        ({"question": None}, "question", "a text"),
        ({"time": None}, "time", "number of seconds"),
        ({"time": "soon"}, "time", "seconds, M:SS or H:MM:SS"),
        ({"options": None}, "answer", "a letter, got 'B' and none: options go into one column options"),
        ({"options": None, "answer": "x", "answer_index": 0}, "answer_index", "options for it, got none"),
        ({"options": None, "answer": "(b)"}, "answer", "with | between them"),
        ({"status": "sure"}, "status", "known, uncertain"),
        ({"status": "known", "causes": ["missing_observation"]}, "causes", "none for a known"),
        ({"status": "uncertain"}, "causes", "at least one"),
        ({"causes": "missing_observation"}, "status", "got no status"),
        ({"status": "uncertain", "causes": "fog"}, "causes", "'fog'"),
        ({"intensity": 11}, "intensity", "1 to 10"),
        ({"intensity": "high"}, "intensity", "an integer"),
        ({"evidence_spans": "3-4"}, "evidence_spans", "JSON list"),
        ({"evidence_spans": [[2, 4]]}, "evidence_spans", "start <= end <= query time"),
        ({"episode": "a/b"}, "episode", "without slashes"),
    ],
)
def test_an_illegal_row_is_reported_with_its_field_and_left_out(
    cells: dict[str, Any], field: str, text: str
) -> None:
    result = from_json(choice(id="good"), choice(**cells))
    assert result.refused == 1
    assert [entry.id for entry in result.key] == ["good"]
    assert field in {finding.field for finding in result.findings}
    assert any(text in finding.text for finding in result.findings if finding.field == field)


def test_rows_of_csv_are_reported_by_line() -> None:
    result = from_csv("video,time,question,options,answer,id\na.mp4,1,Q,x|y,A,q\na.mp4,2,Q,x|y,A,q\n")
    assert [(f.file, f.line, f.item, f.field) for f in result.findings] == [("mine.csv", 3, "q", "id")]
    assert "mine.csv:2" in result.findings[0].text


def test_a_row_that_is_no_object_is_illegal() -> None:
    result = from_json(choice(), 7)
    assert [(f.item, f.field) for f in result.findings] == [("row 2", "row")]


# ------------------------------------------------------------------------------------------- times


@pytest.mark.parametrize(
    ("time", "media_ns"),
    [
        ("0", 0),
        ("17.05", 17_050_000_000),
        (".5", 500_000_000),
        ("0:00:24", 24_000_000_000),
        ("01:02:03.25", 3_723_250_000_000),
        ("0:14", 14_000_000_000),
        ("1:02", 62_000_000_000),
        ("00:24", 24_000_000_000),
        (" 12:05.5 ", 725_500_000_000),
        ("75:30", 4_530_000_000_000),
        (17.05, 17_050_000_000),
        (3, 3_000_000_000),
    ],
)
def test_times(time: object, media_ns: int) -> None:
    query, _ = only(from_json(choice(time=time)))
    assert query.media_ns == media_ns


@pytest.mark.parametrize(
    "time",
    [
        *("00:12450", "0:0:8", "1:2:03", "0:61:00", "1:60", "1:5", ":30", "1:", "1:00:00:00", "-0:14"),
        *("0:14,5", "-1", "1,5", "1e3", "NaN", "9" * 30, "9" * 30 + ":00", "\u0661:02"),
    ],
)
def test_what_is_no_time_is_refused(time: str) -> None:
    (finding,) = from_json(choice(time=time)).findings
    assert (finding.level, finding.field) == ("error", "time")
    assert "expected seconds, M:SS or H:MM:SS" in finding.text


# -------------------------------------------------------------------------------- ids and columns


def test_episodes_are_videos_and_share_no_id() -> None:
    rows = [choice(video=video) for video in ("x/a.mp4", "y/a.mp4", "./b.mkv", "b.mkv", "x/a.mp4")]
    result = from_json(*rows)
    assert result.findings == ()
    assert {e.id: [q.id for q in e.queries] for e in result.episodes} == {
        "x_a.mp4": ["x_a.mp4_q01", "x_a.mp4_q02"],
        "y_a.mp4": ["y_a.mp4_q01"],
        "b": ["b_q01", "b_q02"],
    }


def test_a_refused_row_does_not_rename_the_others() -> None:
    result = from_json(choice(answer="Q"), choice())
    assert [entry.id for entry in result.key] == ["a_q02"]


@pytest.mark.parametrize("column", ["video", "time", "question"])
def test_a_missing_column_is_an_error_of_the_file(column: str) -> None:
    with pytest.raises(DatasetError, match=rf"^mine.jsonl: expected the columns .* found no '{column}'"):
        from_json(choice(**{column: None}))


def test_an_unknown_column_is_a_warning() -> None:
    result = from_csv("video,time,question,intensty\na.mp4,1,What?,3\n")
    assert [(f.level, f.field) for f in result.findings] == [("warning", "intensty")]
    assert len(result.key) == 1


@pytest.mark.parametrize(
    ("header", "named"),
    [
        ("A,B", "'a', 'b'"),
        ("a,b,c,d", "'a', 'b', 'c', 'd'"),
        ("Option A,Option B", "'option a', 'option b'"),
        ("option_1,option_2,note", "'option_1', 'option_2'"),
        ("choice0,choice1", "'choice0', 'choice1'"),
    ],
)
def test_a_column_for_each_option_is_an_error_of_the_file(header: str, named: str) -> None:
    cells = ",".join("x" for _ in header.split(","))
    with pytest.raises(DatasetError) as caught:
        from_csv(f"Video,Time,Question,{header},Answer\na.mp4,0:14,Which?,{cells},A\n")
    assert str(caught.value) == (
        f"mine.csv: expected no column for each option, got {named}: "
        "options go into one column options, with | between them: a cup|a plate|nothing"
    )


def test_columns_that_only_look_like_options_are_left_out() -> None:
    result = from_csv("video,time,question,kind,a,b\na.mp4,1,What?,open,1,2\n")
    assert [(f.level, f.field) for f in result.findings] == [("warning", "a"), ("warning", "b")]
    result = from_csv("video,time,question,x,y\na.mp4,1,What?,1,2\n")
    assert [(f.level, f.field) for f in result.findings] == [("warning", "x"), ("warning", "y")]


def test_a_letter_is_the_answer_to_an_open_question_that_says_so() -> None:
    query, entry = only(from_json(choice(options=None, kind="open")))
    assert (query.kind, entry.answer_text) == ("open", "B")


def test_heartbeats_need_no_question_and_no_answer() -> None:
    result = from_json({"video": "a.mp4", "time": 1, "kind": "heartbeat"}, choice(video="b.mp4"))
    assert result.findings == ()
    (query,) = result.episodes[0].queries
    assert (query.kind, query.stem, result.key[0].answer_text) == ("heartbeat", "", None)


# ------------------------------------------------------------------------------ chain and options


def test_one_status_makes_the_chain_full_and_warns_of_the_rows_without() -> None:
    result = from_json(choice(status="known"), choice(), choice())
    assert result.info.chain == "full"
    (finding,) = result.findings
    assert (finding.level, finding.item, finding.field) == ("warning", "a_q02", "status")
    assert "2 have none" in finding.text


def test_options_are_permuted_only_when_asked() -> None:
    row = "video,time,question,options,answer,id\na.mp4,9,Where?,{},C,P02-20240210-220650_revisit_q01\n"
    options = "On the table|In the oven|Next to it|On the board"
    query, entry = only(from_csv(row.format(options)))
    assert query.options == tuple(options.split("|"))
    assert (entry.permutation, entry.answer_index) == ((0, 1, 2, 3), 2)
    query, entry = only(from_csv(row.format(options), permute_options=True))
    # the order that STORM-Bench's evaluator has for this id
    assert query.options == ("In the oven", "Next to it", "On the board", "On the table")
    assert (entry.permutation, entry.answer_index) == ((1, 2, 3, 0), 1)

"""Annotation files to rows: every shape, and line numbers where a file does not parse."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamsim.episodes.formats.row import parse_csv_rows, parse_json_rows, read_json_rows, read_table_rows
from streamsim.errors import DatasetError


def values(data: str) -> list[object]:
    return [row.value for row in parse_json_rows(data.encode(), "f")]


def lines(data: str) -> list[int | None]:
    return [row.line for row in parse_json_rows(data.encode(), "f")]


def test_json_lines_keep_their_line_numbers_over_blank_lines() -> None:
    text = '{"a": 1}\n\n{"a": 2}\r\n'
    assert values(text) == [{"a": 1}, {"a": 2}]
    assert lines(text) == [1, 3]


def test_an_array_gives_its_elements() -> None:
    assert values('[{"a": 1},\n 5]') == [{"a": 1}, 5]
    assert lines('[{"a": 1},\n 5]') == [None, None]


def test_a_document_over_several_lines_is_one_row() -> None:
    assert values('\n{\n "qa_samples": [\n {"a": 1}\n ]\n}\n') == [{"qa_samples": [{"a": 1}]}]
    assert lines('\n{\n "qa_samples": []\n}\n') == [2]


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert values('\ufeff{"a": 1}') == [{"a": 1}]


def test_unicode_line_separators_inside_texts_do_not_split_lines() -> None:
    assert values('{"a": "x\u2028y"}\n{"a": "z\x85"}') == [{"a": "x\u2028y"}, {"a": "z\x85"}]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"a": 1}\n{"a": 2,\n{"a": 3}\n', 2),  # torn in the middle
        ('{"a": 1,\n{"a": 2}\n', 1),  # torn first line
        ('{"a": 1}\n{"a": 2}\n{"a"', 3),  # torn last line
        ('{"a": 1}\n{"a": 2} x\n', 2),
        ('[\n{"a": 1},\n{"a": ]\n', 3),
        ('{\n"qa_samples": [\n{"a": 1\n]\n}\n', 4),
    ],
)
def test_malformed_json_names_its_line(text: str, line: int) -> None:
    with pytest.raises(DatasetError, match=rf"^f:{line}: malformed JSON: "):
        parse_json_rows(text.encode(), "f")


def test_bytes_that_are_no_utf8_name_their_line() -> None:
    with pytest.raises(DatasetError, match=r"^f:2: expected UTF-8, got byte 0xff$"):
        parse_json_rows(b'{"a": 1}\n{"a": "\xff"}\n', "f")


@pytest.mark.parametrize("text", ["", " \n\n"])
def test_an_empty_file_is_an_error(text: str) -> None:
    with pytest.raises(DatasetError, match="got an empty file"):
        parse_json_rows(text.encode(), "f")


def test_json_nested_beyond_reason_is_an_error_not_a_crash() -> None:
    with pytest.raises(DatasetError, match=r"^f: malformed JSON: nested too deeply"):
        parse_json_rows(b"[" * 200_000, "f")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"cannot read '.*absent\.jsonl': no such file"):
        read_json_rows(tmp_path / "absent.jsonl")
    with pytest.raises(DatasetError, match="cannot read"):
        read_json_rows(tmp_path)


def test_csv_rows_by_lower_case_column_and_starting_line() -> None:
    rows = parse_csv_rows(b'Video , TIME\na.mp4, 1\n\n"b\nc.mp4",2\nd.mp4\n', "f")
    assert [row.value for row in rows] == [
        {"video": "a.mp4", "time": "1"},
        {"video": "b\nc.mp4", "time": "2"},
        {"video": "d.mp4", "time": ""},
    ]
    assert [row.line for row in rows] == [2, 4, 6]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_csv_separator_is_taken_from_the_header(separator: str) -> None:
    text = separator.join(["video", "time", "question"]) + "\n" + separator.join(["a", "1", '"x,;\ty"'])
    (row,) = parse_csv_rows(text.encode(), "f")
    assert row.value == {"video": "a", "time": "1", "question": "x,;\ty"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("video,time\na,1\nb,2,3\n", "^f:3: expected 2 cells as in the header, got 3"),
        ('video,time\na,1\n"b,2\nc,3\n', "^f:3: malformed CSV: unexpected end of data"),
        ('video,time\na,1\n"b"x,2\n', "^f:3: malformed CSV"),
        ("video,video\na,1\n", "^f:1: expected each column once, got 'video' twice"),
        ("video,time\n", "^f: expected a header and rows, got a header"),
        ("", "^f: expected a header and rows, got nothing"),
    ],
)
def test_malformed_csv_names_its_line(text: str, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        parse_csv_rows(text.encode(), "f")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("q.csv", "a\n1\n"),
        ("q.jsonl", '{"a": "1"}\n'),
        ("q.json", '[{"a": "1"}]'),
        ("q.txt", "a\n1\n"),
        ("q", ' {"a": "1"}'),
    ],
)
def test_a_table_is_csv_or_json_by_ending_or_first_character(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    (row,) = read_table_rows(path).rows
    assert row.value == {"a": "1"}

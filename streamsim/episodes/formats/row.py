"""Annotation files to rows: JSON arrays, JSON lines, single JSON documents, and CSV.

A file that does not parse raises ``DatasetError`` with its line number. Rows are plain Python values;
what they mean is the importers' business, and so are rows that are well written but illegal.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec

from streamsim.errors import DatasetError
from streamsim.text import without_mark
from streamsim.writing import describe


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One value of a file. ``number`` counts rows from 1; ``line`` is None within a JSON document."""

    number: int
    line: int | None
    value: object


class RowFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file's rows; ``name`` is the path as the user wrote it."""

    name: str
    rows: tuple[Row, ...]


def read_json_rows(path: Path) -> RowFile:
    """Read a JSON array, a JSON document, or JSON lines."""
    return RowFile(name=str(path), rows=parse_json_rows(_read(path), str(path)))


def read_table_rows(path: Path) -> RowFile:
    """Read a table of questions: CSV, or JSON by the file's ending or its first character."""
    data = _read(path)
    first = without_mark(data).lstrip(b" \t\r\n")[:1]
    is_json = path.suffix.lower() in {".json", ".jsonl", ".ndjson"}
    if is_json or (first in {b"{", b"["} and path.suffix.lower() not in {".csv", ".tsv"}):
        return RowFile(name=str(path), rows=parse_json_rows(data, str(path)))
    return RowFile(name=str(path), rows=parse_csv_rows(data, str(path)))


def parse_json_rows(data: bytes, name: str) -> tuple[Row, ...]:
    """The elements of an array, the lines of JSON lines, or one document as a single row."""
    text = _decode(data, name)
    if not text.strip():
        raise DatasetError(f"{name}: expected rows, got an empty file")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        if text.lstrip()[0] == "[" or not any(_is_object(line) for _, line in _lines(text)):
            raise _malformed(name, error) from error
        return tuple(
            Row(number=number, line=line_number, value=_parse_line(line, name, line_number))
            for number, (line_number, line) in enumerate(_lines(text), 1)
        )
    if isinstance(document, list):
        return tuple(Row(number=number, line=None, value=value) for number, value in enumerate(document, 1))
    first_line = text[: len(text) - len(text.lstrip())].count("\n") + 1
    return (Row(number=1, line=first_line, value=document),)


def parse_csv_rows(data: bytes, name: str) -> tuple[Row, ...]:
    """CSV with a header; each row a dict of stripped texts by lower-case column name.

    The separator is the one of comma, semicolon and tab that splits the header into the most
    columns. Cells missing at a row's end are empty; a row with more cells than the header is
    malformed (mostly a text with the separator in it and without quotes).
    """
    text = _decode(data, name)
    header = text.lstrip("\r\n").partition("\n")[0]
    separator = max(",;\t", key=header.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    columns: list[str] | None = None
    rows: list[Row] = []
    line = 1
    try:
        for cells in reader:
            start, line = line, reader.line_num + 1
            if not any(cell.strip() for cell in cells):
                continue
            if columns is None:
                columns = _columns(cells, name, start)
                continue
            if len(cells) > len(columns):
                raise DatasetError(
                    f"{name}:{start}: expected {len(columns)} cells as in the header, got {len(cells)}: "
                    f"put texts that contain {separator!r} in double quotes"
                )
            padded = [*cells, *[""] * (len(columns) - len(cells))]
            value = {column: cell.strip() for column, cell in zip(columns, padded, strict=True)}
            rows.append(Row(number=len(rows) + 1, line=start, value=value))
    except csv.Error as error:
        raise DatasetError(f"{name}:{line}: malformed CSV: {error}") from error
    if not rows:
        raise DatasetError(f"{name}: expected a header and rows, got {'a header' if columns else 'nothing'}")
    return tuple(rows)


def _columns(cells: list[str], name: str, line: int) -> list[str]:
    columns = [cell.strip().lower() for cell in cells]
    twice = next((column for place, column in enumerate(columns) if column in columns[:place]), None)
    if twice is not None:
        raise DatasetError(f"{name}:{line}: expected each column once, got {twice!r} twice")
    return columns


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DatasetError(f"cannot read {str(path)!r}: {describe(error)}") from error


def _decode(data: bytes, name: str) -> str:
    data = without_mark(data)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DatasetError(f"{name}:{line}: expected UTF-8, got byte 0x{data[error.start]:02x}") from error


def _lines(text: str) -> Iterator[tuple[int, str]]:
    # not splitlines: JSON texts may hold U+2028 and its like unescaped
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _parse_line(line: str, name: str, number: int) -> object:
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _malformed(name, error, number) from error
    return value


def _malformed(name: str, error: ValueError | RecursionError, line: int | None = None) -> DatasetError:
    if isinstance(error, json.JSONDecodeError):
        what = f"{error.msg[:1].lower()}{error.msg[1:]} at column {error.colno}"
        return DatasetError(f"{name}:{line or error.lineno}: malformed JSON: {what}")
    place = name if line is None else f"{name}:{line}"
    what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
    return DatasetError(f"{place}: malformed JSON: {what}")

"""Typed values from a parsed row; ``IllegalRow`` says which field is not what it should be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

from streamsim.episodes.episode import seconds_to_ns
from streamsim.episodes.rule import MAX_MEDIA_NS


class IllegalRow(Exception):
    """A row that parsed but cannot be imported: the field, and what was expected and found."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(f"{field}: {text}")
        self.field = field
        self.text = text


def as_object(value: object, field: str = "row") -> Mapping[str, object]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise IllegalRow(field, f"expected an object, got {shown(value)}")
    return cast("dict[str, object]", value)


def as_text(value: object, field: str) -> str:
    """A text that holds more than blanks."""
    if not isinstance(value, str) or not value.strip():
        raise IllegalRow(field, f"expected a text, got {shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise IllegalRow(field, f"expected Unicode text, got a lone surrogate in {value!r}") from error
    return value


def as_optional_text(value: object, field: str) -> str:
    """A text; empty for null and for what is missing."""
    return "" if value is None or value == "" else as_text(value, field)


def as_integer(value: object, field: str) -> int:
    """An integer, not a truth value and not 4.0."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise IllegalRow(field, f"expected an integer, got {shown(value)}")
    return value


def as_list(value: object, field: str) -> list[object]:
    """A JSON array."""
    if not isinstance(value, list):
        raise IllegalRow(field, f"expected a list, got {shown(value)}")
    return cast("list[object]", value)


def as_texts(value: object, field: str) -> tuple[str, ...]:
    """A JSON array of texts."""
    return tuple(as_text(item, field) for item in as_list(value, field))


def as_time_ns(value: object, field: str) -> int:
    """Seconds from the episode's start as a finite number, to nanoseconds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise IllegalRow(field, f"expected a number of seconds, got {shown(value)}")
    if not math.isfinite(value) or not 0 <= (media_ns := seconds_to_ns(value)) <= MAX_MEDIA_NS:
        raise IllegalRow(field, f"expected seconds from 0 on, got {shown(value)}")
    return media_ns


def as_spans_ns(value: object, field: str) -> tuple[tuple[int, int], ...]:
    """A list of closed spans ``[[start, end], …]`` in seconds; null is none."""
    spans = []
    for item in as_list([] if value is None else value, field):
        if not isinstance(item, list) or len(item) != 2:
            raise IllegalRow(field, f"expected spans [start, end], got {shown(item)}")
        spans.append((as_time_ns(item[0], field), as_time_ns(item[1], field)))
    return tuple(spans)


def shown(value: object) -> str:
    """A value for a message, cut short."""
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 80 else text[:79] + "…"

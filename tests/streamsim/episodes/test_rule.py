"""Rules that no annotation file of a benchmark breaks, but a dataset edited by hand can."""

from __future__ import annotations

import pytest

from streamsim.episodes.episode import EpisodeQuery
from streamsim.episodes.rule import MAX_TEXT_BYTES, query_faults


def query(stem: str, *options: str) -> EpisodeQuery:
    return EpisodeQuery(id="q", kind="choice", media_ns=0, stem=stem, options=options)


@pytest.mark.parametrize(
    ("wrong", "field", "text"),
    [
        (query("Which?", *map(str, range(27))), "options", "expected at most 26 options, got 27"),
        (query("x" * MAX_TEXT_BYTES, "a", "b"), "stem", f"got {MAX_TEXT_BYTES + 2}"),
        (query("a\x00b", "a", "b"), "stem", "without control characters"),
        (query("Which?", "a", "\x1b[31mred"), "stem", "without control characters"),
    ],
)
def test_what_could_not_be_asked_is_a_fault(wrong: EpisodeQuery, field: str, text: str) -> None:
    (fault,) = query_faults(wrong)
    assert fault.field == field and text in fault.text


def test_the_most_that_can_be_asked_is_none() -> None:
    assert not list(query_faults(query("Line one\nline two", *map(str, range(26)))))
    assert not list(query_faults(query("x" * (MAX_TEXT_BYTES - 2), "a", "b")))

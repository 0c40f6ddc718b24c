"""Counted things read as English."""

from __future__ import annotations

import pytest

from streamsim.plural import counted


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "episode", "0 episodes"),
        (1, "episode", "1 episode"),
        (2, "episode", "2 episodes"),
        (1, "query", "1 query"),
        (18, "query", "18 queries"),
    ],
)
def test_counted(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text

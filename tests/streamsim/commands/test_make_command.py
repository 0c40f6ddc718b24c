"""`streamsim make` and `demo`: what they refuse, in one line and before anything is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamsim.cli import main
from streamsim.episodes.make import revisit, rooms
from streamsim.episodes.make.produce import MAX_SEED, Recipe, Style, annotate, outline_episode

WRONG = [
    (("--seconds", 5), "--seconds from 20 to 120 for style 'rooms', got 5"),
    (("--seconds", 10), "--seconds from 20 to 120 for style 'rooms', got 10"),
    (("--seconds", 121), "--seconds from 20 to 120 for style 'rooms', got 121"),
    (("--seed", -1), "--seed from 0 to 9223372036854775807 for style 'rooms', got -1"),
    (("--seed", 2**63), "--seed from 0 to 9223372036854775807 for style 'rooms', got 9223372036854775808"),
]


@pytest.mark.parametrize("command", ["make", "demo"])
@pytest.mark.parametrize(("options", "said"), WRONG)
def test_what_no_episode_can_be_made_of(
    command: str, options: tuple[str, int], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ("rooms", "-o") if command == "make" else ("--out",)
    assert main([command, *place, str(tmp_path / "new"), *map(str, options)]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", f"streamsim {command}: expected {said}\n")
    assert list(tmp_path.iterdir()) == []


def test_a_demo_where_nothing_can_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert main(["demo", "--seconds", "20", "--out", str(file)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
def test_one_episode_is_told_in_the_singular(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "one"
    options = ("--count", "1", "--seconds", "20", "--fps", "1")
    assert main(["make", "rooms", *options, "-o", str(folder)]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith(f"{folder}: 1 episode, 4 queries (2 uncertain), in ")
    assert printed.err == "1 of 1 episode drawn\n"
    assert main(["check", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["errors"] == 0
    assert main(["check", str(folder)]) == 0
    assert capsys.readouterr().out.endswith(f"{folder}: 1 episode, 4 queries, 0 errors, 0 warnings\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("style", "low", "high"),
    [
        ("rooms", rooms.MIN_SECONDS, rooms.MAX_SECONDS),
        ("revisit", revisit.MIN_SECONDS, revisit.MAX_SECONDS),
    ],
)
def test_every_length_that_is_taken_can_be_made(style: Style, low: int, high: int) -> None:
    for seconds in (low, low + 1, (low + high) // 2, high):
        recipe = Recipe(count=1, seed=MAX_SEED, seconds=seconds, style=style)
        (episode,) = annotate(recipe, [outline_episode(recipe, 0)]).episodes
        assert len(episode.queries) == max(4, round(seconds / 6))

"""Every command in a current folder that has been deleted: a result or one line, and never a traceback."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamsim.cli import main
from streamsim_agents.registry import AgentArgumentError, find_agent

pytestmark = pytest.mark.slow

GONE = "the current folder has been deleted"


@pytest.fixture
def deleted(tmp_path: Path) -> Iterator[Path]:
    """A current folder that is gone; gives one that is not."""
    before = Path.cwd()
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    try:
        yield tmp_path
    finally:
        os.chdir(before)


@pytest.fixture(scope="module")
def rooms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dataset = tmp_path_factory.mktemp("rooms") / "dataset"
    assert main(["make", "rooms", "--count", "1", "--seed", "1", "-o", str(dataset)]) == 0
    return dataset


@pytest.mark.parametrize(
    "arguments",
    [
        "demo",
        "run {rooms} --agent null",
        "run {rooms} --agent null --out x",
        "run {rooms} --agent null --out x --resume",
        "run {rooms} --agent null --dry-run",
        "run dataset --agent null",
        "run {rooms} --agent nosuch:Agent",
        "serve {rooms}",
        "join ws://127.0.0.1:1/v1/lanes/1 --agent nosuch:Agent",
        "score run",
        "check dataset",
        "import csv {there}/q.csv -o dataset",
        "import csv q.csv -o dataset",
        "make rooms --count 1 -o dataset",
        "frames v.mp4",
        "verify run",
        "rescore run",
    ],
)
def test_what_cannot_be_done_there_is_one_line(
    deleted: Path, rooms: Path, arguments: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (deleted / "q.csv").write_text(
        "video,time,question,options,answer\nv.mp4,1,Where?,a;b,A\n", encoding="utf-8"
    )
    words = [word.format(rooms=rooms, there=deleted) for word in arguments.split()]
    assert main(words) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"streamsim {words[0]}: ")
    assert GONE in last


def test_what_needs_no_current_folder_goes_on(
    deleted: Path, rooms: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(deleted / "run")
    for words in (
        ["run", str(rooms), "--agent", "null", "--clock", "lockstep", "--out", run],
        ["score", run],
        ["verify", run],
        ["rescore", run],
        ["check", str(rooms)],
        ["frames", str(next((rooms / "public" / "videos").iterdir()))],
        ["doctor", "--agents"],
    ):
        assert main(words) == 0, capsys.readouterr().err
        assert GONE not in capsys.readouterr().err


def test_doctor_finds_the_place_bad(deleted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 1
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["disk"]["status"] == "bad"
    assert checks["temporary files"]["status"] == "good"


def test_an_agent_that_is_looked_for_there(deleted: Path) -> None:
    with pytest.raises(AgentArgumentError, match="started in a folder that has been deleted"):
        find_agent("nosuch:Agent")

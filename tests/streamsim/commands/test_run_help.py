"""What the help of `run` and `serve` says of folders and of going on, and what a dry run counts."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from streamsim.cli import main

MakeClip = Callable[..., Path]


def help_of(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The help page in one line, however it was wrapped."""
    with contextlib.suppress(SystemExit):
        main([command, "--help"])
    return re.sub(r"\s+", " ", re.sub(r"-\n\s+", "-", capsys.readouterr().out))


@pytest.mark.parametrize(
    ("command", "folder", "anew"),
    [
        ("run", "runs/YYYYMMDD-HHMMSS-AGENT", "--sessions, --port and --deadline"),
        ("serve", "runs/YYYYMMDD-HHMMSS-serve", "--sessions, --host, --port and --deadline"),
    ],
)
def test_help(command: str, folder: str, anew: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = help_of(command, capsys)
    assert f"the run folder (default: {folder})" in shown
    assert f"takes from the run all that fixes its figures; {anew} are said anew" in shown


def test_a_dry_run_of_one_session(
    make_clip: MakeClip, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clip = make_clip("a.mkv", [0, 500, 1000])
    monkeypatch.chdir(tmp_path)
    Path("q.csv").write_text("video,time,question\na.mkv,0:01,What?\n")
    assert main(["import", "csv", "q.csv", "--videos", str(clip.parent), "-o", "d"]) == 0
    capsys.readouterr()
    assert main(["run", "d", "--agent", "null", "--dry-run", "--out", "r"]) == 0
    assert capsys.readouterr().out.startswith("1 session in 1 lane, into r\na (repeat 1, attempt 1):\n")

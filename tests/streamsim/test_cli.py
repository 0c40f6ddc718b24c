"""The command line as a whole: its help page, and what it says to what it does not understand."""

from __future__ import annotations

import subprocess
import sys

import pytest

from streamsim import __version__
from streamsim.cli import COMMANDS, main


@pytest.mark.slow
def test_the_package_runs_as_a_module() -> None:
    called = [sys.executable, "-m", "streamsim", "--version"]
    done = subprocess.run(called, capture_output=True, text=True, check=True)
    assert done.stdout == f"streamsim {__version__}\n"


def test_nothing_asked_is_the_help_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("usage: streamsim ")
    for name in COMMANDS:
        assert f"\n    {name} " in printed.err


@pytest.mark.parametrize(
    ("arguments", "line", "page"),
    [
        (["check"], "streamsim check: the following arguments are required: DATASET", "streamsim check"),
        (["check", "d", "--jsn"], "streamsim check: unrecognized arguments: --jsn", "streamsim check"),
        (["--jsn"], "streamsim: unrecognized arguments: --jsn", "streamsim"),
        (["import"], "streamsim import: the following arguments are required: FORMAT", "streamsim import"),
        (
            ["import", "csv", "q.csv"],
            "streamsim import csv: the following arguments are required: -o/--output",
            "streamsim import csv",
        ),
        (["run", "d", "--fps", "x"], "streamsim run: argument --fps: invalid float", "streamsim run"),
        (["rn"], "streamsim: argument COMMAND: invalid choice: 'rn'", "streamsim"),
    ],
)
def test_wrong_usage_is_one_line_and_where_to_read_more(
    arguments: list[str], line: str, page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    printed = capsys.readouterr()
    shown = printed.err.splitlines()
    assert printed.out == ""
    assert shown[0].startswith(line)
    assert shown[1:] == [f"see {page} --help"]

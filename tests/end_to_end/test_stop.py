"""Runs that are stopped: by Ctrl-C, by SIGTERM, by the death of whoever started them, by a closed pipe.

An agent sends the signal itself, at a place of its choosing, so nothing here depends on time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamsim.events import ChainClosed
from streamsim.journal.read import read_journal
from streamsim.report.run_scores import score_run
from tests.end_to_end.harness import Finished, Simulator, events_of, read_sessions

pytestmark = pytest.mark.slow

OUTCOMES = {
    "init": ("not_reached", "not_reached", "not_reached", "not_reached"),
    "begin": ("not_reached", "not_reached", "not_reached", "not_reached"),
    "observe": ("answered", "not_reached", "not_reached", "not_reached"),
    "task": ("answered", "cancelled", "cancelled", "not_reached"),
    "save": ("answered", "answered", "answered", "answered"),
}


def play(simulator: Simulator, dataset: Path, where: str, signal: str, *options: object) -> Finished:
    """A run of six episodes in two lanes, stopped in the first."""
    return simulator.call(
        *("run", dataset, "--out", "run", "--limit", 6, "--fps", 2, "--clock", "lockstep"),
        *("--agent", "agents_for_tests:Signalling", "--sessions", 2),
        *("--agent-arg", f"where={where}", "--agent-arg", f"signal={signal}"),
        *("--agent-arg", f"mark={simulator.folder / 'signalled'}", *options),
    )


@pytest.mark.parametrize(
    ("signal", "code", "where"),
    [
        ("SIGINT", 130, "init"),
        ("SIGTERM", 143, "begin"),
        ("SIGTERM", 143, "observe"),
        ("SIGINT", 130, "task"),
        ("SIGINT", 130, "save"),
    ],
)
def test_signal_leaves_what_was_done(
    simulator: Simulator, one_clip: Path, signal: str, code: int, where: str
) -> None:
    done = play(simulator, one_clip, where, signal, "--json")
    assert done.code == code, done.err
    assert simulator.processes() == {}
    report = done.report
    assert report["sessions"] == 6 and report["complete"] == 0
    assert report["queries"] == sum(report["outcomes"].values()) == 24
    sessions = read_sessions(simulator.folder / "run")
    assert set(sessions) == {"e00", "e01"}
    played = set()
    for journal in sessions.values():
        assert journal.fault is None and journal.ended is not None
        assert journal.ended.reason == "interrupted"
        outcomes = {event.query: event.outcome for _, event in events_of(journal, ChainClosed)}
        played.add(tuple(outcomes[f"q{number}"] for number in range(1, 5)))
    assert OUTCOMES[where] in played
    answered = report["outcomes"]["answered"]
    assert report["scores"]["partial"] == {"answered": answered, "planned": 24}
    notice = f"partial: {answered} of 24 queries were answered; the others count as wrong"
    assert notice in report["scores"]["notices"]
    # the same from the journals alone
    again = score_run(simulator.folder / "run")
    assert again == report["scores"]


@pytest.mark.parametrize("where", ["init", "task"])
def test_second_signal_ends_the_run_at_once(simulator: Simulator, one_clip: Path, where: str) -> None:
    """Whether the server was through with its journals by then or not, they can be read."""
    done = play(simulator, one_clip, where, "SIGINT", "--json", "--agent-arg", "times=2")
    assert done.code == 130, done.err
    assert simulator.wait_for_processes() == {}
    assert "Traceback" not in done.err
    report = done.report
    assert report["complete"] == 0
    assert report["queries"] == sum(report["outcomes"].values()) == 24
    assert report["scores"] == score_run(simulator.folder / "run")


def test_death_of_the_command_takes_everything_along(simulator: Simulator, one_clip: Path) -> None:
    done = play(simulator, one_clip, "task", "SIGKILL", "--json")
    assert done.code == -9
    assert simulator.wait_for_processes() == {}
    reasons = {
        journal.ended.reason for journal in read_sessions(simulator.folder / "run").values() if journal.ended
    }
    assert reasons == {"interrupted"}
    again = simulator.call("score", "run", "--json")
    assert again.code == 0 and again.report["partial"]["planned"] == 24


@pytest.mark.parametrize(("kills", "code"), [("nobody", 0), ("server", 1), ("command", -9)])
def test_what_agents_started_ends_with_the_run(
    simulator: Simulator, one_clip: Path, kills: str, code: int
) -> None:
    """Also what has a session of its own, and whoever of us is killed."""
    done = simulator.call(
        *("run", one_clip, "--out", "run", "--limit", 2, "--sessions", 2, "--clock", "lockstep", "--json"),
        *("--agent", "agents_for_tests:Parent", "--agent-arg", f"kills={kills}"),
    )
    assert done.code == code, done.err
    left = simulator.wait_for_processes() if kills == "command" else simulator.processes()
    assert left == {}


@pytest.mark.parametrize("streams", ["stdout", "both"])
def test_reader_that_went_away_costs_nothing(simulator: Simulator, one_clip: Path, streams: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "streamsim.cli", "run", str(one_clip), "--out", "run", "--limit", "1"]
    result = subprocess.run(
        [*command, "--agent", "null", "--clock", "lockstep"],
        cwd=simulator.folder,
        env=simulator.environment(),
        stdout=writing,
        stderr=writing if streams == "both" else subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in (result.stderr or "")
    assert (simulator.folder / "run" / "scores.json").is_file()
    assert [journal.complete for journal in read_sessions(simulator.folder / "run").values()] == [True]


def test_journal_that_cannot_be_written_stops_the_run(simulator: Simulator, one_clip: Path) -> None:
    """A full disk, as far as files of this run go: no file may grow beyond 10 kB."""
    limited = "import resource, runpy; resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000)); "
    command = ["run", str(one_clip), "--out", "run", "--limit", "4", "--fps", "2", "--clock", "lockstep"]
    command += ["--agent", "null", "--sessions", "2", "--json"]
    result = subprocess.run(
        [sys.executable, "-c", limited + "runpy.run_module('streamsim.cli', run_name='__main__')", *command],
        cwd=simulator.folder,
        env=simulator.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1] == (
        "streamsim run: cannot write a journal: file too large; make room, then continue with --resume"
    )
    assert "Traceback" not in result.stderr
    assert simulator.processes() == {}
    for path in (simulator.folder / "run" / "sessions").iterdir():
        journal = read_journal(path)
        assert journal.entries and journal.fault is None and not journal.complete
    again = simulator.call(*command, "--resume")
    assert (again.code, again.report["complete"]) == (0, 4), again.err

"""Files in ``sessions/`` that are no journals of the run, and journals that hold more than was written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from streamsim.cli import main
from streamsim.errors import RunError
from streamsim.journal.folder import list_journals, read_run_file, read_sessions
from streamsim.journal.read import read_journal
from streamsim.report.rescoring import rescore_run
from streamsim.report.run_summary import summarise_run
from streamsim.scoring.rescore import Change
from streamsim.simulation import say
from streamsim.testing import SimulatedAgent, seconds, tiny_query, tiny_simulation
from tests.streamsim.journal.simulated_run import Lines, rewrite_journal, write_run


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """The one journal of a whole run, and a sound one."""
    agent = SimulatedAgent(observe=lambda k: seconds(0.1), answer=lambda probe: say("A", seconds(0.2)))
    simulation = tiny_simulation([tiny_query("q", 1.0)], agent, samples=3).run()
    path = write_run(tmp_path / "run", simulation, 1)
    assert main(["verify", str(tmp_path / "run")]) == 0
    return path


def restate(**changes: object) -> Callable[[Lines], None]:
    def edit(lines: Lines) -> None:
        lines[0].update(changes)

    return edit


def copied(journal: Path) -> Path:
    return Path(shutil.copy(journal, journal.with_name("zzz.1.1.jsonl")))


def as_a_later_attempt(journal: Path) -> Path:
    episode = journal.name.removesuffix(".1.1.jsonl")
    return Path(shutil.copy(journal, journal.with_name(f"{episode}.1.2.jsonl")))


def of_an_unknown_episode(journal: Path) -> Path:
    rewrite_journal(copied(journal), restate(episode="zzz"))
    return journal.with_name("zzz.1.1.jsonl")


def of_an_unknown_repeat(journal: Path) -> Path:
    path = Path(shutil.copy(journal, journal.with_name(journal.name.replace(".1.1.", ".2.1."))))
    rewrite_journal(path, restate(repeat=2))
    return path


def of_another_run(journal: Path) -> Path:
    rewrite_journal(journal, restate(run="another"))
    return journal


def without_a_start(journal: Path) -> Path:
    def edit(lines: Lines) -> None:
        del lines[0]

    rewrite_journal(copied(journal), edit)
    return journal.with_name("zzz.1.1.jsonl")


@pytest.mark.parametrize(
    ("plant", "says"),
    [
        (copied, "expected the session of its name, got a copy of"),
        (as_a_later_attempt, "expected the session of its name, got a copy of"),
        (of_an_unknown_episode, "the run has no episode 'zzz', repeat 1"),
        (of_an_unknown_repeat, "repeat 2"),
        (of_another_run, "got one of run 'another'"),
        (without_a_start, "expected SessionStarted in the first line, got"),
    ],
)
def test_a_stray_is_named_with_what_to_do(
    journal: Path, plant: Callable[[Path], Path], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = journal.parents[1]
    path = plant(journal)
    for figures in (
        lambda: read_sessions(run, read_run_file(run)),
        lambda: summarise_run(run),
        lambda: rescore_run(run, Change()),
    ):
        with pytest.raises(RunError) as caught:
            figures()
        text = str(caught.value)
        assert text.startswith(f"{path}: ") and says in text
        assert text.endswith(f"; move the file out of {str(path.parent)!r}, then call again")
    capsys.readouterr()
    assert main(["verify", str(run)]) == 1
    told = capsys.readouterr().out
    assert told.startswith(f"not verified: {path.name}:1: ") and told.count("\n") == 1
    assert plant is without_a_start or told.endswith("; move a stray file out of sessions/\n")


def test_a_sound_run_has_no_stray(journal: Path) -> None:
    run = journal.parents[1]
    for name in ("notes.txt", "notes.jsonl", "empty.1.1.jsonl", ".zzz.1.1.jsonl.swp"):
        (journal.parent / name).write_bytes(b"")
    assert [found.path for found in read_sessions(run, read_run_file(run))] == [journal]


def test_a_folder_of_sessions_that_is_none(tmp_path: Path) -> None:
    assert list_journals(tmp_path) == []
    (tmp_path / "sessions").write_text("")
    with pytest.raises(RunError, match=r"^cannot read '.*/sessions': not a directory$"):
        list_journals(tmp_path)


@pytest.mark.parametrize(
    ("junk", "what"),
    [
        (b'{"n":', "torn"),
        (b"\0" * 512, "torn"),
        (b"garbage\n", "JSON is malformed"),
        (b"\n", "Input data was truncated"),
        (b"garbage\nmore\n", "JSON is malformed"),
    ],
)
def test_what_stands_behind_the_end_is_told(
    journal: Path, junk: bytes, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing of the session is lost, so it counts; but nobody who writes a journal writes this."""
    run = journal.parents[1]
    before = summarise_run(run)
    lines = len(journal.read_bytes().splitlines())
    with journal.open("ab") as file:
        file.write(junk)
    read = read_journal(journal)
    assert read.complete and len(read.entries) == lines
    told = read.fault_notice
    assert told is not None and told.startswith(f"{journal.name}: line {lines + 1}: {what}")
    assert "after the session's end, so nothing is lost" in told
    after = summarise_run(run)
    assert after.warnings == [told, *before.warnings]
    assert (after.outcomes, after.complete) == (before.outcomes, 1)
    capsys.readouterr()
    assert main(["rescore", str(run), "--json"]) == 0
    assert told in json.loads(capsys.readouterr().out)["notices"]
    assert main(["verify", str(run)]) == 1
    assert capsys.readouterr().out.startswith(f"not verified: {journal.name}:{lines + 1}: found {what}")


def test_a_journal_that_was_cut_off_is_read_as_far_as_it_goes(journal: Path) -> None:
    data = journal.read_bytes()
    journal.write_bytes(data[:-5])
    read = read_journal(journal)
    assert not read.complete
    assert read.fault_notice == f"{journal.name}: read up to line {len(data.splitlines())}: torn"

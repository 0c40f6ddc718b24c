"""The thread from episode to score, by the command line alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from streamsim.events import (
    Acknowledged,
    ChainClosed,
    FrameSent,
    FrameSettled,
    ProbeRead,
    ProbeSent,
    TurnStarted,
)
from streamsim.journal.compare import compare_runs
from streamsim.journal.folder import read_last_attempts
from streamsim.journal.verify import verify_run
from tests.end_to_end.dataset_for_tests import NS, TINY_SECONDS
from tests.end_to_end.harness import Finished, Simulator, events_of, read_sessions

pytestmark = pytest.mark.slow

HOOK = """
import json, os, sys

_log = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
_busy = []

def _note(path):
    program = sys.orig_argv[sys.orig_argv.index("-m") + 1]
    line = {"program": program, "path": path}
    os.write(_log, json.dumps(line).encode() + b"\\n")

def _hook(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and not _busy:
        _busy.append(1)
        try:
            if isinstance(arguments[0], (str, bytes, os.PathLike)):
                _note(os.fsdecode(arguments[0]))
        finally:
            _busy.pop()

_note("(started)")
sys.addaudithook(_hook)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Four finished runs of one dataset, by name, in folders of that name."""

    folder: Path
    done: dict[str, Finished]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Runs:
    """One run in realtime, two alike in lockstep, one whose processes tell what they open."""
    folder = tmp_path_factory.mktemp("thread")
    simulator = Simulator(folder)
    (folder / "hook").mkdir()
    (folder / "hook" / "sitecustomize.py").write_text(HOOK.replace("LOG", repr(str(folder / "opens.jsonl"))))
    common = ("run", tiny, "--json", "--out")
    lockstep = ("--agent", "random", "--clock", "lockstep", "--fps", 4, "--sessions", 2)
    processes = {
        "realtime": simulator.start(*common, "realtime", "--agent", "random", "--sessions", 3),
        "one": simulator.start(*common, "one", *lockstep),
        "two": simulator.start(*common, "two", *lockstep),
        "watched": simulator.start(
            *(*common, "watched", "--limit", 1, "--agent", "null", "--clock", "lockstep"),
            python_path=folder / "hook",
        ),
    }
    done = {name: simulator.finish(process) for name, process in processes.items()}
    assert simulator.processes() == {}
    for name, finished in done.items():
        assert finished.code == 0, finished.err
        assert verify_run(folder / name).offence is None
    return Runs(folder=folder, done=done)


def test_realtime_releases_nothing_early_and_scores(runs: Runs) -> None:
    report = runs.done["realtime"].report
    assert report["sessions"] == report["complete"] == 3
    assert report["queries"] == 12
    assert report["outcomes"] == {
        "answered": 12,
        "timed_out": 0,
        "cancelled": 0,
        "failed": 0,
        "disconnected": 0,
        "not_reached": 0,
    }
    assert report["early_releases"] == 0
    assert report["latency"]["task"]["n"] == report["latency"]["status"]["n"] == 12
    assert report["scores"]["n"] == 12 and report["scores"]["partial"] is None
    for seconds in TINY_SECONDS:
        journal = read_sessions(runs.folder / "realtime")[f"tiny-{seconds}"]
        frames = list(events_of(journal, FrameSent))
        assert [event.media_ns for _, event in frames] == [k * NS for k in range(seconds)]
        for at, event in [*frames, *events_of(journal, ProbeSent)]:
            due_media_ns = event.media_ns if isinstance(event, FrameSent) else event.due_media_ns
            assert at.media_ns >= due_media_ns
            assert at.wall_ns >= event.due_wall_ns
        tasks = [event for _, event in events_of(journal, ProbeSent) if event.probe == "task"]
        assert [(event.query, event.due_media_ns) for event in tasks] == [
            ("q1", 0),
            ("q2", NS),
            ("q3", NS),
            ("q4", seconds * NS),
        ]
        # the runtime declares to have seen, for each turn, the newest frame visible to its query
        probes = {event.turn: event for _, event in events_of(journal, ProbeSent)}
        seen = {probes[event.turn].query: event.seen_media_ns for _, event in events_of(journal, TurnStarted)}
        assert seen == {"q1": 0, "q2": NS, "q3": NS, "q4": (seconds - 1) * NS}


def test_lockstep_tells_the_same_story_twice(runs: Runs) -> None:
    one, two = runs.folder / "one", runs.folder / "two"
    assert list(runs.done["one"].report["latency"]) == ["withheld"]
    assert compare_runs(one, two) is None
    # the comparison has something to compare, and the runs are two
    journals = read_last_attempts(one)
    assert len(journals) == 3
    for journal in journals:
        kinds = {type(entry.event) for entry in journal.entries}
        assert {
            FrameSent,
            FrameSettled,
            ProbeSent,
            TurnStarted,
            ProbeRead,
            ChainClosed,
            Acknowledged,
        } <= kinds
    assert {journal.digest for journal in journals}.isdisjoint(
        journal.digest for journal in read_last_attempts(two)
    )
    scores = [json.loads((folder / "scores.json").read_text()) for folder in (one, two)]
    assert {**scores[0], "run": ""} == {**scores[1], "run": ""}


def test_neither_server_nor_agent_opens_the_key(runs: Runs, tiny: Path) -> None:
    opened: dict[str, set[str]] = {}
    for line in (runs.folder / "opens.jsonl").read_text().splitlines():
        row = json.loads(line)
        opened.setdefault(row["program"], set()).add(row["path"])
    assert opened.keys() == {
        "streamsim.cli",
        "streamsim.server",
        "streamsim.episodes.decoder",
        "streamsim_agents",
        "streamsim_agents.registry",
    }

    def under(program: str, folder: Path) -> set[str]:
        return {path for path in opened[program] if Path(path).is_relative_to(folder)}

    # the hook sees what is opened: the scorer reads the key, the server the public half
    assert under("streamsim.cli", tiny / "key") == {str(tiny / "key" / "answers.jsonl")}
    assert str(tiny / "public" / "episodes.jsonl") in under("streamsim.server", tiny)
    for program in opened:
        if program != "streamsim.cli":
            assert under(program, tiny / "key") == set()
    assert under("streamsim_agents", tiny) == set()
    assert under("streamsim_agents", runs.folder / "watched") == set()

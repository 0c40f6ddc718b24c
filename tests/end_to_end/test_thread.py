"""The thread from episode to score, by the command line alone."""

from __future__ import annotations

import json
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
from tests.end_to_end.dataset_for_tests import NS, TINY_SECONDS
from tests.end_to_end.harness import Simulator, events_of, read_sessions

pytestmark = pytest.mark.slow

HOOK = """
import json, os, sys

_log = os.open(os.environ["STREAMSIM_TEST_OPENS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
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


def test_realtime_releases_nothing_early_and_scores(simulator: Simulator, tiny: Path) -> None:
    done = simulator.call("run", tiny, "--out", "r", "--json", "--agent", "random", "--sessions", 3)
    assert done.code == 0, done.err
    report = done.report
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
        journal = read_sessions(simulator.folder / "r")[f"tiny-{seconds}"]
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


def test_lockstep_tells_the_same_story_twice(simulator: Simulator, tiny: Path) -> None:
    for name in ("one", "two"):
        done = simulator.call(
            *("run", tiny, "--out", name, "--json", "--agent", "random", "--clock", "lockstep"),
            *("--fps", 4, "--sessions", 2),
        )
        assert done.code == 0, done.err
        assert list(done.report["latency"]) == ["withheld"]
    one, two = simulator.folder / "one", simulator.folder / "two"
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


def test_neither_server_nor_agent_opens_the_key(
    simulator: Simulator, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = simulator.folder / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK)
    log = simulator.folder / "opens.jsonl"
    monkeypatch.setenv("STREAMSIM_TEST_OPENS", str(log))
    done = simulator.call(
        *("run", tiny, "--out", "r", "--json", "--limit", 1, "--agent", "null", "--clock", "lockstep"),
        python_path=hook,
    )
    assert done.code == 0, done.err
    opened: dict[str, set[str]] = {}
    for line in log.read_text().splitlines():
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
    assert under("streamsim_agents", simulator.folder / "r") == set()

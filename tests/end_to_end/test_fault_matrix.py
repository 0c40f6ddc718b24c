"""Each failure of an agent in each phase where it can occur: what becomes of queries, session, run.

One run plays many sessions, each with its own fault, with well-behaved sessions between them: those
must know nothing of their neighbours, and each comes after a fault to a new agent process.
"""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from streamsim.events import (
    AgentFailed,
    ChainClosed,
    FrameSettled,
    LateTextReceived,
    SessionEnded,
    TurnClosed,
    TurnEnded,
    WarningRaised,
)
from streamsim.journal.folder import read_run_file, write_run_file
from streamsim.journal.read import JournalFile
from streamsim.journal.verify import verify_run
from streamsim.report.run_report import run_exit_code
from streamsim.report.run_summary import summarise_run
from tests.end_to_end.harness import Finished, Simulator, events_of, read_sessions

pytestmark = pytest.mark.slow

ALL_ANSWERED = ("answered", "answered", "answered", "answered")
NONE_REACHED = ("not_reached", "not_reached", "not_reached", "not_reached")
Q2_FAILED = ("answered", "failed", "answered", "answered")
CUT_AT_FRAME = ("answered", "not_reached", "not_reached", "not_reached")
CUT_AT_Q2 = ("answered", "disconnected", "disconnected", "not_reached")
"""q3 is due at the instant of q2, so it was asked too."""
HUNG_AT_Q2 = ("answered", "timed_out", "timed_out", "not_reached")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a fault comes to. ``trace`` is in a traceback of the journal, ``detail`` in its last line."""

    outcomes: tuple[str, ...]
    reason: str = "completed"
    detail: str = ""
    trace: str = ""


BROKEN = "RuntimeError: broken on purpose"
LEFT = "SystemExit: left on purpose"
EXITED = "the agent process exited with code 9, see logs/lane-"
FLOOD = "messages by now, got "
KILLED = "the agent process was ended by SIGKILL, see logs/lane-"

AT_ONCE: dict[str, Expected] = {
    "begin-raise": Expected(
        outcomes=NONE_REACHED, reason="agent_failed", detail="the agent raised in begin", trace=BROKEN
    ),
    "begin-leave": Expected(outcomes=NONE_REACHED, reason="agent_failed", trace=LEFT),
    "begin-exit": Expected(outcomes=NONE_REACHED, reason="disconnected", detail=EXITED),
    "begin-kill": Expected(outcomes=NONE_REACHED, reason="disconnected", detail=KILLED),
    "begin-flood": Expected(outcomes=NONE_REACHED, reason="protocol_error", detail=FLOOD),
    "observe-raise": Expected(outcomes=ALL_ANSWERED, trace=BROKEN),
    "observe-leave": Expected(outcomes=ALL_ANSWERED, trace=LEFT),
    "observe-exit": Expected(outcomes=CUT_AT_FRAME, reason="disconnected", detail=EXITED),
    "observe-kill": Expected(outcomes=CUT_AT_FRAME, reason="disconnected", detail=KILLED),
    "observe-flood": Expected(outcomes=CUT_AT_FRAME, reason="protocol_error", detail=FLOOD),
    "task-raise": Expected(outcomes=Q2_FAILED, trace=BROKEN),
    "task-late": Expected(outcomes=Q2_FAILED, trace=BROKEN),
    "task-leave": Expected(outcomes=Q2_FAILED, trace=LEFT),
    "task-number": Expected(outcomes=Q2_FAILED, trace="TypeError: answer must yield str, got int"),
    "task-exit": Expected(outcomes=CUT_AT_Q2, reason="disconnected", detail=EXITED),
    "task-kill": Expected(outcomes=CUT_AT_Q2, reason="disconnected", detail=KILLED),
    "task-flood": Expected(outcomes=Q2_FAILED),
    "task-huge": Expected(outcomes=Q2_FAILED),
    "status-raise": Expected(outcomes=Q2_FAILED, trace=BROKEN),
    "status-exit": Expected(outcomes=CUT_AT_Q2, reason="disconnected", detail=EXITED),
    "status-flood": Expected(outcomes=Q2_FAILED),
    "cause-raise": Expected(outcomes=Q2_FAILED, trace=BROKEN),
    "cause-kill": Expected(outcomes=CUT_AT_Q2, reason="disconnected", detail=KILLED),
    "end-raise": Expected(outcomes=ALL_ANSWERED, trace=BROKEN),
    "end-exit": Expected(outcomes=ALL_ANSWERED, reason="disconnected", detail=EXITED),
    "end-flood": Expected(outcomes=ALL_ANSWERED, reason="protocol_error", detail=FLOOD),
    "save-raise": Expected(outcomes=ALL_ANSWERED, trace=BROKEN),
    "save-leave": Expected(outcomes=ALL_ANSWERED, trace=LEFT),
    "save-exit": Expected(outcomes=ALL_ANSWERED, reason="disconnected", detail=EXITED),
    "save-kill": Expected(outcomes=ALL_ANSWERED, reason="disconnected", detail=KILLED),
}
"""What needs no timeout to be seen."""

AFTER_A_WHILE: dict[str, Expected] = {
    "begin-hang": Expected(outcomes=NONE_REACHED, reason="ready_timeout"),
    "begin-hold": Expected(outcomes=NONE_REACHED, reason="ready_timeout"),
    "begin-stop": Expected(outcomes=NONE_REACHED, reason="ready_timeout"),
    "observe-hang": Expected(outcomes=CUT_AT_FRAME, reason="hung"),
    "observe-hold": Expected(outcomes=CUT_AT_FRAME, reason="hung"),
    "observe-stop": Expected(outcomes=CUT_AT_FRAME, reason="hung"),
    "task-slow": Expected(outcomes=("answered", "timed_out", "timed_out", "answered")),
    "task-hang": Expected(outcomes=HUNG_AT_Q2, reason="hung"),
    "task-hold": Expected(outcomes=HUNG_AT_Q2, reason="hung"),
    "task-stop": Expected(outcomes=HUNG_AT_Q2, reason="hung"),
    "status-hang": Expected(outcomes=HUNG_AT_Q2, reason="hung"),
    "cause-hold": Expected(outcomes=HUNG_AT_Q2, reason="hung"),
    "end-hang": Expected(outcomes=ALL_ANSWERED, reason="hung"),
    "save-hang": Expected(outcomes=ALL_ANSWERED, reason="hung"),
    "save-hold": Expected(outcomes=ALL_ANSWERED, reason="hung"),
    "save-stop": Expected(outcomes=ALL_ANSWERED, reason="hung"),
}
"""What only a timeout shows: the worker hangs, it holds the interpreter's lock, or the process is stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixRun:
    """A finished run; ``faults`` by episode, ``ok`` for those that are well behaved."""

    done: Finished
    folder: Path
    sessions: dict[str, JournalFile]
    faults: dict[str, str]
    left: dict[int, str]

    def session(self, fault: str) -> JournalFile:
        """The session with a fault."""
        return self.sessions[next(episode for episode, name in self.faults.items() if name == fault)]


FAULTY = ("--agent", "agents_for_tests:Faulty", "--agent-arg")
STARTING = ("raise", "leave", "exit", "kill", "hang", "hold", "stop", "none")
"""What the processes of one run do while their agent is made, in the order of their start."""


def matrix_command(dataset: Path, faults: list[str], *options: object) -> list[object]:
    """Play one session for each of ``faults``, in lockstep, two frames a second."""
    return [
        *("run", dataset, "--out", "run", "--json", "--limit", len(faults), *FAULTY),
        *(f"faults={','.join(faults)}", "--clock", "lockstep", "--fps", 2, *options),
    ]


def finish_matrix(simulator: Simulator, process: subprocess.Popen[str], faults: list[str]) -> MatrixRun:
    """Wait for the end of such a run, and look at what it left."""
    done = simulator.finish(process)
    left = simulator.processes()
    simulator.kill_processes()
    run = simulator.folder / "run"
    assert verify_run(run).offence is None
    named = {f"e{number:02}": fault for number, fault in enumerate(faults)}
    return MatrixRun(done=done, folder=run, sessions=read_sessions(run), faults=named, left=left)


@pytest.fixture(scope="module")
def at_once(tmp_path_factory: pytest.TempPathFactory, one_clip: Path) -> MatrixRun:
    """The faults that show at once, with well-behaved sessions between them."""
    faults = ["ok", *AT_ONCE, "ok"]
    faults[9:9] = faults[18:18] = ["ok", "ok"]
    simulator = Simulator(tmp_path_factory.mktemp("at-once"))
    process = simulator.start(*matrix_command(one_clip, faults, "--sessions", 2))
    return finish_matrix(simulator, process, faults)


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory, one_clip: Path) -> dict[str, MatrixRun]:
    """Three runs that mostly wait for timeouts, and do so together."""
    faults = {name: ["ok"] for name in ("after_a_while", "credit", "starting")}
    faults["after_a_while"] = [*AFTER_A_WHILE]
    for place in (3, 8, 13):
        faults["after_a_while"][place:place] = ["ok", "ok"]
    faults["credit"] = ["observe-stop", "task-stop", "ok"]
    faults["starting"] = list(STARTING)
    simulators = {name: Simulator(tmp_path_factory.mktemp(name)) for name in faults}
    count = simulators["starting"].folder / "count"
    commands: dict[str, list[object]] = {
        "after_a_while": matrix_command(
            *(one_clip, faults["after_a_while"], "--sessions", 6),
            *("--ready-timeout", 7, "--answer-timeout", 1.5, "--hang-timeout", 0.5, "--drain-timeout", 1.5),
        ),
        "credit": [
            *("run", one_clip, "--out", "run", "--json", "--limit", 3, "--fps", 10, "--sessions", 3),
            *(*FAULTY, f"faults={','.join(faults['credit'])}", "--credit", 2, "--credit-timeout", 1.5),
        ],
        "starting": [
            *("run", one_clip, "--out", "run", "--json", "--limit", len(STARTING), "--sessions", 3),
            *("--agent", "agents_for_tests:Starting", "--agent-arg", f"actions={','.join(STARTING)}"),
            *("--agent-arg", f"count={count}", "--clock", "lockstep", "--ready-timeout", 7),
        ],
    }
    processes = {name: simulators[name].start(*command) for name, command in commands.items()}
    return {name: finish_matrix(simulators[name], processes[name], faults[name]) for name in faults}


@pytest.fixture(scope="module")
def after_a_while(waiting: dict[str, MatrixRun]) -> MatrixRun:
    """The faults that only a timeout shows, with well-behaved sessions between them."""
    return waiting["after_a_while"]


@pytest.mark.parametrize("fault", AT_ONCE)
def test_fault_that_shows_at_once(at_once: MatrixRun, fault: str) -> None:
    check_session(at_once.session(fault), AT_ONCE[fault])


@pytest.mark.parametrize("fault", AFTER_A_WHILE)
def test_fault_that_shows_after_a_while(after_a_while: MatrixRun, fault: str) -> None:
    check_session(after_a_while.session(fault), AFTER_A_WHILE[fault])


def check_session(journal: JournalFile, expected: Expected) -> None:
    assert journal.fault is None
    outcomes = {event.query: event.outcome for _, event in events_of(journal, ChainClosed)}
    assert tuple(outcomes[f"q{number}"] for number in range(1, 5)) == expected.outcomes
    assert len(list(events_of(journal, ChainClosed))) == 4
    assert journal.ended is not None
    assert (journal.ended.reason, expected.detail in journal.ended.detail) == (expected.reason, True)
    traces = [
        event.error
        for kind in (AgentFailed, FrameSettled, TurnEnded)
        for _, event in events_of(journal, kind)
        if event.error
    ]
    if expected.trace:
        assert len(traces) == 1
        assert traces[0].startswith("Traceback") and traces[0].rstrip().endswith(expected.trace)
        assert "agents_for_tests.py" in traces[0] or "/streamsim_agents/" in traces[0]
    else:
        assert traces == []


@pytest.mark.parametrize("group", ["at_once", "after_a_while"])
def test_run_with_faults(group: str, request: pytest.FixtureRequest) -> None:
    run: MatrixRun = request.getfixturevalue(group)
    table = AT_ONCE | AFTER_A_WHILE
    assert run.left == {}
    assert run.done.code == 1, run.done.err
    report = run.done.report
    expected = Counter(
        outcome
        for fault in run.faults.values()
        for outcome in (table[fault].outcomes if fault != "ok" else ALL_ANSWERED)
    )
    assert {name: count for name, count in report["outcomes"].items() if count} == dict(expected)
    assert report["sessions"] == len(run.faults)
    assert report["queries"] == 4 * len(run.faults)
    complete = sum(fault == "ok" or table[fault].reason == "completed" for fault in run.faults.values())
    assert report["complete"] == complete
    assert report["early_releases"] == 0
    assert report["scores"]["partial"]["answered"] == expected["answered"]
    # every session that went wrong is named with its reason, none that did not
    for episode, fault in run.faults.items():
        named = [warning for warning in report["warnings"] if warning.startswith(f"{episode}: ")]
        if fault == "ok":
            assert named == []
        elif table[fault].reason != "completed":
            assert any(f"the session ended as {table[fault].reason}" in warning for warning in named)


@pytest.mark.parametrize("group", ["at_once", "after_a_while"])
def test_exit_code_of_each_fault_alone(group: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """As if each session had been a run of its own: 0 when all was played and nothing was lost, else 1."""
    run: MatrixRun = request.getfixturevalue(group)
    run_file = read_run_file(run.folder)
    codes = {}
    for episode, fault in run.faults.items():
        alone = msgspec.structs.replace(
            run_file,
            queries={episode: 4},
            config=msgspec.structs.replace(run_file.config, episodes=(episode,)),
        )
        write_run_file(tmp_path / episode, alone)
        journal = run.sessions[episode].path
        shutil.copyfile(journal, tmp_path / episode / "sessions" / journal.name)
        codes[fault] = run_exit_code(summarise_run(tmp_path / episode))
    table = AT_ONCE | AFTER_A_WHILE
    for fault, code in codes.items():
        expected = table.get(fault, Expected(outcomes=ALL_ANSWERED))
        good = expected.reason == "completed" and set(expected.outcomes) <= {"answered", "timed_out"}
        assert (fault, code) == (fault, 0 if good else 1)


@pytest.mark.parametrize("group", ["at_once", "after_a_while"])
def test_neighbours_of_faults_are_undisturbed(group: str, request: pytest.FixtureRequest) -> None:
    run: MatrixRun = request.getfixturevalue(group)
    good = [run.sessions[episode] for episode, fault in run.faults.items() if fault == "ok"]
    assert len(good) == 6
    for journal in good:
        check_session(journal, Expected(outcomes=ALL_ANSWERED))
        assert list(events_of(journal, WarningRaised)) == []
        assert all(event.outcome == "processed" for _, event in events_of(journal, FrameSettled))
        assert journal.ended is not None and journal.ended.saved is not None


def test_text_of_a_flood_is_fenced_and_bounded(at_once: MatrixRun) -> None:
    for fault in ("task-flood", "task-huge", "status-flood"):
        journal = at_once.session(fault)
        fences = [event for _, event in events_of(journal, TurnClosed)]
        assert [fence.reason for fence in fences] == ["too_long"]
        (ended,) = (event for _, event in events_of(journal, TurnEnded) if event.turn == fences[0].turn)
        assert ended.reason == "closed"
        late = sum(len(event.text) for _, event in events_of(journal, LateTextReceived))
        # what was on its way when the turn was closed: at most the runtime's outbox and the sockets
        assert late <= 256 * 8_000 + (1 << 18)
        assert journal.path.stat().st_size < 4_000_000


def test_answers_that_said_too_much_are_named(at_once: MatrixRun) -> None:
    too_long = ("task-flood", "task-huge", "status-flood")
    named = [f"{episode} q2" for episode, fault in at_once.faults.items() if fault in too_long]
    assert len(named) == 3
    (warning,) = (text for text in at_once.done.report["warnings"] if "too long" in text)
    head, _, names = warning.partition(": ")
    assert head == "3 answers were too long (over 262144 characters) and count as failed"
    assert sorted(names.split(", ")) == sorted(named)


def test_half_saved_memory_never_counts(at_once: MatrixRun, after_a_while: MatrixRun) -> None:
    for run in (at_once, after_a_while):
        for fault in run.faults.values():
            ended = run.session(fault).ended
            assert isinstance(ended, SessionEnded)
            if fault.startswith("save-") or ended.reason != "completed":
                assert (ended.saved, ended.saved_bytes) == (None, 0)
        whole = [folder for folder in (run.folder / "memory").iterdir() if not folder.name.startswith(".")]
        # only Faulty's own `save` that got through writes a folder, and it writes `half.bin`
        saved = sum(
            journal.ended is not None and journal.ended.saved is not None for journal in run.sessions.values()
        )
        assert len(whole) == saved > 0


def test_client_that_stops_reading_runs_out_of_credit(waiting: dict[str, MatrixRun]) -> None:
    run = waiting["credit"]
    assert (run.done.code, run.left) == (1, {})
    detail = "no reception acknowledged for 1.5 s"
    for fault, outcomes in (("observe-stop", CUT_AT_FRAME), ("task-stop", CUT_AT_Q2)):
        expected = Expected(outcomes=outcomes, reason="disconnected", detail=detail)
        check_session(run.session(fault), expected)
    check_session(run.session("ok"), Expected(outcomes=ALL_ANSWERED))


def test_agents_that_fail_while_they_are_made(waiting: dict[str, MatrixRun]) -> None:
    run = waiting["starting"]
    assert (run.done.code, run.left) == (1, {})
    journals = list(run.sessions.values())
    ended = [journal.ended for journal in journals if journal.ended]
    assert Counter(end.reason for end in ended) == {"agent_failed": 4, "ready_timeout": 3, "completed": 1}
    assert Counter(end.detail.partition(", see")[0] for end in ended if end.reason == "agent_failed") == {
        "the agent raised in __init__": 2,
        "the agent process exited with code 9 before it connected": 1,
        "the agent process was ended by SIGKILL before it connected": 1,
    }
    assert Counter(_errors(journal).rpartition("\n")[2] for journal in journals) == {
        BROKEN: 1,
        LEFT: 1,
        "": 6,
    }
    for journal, end in zip(journals, ended, strict=True):
        outcomes = ALL_ANSWERED if end.reason == "completed" else NONE_REACHED
        trace = next((name for name in (BROKEN, LEFT) if name in _errors(journal)), "")
        check_session(journal, Expected(outcomes=outcomes, reason=end.reason, trace=trace))


def _errors(journal: JournalFile) -> str:
    return "".join(event.error for _, event in events_of(journal, AgentFailed)).rstrip()


def test_agents_that_end_in_other_ways(simulator: Simulator, one_clip: Path) -> None:
    common = ("run", one_clip, "--json", "--limit", 2, "--clock", "lockstep", "--agent")
    done = simulator.call_together(
        (*common, "agent_that_leaves:Leaver", "--out", "imported"),
        (*common, "agents_for_tests:WithChild", "--out", "child"),
    )
    assert [finished.code for finished in done] == [1, 1]
    assert simulator.processes() == {}, "what an agent started goes with it"
    for journal in read_sessions(simulator.folder / "child").values():
        check_session(journal, Expected(outcomes=CUT_AT_Q2, reason="disconnected", detail=EXITED))
    for journal in read_sessions(simulator.folder / "imported").values():
        check_session(
            journal,
            Expected(
                outcomes=NONE_REACHED,
                reason="agent_failed",
                detail="exited with code 7 before it connected, see logs/lane-1.log",
            ),
        )

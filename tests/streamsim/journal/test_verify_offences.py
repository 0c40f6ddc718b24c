"""Each way of being wrong that a journal can have is named, with its line, though the chain is whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamsim.journal.folder import read_run_file
from streamsim.journal.read import read_journal
from streamsim.journal.verify import Offence, run_digest, verify_run
from streamsim.simulation import SimulatedAgent, say
from streamsim.testing import seconds, tiny_query, tiny_simulation
from streamsim_protocol import messages as wire
from tests.streamsim.journal.simulated_run import Edit, Lines, rewrite_journal, write_run

MS = 1_000_000


def play(folder: Path, clock: wire.ClockMode = "realtime", **options: Any) -> Path:
    """Five frames; q1 at 1 s is read as uncertain, q2 at 2.5 s as known. Returns the journal's path."""
    answers = {"task": "A", "status": "C", "cause": "A, B"}

    def answer(probe: wire.ProbeMessage) -> Any:
        known = probe.query == "q2" and probe.probe == "status"
        return say("B" if known else answers[probe.probe], 400 * MS)

    agent = SimulatedAgent(observe=lambda k: 100 * MS, answer=answer)
    queries = [tiny_query("first", 1.0), tiny_query("second", 2.5)]
    simulation = tiny_simulation(queries, agent, samples=5, clock=clock, to_agent_ns=MS, **options).run()
    return write_run(folder / "run", simulation, len(queries))


def find(lines: Lines, event: str, **fields: Any) -> int:
    """The index of the first line of this event with these fields."""
    for index, line in enumerate(lines):
        if line["event"] == event and all(line[name] == value for name, value in fields.items()):
            return index
    raise AssertionError(f"no {event} with {fields}")


def change(event: str, fields: dict[str, Any], **changes: Any) -> Edit:
    """Change fields of one line; a function gets the old value."""

    def edit(lines: Lines) -> None:
        line = lines[find(lines, event, **fields)]
        for name, value in changes.items():
            line[name] = value(line[name]) if callable(value) else value

    return edit


def earlier(event: str, by_ns: int, **fields: Any) -> Edit:
    """Let a release have happened so much earlier, on both clocks."""
    shift: Callable[[int], int] = lambda time_ns: time_ns - by_ns  # noqa: E731
    return change(event, fields, at_media_ns=shift, at_wall_ns=shift)


def drop(event: str, **fields: Any) -> Edit:
    def edit(lines: Lines) -> None:
        del lines[find(lines, event, **fields)]

    return edit


def cut_before(event: str, first: str, **fields: Any) -> Edit:
    """Take out the line of ``first`` with all that follows, up to the next line of ``event``."""

    def edit(lines: Lines) -> None:
        start = find(lines, first, **fields)
        del lines[start : start + find(lines[start:], event)]

    return edit


def exchange(first: tuple[str, dict[str, Any]], second: tuple[str, dict[str, Any]]) -> Edit:
    """Let two things have happened in the other order: their instants and numbers stay where they are."""

    def edit(lines: Lines) -> None:
        one, two = find(lines, first[0], **first[1]), find(lines, second[0], **second[1])
        kept = ("at_media_ns", "at_wall_ns", "seq")
        places = [{name: lines[index][name] for name in kept if name in lines[index]} for index in (one, two)]
        lines[one], lines[two] = {**lines[two], **places[0]}, {**lines[one], **places[1]}

    return edit


def insert_before(event: str, fields: dict[str, Any], line: dict[str, Any]) -> Edit:
    """Let something have happened at the instant of another thing."""

    def edit(lines: Lines) -> None:
        index = find(lines, event, **fields)
        at = {name: lines[index][name] for name in ("at_media_ns", "at_wall_ns")}
        filled = {
            name: at["at_wall_ns" if "wall" in name else "at_media_ns"] if value == "at" else value
            for name, value in line.items()
        }
        lines.insert(index, {**at, "digest": "", **filled})

    return edit


TASK_Q2 = {"query": "q2", "probe": "task"}
PLANTED: dict[str, tuple[wire.ClockMode, Edit, str]] = {
    # timing
    "frame early by 1 ms": ("realtime", earlier("FrameSent", MS, k=3), "frame 3 released at media time 2999"),
    "frame early by 1 ns": ("realtime", earlier("FrameSent", 1, k=4), "1 ns early"),
    "frame early in lockstep": (
        "lockstep",
        change("FrameSent", {"k": 3}, at_media_ns=2 * seconds(1)),
        "media time",
    ),
    "query early by 1 ms": (
        "realtime",
        earlier("ProbeSent", MS, **TASK_Q2),
        "task of q2 released at media time 2499",
    ),
    "media time claimed later": (
        "realtime",
        change("FrameSent", {"k": 3}, at_media_ns=3_000_000_001),
        "media time",
    ),
    "due time claimed earlier": (
        "realtime",
        change("FrameSent", {"k": 3}, due_wall_ns=lambda due: due - 1),
        "due wall time",
    ),
    "frame time off the grid": (
        "realtime",
        change("FrameSent", {"k": 3}, media_ns=2_999_000_000),
        "frame 3 with",
    ),
    "status due before its task ended": (
        "realtime",
        change("ProbeSent", {"query": "q1", "probe": "status"}, due_wall_ns=seconds(1)),
        "status of q1 due at",
    ),
    "jump while busy": (
        "skip",
        insert_before(
            "TurnStarted",
            {"turn": 1},
            {"event": "ClockTaken", "media_ns": "at", "wall_ns": "at", "rate": 1.0, "reason": "jump"},
        ),
        "a jump while the session was busy",
    ),
    "jump in realtime": (
        "realtime",
        insert_before(
            "FrameSent",
            {"k": 3},
            {"event": "ClockTaken", "media_ns": "at", "wall_ns": "at", "rate": 1.0, "reason": "jump"},
        ),
        "the clock taken anew for 'jump'",
    ),
    "a faster rate": ("skip", change("ClockTaken", {"reason": "start"}, rate=2.0), "rate 2 after 'start'"),
    "a timeout before its time": (
        "realtime",
        insert_before("TurnEnded", {"turn": 1}, {"event": "TurnClosed", "turn": 1, "reason": "timed_out"}),
        "turn 1 timed out at",
    ),
    # visibility
    "frame after its query": (
        "realtime",
        exchange(("FrameSent", {"k": 1}), ("ProbeSent", {"query": "q1", "probe": "task"})),
        "frame 1 of media time 1000000000 ns sent after query q1",
    ),
    "a newer frame before a query": (
        "lockstep",
        exchange(("ProbeSent", TASK_Q2), ("FrameSent", {"k": 3})),
        "frame 3",
    ),
    "seen newer than the query": (
        "realtime",
        change("TurnStarted", {"turn": 4}, seen_media_ns=seconds(3)),
        "turn 4 declares to have seen",
    ),
    "seen older than the query": (
        "realtime",
        change("TurnStarted", {"turn": 4}, seen_media_ns=seconds(1)),
        "turn 4 declares to have seen media time 1000000000 ns",
    ),
    "a newer frame observed while a query was open": (
        "realtime",
        exchange(("ChainClosed", {"query": "q1"}), ("FrameSettled", {"k": 2})),
        "frame 2 (media time 2000000000 ns) observed",
    ),
    # the chain of probes, texts and outcomes
    "edited answer": ("realtime", change("TextReceived", {"turn": 1}, text="B"), "task of q1 read as 'A'"),
    "edited reading": ("realtime", change("ProbeRead", {"turn": 5}, letters="C"), "status of q2 read as 'C'"),
    "cause after a known status": (
        "realtime",
        insert_before(
            "ChainClosed",
            {"query": "q2"},
            {
                "event": "ProbeSent",
                "query": "q2",
                "probe": "cause",
                "turn": 6,
                "media_ns": seconds(2.5),
                "due_media_ns": "at",
                "due_wall_ns": "at",
                "text": "why?",
                "seq": 1 << 40,
                "held_by": None,
            },
        ),
        "cause of q2",
    ),
    "status before task": (
        "realtime",
        change("ProbeSent", {"query": "q1", "probe": "task"}, probe="status"),
        "status of q1",
    ),
    "answered without its last probe": (
        "realtime",
        exchange(("ChainClosed", {"query": "q1"}), ("ProbeRead", {"query": "q1", "probe": "cause"})),
        "q1 closed as 'answered'",
    ),
    "failed without a reason": (
        "realtime",
        change("ChainClosed", {"query": "q2"}, outcome="failed"),
        "with q2 as 'failed'",
    ),
    "two outcomes": (
        "realtime",
        insert_before("EndSent", {}, {"event": "ChainClosed", "query": "q2", "outcome": "answered"}),
        "q2 closed",
    ),
    "text out of turn": (
        "realtime",
        insert_before("TurnStarted", {"turn": 1}, {"event": "TextReceived", "turn": 1, "text": "A"}),
        "text of turn 1",
    ),
    # what must be there
    "no first line": ("realtime", drop("SessionStarted"), "Acknowledged"),
    "no frame": ("realtime", drop("FrameSent", k=2), "frame 2 settled"),
    "a query passed over": ("realtime", cut_before("FrameSent", "ProbeSent", **TASK_Q2), "q2 not asked"),
    "no settlement": ("realtime", drop("FrameSettled", k=4), "0 unsettled frames"),
    "no query": ("realtime", drop("ProbeSent", **TASK_Q2), "turn 4 started"),
    "no end of media": ("realtime", drop("MediaEnded"), "the session ended by the server"),
    "no outcome": ("realtime", drop("ChainClosed", query="q2"), "while q2 of 2500000000 ns was open"),
    "no jump": (
        "lockstep",
        drop("ClockTaken", reason="jump", media_ns=seconds(3)),
        "media time 3000000000 ns",
    ),
    "lines after the end": (
        "realtime",
        lambda lines: lines.append(
            {**lines[1], **{key: lines[-1][key] for key in ("at_media_ns", "at_wall_ns")}}
        ),
        "after SessionEnded",
    ),
    "other rules than the run's": (
        "realtime",
        change("SessionStarted", {}, answer_timeout_ns=seconds(60)),
        "answer timeout 60000000000",
    ),
    "another run's journal": ("realtime", change("SessionStarted", {}, run="another"), "run 'another'"),
    "another episode's journal": ("realtime", change("SessionStarted", {}, episode="other"), "file name"),
    "fewer queries": (
        "realtime",
        change("SessionStarted", {}, queries=lambda queries: queries[:1]),
        "1 query",
    ),
}


@pytest.mark.parametrize(("clock", "edit", "found"), PLANTED.values(), ids=PLANTED.keys())
def test_planted_offence_is_named(tmp_path: Path, clock: wire.ClockMode, edit: Edit, found: str) -> None:
    journal = play(tmp_path, clock)
    assert verify_run(tmp_path / "run").offence is None
    rewrite_journal(journal, edit)
    assert read_journal(journal).fault is None, "the chain was not computed anew"
    offence = verify_run(tmp_path / "run").offence
    assert offence is not None
    assert offence.file == "episode.1.1.jsonl"
    assert found in offence.found


def test_offence_says_where_and_what_instead(tmp_path: Path) -> None:
    journal = play(tmp_path)
    rewrite_journal(journal, earlier("FrameSent", MS, k=3))
    line = find([json.loads(line) for line in journal.read_bytes().splitlines()], "FrameSent", k=3) + 1
    assert verify_run(tmp_path / "run").offence == Offence(
        file="episode.1.1.jsonl",
        line=line,
        found="frame 3 released at media time 2999000000 ns, 1000000 ns early",
        expected="3000000000 ns or later",
    )


def swap_lines(lines: list[bytes]) -> None:
    lines[9], lines[10] = lines[10], lines[9]


def drop_line(lines: list[bytes]) -> None:
    del lines[9]


def edit_answer(lines: list[bytes]) -> None:
    index = next(index for index, line in enumerate(lines) if b'"text":"A"' in line)
    lines[index] = lines[index].replace(b'"text":"A"', b'"text":"B"')


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        (swap_lines, "expected n = 10, got 11"),
        (drop_line, "expected n = 10, got 11"),
        (edit_answer, "the digest does not continue the chain"),
    ],
)
def test_a_broken_chain_is_named(tmp_path: Path, edit: Callable[[list[bytes]], None], found: str) -> None:
    journal = play(tmp_path)
    lines = journal.read_bytes().splitlines(keepends=True)
    edit(lines)
    journal.write_bytes(b"".join(lines))
    proof = verify_run(tmp_path / "run")
    assert proof.offence is not None
    assert proof.offence.found == found
    assert proof.offence.line == proof.sessions[0].lines + 1


def test_every_changed_byte_breaks_the_chain(tmp_path: Path) -> None:
    journal = play(tmp_path)
    data = journal.read_bytes()
    for place in range(0, len(data), 101):
        journal.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        proof = verify_run(tmp_path / "run")
        assert proof.offence is not None or proof.prefix_only, f"byte {place}"


def test_without_its_end_only_a_prefix_is_verified(tmp_path: Path) -> None:
    journal = play(tmp_path)
    data = journal.read_bytes()
    last_but_one = data.rindex(b"\n", 0, -1) + 1
    journal.write_bytes(data[:last_but_one])
    proof = verify_run(tmp_path / "run")
    assert proof.offence is None and proof.prefix_only and not proof.sessions[0].sealed
    journal.write_bytes(data[: last_but_one + 20])  # torn in the middle of its last line
    proof = verify_run(tmp_path / "run")
    assert proof.offence is None and proof.prefix_only


def test_a_missing_journal_leaves_a_prefix(tmp_path: Path) -> None:
    play(tmp_path).unlink()
    proof = verify_run(tmp_path / "run")
    assert proof.offence is None and proof.prefix_only
    assert proof.missing == ("episode (repeat 1)",)


def test_digest_kept_elsewhere_shows_a_forged_whole(tmp_path: Path) -> None:
    journal = play(tmp_path)
    digest = verify_run(tmp_path / "run").digest
    assert digest == run_digest(read_run_file(tmp_path / "run"), [read_journal(journal)])
    assert verify_run(tmp_path / "run", digest=digest).offence is None

    def forge(lines: Lines) -> None:
        """A whole other answer, its reading with it: nothing contradicts it."""
        for index in (find(lines, "TextReceived", turn=1), find(lines, "ProbeRead", turn=1)):
            lines[index] = json.loads(json.dumps(lines[index]).replace('"A"', '"B"'))

    rewrite_journal(journal, forge)
    assert verify_run(tmp_path / "run").offence is None
    forged = verify_run(tmp_path / "run", digest=digest)
    assert forged.offence is not None
    assert forged.offence.expected == digest


def test_an_older_attempt_may_lack_its_end(tmp_path: Path) -> None:
    journal = play(tmp_path)
    second = journal.with_name("episode.1.2.jsonl")
    second.write_bytes(journal.read_bytes())
    rewrite_journal(second, change("SessionStarted", {}, attempt=2))
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:8]))
    proof = verify_run(tmp_path / "run")
    assert proof.offence is None and not proof.prefix_only
    assert [session.newest for session in proof.sessions] == [False, True]


def test_digest_kept_elsewhere_shows_a_change_of_what_no_journal_states(tmp_path: Path) -> None:
    play(tmp_path)
    digest = verify_run(tmp_path / "run").digest
    run_json = tmp_path / "run" / "run.json"
    before = run_json.read_text()
    assert '"reader": "strict"' in before
    run_json.write_text(before.replace('"reader": "strict"', '"reader": "storm-evaluator"'))
    offence = verify_run(tmp_path / "run", digest=digest).offence
    assert offence is not None and offence.expected == digest

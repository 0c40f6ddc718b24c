"""What a run shows while it runs, from the events of its sessions through a real pipe to the lines."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterable

import msgspec
import pytest

from streamsim.chain import MAX_TURN_CHARS
from streamsim.events import AgentFailed, AnyEvent, FrameSettled, Instant, TurnEnded
from streamsim.launch.display import RunDisplay
from streamsim.report.console import PatientConsole
from streamsim.server.failure import MAX_KINDS, describe_failure
from streamsim.server.notices import Notice, Notices
from streamsim.server.plan import Job
from streamsim.simulation import SimulatedAgent, Utterance, say
from streamsim.testing import tiny_query, tiny_simulation

MS = 1_000_000
JOB = Job(episode=0, repeat=1, attempt=1)
NO_SERVER = """\
Traceback (most recent call last):
  File "/agents/chat.py", line 12, in answer
    reply = connect()
ConnectionError: no server at 127.0.0.1:9
"""
TOLD = "episode: the agent raised in answer: ConnectionError: no server at 127.0.0.1:9 (chat.py:12)"


def play(*said: Utterance) -> list[tuple[Instant, AnyEvent]]:
    """The events of a session that asks a query a second."""
    queries = [tiny_query(f"id-{number}", number) for number in range(len(said))]
    agent = SimulatedAgent(
        observe=lambda k: 10 * MS, answer=lambda probe: said[int(probe.query.removeprefix("q")) - 1]
    )
    return tiny_simulation(queries, agent, samples=len(said) + 1, chain="task").run().events


def failed(error: str) -> AnyEvent:
    return TurnEnded(turn=1, reason="failed", service_ns=0, first_text_ns=None, marks={}, error=error)


def pass_on(events: Iterable[tuple[Instant, AnyEvent]]) -> list[Notice]:
    """What arrives of events at the other end of a pipe."""
    reading, writing = os.pipe()
    with open(reading, "rb") as received:  # noqa: PTH123
        notices = Notices(writing)
        for at, event in events:
            notices.observe(1, JOB, at, event)
        os.close(writing)
        return [msgspec.json.decode(line, type=Notice) for line in received]


def show(notices: Iterable[Notice], *, on_terminal: bool = False, quiet: bool = False) -> str:
    file = io.StringIO()
    console = PatientConsole(file=file, width=120, force_terminal=on_terminal, color_system=None)
    with RunDisplay(console, sessions=3, quiet=quiet) as display:
        for notice in notices:
            display.show(notice)
    return file.getvalue()


def test_the_first_failure_of_a_kind_is_told_at_once_and_the_others_are_counted() -> None:
    broken = Utterance(service_ns=MS, error=NO_SERVER)
    notices = pass_on(play(broken, say("A", MS), broken, broken))
    kinds = [notice.kind for notice in notices if notice.kind in ("failure", "outcome", "ended")]
    assert kinds == ["failure", "outcome", "outcome", "outcome", "outcome", "ended"]
    assert show(notices).splitlines() == [
        f"{TOLD}; the run goes on",
        "[1/3] episode: completed, 1 of 4 answered, 3 failed",
    ]
    assert show(notices, quiet=True) == ""


def test_on_a_terminal_it_stands_above_the_table() -> None:
    notices = pass_on(play(Utterance(service_ns=MS, error=NO_SERVER), say("A", MS)))
    shown = show(notices, on_terminal=True)
    assert shown.count(TOLD) == 1 and "[1/3] episode: completed, 1 of 2 answered, 1 failed" in shown
    table = show([notice for notice in notices if notice.kind != "ended"], on_terminal=True)
    assert "1/2, 1 failed" in table


def test_the_table_counts_answers_and_not_what_became_of_the_others() -> None:
    simulation = tiny_simulation(
        [tiny_query("id-0", 0), tiny_query("id-1", 1)],
        SimulatedAgent(
            observe=lambda k: 10 * MS,
            answer=lambda probe: say("A", MS) if probe.query == "q1" else Utterance(service_ns=None),
        ),
        samples=4,
        chain="task",
    ).run(until_ns=2_000 * MS)
    simulation.session.fail("interrupted", Instant(2_000 * MS, 2_000 * MS), "")
    shown = show(pass_on([*simulation.events, *simulation.session.take_events()]), on_terminal=True)
    assert "1/2, 1 cancelled" in shown and "2/2" not in shown
    assert "[1/3] episode: interrupted, 1 of 2 answered, 1 cancelled" in shown


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (failed(NO_SERVER), TOLD.removeprefix("episode: ") + "; the run goes on"),
        (
            FrameSettled(k=0, outcome="failed", waited_ns=0, service_ns=0, error="OSError: gone\n"),
            "the agent raised in observe: OSError: gone; the run goes on",
        ),
        (
            FrameSettled(k=0, outcome="failed", waited_ns=0, service_ns=0),
            "the agent failed on a frame without a reason; the run goes on",
        ),
        (AgentFailed(phase="load", error="OSError: gone"), "the agent raised in __init__: OSError: gone"),
        (AgentFailed(phase="begin", error="OSError: gone"), "the agent raised in begin: OSError: gone"),
        (
            AgentFailed(phase="save", error="OSError: full"),
            "the agent raised in save: OSError: full; the run goes on",
        ),
        (
            TurnEnded(turn=1, reason="failed", service_ns=0, first_text_ns=None, marks={}),
            "the agent gave up a turn without a reason; the run goes on",
        ),
        (TurnEnded(turn=1, reason="closed", service_ns=0, first_text_ns=None, marks={}), None),
        (FrameSettled(k=0, outcome="processed", waited_ns=0, service_ns=0), None),
    ],
)
def test_what_counts_as_a_failure(event: AnyEvent, text: str | None) -> None:
    assert describe_failure(event) == text


def test_a_turn_that_says_too_much() -> None:
    piece = "A" * (MAX_TURN_CHARS // 8)
    pieces = (*((place * MS, piece) for place in range(8)), (50 * MS, "!"))
    events = play(Utterance(service_ns=100 * MS, pieces=pieces))
    assert [text for _, event in events if (text := describe_failure(event))] == [
        "the agent said more in a turn than 262144 characters; the run goes on"
    ]


def test_messages_that_all_differ_are_not_quoted_for_ever() -> None:
    events = [(Instant(0, 0), failed(f"OSError: attempt {number}")) for number in range(3_000)]
    notices = pass_on(events)
    assert len(notices) == MAX_KINDS + 1
    assert [notice.detail for notice in notices[:2]] == [
        f"the agent raised in answer: OSError: attempt {number}; the run goes on" for number in (0, 1)
    ]
    assert notices[-1].detail == (
        f"more than {MAX_KINDS} kinds of failures: the others are told when the run has ended"
    )


def test_what_a_full_pipe_did_not_take_is_told_the_next_time() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb", buffering=0) as received:  # noqa: PTH123
        notices = Notices(writing)
        filled = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                filled += os.write(writing, b" " * 4096)
        notices.observe(1, JOB, Instant(0, 0), failed(NO_SERVER))
        while filled:
            filled -= len(received.read(filled))
        for _ in range(2):
            notices.observe(1, JOB, Instant(0, 0), failed(NO_SERVER))
        os.close(writing)
        (line,) = received.readlines()
    assert msgspec.json.decode(line, type=Notice).detail == f"{TOLD.partition(': ')[2]}; the run goes on"

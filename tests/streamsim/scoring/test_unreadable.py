"""What is said about answers that could not be read: counts, an example, and who would read them."""

from __future__ import annotations

import pytest

from streamsim.events import AnyEvent, Instant
from streamsim.scoring.journals import SessionAnswers, UnreadText, read_session
from streamsim.scoring.unreadable import excerpt, unreadable_notices
from tests.streamsim.journal.conversation_for_tests import chain, started


def session(*chains: list[AnyEvent], options: int = 4) -> SessionAnswers:
    ids = [f"id{n}" for n in range(1, len(chains) + 1)]
    events = [started(ids, options=options), *(event for events in chains for event in events)]
    answers = read_session([(Instant(0, 0), event) for event in events])
    assert answers is not None
    return answers


def test_the_texts_without_a_letter_are_kept() -> None:
    answers = session(
        chain("q1", ("A or B", ""), ("C", "C"), ("all", "")),
        chain("q2", ("B", "B"), ("hm", "")),
        chain("q3", outcome="not_reached"),
        options=3,
    )
    assert answers.read == {"task": 2, "status": 2, "cause": 1}
    assert answers.unread == (
        UnreadText(id="id1", probe="task", text="A or B", option_count=3),
        UnreadText(id="id1", probe="cause", text="all", option_count=3),
        UnreadText(id="id2", probe="status", text="hm", option_count=3),
    )


def test_nothing_is_said_where_all_was_read() -> None:
    assert unreadable_notices([session(chain("q1", ("A", "A"), ("A", "A")))], "strict") == []


def test_counts_are_over_all_sessions() -> None:
    """The looser reader takes each letter of a cause that touches no other one: "a ghost" is A."""
    sessions = [
        session(chain("q1", ("", ""), ("C", "C"), ("a ghost", ""))),
        session(chain("q1", ("A", "A"), ("D", "D"), ("hm", "")), chain("q2", ("A", "A"), ("A", "A"))),
    ]
    assert unreadable_notices(sessions, "strict") == [
        "unreadable: 1 of 3 task, 2 of 2 cause answers count as none, since no letter could be read; "
        "id1, cause: 'a ghost'",
        "`streamsim score --reader storm-evaluator` reads more loosely: "
        "it finds a letter in 1 of them (1 cause)",
    ]


@pytest.mark.parametrize(("options", "found"), [(4, True), (2, False)])
def test_the_looser_reader_knows_how_many_options_there_were(options: int, found: bool) -> None:
    notices = unreadable_notices([session(chain("q1", ("Answer: C, or D", "")), options=options)], "strict")
    assert (len(notices) == 2) == found


@pytest.mark.parametrize("reader", ["strict", "storm-evaluator"])
def test_no_advice_where_it_would_not_help(reader: str) -> None:
    assert len(unreadable_notices([session(chain("q1", ("hm", "")))], reader)) == 1


def test_empty_texts_are_called_so() -> None:
    (notice,) = unreadable_notices([session(chain("q1", ("", "")), chain("q2", (" \n", "")))], "strict")
    assert notice.endswith(
        "2 of 2 task answers count as none, since no letter could be read; all of them empty"
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" it's\t漢字 \n", r"'it's\t漢字'"),
        ("\x1b[2J\u202e\\", r"'\x1b[2J\u202e\\'"),
        ("x" * 60, f"'{'x' * 60}'"),
        ("x" * 61, f"'{'x' * 60}'…"),
        ("x" * 58 + "\x00" * 9, f"'{'x' * 58}'…"),  # an escape is whole or not there
        ("\x00" * 10**6, "'" + r"\x00" * 15 + "'…"),
    ],
)
def test_an_excerpt_is_short_and_harmless(text: str, shown: str) -> None:
    assert excerpt(text) == shown

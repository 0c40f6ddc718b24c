"""A session's events to predictions: recorded letters, raw texts read anew, outcomes."""

from __future__ import annotations

from collections.abc import Sequence

from streamsim.events import Event, Instant, LateTextReceived, SessionEnded
from streamsim.reading import READERS
from streamsim.scoring.answers import Prediction
from streamsim.scoring.journals import SessionAnswers, read_session
from tests.streamsim.journal.conversation_for_tests import chain, started


def session(count: int, *events: Sequence[Event], reader: str | None = None) -> SessionAnswers:
    ids = [f"id{n}" for n in range(1, count + 1)]
    start = started(ids, episode="e1", subset="storm_cook", repeat=2, attempt=3)
    flat = [start, *(event for part in events for event in part)]
    answers = read_session(
        [(Instant(0, 0), event) for event in flat],
        reader=None if reader is None else READERS[reader],
        option_counts=dict.fromkeys(ids, 4),
    )
    assert answers is not None
    return answers


def test_letters_become_an_answer_a_status_and_causes() -> None:
    answers = session(
        2, chain("q1", ("C", "C"), ("D", "D"), ("A, F", "AF")), chain("q2", ("B", "B"), ("B", "B"))
    )
    assert answers.predictions == (
        Prediction(
            id="id1",
            answer_index=2,
            status="uncertain",
            causes=("missing_observation", "multiple_candidates"),
            task_valid=True,
            status_valid=True,
            cause_valid=True,
        ),
        Prediction(id="id2", answer_index=1, status="known", task_valid=True, status_valid=True),
    )
    assert (answers.episode, answers.subset, answers.repeat, answers.attempt) == ("e1", "storm_cook", 2, 3)
    assert answers.outcomes == ("answered", "answered")


def test_invalid_texts_are_no_answers() -> None:
    prediction = session(1, chain("q1", ("A or B", ""), ("hm", ""))).predictions[0]
    assert (prediction.answer_index, prediction.status, prediction.answered) == (None, None, True)
    assert (prediction.task_valid, prediction.status_valid, prediction.cause_valid) == (False, False, None)


def test_an_invalid_cause_leaves_answer_and_status() -> None:
    prediction = session(1, chain("q1", ("A", "A"), ("C", "C"), ("?", ""))).predictions[0]
    assert (prediction.answer_index, prediction.status, prediction.causes) == (0, "uncertain", ())
    assert prediction.cause_valid is False


def test_another_outcome_than_answered_is_unanswered() -> None:
    answers = session(
        4,
        chain("q1", ("A", "A"), outcome="timed_out"),
        chain("q2", outcome="not_reached"),
        chain("q3", ("A", "A"), ("A", "A"), outcome=None),
    )
    assert [prediction.answered for prediction in answers.predictions] == [False] * 4
    assert [prediction.task_valid for prediction in answers.predictions] == [True, None, True, None]
    assert answers.outcomes == ("timed_out", "not_reached", None, None)


def test_raw_text_read_anew() -> None:
    """The strict reader refused what STORM-Bench's finds a letter in; late text is never read."""
    said = chain("q1", ("I see a cup", ""), ("Answer: C", "C"), ("A D", "AD"))
    late = [LateTextReceived(turn=11, text=" B")]
    recorded = session(1, said, late).predictions[0]
    assert (recorded.answer_index, recorded.task_valid) == (None, False)
    anew = session(1, said, late, reader="storm-evaluator").predictions[0]
    assert (anew.answer_index, anew.task_valid) == (0, True)
    assert anew.status == "uncertain"
    assert anew.causes == ("missing_observation", "ambiguous_evidence")
    assert session(1, said, late, reader="strict").predictions[0].answer_index is None


def test_a_cause_that_was_never_asked_stays_empty() -> None:
    """Read strictly the status was invalid, so no cause was asked; anew it reads as uncertain."""
    said = chain("q1", ("A", "A"), ("Answer: cannot be told", ""))
    anew = session(1, said, reader="storm-evaluator").predictions[0]
    assert (anew.status, anew.causes, anew.cause_valid) == ("uncertain", (), None)


def test_completed_only_with_its_last_event() -> None:
    assert not session(1).completed
    assert session(1, [SessionEnded(reason="completed")]).completed
    assert not session(1, [SessionEnded(reason="disconnected")]).completed


def test_no_first_event_no_session() -> None:
    assert read_session([]) is None

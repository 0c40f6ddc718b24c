"""The agents without eyes: what they say, how long they take, and what they recognise."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from streamsim_agents.agent import Agent, Query, Turn
from streamsim_agents.scripted import Abstain, FixedDelay, Null, Random, find_abstention
from streamsim_agents.testing import check_agent, draw_frame, make_session
from streamsim_protocol.messages import Probe

OPTIONS = ("Here", "There", "Nowhere", "Everywhere")


def make_query(name: str = "q1", probe: Probe = "task", options: tuple[str, ...] = OPTIONS) -> Query:
    return Query(id=name, kind="choice", probe=probe, text="", stem="", options=options, media_ns=0)


def make_turn() -> Turn:
    return Turn(1, media_ns=0, seen_media_ns=None)


def say(agent: Agent, query: Query) -> str:
    return "".join(agent.answer(query, make_turn()))


@pytest.mark.parametrize(
    "make",
    [
        Null,
        Random,
        Abstain,
        FixedDelay,
        lambda: FixedDelay(frame=0.001, answer=0.001, stall=0.002, stall_every=3),
    ],
)
def test_scripted_agents_keep_the_contract(make: Callable[[], Agent]) -> None:
    check_agent(make)


def test_null_says_a_to_everything() -> None:
    for probe in ("task", "status", "cause"):
        assert say(Null(), make_query(probe=probe)) == "A"


def test_fixed_delay_sleeps_so_long_per_frame_and_stalls_on_every_nth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    agent = FixedDelay(frame=0.5, stall=5.0, stall_every=3)
    agent.begin(make_session())
    for k in range(7):
        agent.observe(draw_frame(k))
    assert slept == [0.5, 0.5, 5.5, 0.5, 0.5, 5.5, 0.5]
    agent.begin(make_session())
    agent.observe(draw_frame(0))
    assert slept[7:] == [0.5]


def test_fixed_delay_takes_its_time_to_answer_and_heeds_a_cancel() -> None:
    turn = make_turn()
    pieces = FixedDelay(answer=0.02).answer(make_query(), turn)
    assert list(pieces) == ["A"]
    assert turn.elapsed_ns() >= 20_000_000
    turn = make_turn()
    threading.Thread(target=turn.cancel, args=("timed_out",)).start()
    assert list(FixedDelay(answer=3600.0).answer(make_query(), turn)) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"frame": -1.0}, "frame: expected 0 or more, got -1"),
        ({"answer": -0.5}, "answer: expected 0 or more, got -0.5"),
        ({"stall": 1.0}, "stall needs stall_every"),
    ],
)
def test_fixed_delay_refuses_impossible_times(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FixedDelay(**arguments)  # type: ignore[arg-type]


def test_random_guesses_each_letter_about_as_often_and_only_legal_ones() -> None:
    agent = Random()
    agent.begin(make_session(seed=3))
    names = [f"q{number}" for number in range(4000)]
    task = Counter(say(agent, make_query(name)) for name in names)
    assert set(task) == set("ABCD")
    # a fair draw has mean 1000 and standard deviation sqrt(4000 * 1/4 * 3/4) = 27.4: six of them
    assert all(abs(count - 1000) < 165 for count in task.values())
    assert {say(agent, make_query(name, options=("a", "b"))) for name in names[:50]} == {"A", "B"}
    assert {say(agent, make_query(name, probe="status")) for name in names[:50]} == set("ABCD")
    causes = [say(agent, make_query(name, probe="cause")) for name in names[:200]]
    assert {letter for text in causes for letter in text.split(", ")} == set("ABCDEF")
    assert all(text.split(", ") == sorted(set(text.split(", "))) for text in causes)


def test_random_depends_on_the_seed_and_on_nothing_else() -> None:
    def texts(seed: int, order: list[int]) -> dict[int, str]:
        agent = Random()
        agent.begin(make_session(seed=seed))
        return {number: say(agent, make_query(f"q{number}")) for number in order}

    assert texts(1, list(range(50))) == texts(1, list(reversed(range(50))))
    assert texts(1, list(range(50))) != texts(2, list(range(50)))


def test_an_open_query_gets_no_letter() -> None:
    agent = Random()
    agent.begin(make_session())
    assert say(agent, make_query(options=())) == "It cannot be told."


def test_abstain_takes_the_abstaining_option_and_is_unsure() -> None:
    agent = Abstain()
    agent.begin(make_session())
    assert say(agent, make_query(options=("Red", "Blue", "It cannot be told from the view", "Green"))) == "C"
    assert say(agent, make_query(probe="status", options=())) == "C"
    assert say(agent, make_query(probe="cause", options=())) == "A"


def test_abstain_guesses_where_no_option_abstains() -> None:
    agent = Abstain()
    agent.begin(make_session())
    guesses = Counter(say(agent, make_query(f"q{number}")) for number in range(200))
    assert set(guesses) == set("ABCD")


@pytest.mark.parametrize(
    "text",
    [
        "Uncertain",
        "Unknown.",
        "It cannot be determined",
        "Cannot tell from the video.",
        "Can't be determined",
        "Unable to answer",
        "Not enough information",
        "There is insufficient evidence to tell",
        "Evidence is insufficient",
        "The video does not provide enough information to answer.",
        "It's not possible to determine whether the bedroom door is open or closed.",
        "The sampled observations leave the present state unresolved.",
        "The recorded evidence does not uniquely support any concrete alternative",
        "No concrete alternative is uniquely supported by the recorded evidence",
        "It is not established by what was shown",
        "It cannot be counted from pictures a second apart",
        "It remains unclear",
        "I don't know",
        "It was not shown",
    ],
)
def test_an_abstention_is_recognised_by_its_words(text: str) -> None:
    assert find_abstention(("In the kitchen", "On the table", text, "It is moved away")) == 2


@pytest.mark.parametrize(
    "text",
    [
        "Left",
        "No adult is visible",
        "No separate manipulation",
        "No, it drove past",
        "Nobody, it stands on a tripod",
        "The fireplace is not lit.",
        "The kitchen bar chairs are not tucked in.",
        "The bird is not facing you.",
        "The table is not visible in the video.",
        "It cannot be turned off",
        "The saw handle cannot fit in the blue bucket.",
        "The bed does not have a lift-up mechanism",
        "A note on the table",
        "It is a different physical instance",
    ],
)
def test_other_options_are_no_abstentions(text: str) -> None:
    assert find_abstention((text,)) is None


def test_the_clearest_abstention_wins() -> None:
    assert find_abstention(("It was never visible", "Yes", "Evidence is insufficient", "No")) == 2


def test_abstentions_of_the_real_rows_are_found(test_data: Path) -> None:
    uncertain = known = 0
    for path in [
        *(test_data / "data/storm").glob("*rows.questions.jsonl"),
        *(test_data / "data/real").glob("*.questions.jsonl"),
    ]:
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            found = find_abstention(row["options"])
            if row["diagnostics"]["epistemic_status"] == "uncertain":
                assert found == row["answer_index"], row["id"]
                uncertain += 1
            else:
                assert found is None or found != row["answer_index"], row["id"]
                known += 1
    assert uncertain >= 9
    assert known >= 10

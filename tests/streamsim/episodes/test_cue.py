"""Cues that give answers away, planted and absent; the binomial tail against exact fractions."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction

import pytest

from streamsim.episodes.cue import binomial_tail, cue_findings
from streamsim.episodes.episode import EpisodeQuery, KeyEntry, Status

Item = tuple[EpisodeQuery, KeyEntry]
WORDS = ("alder", "birch", "cedar", "elder", "hazel", "maple", "rowan", "thorn")  # five letters each


def item(
    number: int, answer: int, options: tuple[str, ...], stem: str = "Which?", status: Status | None = "known"
) -> Item:
    query = EpisodeQuery(id=f"q{number}", kind="choice", media_ns=0, stem=stem, options=options)
    entry = KeyEntry(id=query.id, episode_id="e", subset="s", media_ns=0, answer_index=answer, status=status)
    return query, entry


def found(items: list[Item]) -> list[tuple[str, str]]:
    findings = list(cue_findings(items, "key/answers.jsonl"))
    assert all(f.level == "warning" and f.file == "key/answers.jsonl" for f in findings)
    return [(finding.field, finding.text) for finding in findings]


def fair(
    count: int, change: Callable[[int, list[str]], list[str]] = lambda answer, options: options
) -> list[Item]:
    """Choices of four words of one length, the right position drawn by chance."""
    rng = random.Random(7)
    items = []
    for number in range(count):
        answer = rng.randrange(4)
        options = change(answer, rng.sample(WORDS, 4))
        items.append(item(number, answer, tuple(options)))
    return items


@pytest.mark.parametrize(("n", "k"), [(1, 1), (18, 10), (18, 0), (40, 40), (100, 25), (100, 60)])
@pytest.mark.parametrize("p", [Fraction(1, 4), Fraction(4, 5)])
def test_binomial_tail_equals_the_exact_sum(n: int, k: int, p: Fraction) -> None:
    exact = sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))
    assert binomial_tail(n, k, float(p)) == pytest.approx(float(exact), rel=1e-9)


def test_fair_choices_have_no_cues() -> None:
    assert found(fair(400)) == []


def test_always_the_same_position_is_found() -> None:
    text = dict(found([item(n, 1, ("a", "b", "c", "d")) for n in range(20)]))
    assert text.keys() == {"answer_index"}
    assert "right at B in 20 of 20 questions, 5.0 expected" in text["answer_index"]


def test_a_position_that_is_never_right_is_found() -> None:
    items = [item(n, n % 3, ("a", "b", "c", "d")) for n in range(60)]
    (text,) = [text for _, text in found(items)]
    assert "right at D in 0 of 60 questions, 15.0 expected" in text


def test_the_longest_option_being_right_is_found() -> None:
    items = fair(40, lambda answer, options: [o + "ly" * (i == answer) for i, o in enumerate(options)])
    chance = f"10.0 expected (p = {0.25**40:.1g})"
    assert [text for _, text in found(items)] == [
        f"the one option that is the longest is right in 40 of 40 questions, {chance}"
    ]


def test_the_shortest_option_being_right_is_found() -> None:
    items = fair(40, lambda answer, options: [o + "ly" * (i != answer) for i, o in enumerate(options)])
    ((field, text),) = found(items)
    assert field == "options"
    assert "the shortest is right in 40 of 40" in text


def test_the_option_in_the_question_being_right_is_found() -> None:
    items = [
        item(
            number,
            entry.answer_index or 0,
            query.options,
            f"Where is the {query.options[entry.answer_index or 0]}?",
        )
        for number, (query, entry) in enumerate(fair(40))
    ]
    ((_, text),) = found(items)
    assert "nearest to the question's words is right in 40 of 40" in text


def test_abstentions_of_uncertain_questions_are_told_apart() -> None:
    items = [
        item(
            number,
            entry.answer_index or 0,
            tuple(
                "It cannot be told" if index == entry.answer_index else option
                for index, option in enumerate(query.options)
            ),
            status="uncertain" if number < 40 else "known",
        )
        if number < 40
        else (query, entry)
        for number, (query, entry) in enumerate(fair(200))
    ]
    ((_, text),) = found(items)
    assert "the longest is right in 40 of 40 uncertain questions" in text


def test_few_questions_prove_nothing() -> None:
    assert found([item(n, 1, ("a", "bbb", "c", "d")) for n in range(3)]) == []


def test_subsets_are_not_pooled() -> None:
    items = [item(n, n % 2, ("a", "b")) for n in range(40)]
    split = [
        (
            query,
            KeyEntry(
                id=query.id,
                episode_id="e",
                subset=f"s{entry.answer_index}",
                media_ns=0,
                answer_index=entry.answer_index,
            ),
        )
        for query, entry in items
    ]
    assert found(items) == []
    assert len(found(split)) == 4  # always A in one, always B in the other: each position is off

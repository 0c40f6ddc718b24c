"""Letters out of text: literal cases, each with what a careful human would say it states."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsim.episodes.episode import CAUSES
from streamsim.reading import (
    CAUSE_COUNT,
    READERS,
    read_causes,
    read_causes_as_storm,
    read_choice,
    read_choice_as_storm,
    status_of,
)

CHOICES = [
    # a letter alone
    ("B", "B"),
    (" B \n", "B"),
    ("b", "B"),
    ("B.", "B"),
    ("b.", "B"),
    ("B)", "B"),
    ("(B)", "B"),
    ("( B )", "B"),
    ("(b)", "B"),
    ("[B]", "B"),
    ("'B'", "B"),
    ('"B"', "B"),
    ("“B”", "B"),
    ("B:", "B"),
    ("**B**", "B"),
    ("**B.**", "B"),
    ("*B*", "B"),
    ("__B__", "B"),
    ("`B`", "B"),
    ("- B", "B"),
    ("* B", "B"),
    ("（B）", "B"),
    ("Ｂ", "B"),
    ("A", "A"),
    ("a", "A"),
    ("A.", "A"),
    # with the option's text
    ("B. The red cup", "B"),
    ("B.The red cup", "B"),
    ("B) The red cup", "B"),
    ("b) the red cup", "B"),
    ("b. the red cup", "B"),
    ("(B) the text of option", "B"),
    ("(b) the text of option", "B"),
    ("(A) A red star", "A"),
    ("(B)The red cup", "B"),
    ("B: the red cup", "B"),
    ("B - the red cup", "B"),
    ("B, the red cup", "B"),
    ("B (the red cup)", "B"),
    ("A (red) star", "A"),
    ("**B.** The red cup", "B"),
    ("Option B: the red cup", "B"),
    ("A) foo", "A"),
    ("A. A blue fish", "A"),
    ("A: the man in the car", "A"),
    ("D. A yellow letter M", "D"),
    ("B\nThe car is black.", "B"),
    ("B.\n\nA person drives it away.", "B"),
    ("B because the car is black", "B"),
    ("The car is black in every view.\n\nB", "B"),
    # said in words
    ("Answer: B", "B"),
    ("Answer: (B)", "B"),
    ("Answer:B", "B"),
    ("Answer - B", "B"),
    ("answer: b", "B"),
    ("Answer: (b)", "B"),
    ("ANSWER: B.", "B"),
    ("**Answer:** B", "B"),
    ("Answer: **B**", "B"),
    ("Answer:\nB", "B"),
    ("Final answer: B", "B"),
    ("Ans: B", "B"),
    ("Response: (B)", "B"),
    ("Answer: B (the red cup)", "B"),
    ("The answer is B: A red star", "B"),
    ("B is correct because A shows the wrong car", "B"),
    ("The answer is B", "B"),
    ("The answer is B.", "B"),
    ("the answer is b", "B"),
    ("The answer is (B).", "B"),
    ("The answer is: B", "B"),
    ("The answer is 'B'.", "B"),
    ("The answer is B, the red cup.", "B"),
    ("The answer is B because the car is black.", "B"),
    ("The answer is A because the car is white.", "A"),
    ("The answer is A.", "A"),
    ("The correct answer is option B.", "B"),
    ("The correct option is (C) because it is seen.", "C"),
    ("The answer is most likely B.", "B"),
    ("My choice is D", "D"),
    ("I choose B.", "B"),
    ("I would go with C", "C"),
    ("I think B", "B"),
    ("It's B.", "B"),
    ("I'm not sure, but the answer is B.", "B"),
    ("It is not visible, so the answer is C", "C"),
    ("B is correct", "B"),
    ("Option C is the best answer.", "C"),
    ("A is the correct answer", "A"),
    ("So I would say (D).", "D"),
    (r"\boxed{B}", "B"),
    (r"The answer is $\boxed{\text{B}}$.", "B"),
    ("答案：B", "B"),
    ("答案是B。", "B"),
    ("选B", "B"),
    # tags, thinking, JSON
    ("<answer>B</answer>", "B"),
    ("<answer> (B) </answer>", "B"),
    ("A is tempting. <answer>B</answer>", "B"),
    ("<ANSWER>B. The red cup</ANSWER>", "B"),
    ("<answer>B", "B"),
    ("B</answer>", "B"),
    ("<answer><|begin_of_box|>B<|end_of_box|></answer>", "B"),
    ("B<|im_end|>", "B"),
    ("B</s>", "B"),
    ("<think>It could be A or C.</think>B", "B"),
    ("<think>\nIt could be A.\n</think>\n\nAnswer: (B)", "B"),
    ("<THINK>A</THINK> B", "B"),
    ("<thinking>A</thinking>B", "B"),
    ("It could be A or C, hm.</think>B", "B"),
    ("<think>A</think><think>C</think>B", "B"),
    ("B <think>or A?</think>", "B"),
    ('{"answer": "B"}', "B"),
    ('{"answer": "(B) the red cup"}', "B"),
    ('{"Answer": "b"}', "B"),
    ('{"reason": "A and C are wrong", "answer": "B"}', "B"),
    ('{"answer": ["B"]}', "B"),
    ('{"answer": {"choice": "B"}}', "B"),
    ('{"result": "B"}', "B"),
    ('```json\n{"answer": "B"}\n```', "B"),
    ('Here it is: {"answer": "B"}', "B"),
    ('```json\n{"answer": "B"}\n```\nI hope this helps.', "B"),
    ('{"answer": "B"} {"answer": "B"}', "B"),
    ('["B"]', "B"),
    ("B\nB", "B"),
    ("(B) The red cup. So the answer is B.", "B"),
    # nothing stated
    ("", ""),
    (" \n ", ""),
    ("I see a cup", ""),
    ("A person walks to the car", ""),
    ("A red star", ""),
    ("The answer is A person", ""),
    ("Answer: A red star", ""),
    ("A-frame ladder", ""),
    ("B the red cup", ""),
    ("Answer: cannot be told", ""),
    ("The answer depends", ""),
    ("The answer depends on the view", ""),
    ("Cannot be determined", ""),
    ("Because of the view", ""),
    ("Black", ""),
    ("None of the above", ""),
    ("C'est la vie", ""),
    ("D.C. is the place", ""),
    ("E.g. the cup", ""),
    ("B2", ""),
    ("BB", ""),
    ("AB", ""),
    ("Is the answer B?", ""),
    ("B?", ""),
    ("Sure! B", ""),
    ("So, B.", ""),
    ("Vitamin C", ""),
    ("The car drove down to plan B", ""),
    ("E", ""),
    ("Answer: E", ""),
    ("(E)", ""),
    ("2", ""),
    ("{}", ""),
    ("null", ""),
    ('{"answer": 1}', ""),
    ('{"answer": null}', ""),
    ('{"A": 0.1, "B": 0.9}', ""),
    ("<answer></answer> B", ""),
    ("<answer>the red cup</answer> (B)", ""),
    ("<think>It must be B", ""),
    ("<think>First</think> B <think>no, rather", ""),
    ("<think><answer>B</answer>", ""),
    # more than one candidate
    ("A or B", ""),
    ("Either A or B", ""),
    ("A and B", ""),
    ("A, B", ""),
    ("A,B", ""),
    ("A/B", ""),
    ("A B", ""),
    ("A\nB", ""),
    ("(A) (B)", ""),
    ("(A) or (B)", ""),
    ("A. yes\nB. no", ""),
    ("A. Red B. Black", ""),
    ("The answer is B or C", ""),
    ("B. Or rather C.", ""),
    ("B, not A", ""),
    ("The answer is B, not A.", ""),
    ("The answer is B. C is not visible.", ""),
    ("B. Option A is wrong", ""),
    ("B because A and C are wrong", ""),
    ("Answer: A. Answer: B.", ""),
    ("<answer>A</answer><answer>B</answer>", ""),
    ('{"answer": "A"} {"answer": "B"}', ""),
    ('{"answer": "A", "choice": "B"}', ""),
    ('["A", "B"]', ""),
    ('{"answer": ["A", "B"]}', ""),
    ("B and E", ""),
    ("(B) (E)", ""),
    # denied
    ("Not B", ""),
    ("The answer is not B.", ""),
    ("The answer isn't B", ""),
    ("(B) is wrong", ""),
    ("Option B is not correct.", ""),
    ("I don't think the answer is B.", ""),
    ("It cannot be B", ""),
    ("neither (A) nor (B)", ""),
]


@pytest.mark.parametrize(("text", "letter"), CHOICES)
def test_a_choice_is_read_strictly(text: str, letter: str) -> None:
    assert read_choice(text, 4) == letter


def test_the_number_of_options_bounds_a_choice() -> None:
    assert read_choice("E", 5) == "E"
    assert read_choice("(G) the last", 7) == "G"
    assert read_choice("C", 2) == ""
    assert read_choice("I", 9) == "I"
    assert read_choice("I see a cup", 9) == ""
    assert read_choice("I, for one, see a cup", 4) == ""
    for count in (0, 27):
        with pytest.raises(ValueError, match=rf"expected 1 to 26 options, got {count}"):
            read_choice("A", count)


CAUSE_TEXTS = [
    ("A", "A"),
    ("a", "A"),
    ("A.", "A"),
    ("(F)", "F"),
    ("A, C", "AC"),
    ("A,C", "AC"),
    ("C, A", "AC"),
    ("A, A", "A"),
    ("a, c", "AC"),
    ("a and c", "AC"),
    ("A and C", "AC"),
    ("A & C", "AC"),
    ("A/C", "AC"),
    ("A; C", "AC"),
    ("A C", "AC"),
    ("A, C and D", "ACD"),
    ("A, C, and D.", "ACD"),
    ("(A), (C)", "AC"),
    ("(A) and (C)", "AC"),
    ("**A, C**", "AC"),
    ("**A**, **C**", "AC"),
    ("[A, C]", "AC"),
    ("A, B, C, D, E, F", "ABCDEF"),
    ("AC", "AC"),
    ("ACD.", "ACD"),
    ("Answer: AC", "AC"),
    ("Answer: A, C", "AC"),
    ("Answer: A and C.", "AC"),
    ("Answer: (A), (C)", "AC"),
    ("The answer is B", "B"),
    ("The causes are A and C.", "AC"),
    ("The reasons that apply are: B, D", "BD"),
    ("A and C apply", "AC"),
    ("B applies", "B"),
    ("A. Missing observation", "A"),
    ("A. Missing observation, C. Low visual quality", "AC"),
    ("A. Missing observation; and C. Low visual quality", "AC"),
    ("A. Missing observation. C. Low visual quality.", "AC"),
    ("(A) Missing observation, (C) Low visual quality", "AC"),
    ("A. Missing observation\nC. Low visual quality", "AC"),
    ("1. A\n2. C", "AC"),
    ("- A: never seen\n- D: two readings", "AD"),
    ("A\nC", "AC"),
    ("A, C\nThe cup was hidden by a hand.", "AC"),
    ("A because the cup is hidden", "A"),
    ("<think>A or B?</think>A, C", "AC"),
    ("<answer>A, C</answer>", "AC"),
    ("B is tempting <answer>A, C</answer>", "AC"),
    ('["A", "C"]', "AC"),
    ('{"causes": ["A", "C"]}', "AC"),
    ('{"answer": "A, C"}', "AC"),
    ('{"answer": "AC"}', "AC"),
    ('```json\n["A", "C"]\n```', "AC"),
    ("答案：A、C", "AC"),
    # invalid
    ("", ""),
    ("None", ""),
    ("N/A", ""),
    ("A person is hidden", ""),
    ("There is a problem", ""),
    ("missing observation", ""),
    ("BAD", ""),
    ("CA", ""),
    ("AAC", ""),
    ("Ac", ""),
    ("A or C", ""),
    ("(A) or (C)", ""),
    ("A, not C", ""),
    ("A, but C is not the case", ""),
    ("A and C are visible", ""),
    ("A. Missing observation C. Low visual quality", ""),
    ("A, G", ""),
    ("G", ""),
    ("(A) and (G)", ""),
    ("not A", ""),
    ("<think>A, C", ""),
    ("[]", ""),
    ('{"causes": []}', ""),
    ('{"causes": ["A", 3]}', ""),
    ('{"causes": ["missing_observation"]}', ""),
    ('["A", "something else"]', ""),
]


@pytest.mark.parametrize(("text", "letters"), CAUSE_TEXTS)
def test_causes_are_read_strictly(text: str, letters: str) -> None:
    assert read_causes(text) == letters


def test_there_are_as_many_cause_letters_as_causes() -> None:
    assert len(CAUSES) == CAUSE_COUNT


# What the public evaluator's rules give; the first three rows are its best-known surprises.
STORM_CHOICES = [
    ("I see a cup", "A"),
    ("Answer: cannot be told", "C"),
    ("The answer depends", "D"),
    ("B", "B"),
    ("(C) red", "C"),
    ("d, red", "D"),
    ("A person walks", "A"),
    ("<answer>The letter is D</answer> A", "D"),
    ("<answer>none</answer> My choice: (B)", "B"),
    ("B. But the answer is A", "B"),  # "answer is" has no letter behind the word, so the leading one counts
    ("The answer is: b", "B"),
    ("A or B", "A"),
    ("E", ""),
    ("Edge", ""),
    ("", ""),
    ("答案：B", "B"),
    ("<think>A</think>B", "A"),
]


@pytest.mark.parametrize(("text", "letter"), STORM_CHOICES)
def test_the_public_evaluators_choices_are_reproduced(text: str, letter: str) -> None:
    assert read_choice_as_storm(text, 4) == letter


def test_the_public_evaluator_assumes_four_options_where_there_are_none() -> None:
    assert read_choice_as_storm("D", 0) == "D"
    assert read_choice_as_storm("E", 0) == ""
    assert read_choice_as_storm("E", 5) == "E"


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        ("A, C", "AC"),
        ("c,a", "AC"),
        ("There is a problem", "A"),
        ("A1 and 2B", "AB"),
        ("BAD", ""),
        ("G", ""),
        ("A <answer>C</answer> B", "C"),
        ("A <answer>C", "AC"),
        ("not A or B", "AB"),
        ("", ""),
    ],
)
def test_the_public_evaluators_causes_are_reproduced(text: str, letters: str) -> None:
    assert read_causes_as_storm(text) == letters


def test_readers_go_by_name() -> None:
    assert set(READERS) == {"strict", "storm-evaluator"}
    assert READERS["strict"].choice("I see a cup", 4) == ""
    assert READERS["storm-evaluator"].choice("I see a cup", 4) == "A"
    assert READERS["strict"].causes("There is a problem", 6) == ""
    assert READERS["storm-evaluator"].causes("There is a problem", 6) == "A"


def test_a_status_letter_stands_for_known_or_uncertain() -> None:
    assert [status_of(letter) for letter in "ABCD"] == ["known", "known", "uncertain", "uncertain"]
    for letter in ("", "E", "a"):
        with pytest.raises(ValueError, match="expected a status letter A to D"):
            status_of(letter)


PIECES = (
    *"ABCDEFGHIabc.,:;()[]{}'\"*`\n \\’",
    *("answer", "is", "not", "or", "<think>", "</think>", "<answer>", "</answer>", "答案", "\\boxed{"),
    '{"answer": ',
)


@given(st.lists(st.sampled_from(PIECES)).map("".join), st.integers(1, 7))
def test_any_text_is_read_without_an_error_and_within_range(text: str, count: int) -> None:
    allowed = string.ascii_uppercase[:count]
    for reader in READERS.values():
        letter = reader.choice(text, count)
        assert letter == "" or (len(letter) == 1 and letter in allowed)
        causes = reader.causes(text, count)
        assert list(causes) == sorted(set(causes))
        assert set(causes) <= set(allowed)


@given(st.sampled_from("ABCD"), st.text(alphabet="ABCDabc or,.()\n", max_size=30))
def test_what_was_thought_does_not_matter(letter: str, thought: str) -> None:
    assert read_choice(f"<think>{thought}</think>{letter}", 4) == letter


FLOODS = (
    *("A, ", "A or ", "not A ", "a. ", "A\n", "<think>", "</think>", "<answer>", "<answer>A", "answer "),
    *("answer:         ", '{"answer": ', '{"', "{", "[", "(((", "*", " ", "\\boxed{"),
)


@pytest.mark.parametrize("unit", FLOODS)
def test_a_flood_of_one_thing_is_read_too(unit: str) -> None:
    # as much as one message holds: what is quadratic would take minutes here
    flood = unit * (64 * 1024 // len(unit))
    for reader in READERS.values():
        for text in (flood, "x " + flood + "x"):
            assert len(reader.choice(text, 4)) <= 1
            assert len(reader.causes(text, 6)) <= 6

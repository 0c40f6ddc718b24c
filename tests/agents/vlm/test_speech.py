"""Text in whole characters, hidden thought, forced endings. No model needed, only a tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="needs torch and transformers: pip install 'streamsim[vlm]'")

from streamsim_agents.vlm.load import Loaded
from streamsim_agents.vlm.speech import Detokenizer, closing, speak, speak_after_thought
from tests.agents.vlm.scene import turn


class Said:
    """Says what it is given: first ``thought``, then, each time that it is forced, ``answer``."""

    def __init__(self, tokenizer: Any, thought: str, answer: str = "", *, ends: bool = True) -> None:
        self._tokenizer = tokenizer
        self._left: list[int] = self._encode(thought)
        self._answer, self._ends = answer, ends
        self.forced: list[int] = []
        self.taken = 0
        self.ended = False

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def decode(self, limit: int) -> Iterator[int]:
        for _ in range(limit):
            if not self._left:
                self.ended = self._ends
                return
            self.taken += 1
            yield self._left.pop(0)

    def force(self, ids: Sequence[int]) -> None:
        self.forced += ids
        self._left = self._encode(self._answer)
        self.ended = False


@pytest.fixture(scope="module")
def tokenizer(loaded: Callable[[str], Loaded]) -> Any:
    return loaded("qwen2_vl").processor.tokenizer


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_pieces_join_to_the_text_and_split_no_character(text: str, tokenizer: Any) -> None:
    detokenizer = Detokenizer(tokenizer)
    ids = tokenizer.encode(text, add_special_tokens=False)
    pieces = [detokenizer.add(token) for token in ids]
    last = detokenizer.finish()
    assert "".join(pieces) + last == tokenizer.decode(ids)
    if "�" not in text:
        assert not any("�" in piece for piece in pieces)


def test_an_unfinished_character_is_said_at_the_end(tokenizer: Any) -> None:
    ids = tokenizer.encode("é", add_special_tokens=False)
    assert len(ids) == 2
    detokenizer = Detokenizer(tokenizer)
    assert detokenizer.add(ids[0]) == ""
    assert detokenizer.finish() == "�"


def test_the_first_text_is_the_first_token(tokenizer: Any) -> None:
    mine = turn()
    assert "".join(speak(Said(tokenizer, "B. a knife"), tokenizer, mine, 64)) == "B. a knife"
    assert "first_token" in mine.marks


def test_a_cancelled_turn_takes_one_more_token_at_most(tokenizer: Any) -> None:
    mine, said = turn(), Said(tokenizer, "a long answer that nobody waits for")
    pieces = speak(said, tokenizer, mine, 64)
    next(pieces)
    taken = said.taken
    mine.cancel("cancelled")
    assert list(pieces) == []
    assert said.taken <= taken + 1


def think(said: Said, tokenizer: Any, *, thinking: int = 200) -> str:
    return "".join(speak_after_thought(said, tokenizer, turn(), thinking=thinking, answer_tokens=20))


def test_thought_is_not_spoken(tokenizer: Any) -> None:
    said = Said(tokenizer, "<think>it was A, or B</think><answer>B</answer>")
    assert think(said, tokenizer) == "<answer>B</answer>"
    assert said.forced == []


def test_an_endless_thought_is_closed_for_the_model(tokenizer: Any) -> None:
    said = Said(tokenizer, "<think>" + "it may be A, but " * 40, "C</answer>")
    assert think(said, tokenizer, thinking=50) == "C</answer>"
    assert tokenizer.decode(said.forced) == "</think><answer>"


def test_an_answer_that_is_not_closed_gets_more_tokens(tokenizer: Any) -> None:
    said = Said(tokenizer, "<think>so</think>the answer is", " <answer>D</answer>")
    assert "D" in think(said, tokenizer, thinking=len(tokenizer.encode("<think>so</think>the answer")))


def test_a_model_that_ends_without_a_thought_s_end_is_helped(tokenizer: Any) -> None:
    said = Said(tokenizer, "A", "B</answer>")
    assert think(said, tokenizer) == "B</answer>"


@pytest.mark.parametrize(
    ("said", "missing"),
    [
        ("<think>and then", "</think><answer>"),
        ("<think>and</think>", "<answer>"),
        ("<think>and</think><answer>B", ""),
    ],
)
def test_closing_tags(said: str, missing: str) -> None:
    assert closing(said) == missing


def test_a_turn_cancelled_in_thought_says_nothing(tokenizer: Any) -> None:
    mine, said = turn(), Said(tokenizer, "<think>" + "hm, " * 50)
    mine.cancel("cancelled")
    assert list(speak_after_thought(said, tokenizer, mine, thinking=99, answer_tokens=9)) == []
    assert said.taken == 1

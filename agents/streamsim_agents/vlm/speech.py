"""From tokens to the text of a turn: pieces that never split a character, thought that is not spoken.

A thinking model gets its budget of tokens; if no closed answer came by then, the closing tags that are
missing are put in its mouth and it gets a few more tokens to answer. Its thought is not part of the
answer, so the first text is the first piece behind it. A cancelled turn ends within one token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from streamsim_agents.agent import Turn

THOUGHT_END = "</think>"
ANSWER, ANSWER_END = "<answer>", "</answer>"


class Utterance(Protocol):
    """A source of tokens."""

    ended: bool

    def decode(self, limit: int) -> Iterator[int]:
        """Up to ``limit`` further tokens."""
        ...

    def force(self, ids: Sequence[int]) -> None:
        """Go on as if the model had said ``ids``."""
        ...


class Detokenizer:
    """Turns tokens into text as they come, holding back what may still change."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._spoken = 0
        self._start = 0

    def add(self, token: int) -> str:
        """The text that ``token`` adds; empty while a character is incomplete."""
        self._ids.append(token)
        return self._rest(final=False)

    def finish(self) -> str:
        """What was held back."""
        return self._rest(final=True)

    def _rest(self, *, final: bool) -> str:
        # decode from a little before what is new, so that joining spaces come out right
        before = self._decode(self._ids[self._start : self._spoken])
        text = self._decode(self._ids[self._start :])
        if len(text) <= len(before) or (text.endswith("�") and not final):
            return ""
        self._start, self._spoken = self._spoken, len(self._ids)
        return text[len(before) :]

    def _decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))


def speak(utterance: Utterance, tokenizer: Any, turn: Turn, limit: int) -> Iterator[str]:
    """The text of up to ``limit`` tokens."""
    detokenizer = Detokenizer(tokenizer)
    for token in utterance.decode(limit):
        if turn.cancelled:
            return
        if "first_token" not in turn.marks:
            turn.mark("first_token")
        if text := detokenizer.add(token):
            yield text
            if turn.cancelled:  # while the text was on its way
                return
    if "first_token" not in turn.marks:  # it ended at once
        turn.mark("first_token")
    if text := detokenizer.finish():
        yield text


def speak_after_thought(
    utterance: Utterance, tokenizer: Any, turn: Turn, *, thinking: int, answer_tokens: int
) -> Iterator[str]:
    """The text behind the thought: ``thinking`` tokens for both, then ``answer_tokens`` to close."""
    thought: list[int] = []
    detokenizer = Detokenizer(tokenizer)
    behind = False
    for token in utterance.decode(thinking):
        if turn.cancelled:
            return
        if not thought:
            turn.mark("first_token")
        thought.append(token)
        if behind and (text := detokenizer.add(token)):
            yield text
        elif not behind and tokenizer.decode(thought[-8:]).endswith(THOUGHT_END):
            behind = True
            turn.mark("thought")
    said = tokenizer.decode(thought)
    if (utterance.ended and behind) or ANSWER_END in said:
        yield from filter(None, [detokenizer.finish()])
        return
    if missing := closing(said):
        utterance.force(tokenizer.encode(missing, add_special_tokens=False))
    for token in utterance.decode(answer_tokens):
        if turn.cancelled:
            return
        if text := detokenizer.add(token):
            yield text
    yield from filter(None, [detokenizer.finish()])


def closing(said: str) -> str:
    """The tags that are missing before an answer can be given."""
    if THOUGHT_END not in said:
        return THOUGHT_END + ANSWER
    return "" if ANSWER in said else ANSWER

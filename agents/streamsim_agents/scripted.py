"""Agents without eyes: floors to compare with, and loads to test the simulator with.

None of them looks at a frame. What they draw at random follows from the session's seed and the probe
alone, so that every probe of every run can be asked again and leaves no trace.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator, Sequence
from string import ascii_uppercase

from streamsim_agents.agent import Agent, Frame, Query, SessionInfo, Turn

STATUS_LETTERS = "ABCD"
CAUSE_LETTERS = "ABCDEF"
NO_ANSWER = "It cannot be told."
"""What they say to an open query, which has no letters."""


class Null(Agent):
    """Does nothing and says A at once: the harness's own floor."""

    def observe(self, frame: Frame) -> None:
        """Pass over the frame."""

    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        """A, whatever is asked."""
        yield "A"


class FixedDelay(Agent):
    """Says A after so many seconds of work per frame and per answer, with a stall now and then.

    Arguments:
        frame: seconds of work for each frame
        answer: seconds of work for each answer
        stall: seconds added to every frame on which it stalls
        stall_every: stall on every so many frames, 0 for none
    """

    def __init__(
        self, *, frame: float = 0.0, answer: float = 0.0, stall: float = 0.0, stall_every: int = 0
    ) -> None:
        self.check_arguments(frame=frame, answer=answer, stall=stall, stall_every=stall_every)
        self._frame_s = frame
        self._answer_s = answer
        self._stall_s = stall
        self._stall_every = stall_every
        self._observed = 0

    @classmethod
    def check_arguments(cls, **arguments: float) -> None:
        """Nothing can take less than no time, and a stall needs a period."""
        for name, value in arguments.items():
            if value < 0:
                raise ValueError(f"{name}: expected 0 or more, got {value:g}")
        if arguments.get("stall") and not arguments.get("stall_every"):
            raise ValueError("stall needs stall_every: the agent stalls on every so many frames")

    def begin(self, session: SessionInfo) -> None:
        """Count frames anew."""
        self._observed = 0

    def observe(self, frame: Frame) -> None:
        """Take the time that a frame costs."""
        self._observed += 1
        stalls = self._stall_every > 0 and self._observed % self._stall_every == 0
        time.sleep(self._frame_s + (self._stall_s if stalls else 0.0))

    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        """Take the time that an answer costs, then say A; nothing once the turn is cancelled."""
        if not turn.wait(self._answer_s):
            yield "A"


class _Guesser(Agent):
    """What it draws follows from the session's seed; it passes over every frame."""

    def __init__(self) -> None:
        self._seed = 0

    def begin(self, session: SessionInfo) -> None:
        """Take the session's seed."""
        self._seed = session.seed

    def observe(self, frame: Frame) -> None:
        """Pass over the frame."""


class Random(_Guesser):
    """Guesses among the legal letters of each probe: chance level."""

    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        """One letter for task and status, one or more for causes."""
        yield guess(query, self._seed)


class Abstain(_Guesser):
    """Takes the option that abstains if it finds one, else guesses; always unsure: the blind heuristic."""

    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        """The abstaining option's letter; status C, not observed; cause A, missing observation."""
        if query.probe == "status":
            yield "C"
        elif query.probe == "cause":
            yield "A"
        else:
            index = find_abstention(query.options)
            yield guess(query, self._seed) if index is None else ascii_uppercase[index]


def guess(query: Query, seed: int) -> str:
    """A legal answer drawn from ``seed``, the query's name and the probe, and from nothing else."""
    draw = random.Random(f"{seed}/{query.id}/{query.probe}")
    if query.probe == "status":
        return draw.choice(STATUS_LETTERS)
    if query.probe == "cause":
        return ", ".join(sorted(draw.sample(CAUSE_LETTERS, draw.randint(1, len(CAUSE_LETTERS)))))
    if not query.options:
        return NO_ANSWER
    return ascii_uppercase[draw.randrange(len(query.options))]


_CANNOT = r"(?:can ?not|can['’]t|could not|unable to|impossible to|(?:not|im)possible to|no way to)"
_TELL = (
    r"(?:be )?(?:tell|told|say|said|determin|know|answer|count|establish|decid|identif|infer|judg|see\b|seen)"
)
ABSTENTIONS = tuple(
    re.compile(pattern, re.I)
    for pattern in (
        r"^(?:uncertain|unknown|unclear|undetermined|indeterminate|not sure|unsure)\W*$",
        rf"\b{_CANNOT} {_TELL}",
        r"\b(?:evidence|information|observations?|video|footage|frames?|pictures?)\b.*"
        r"\b(?:insufficient|inconclusive|not enough|unresolved|(?:does|do|is|are) not)\b",
        r"\b(?:insufficient|not enough|inconclusive|no (?:sufficient|conclusive)) (?:evidence|information)\b",
        r"\bnot? (?:\w+ ){0,3}(?:uniquely|clearly)? ?(?:supported|established|determined|decided|resolved)\b",
        r"\b(?:do not|don['’]t|not) know\b",
        r"\b(?:remains?|left|is) (?:unclear|unknown|unresolved|uncertain|undetermined|ambiguous|open)\b",
        r"^(?:it|this|that) (?:is|was) (?:not|never) (?:shown|observed|recorded|visible|in view|on view)\b",
    )
)
"""Phrases that say that nothing can be said, the clearest first. The wordings are ours; benchmarks mark
their abstention options by nothing but the words."""


def find_abstention(options: Sequence[str]) -> int | None:
    """Index of the option that abstains most clearly; None where none does."""
    for phrase in ABSTENTIONS:
        for index, option in enumerate(options):
            if phrase.search(option):
                return index
    return None

"""The agent: looks at every frame, keeps a bounded memory, answers the three probes from it."""

from __future__ import annotations

from collections.abc import Iterator

from streamsim_agents.agent import Agent, Frame, Query, SessionInfo, Turn
from streamsim_agents.sightings.answer import Verdict, judge
from streamsim_agents.sightings.eye import look_at
from streamsim_agents.sightings.memory import Memory
from streamsim_agents.sightings.world import ABSTENTION

LETTERS = "ABCDEFGHIJ"


class Sightings(Agent):
    """Answers questions about rooms from what it saw.

    It answers a choice with a letter, an open question with words, the status probe with a letter of A
    to D and the cause probe with letters of A to F.

    Arguments:
        looks: frames that its memory holds, at least 2
    """

    def __init__(self, looks: int = 240) -> None:
        if looks < 2:
            raise ValueError(f"expected looks of at least 2, got {looks}")
        self._memory = Memory(looks)

    def begin(self, session: SessionInfo) -> None:
        """Forget the session before."""
        self._memory.clear()

    def observe(self, frame: Frame) -> None:
        """See one frame and remember what is in it."""
        self._memory.add(look_at(frame.rgb, frame.media_ns))

    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        """One letter, or letters for causes; recalling changes nothing in the memory."""
        verdict = judge(query.stem, self._memory.recall())
        turn.mark("recall")
        match query.probe:
            case "task":
                yield _choose(verdict, query.options)
            case "status":
                yield verdict.status
            case "cause":
                yield verdict.cause_letters

    def stats(self) -> dict[str, float]:
        """Size of the memory."""
        return {"memory_bytes": float(self._memory.nbytes)}


def _choose(verdict: Verdict, options: tuple[str, ...]) -> str:
    """The letter of the option that says what the verdict says; without options its words.

    An answer that is not offered cannot have been seen rightly: then it cannot be told.
    """
    answer = verdict.answer or ABSTENTION
    if not options:
        return answer
    for wanted in (answer, ABSTENTION):
        if wanted in options:
            return LETTERS[options.index(wanted)]
    return LETTERS[0]

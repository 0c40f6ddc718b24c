"""What failed in a session that may go on, in one line: told at once, and each kind of it once in a run.

What is told when the run has ended is derived from its journals, elsewhere.
"""

from __future__ import annotations

from streamsim.chain import MAX_TURN_CHARS
from streamsim.events import AgentFailed, AnyEvent, FrameSettled, TurnClosed, TurnEnded
from streamsim.raised import describe_raised

MAX_KINDS = 20
"""So many are told; an agent whose every message differs is not quoted for ever."""
_ENDING = frozenset({"load", "begin"})
"""Phases without which there is no session."""


def describe_failure(event: AnyEvent) -> str | None:
    """What failed, as ``the agent raised in METHOD: TYPE: MESSAGE (FILE:LINE)``; None if nothing did."""
    match event:
        case AgentFailed():
            goes_on = "" if event.phase in _ENDING else "; the run goes on"
            return f"the agent raised in {event.method}: {describe_raised(event.error)}{goes_on}"
        case FrameSettled(outcome="failed", error=None):
            return "the agent failed on a frame without a reason; the run goes on"
        case FrameSettled(error=str(error)):
            return f"the agent raised in observe: {describe_raised(error)}; the run goes on"
        case TurnEnded(reason="failed", error=None):
            return "the agent gave up a turn without a reason; the run goes on"
        case TurnEnded(error=str(error)):
            return f"the agent raised in answer: {describe_raised(error)}; the run goes on"
        case TurnClosed(reason="too_long"):
            return f"the agent said more in a turn than {MAX_TURN_CHARS} characters; the run goes on"
        case _:
            return None


class FirstFailures:
    """Tells the first failure of each kind, and at most ``MAX_KINDS`` of them."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def see(self, event: AnyEvent) -> str | None:
        """The line to tell, None if there is none; call ``note_told`` when it was."""
        if len(self._told) > MAX_KINDS:
            return None
        text = describe_failure(event)
        if text is None or text in self._told:
            return None
        if len(self._told) == MAX_KINDS:
            return f"more than {MAX_KINDS} kinds of failures: the others are told when the run has ended"
        return text

    def note_told(self, text: str) -> None:
        """Do not tell this again."""
        self._told.add(text)

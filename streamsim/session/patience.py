"""How long a session waits for what: every timeout, in wall time less the time that it was paused.

What happens when one fires is for the session to say. Deadlines are exclusive: what arrives at a
deadline came too late.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from streamsim.chain import Turn
from streamsim.clock import Course
from streamsim.session.config import SessionConfig

Wait = Literal["answer", "idleness", "sign", "credit", "drain", "bye"]


class Deadline(msgspec.Struct, frozen=True):
    """Waiting for ``wait`` ends at ``wall_ns``; ``turn`` where it is a turn's."""

    wall_ns: int
    wait: Wait
    turn: Turn | None = None


class Patience:
    """Since when the session has been waiting, all in wall time; None: it does not wait for that."""

    def __init__(self, config: SessionConfig, course: Course) -> None:
        self._config = config
        self._course = course
        self.sign_wall_ns = 0
        """The agent's last sign of life, or the moment at which it was given work while idle."""
        self.credit_wall_ns: int | None = None
        """Since when a frame has been due for which there is no credit."""
        self.media_ended_wall_ns: int | None = None
        self.end_wall_ns: int | None = None
        """When ``end`` was sent."""

    def next_deadline(self, *, turns: Iterable[Turn], unsettled: bool, working: bool) -> Deadline | None:
        """The first deadline, None while time is paused or nothing is waited for.

        ``turns`` are the open ones; ``unsettled`` says that frames are; ``working`` that the agent
        declared work in the background, for which lockstep alone would wait without end.
        """
        if self._course.paused:
            return None
        deadlines = self._deadlines(list(turns), unsettled, working)
        if len(deadlines) < 2:
            return deadlines[0] if deadlines else None
        return min(deadlines, key=lambda deadline: deadline.wall_ns, default=None)

    def _deadlines(self, turns: list[Turn], unsettled: bool, working: bool) -> list[Deadline]:
        config = self._config
        deadlines = []
        for turn in turns:
            if turn.fenced is not None:
                deadlines.append(self._after(turn.fenced_wall_ns, config.hang_timeout_ns, "idleness", turn))
            elif turn.chain is not None:
                deadlines.append(
                    self._after(turn.timeout_from_wall_ns, config.answer_timeout_ns, "answer", turn)
                )
        stuck = bool(turns) or unsettled
        if stuck or (working and config.clock == "lockstep"):
            silence_ns = config.answer_timeout_ns + config.hang_timeout_ns
            deadlines.append(self._after(self.sign_wall_ns, silence_ns, "sign"))
        if self.credit_wall_ns is not None:
            deadlines.append(self._after(self.credit_wall_ns, config.credit_timeout_ns, "credit"))
        if self.end_wall_ns is not None:
            patience_ns = config.hang_timeout_ns if stuck else config.drain_timeout_ns
            deadlines.append(self._after(self.end_wall_ns, patience_ns, "bye"))
        elif self.media_ended_wall_ns is not None:
            deadlines.append(self._after(self.media_ended_wall_ns, config.drain_timeout_ns, "drain"))
        return deadlines

    def _after(self, since_wall_ns: int, wait_ns: int, wait: Wait, turn: Turn | None = None) -> Deadline:
        """``wait_ns`` after ``since_wall_ns``, pauses since then not counted."""
        paused_ns = self._course.paused_ns_since(since_wall_ns)
        return Deadline(since_wall_ns + wait_ns + paused_ns, wait, turn)

"""An agent that sends a signal in the middle of an answer, and goes on when its turn is cancelled."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

from streamsim_agents import Frame, Query, SessionInfo, Turn
from streamsim_agents.agent import Agent as Base

GUARD_S = 60.0


class Agent(Base):
    """Sends the signal ``name`` to process ``pid`` (0 is itself) in its session number ``session``."""

    def __init__(self, *, name: str, pid: int = 0, session: int = 1) -> None:
        self._signal = signal.Signals[name]
        self._pid = pid or os.getpid()
        self._session = session
        self._begun = 0

    def begin(self, session: SessionInfo) -> None:
        self._begun += 1

    def observe(self, frame: Frame) -> None:
        pass

    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        if query.id == "q2" and self._begun == self._session:
            os.kill(self._pid, self._signal)
            assert turn.wait(GUARD_S)
        yield "A"

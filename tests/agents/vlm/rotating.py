"""An agent for the live test: another architecture in each session, so that one process is enough."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path

from streamsim_agents import Agent, Frame, Query, SessionInfo, Turn
from streamsim_agents.vlm.agent import VLM
from streamsim_agents.vlm.load import load


class Rotating(Agent):
    """Plays the checkpoints in ``folder`` in turn, and says which it is before an answer to a task.

    Weights are random, so no status would be read: it thinks about it as always, then says that the
    observation is missing, for the cause to be asked too.
    """

    def __init__(self, folder: str) -> None:
        self._agents = cycle([(path.name, make(path)) for path in sorted(Path(folder).iterdir())])
        self._name, self._agent = next(self._agents)
        self._begun = False

    def begin(self, session: SessionInfo) -> None:
        if self._begun:
            self._name, self._agent = next(self._agents)
        self._begun = True
        self._agent.begin(session)

    def observe(self, frame: Frame) -> None:
        self._agent.observe(frame)

    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        if query.probe == "status":
            assert list(self._agent.answer(query, turn)) is not None
            yield "C"
            return
        yield f"{self._name}: " if query.probe == "task" else ""
        yield from self._agent.answer(query, turn)

    def stats(self) -> dict[str, float]:
        return self._agent.stats()


def make(folder: Path) -> VLM:
    """The agent of a checkpoint; a thought of 16 tokens where the architecture thinks."""
    loaded = load(str(folder), device="cpu")
    profile = replace(loaded.profile, thinking=min(loaded.profile.thinking, 16), answer_tokens=8)
    return VLM.of(replace(loaded, profile=profile))

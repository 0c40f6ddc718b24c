"""What fixes a session but its episode."""

from __future__ import annotations

from typing import Literal

import msgspec

from streamsim.episodes.episode import Chain
from streamsim.events import QueryPlan, SessionStarted
from streamsim_protocol.messages import ClockMode, FramePolicy, History


class SessionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that fixes a session but its episode. Times in nanoseconds of wall time."""

    run: str
    session: str
    episode: str
    subset: str
    repeat: int
    attempt: int
    lanes: int
    seed: int
    clock: ClockMode
    rate: float
    history: History
    chain: Chain
    frames: FramePolicy | None
    fps: float
    size: tuple[int, int]
    encoding: Literal["jpeg", "png"]
    credit: int
    credit_timeout_ns: int
    answer_timeout_ns: int
    hang_timeout_ns: int
    drain_timeout_ns: int

    def to_event(self, queries: tuple[QueryPlan, ...]) -> SessionStarted:
        """What the journal's first line says of it, with the plan of the episode's queries."""
        return SessionStarted(
            run=self.run,
            session=self.session,
            episode=self.episode,
            subset=self.subset,
            repeat=self.repeat,
            attempt=self.attempt,
            lanes=self.lanes,
            seed=self.seed,
            clock=self.clock,
            rate=self.rate,
            history=self.history,
            chain=self.chain,
            fps=self.fps,
            credit=self.credit,
            answer_timeout_ns=self.answer_timeout_ns,
            hang_timeout_ns=self.hang_timeout_ns,
            drain_timeout_ns=self.drain_timeout_ns,
            queries=queries,
        )

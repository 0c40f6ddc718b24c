"""What a user may say about a run, with every default in one place.

Plain data: importing it costs nothing, so the command line can show the defaults in its help.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from streamsim_protocol.messages import ClockMode, FramePolicy, History

LOCKSTEP_ANSWER_TIMEOUT_S = 600.0
MAX_DEADLINE_S = 1_000_000
"""The largest deadline whose misses can be counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of ``run`` and ``serve``. ``None`` means: as the dataset or the agent says."""

    dataset: Path
    agent: str | None
    agent_arguments: tuple[str, ...] = ()
    agent_python: str | None = None
    out: Path | None = None
    resume: bool = False
    clock: ClockMode = "realtime"
    rate: float = 1.0
    sessions: int = 1
    repeat: int = 1
    episodes: tuple[str, ...] = ()
    limit: int | None = None
    available: bool = False
    history: History = "frozen"
    chain: str | None = None
    frames: FramePolicy | None = None
    fps: float = 1.0
    pixel_budget: int = 200_704
    encoding: str = "jpeg"
    quality: int = 90
    sampling: str = "presentation"
    seed: int = 0
    prompts: Path | None = None
    reader: str = "strict"
    host: str = "127.0.0.1"
    port: int = 0
    credit: int = 32
    credit_timeout_s: float = 60.0
    ready_timeout_s: float = 900.0
    answer_timeout_s: float | None = None
    hang_timeout_s: float = 60.0
    drain_timeout_s: float = 600.0

    @property
    def answer_timeout(self) -> float:
        """Seconds: 30, in lockstep 600, where it is only a guard."""
        if self.answer_timeout_s is not None:
            return self.answer_timeout_s
        return LOCKSTEP_ANSWER_TIMEOUT_S if self.clock == "lockstep" else 30.0

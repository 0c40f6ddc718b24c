"""How late the runtime's socket loop is: an agent that keeps the interpreter busy also delays its socket.

Beats have absolute deadlines; one that a blocked loop missed counts with the lag that it would have
had. What comes out are durations, reported to the server before ``bye``.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Callable

BEAT_NS = 100_000_000
"""Ten beats a second cost about 0.2 ms of CPU."""


class LoopLag:
    """The monitor of one event loop. A context manager, entered inside the running loop."""

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock_ns = clock_ns
        self._lags_ns = array("q")
        self._deadline_ns = 0
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> LoopLag:
        self._deadline_ns = self._clock_ns() + BEAT_NS
        self._schedule()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def figures(self) -> tuple[int, int]:
        """The 99th percentile (nearest rank) and the longest lag up to now, in nanoseconds."""
        ordered = sorted([*self._lags_ns, *overdue(self._deadline_ns, self._clock_ns())]) or [0]
        return ordered[-(-len(ordered) * 99 // 100) - 1], ordered[-1]

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_at(self._deadline_ns / 1e9, self._beat)

    def _beat(self) -> None:
        missed = overdue(self._deadline_ns, self._clock_ns())
        self._lags_ns.extend(missed)
        self._deadline_ns += len(missed) * BEAT_NS
        self._schedule()


def overdue(deadline_ns: int, now_ns: int) -> list[int]:
    """The lags of all beats due from ``deadline_ns`` on and no later than ``now_ns``, oldest first."""
    return list(range(now_ns - deadline_ns, -1, -BEAT_NS))

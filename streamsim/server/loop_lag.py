"""How late the server's event loop is: beats with absolute deadlines, and what each session saw of them.

Everything that a session does waits for this loop, so its lag bounds how late a release can have been
for reasons of ours. A beat that a blocked loop missed counts with the lag that it would have had: the
monitor omits nothing that it was too late to see.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Callable, Sequence

import msgspec

BEAT_NS = 100_000_000
"""Ten beats a second: any block longer than this is seen, for about 0.2 ms of CPU a second."""


class LagFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Lag over ``watched_ns`` of wall time, nanoseconds; percentile by nearest rank."""

    watched_ns: int
    p99_ns: int
    max_ns: int


class LoopLag:
    """The monitor of one event loop. A context manager, entered inside the running loop."""

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock_ns = clock_ns
        self._lags_ns = array("q")
        self._dropped = 0
        self._windows: set[LagWindow] = set()
        self._deadline_ns = 0
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> LoopLag:
        self._deadline_ns = self._clock_ns() + BEAT_NS
        self._schedule()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def open_window(self) -> LagWindow:
        """Watch from here on; ``close`` what is returned."""
        window = LagWindow(self, self._dropped + len(self._lags_ns), self._clock_ns())
        self._windows.add(window)
        return window

    def lags_since(self, first: int) -> Sequence[int]:
        """Lags of the beats from number ``first`` on, also of those that the loop is late to just now."""
        return [*self._lags_ns[first - self._dropped :], *overdue(self._deadline_ns, self._clock_ns())]

    def now_ns(self) -> int:
        """The monitor's clock."""
        return self._clock_ns()

    def forget(self, window: LagWindow) -> None:
        """Nobody asks for ``window`` any more; called by its ``close``."""
        self._windows.discard(window)
        keep = min((other.first for other in self._windows), default=self._dropped + len(self._lags_ns))
        del self._lags_ns[: keep - self._dropped]
        self._dropped = keep

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(self._deadline_ns / 1e9, self.beat)

    def beat(self) -> None:
        """A beat is due: take its lag and that of those before it that were missed."""
        missed = overdue(self._deadline_ns, self._clock_ns())
        if self._windows:
            self._lags_ns.extend(missed)
        else:
            self._dropped += len(missed)
        self._deadline_ns += len(missed) * BEAT_NS
        self._schedule()


class LagWindow:
    """What one session sees of the monitor: the beats from number ``first`` on."""

    def __init__(self, monitor: LoopLag, first: int, opened_ns: int) -> None:
        self.first = first
        self._monitor = monitor
        self._opened_ns = opened_ns

    def figures(self) -> LagFigures:
        """The lag up to now."""
        ordered = sorted(self._monitor.lags_since(self.first)) or [0]
        return LagFigures(
            watched_ns=self._monitor.now_ns() - self._opened_ns,
            p99_ns=ordered[-(-len(ordered) * 99 // 100) - 1],
            max_ns=ordered[-1],
        )

    def close(self) -> None:
        """Watch no longer."""
        self._monitor.forget(self)


def overdue(deadline_ns: int, now_ns: int) -> list[int]:
    """The lags of all beats due from ``deadline_ns`` on and no later than ``now_ns``, oldest first."""
    return list(range(now_ns - deadline_ns, -1, -BEAT_NS))

"""The clock of a session: one pair (media, wall) and a rate, re-taken only when time changes its course.

A clock reads nothing: whoever drives it passes the wall time in, so every implementation runs equally
on a monotonic clock and in a test. Deadlines are absolute, so lateness never adds up. Wall time is in
nanoseconds since ``ready``, media time in nanoseconds since the episode began.
"""

from __future__ import annotations

from typing import Literal, Protocol

from streamsim.events import ClockTaken, Instant
from streamsim_protocol.messages import ClockMode

Reason = Literal["start", "hold", "release", "jump", "pause", "resume", "rate", "step"]


class Clock(Protocol):
    """What a session is driven by."""

    @property
    def mode(self) -> ClockMode: ...

    def start(self, wall_ns: int) -> ClockTaken:
        """Media time begins at 0."""

    def now(self, wall_ns: int) -> Instant:
        """Both times at ``wall_ns``."""

    def wall_deadline(self, media_ns: int) -> int | None:
        """When media time reaches ``media_ns``; None while it stands."""

    def update(
        self, wall_ns: int, *, busy: bool, next_due_ns: int | None, starved: bool
    ) -> ClockTaken | None:
        """Let the session's state move the clock; the new pair if one was taken.

        ``next_due_ns`` is the media time of what is released next; ``starved`` says that it is not
        decoded yet.
        """


class PairClock:
    """A pair and a rate: the arithmetic that every mode shares."""

    mode: ClockMode

    def __init__(self, rate: float) -> None:
        self._media_ns = 0
        self._wall_ns = 0
        self._rate = 0.0
        self._running_rate = rate

    def start(self, wall_ns: int) -> ClockTaken:
        """Media time begins at 0."""
        return self._take(0, wall_ns, self._running_rate, "start")

    def now(self, wall_ns: int) -> Instant:
        """Both times at ``wall_ns``."""
        return Instant(self.media_at(wall_ns), wall_ns)

    def media_at(self, wall_ns: int) -> int:
        """Media time at ``wall_ns``, rounded down: an instant is never claimed early."""
        elapsed = wall_ns - self._wall_ns
        if self._rate in (0.0, 1.0):
            return self._media_ns + (elapsed if self._rate else 0)
        return self._media_ns + int(elapsed * self._rate)

    def wall_deadline(self, media_ns: int) -> int | None:
        """The first wall nanosecond at which media time is ``media_ns`` or later; None while it stands."""
        if media_ns <= self._media_ns:
            return self._wall_ns
        if self._rate == 0.0:
            return None
        if self._rate == 1.0:
            return self._wall_ns + media_ns - self._media_ns
        deadline = self._wall_ns + int((media_ns - self._media_ns) / self._rate)
        while self.media_at(deadline) < media_ns:
            deadline += 1
        return deadline

    def _take(self, media_ns: int, wall_ns: int, rate: float, reason: Reason) -> ClockTaken:
        assert media_ns >= self._media_ns and wall_ns >= self._wall_ns, "time went back"
        self._media_ns, self._wall_ns, self._rate = media_ns, wall_ns, rate
        return ClockTaken(media_ns=media_ns, wall_ns=wall_ns, rate=rate, reason=reason)


class RealtimeClock(PairClock):
    """The wall clock at rate 1: nothing holds it, not even our own late decoder."""

    mode: ClockMode = "realtime"

    def __init__(self) -> None:
        super().__init__(rate=1.0)

    def update(
        self, wall_ns: int, *, busy: bool, next_due_ns: int | None, starved: bool
    ) -> ClockTaken | None:
        """Nothing moves a real clock."""
        return None


class LockstepClock(PairClock):
    """Stands while the session is busy, then goes to what is due next."""

    mode: ClockMode = "lockstep"

    def __init__(self) -> None:
        super().__init__(rate=0.0)

    def update(
        self, wall_ns: int, *, busy: bool, next_due_ns: int | None, starved: bool
    ) -> ClockTaken | None:
        """Jump to the next due event once nothing is unsettled."""
        if busy or starved or next_due_ns is None or next_due_ns <= self._media_ns:
            return None
        return self._take(next_due_ns, wall_ns, 0.0, "jump")


def make_clock(mode: ClockMode, rate: float) -> Clock:
    """The clock of a mode; ``rate`` is for ``scaled`` alone."""
    match mode:
        case "realtime":
            return RealtimeClock()
        case "lockstep":
            return LockstepClock()
        case _:
            raise ValueError(f"no clock for mode {mode!r} at rate {rate}")

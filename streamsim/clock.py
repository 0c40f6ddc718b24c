"""The clock of a session: one pair (media, wall) and a rate, re-taken only when time changes its course.

A clock reads nothing: whoever drives it passes the wall time in, so every implementation runs equally
on a monotonic clock and in a test. Deadlines are absolute, so lateness never adds up, and all of it is
integer arithmetic, exact to the nanosecond. Wall time is in nanoseconds since ``ready``, media time in
nanoseconds since the episode began.
"""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction
from typing import Literal, Protocol

import msgspec

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
        """Both times at ``wall_ns``, which must not lie before the newest pair."""

    def wall_deadline(self, media_ns: int) -> int | None:
        """The first wall nanosecond at which media time is ``media_ns`` or later; None while it stands."""

    def update(
        self, wall_ns: int, *, busy: bool, next_due_ns: int | None, starved: bool
    ) -> ClockTaken | None:
        """Let the session's state move the clock; the new pair if one was taken.

        ``next_due_ns`` is the media time of what is released next; ``starved`` says that it is not
        decoded yet. Call it before every ``now``.
        """


class Pair(msgspec.Struct, frozen=True):
    """Media time was ``media_ns`` at ``wall_ns`` and moves at ``rate``: the arithmetic of all clocks."""

    media_ns: int
    wall_ns: int
    rate: Fraction

    def media_at(self, wall_ns: int) -> int:
        """Media time at ``wall_ns``, rounded down: an instant is never claimed early."""
        elapsed_ns = wall_ns - self.wall_ns
        return self.media_ns + elapsed_ns * self.rate.numerator // self.rate.denominator

    def wall_at(self, media_ns: int) -> int | None:
        """The first wall nanosecond at which media time is ``media_ns`` or later; None if it never is."""
        if media_ns <= self.media_ns:
            return self.wall_ns
        if not self.rate:
            return None
        missing = (media_ns - self.media_ns) * self.rate.denominator
        return self.wall_ns + -(-missing // self.rate.numerator)


def exact_rate(rate: float) -> Fraction:
    """A rate as exactly the decimal that it is written as, in journals too: 0.1 is one tenth."""
    return Fraction(str(rate))


class Course:
    """The course of media time: every pair that was taken, as the journal has them.

    What a clock's owner and a journal's reader derive from it: when something fell due, and how long
    time was paused.
    """

    def __init__(self) -> None:
        self._pairs: list[Pair] = []
        self._pauses: list[tuple[int, int]] = []
        self._paused_from_ns: int | None = None

    @property
    def started(self) -> bool:
        """Media time has begun."""
        return bool(self._pairs)

    @property
    def paused(self) -> bool:
        """Somebody said that time stands; a clock that is held or waits for its session is not paused."""
        return self._paused_from_ns is not None

    def add(self, taken: ClockTaken) -> None:
        """The next pair, in order."""
        pausing = taken.reason in ("pause", "step")
        if pausing and self._paused_from_ns is None:
            self._paused_from_ns = taken.wall_ns
        elif not pausing and self._paused_from_ns is not None:
            self._pauses.append((self._paused_from_ns, taken.wall_ns))
            self._paused_from_ns = None
        self._pairs.append(Pair(taken.media_ns, taken.wall_ns, exact_rate(taken.rate)))

    def wall_at(self, media_ns: int) -> int | None:
        """The first wall nanosecond at which media time was ``media_ns`` or later; None: not yet."""
        index = bisect_left(self._pairs, media_ns, key=lambda pair: pair.media_ns)
        if index:
            reached_ns = self._pairs[index - 1].wall_at(media_ns)
            if reached_ns is not None and (
                index == len(self._pairs) or reached_ns <= self._pairs[index].wall_ns
            ):
                return reached_ns
        return self._pairs[index].wall_ns if index < len(self._pairs) else None

    def paused_ns_since(self, wall_ns: int) -> int:
        """How long time was paused after ``wall_ns``, by pauses that are over."""
        if not self._pauses:
            return 0
        return sum(max(0, until_ns - max(from_ns, wall_ns)) for from_ns, until_ns in self._pauses)


class PairClock:
    """One pair, re-taken when time changes its course."""

    mode: ClockMode

    def __init__(self, rate: Fraction) -> None:
        self._pair = Pair(0, 0, Fraction(0))
        self._running_rate = rate

    def start(self, wall_ns: int) -> ClockTaken:
        """Media time begins at 0."""
        return self._take(0, wall_ns, self._running_rate, "start")

    def now(self, wall_ns: int) -> Instant:
        """Both times at ``wall_ns``."""
        return Instant(self.media_at(wall_ns), wall_ns)

    def media_at(self, wall_ns: int) -> int:
        """Media time at ``wall_ns``, rounded down: an instant is never claimed early."""
        return self._pair.media_at(wall_ns)

    def wall_deadline(self, media_ns: int) -> int | None:
        """The first wall nanosecond at which media time is ``media_ns`` or later; None while it stands."""
        return self._pair.wall_at(media_ns)

    def _take(self, media_ns: int, wall_ns: int, rate: Fraction, reason: Reason) -> ClockTaken:
        before = self._pair
        assert media_ns >= before.media_ns and wall_ns >= before.wall_ns, "time went back"
        taken = ClockTaken(media_ns=media_ns, wall_ns=wall_ns, rate=float(rate), reason=reason)
        self._pair = Pair(media_ns, wall_ns, exact_rate(taken.rate))  # what the journal says is what runs
        return taken


class RealtimeClock(PairClock):
    """The wall clock at rate 1: nothing holds it, not even our own late decoder."""

    mode: ClockMode = "realtime"

    def __init__(self) -> None:
        super().__init__(Fraction(1))

    def update(
        self, wall_ns: int, *, busy: bool, next_due_ns: int | None, starved: bool
    ) -> ClockTaken | None:
        """Nothing moves a real clock."""
        return None


class LockstepClock(PairClock):
    """Stands while the session is busy, then goes to what is due next."""

    mode: ClockMode = "lockstep"

    def __init__(self) -> None:
        super().__init__(Fraction(0))

    def update(
        self, wall_ns: int, *, busy: bool, next_due_ns: int | None, starved: bool
    ) -> ClockTaken | None:
        """Jump to the next due event once nothing is unsettled."""
        if busy or starved or next_due_ns is None or next_due_ns <= self._pair.media_ns:
            return None
        return self._take(next_due_ns, wall_ns, Fraction(0), "jump")


class SkipClock(PairClock):
    """Runs at wall rate while the session is busy, jumps to the next due event while it is not.

    A late decoder holds it at the instant of what cannot be released yet.
    """

    mode: ClockMode = "skip"

    def __init__(self) -> None:
        super().__init__(Fraction(1))
        self._told_wall_ns = 0

    def update(
        self, wall_ns: int, *, busy: bool, next_due_ns: int | None, starved: bool
    ) -> ClockTaken | None:
        """Jump, hold for the decoder, or go on after it."""
        if next_due_ns is None:
            return None
        if starved:
            return self._hold(wall_ns, next_due_ns)
        if not busy and next_due_ns > self.media_at(wall_ns):
            return self._take(next_due_ns, wall_ns, Fraction(1), "jump")
        if not self._pair.rate:
            return self._take(self._pair.media_ns, wall_ns, Fraction(1), "release")
        return None

    def now(self, wall_ns: int) -> Instant:
        """Both times at ``wall_ns``; no later pair reaches back behind it."""
        self._told_wall_ns = wall_ns
        return super().now(wall_ns)

    def _hold(self, wall_ns: int, next_due_ns: int) -> ClockTaken | None:
        """Stand at what is due, or at what was told since, where other things held it back before."""
        if not self._pair.rate or self.media_at(wall_ns) < next_due_ns:
            return None
        reached_ns = self.wall_deadline(next_due_ns)
        assert reached_ns is not None
        hold_ns = max(reached_ns, self._told_wall_ns)
        return self._take(self.media_at(hold_ns), hold_ns, Fraction(0), "hold")


class ScaledClock(PairClock):
    """The wall clock times a rate, with pause, resume, rate and single step: for demos, never for scores."""

    mode: ClockMode = "scaled"

    def __init__(self, rate: Fraction) -> None:
        """``rate`` is media seconds per wall second, above 0."""
        if rate <= 0:
            raise ValueError(f"expected a rate above 0, got {rate}")
        super().__init__(rate)
        self._paused = False

    @property
    def paused(self) -> bool:
        """Media time stands because somebody said so."""
        return self._paused

    def update(
        self, wall_ns: int, *, busy: bool, next_due_ns: int | None, starved: bool
    ) -> ClockTaken | None:
        """Only its controls move it."""
        return None

    def pause(self, wall_ns: int) -> ClockTaken | None:
        """Let media time stand; None if it does."""
        if self._paused:
            return None
        self._paused = True
        return self._take(self.media_at(wall_ns), wall_ns, Fraction(0), "pause")

    def resume(self, wall_ns: int) -> ClockTaken | None:
        """Let media time go on; None if it does."""
        if not self._paused:
            return None
        self._paused = False
        return self._take(self._pair.media_ns, wall_ns, self._running_rate, "resume")

    def set_rate(self, wall_ns: int, rate: Fraction) -> ClockTaken | None:
        """Go on at another rate (above 0); while paused it counts from ``resume``."""
        if rate <= 0:
            raise ValueError(f"expected a rate above 0, got {rate}")
        self._running_rate = rate
        if self._paused:
            return None
        return self._take(self.media_at(wall_ns), wall_ns, rate, "rate")

    def step(self, wall_ns: int, next_due_ns: int | None) -> ClockTaken | None:
        """Go to what is due next and stand there; None where nothing is due."""
        if next_due_ns is None:
            return None
        self._paused = True
        media_ns = max(next_due_ns, self.media_at(wall_ns))
        return self._take(media_ns, wall_ns, Fraction(0), "step")


def make_clock(mode: ClockMode, rate: float) -> Clock:
    """The clock of a mode; ``rate`` is for ``scaled`` alone, exact as the decimal that it is written as."""
    match mode:
        case "realtime":
            return RealtimeClock()
        case "skip":
            return SkipClock()
        case "scaled":
            return ScaledClock(exact_rate(rate))
        case "lockstep":
            return LockstepClock()

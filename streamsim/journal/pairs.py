"""The clock of a session as its journal tells it: pairs (media, wall) with a rate, and what they allow.

Between two pairs media time is exact arithmetic, so every instant that a journal states can be checked
to the nanosecond. What a clock may do depends on its mode: only simulated ones jump, and none while
the session is busy. This module knows neither frames nor queries, and it shares no code with the
clocks that it checks.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from math import floor

from streamsim.events import ClockTaken, Instant
from streamsim_protocol.messages import ClockMode

ALLOWED_REASONS: dict[ClockMode, frozenset[str]] = {
    "realtime": frozenset({"start"}),
    "skip": frozenset({"start", "jump", "hold", "release"}),
    "scaled": frozenset({"start", "pause", "resume", "rate", "step"}),
    "lockstep": frozenset({"start", "jump"}),
}
"""Why a clock of each mode may be taken anew."""
STANDING_REASONS = frozenset({"hold", "pause", "step"})
FORWARD_REASONS = frozenset({"jump", "step"})
"""Reasons that move media time; at all others it is continuous."""


@dataclass(frozen=True, slots=True)
class Pair:
    """From ``wall_ns`` on, media time is ``media_ns`` and moves at ``rate``."""

    media_ns: int
    wall_ns: int
    rate: Fraction

    def media_at(self, wall_ns: int) -> int:
        """Media time, rounded down to the nanosecond."""
        return self.media_ns + floor((wall_ns - self.wall_ns) * self.rate)

    def wall_at(self, media_ns: int) -> int | None:
        """The first wall nanosecond at which media time is ``media_ns`` or later; None if it never is."""
        if media_ns <= self.media_ns:
            return self.wall_ns
        if not self.rate:
            return None
        return self.wall_ns - floor(-(media_ns - self.media_ns) / self.rate)


@dataclass(frozen=True, slots=True)
class Contradiction:
    """What a journal states and what its own pairs allow."""

    found: str
    expected: str


class ClockPairs:
    """Follows the pairs of one session in the order of its journal."""

    def __init__(self, mode: ClockMode, rate: float) -> None:
        """``rate`` is the one that the session was configured with, exact as the decimal it is written as."""
        self._mode = mode
        self._running_rate = Fraction(0) if mode == "lockstep" else Fraction(str(rate))
        self._pairs: list[Pair] = []
        self._last_wall_ns = 0

    @property
    def started(self) -> bool:
        """Media time has begun."""
        return bool(self._pairs)

    def check_instant(self, at: Instant) -> Contradiction | None:
        """Whether an instant follows from the pair in force, and the wall clock has not gone back."""
        if at.wall_ns < self._last_wall_ns:
            return Contradiction(f"wall time {at.wall_ns} ns", f"{self._last_wall_ns} ns or later")
        self._last_wall_ns = at.wall_ns
        media_ns = self._pairs[-1].media_at(at.wall_ns) if self._pairs else 0
        if at.media_ns != media_ns:
            return Contradiction(
                f"media time {at.media_ns} ns at wall time {at.wall_ns} ns",
                f"{media_ns} ns by the clock's pair",
            )
        return None

    def take(self, at: Instant, taken: ClockTaken, *, busy: bool) -> Contradiction | None:
        """Take the next pair; ``busy`` is whether the session was, just before it."""
        problem = self._refuse(at, taken, busy)
        if problem is None:
            self._pairs.append(Pair(taken.media_ns, taken.wall_ns, Fraction(str(taken.rate))))
            self._last_wall_ns = max(self._last_wall_ns, taken.wall_ns)
        return problem

    def wall_at(self, media_ns: int) -> int | None:
        """The wall time at which media time first reached ``media_ns``; None if it has not."""
        later = bisect_left(self._pairs, media_ns, key=lambda pair: pair.media_ns)
        following = self._pairs[later] if later < len(self._pairs) else None
        if later:
            # it ran there under the last pair that began before, or came there with the next
            wall_ns = self._pairs[later - 1].wall_at(media_ns)
            if wall_ns is not None and (following is None or wall_ns <= following.wall_ns):
                return wall_ns
        return None if following is None else following.wall_ns

    def _refuse(self, at: Instant, taken: ClockTaken, busy: bool) -> Contradiction | None:
        reason = taken.reason
        if (taken.media_ns, taken.wall_ns) != (at.media_ns, at.wall_ns):
            return Contradiction(
                f"a pair ({taken.media_ns}, {taken.wall_ns}) ns",
                f"the line's own ({at.media_ns}, {at.wall_ns}) ns",
            )
        if reason not in ALLOWED_REASONS[self._mode] or (reason == "start") == self.started:
            return Contradiction(f"the clock taken anew for {reason!r}", self._describe_allowed())
        expected = self._expected_rate(taken)
        if expected is not None and Fraction(str(taken.rate)) != expected:
            return Contradiction(f"rate {taken.rate:g} after {reason!r}", f"{float(expected):g}")
        if reason == "start":
            if taken.media_ns != 0:
                return Contradiction(f"a start at media time {taken.media_ns} ns", "0 ns")
            return None
        return self._refuse_course(taken, self._pairs[-1], busy)

    def _refuse_course(self, taken: ClockTaken, before: Pair, busy: bool) -> Contradiction | None:
        # a hold is found out late and dates back to where media time must stand
        earliest_ns = before.wall_ns if taken.reason == "hold" else self._last_wall_ns
        if taken.wall_ns < earliest_ns:
            return Contradiction(
                f"a {taken.reason} at wall time {taken.wall_ns} ns", f"{earliest_ns} ns or later"
            )
        media_ns = before.media_at(taken.wall_ns)
        if taken.reason not in FORWARD_REASONS:
            if taken.media_ns != media_ns:
                return Contradiction(f"a {taken.reason} at media time {taken.media_ns} ns", f"{media_ns} ns")
            return None
        if taken.media_ns < media_ns:
            return Contradiction(
                f"a {taken.reason} to media time {taken.media_ns} ns", f"{media_ns} ns or later"
            )
        if busy and taken.reason == "jump":
            return Contradiction("a jump while the session was busy", "a jump only when nothing is unsettled")
        return None

    def _expected_rate(self, taken: ClockTaken) -> Fraction | None:
        """None where any rate will do."""
        if taken.reason in STANDING_REASONS:
            return Fraction(0)
        return None if self._mode == "scaled" and taken.reason != "start" else self._running_rate

    def _describe_allowed(self) -> str:
        allowed = sorted(ALLOWED_REASONS[self._mode] - {"start"} if self.started else {"start"})
        return f"{' or '.join(allowed) or 'no new pair'} in {self._mode}"

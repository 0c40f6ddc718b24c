"""Clocks to the nanosecond, against exact fractions; the course of time as a journal has it."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsim.clock import (
    Course,
    LockstepClock,
    Pair,
    RealtimeClock,
    ScaledClock,
    SkipClock,
    exact_rate,
    make_clock,
)
from streamsim.events import ClockTaken, Instant
from streamsim.testing import seconds
from streamsim_protocol.messages import ClockMode

HOUR_NS = 3600 * 10**9
times = st.integers(0, HOUR_NS)
rates = st.sampled_from([0.1, 0.25, 1 / 3, 0.7, 1.0, 1.5, 3.0, 7.3, 1e-3, 100.0]).map(exact_rate)


def take(
    clock: RealtimeClock | LockstepClock | SkipClock, wall_s: float, **state: object
) -> ClockTaken | None:
    """``update`` with what is not told as in an idle session in which F5 is next."""
    told = {"busy": False, "next_due_ns": seconds(5), "starved": False} | state
    return clock.update(seconds(wall_s), **told)  # type: ignore[arg-type]


class TestPair:
    @given(times, times, rates, times)
    def test_media_time_is_rounded_down(
        self, media_ns: int, wall_ns: int, rate: Fraction, later: int
    ) -> None:
        assert Pair(media_ns, wall_ns, rate).media_at(wall_ns + later) == media_ns + floor(later * rate)

    @given(times, times, rates, times)
    def test_a_deadline_is_the_first_nanosecond_at_which_it_is_reached(
        self, media_ns: int, wall_ns: int, rate: Fraction, ahead: int
    ) -> None:
        pair = Pair(media_ns, wall_ns, rate)
        deadline = pair.wall_at(media_ns + ahead)
        assert deadline == wall_ns + ceil(ahead / rate)
        assert pair.media_at(deadline) >= media_ns + ahead
        assert ahead == 0 or pair.media_at(deadline - 1) < media_ns + ahead

    def test_time_that_stands_reaches_nothing_new(self) -> None:
        pair = Pair(5, 100, Fraction(0))
        assert (pair.media_at(10**9), pair.wall_at(5), pair.wall_at(3), pair.wall_at(6)) == (
            5,
            100,
            100,
            None,
        )

    def test_a_rate_is_the_decimal_that_was_written(self) -> None:
        """0.1 as a float is more than a tenth: an hour of it would be 0.2 ns off, and not integers."""
        assert exact_rate(0.1) == Fraction(1, 10)
        assert Pair(0, 0, exact_rate(0.1)).wall_at(HOUR_NS) == 10 * HOUR_NS


class TestRealtime:
    def test_nothing_moves_it(self) -> None:
        clock = RealtimeClock()
        assert clock.now(77) == Instant(0, 77)
        assert clock.start(100) == ClockTaken(media_ns=0, wall_ns=100, rate=1.0, reason="start")
        assert take(clock, 1, busy=True) is None and take(clock, 2, starved=True) is None
        assert clock.now(seconds(3)) == Instant(seconds(3) - 100, seconds(3))
        assert clock.wall_deadline(seconds(3)) == seconds(3) + 100


class TestLockstep:
    def test_stands_while_busy_and_jumps_while_not(self) -> None:
        clock = LockstepClock()
        clock.start(0)
        assert take(clock, 1, busy=True) is None
        assert clock.now(seconds(9)).media_ns == 0 and clock.wall_deadline(1) is None
        jump = ClockTaken(media_ns=seconds(5), wall_ns=seconds(2), rate=0.0, reason="jump")
        assert take(clock, 2) == jump
        assert clock.now(seconds(9)) == Instant(seconds(5), seconds(9))
        assert take(clock, 3) is None, "F5 is due and not released yet"

    def test_waits_for_the_decoder_and_for_nothing(self) -> None:
        clock = LockstepClock()
        clock.start(0)
        assert take(clock, 1, starved=True) is None
        assert take(clock, 1, next_due_ns=None) is None


class TestSkip:
    def test_runs_while_busy_and_jumps_while_not(self) -> None:
        clock = SkipClock()
        clock.start(0)
        assert take(clock, 0.3, busy=True) is None
        assert clock.now(seconds(0.3)) == Instant(seconds(0.3), seconds(0.3))
        jump = ClockTaken(media_ns=seconds(5), wall_ns=seconds(0.3), rate=1.0, reason="jump")
        assert take(clock, 0.3) == jump
        assert clock.now(seconds(0.5)) == Instant(seconds(5.2), seconds(0.5))
        assert clock.wall_deadline(seconds(6)) == seconds(1.3)
        assert take(clock, 0.5) is None, "F5 is due and not released yet"

    def test_a_late_decoder_holds_it_at_what_is_due(self) -> None:
        clock = SkipClock()
        clock.start(0)
        assert take(clock, 4.9, busy=True, starved=True) is None
        hold = ClockTaken(media_ns=seconds(5), wall_ns=seconds(5), rate=0.0, reason="hold")
        assert take(clock, 5.7, busy=True, starved=True) == hold, "also when it is noticed late"
        assert take(clock, 6.0, busy=True, starved=True) is None
        assert clock.now(seconds(6)) == Instant(seconds(5), seconds(6))
        release = ClockTaken(media_ns=seconds(5), wall_ns=seconds(7), rate=1.0, reason="release")
        assert take(clock, 7.0, busy=True) == release
        assert clock.now(seconds(7.5)) == Instant(seconds(5.5), seconds(7.5))

    def test_a_hold_never_reaches_back_behind_what_was_told(self) -> None:
        """F5 was released late, for lack of credit, at 7 s; F6 is not decoded: time stands at 7 s."""
        clock = SkipClock()
        clock.start(0)
        take(clock, 7, busy=True)
        assert clock.now(seconds(7)).media_ns == seconds(7)
        hold = ClockTaken(media_ns=seconds(7), wall_ns=seconds(7), rate=0.0, reason="hold")
        assert take(clock, 7.5, busy=True, starved=True, next_due_ns=seconds(6)) == hold

    def test_does_not_jump_over_what_is_not_decoded(self) -> None:
        clock = SkipClock()
        clock.start(0)
        assert take(clock, 1, starved=True) is None
        assert clock.now(seconds(2)).media_ns == seconds(2)


class TestScaled:
    def test_pause_resume_rate_and_step(self) -> None:
        clock = ScaledClock(Fraction(2))
        clock.start(seconds(1))
        assert clock.now(seconds(3)).media_ns == seconds(4)
        assert clock.pause(seconds(3)) == ClockTaken(
            media_ns=seconds(4), wall_ns=seconds(3), rate=0.0, reason="pause"
        )
        assert clock.paused and clock.pause(seconds(4)) is None
        assert clock.now(seconds(10)).media_ns == seconds(4)
        assert clock.set_rate(seconds(10), Fraction(1, 2)) is None, "counts from resume"
        assert clock.step(seconds(11), seconds(6)) == ClockTaken(
            media_ns=seconds(6), wall_ns=seconds(11), rate=0.0, reason="step"
        )
        assert clock.step(seconds(11), None) is None
        assert clock.resume(seconds(12)) == ClockTaken(
            media_ns=seconds(6), wall_ns=seconds(12), rate=0.5, reason="resume"
        )
        assert clock.resume(seconds(13)) is None and not clock.paused
        assert clock.now(seconds(14)).media_ns == seconds(7)
        assert clock.set_rate(seconds(14), Fraction(3)) == ClockTaken(
            media_ns=seconds(7), wall_ns=seconds(14), rate=3.0, reason="rate"
        )
        assert clock.wall_deadline(seconds(10)) == seconds(15)

    def test_a_step_while_running_pauses(self) -> None:
        clock = ScaledClock(Fraction(1))
        clock.start(0)
        clock.step(seconds(1.5), seconds(2))
        assert clock.paused and clock.now(seconds(100)).media_ns == seconds(2)

    @pytest.mark.parametrize("rate", [0, -1])
    def test_a_rate_is_above_zero(self, rate: int) -> None:
        with pytest.raises(ValueError, match="expected a rate above 0"):
            ScaledClock(Fraction(rate))
        with pytest.raises(ValueError, match="expected a rate above 0"):
            ScaledClock(Fraction(1)).set_rate(0, Fraction(rate))

    def test_runs_at_the_very_rate_that_the_journal_says(self) -> None:
        clock = ScaledClock(Fraction(1, 3))
        taken = clock.start(0)
        assert clock.now(HOUR_NS).media_ns == floor(HOUR_NS * exact_rate(taken.rate))


def test_modes() -> None:
    modes: tuple[ClockMode, ...] = ("realtime", "skip", "scaled", "lockstep")
    assert tuple(make_clock(mode, 1.0).mode for mode in modes) == modes
    assert make_clock("scaled", 0.1).start(0).rate == 0.1


class TestCourse:
    def test_when_things_fell_due(self) -> None:
        """Start at wall 1, pause at 3 (media 4), step to 6 at 11, resume at 12 at half speed, jump to 20."""
        course = Course()
        assert not course.started
        for media_s, wall_s, rate, reason in (
            (0, 1, 2.0, "start"),
            (4, 3, 0.0, "pause"),
            (6, 11, 0.0, "step"),
            (6, 12, 0.5, "resume"),
            (20, 14, 0.5, "jump"),
        ):
            course.add(
                ClockTaken(
                    media_ns=seconds(media_s),
                    wall_ns=seconds(wall_s),
                    rate=rate,
                    reason=reason,  # type: ignore[arg-type]
                )
            )
        reached = {0: 1, 1: 1.5, 4: 3, 5: 11, 6: 11, 6.5: 13, 7: 14, 20: 14, 21: 16}
        assert {media_s: course.wall_at(seconds(media_s)) for media_s in reached} == {
            media_s: seconds(wall_s) for media_s, wall_s in reached.items()
        }
        assert [course.paused_ns_since(seconds(wall_s)) for wall_s in (0, 3, 5, 12, 13)] == [
            seconds(paused_s) for paused_s in (9, 9, 7, 0, 0)
        ]
        assert course.started and not course.paused

    def test_what_is_not_reached_yet(self) -> None:
        course = Course()
        course.add(ClockTaken(media_ns=0, wall_ns=0, rate=0.0, reason="start"))
        assert course.wall_at(1) is None and course.wall_at(0) == 0

    @given(
        st.lists(st.tuples(st.sampled_from(["pause", "resume", "rate", "step"]), times), max_size=8), rates
    )
    def test_agrees_with_the_clock_that_took_the_pairs(
        self, controls: list[tuple[str, int]], rate: Fraction
    ) -> None:
        """Whatever is released at the clock's own deadline fell due at that very nanosecond."""
        clock, course, wall_ns = ScaledClock(rate), Course(), 0
        course.add(clock.start(0))
        released: list[tuple[int, int]] = []
        for control, pause_ns in controls:
            due_ns = clock.now(wall_ns).media_ns + pause_ns % 10**9 + 1
            deadline = clock.wall_deadline(due_ns)
            if deadline is not None and deadline <= wall_ns + pause_ns:
                released.append((due_ns, deadline))
            wall_ns += pause_ns
            match control:
                case "pause":
                    taken = clock.pause(wall_ns)
                case "resume":
                    taken = clock.resume(wall_ns)
                case "rate":
                    taken = clock.set_rate(wall_ns, Fraction(3, 7))
                case _:
                    due_ns = clock.now(wall_ns).media_ns + 5
                    taken = clock.step(wall_ns, due_ns)
                    released.append((due_ns, wall_ns))
            if taken is not None:
                course.add(taken)
            assert course.paused == clock.paused
        assert [(due_ns, course.wall_at(due_ns)) for due_ns, _ in released] == released

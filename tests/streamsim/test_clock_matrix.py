"""An hour of media on every clock, under every control, by loops that wake early and late.

The oracle is written from the definition alone: media time is piecewise linear in wall time, with no
pair and no rounding in it; every rate here is a multiple of 1/1000, so thousandths of nanoseconds are
exact. A clock's stamps are whole nanoseconds, rounded down at each re-take, so they may lie below the
truth by less than one nanosecond for each re-take, and never above.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from math import ceil

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsim.clock import (
    Course,
    LockstepClock,
    RealtimeClock,
    ScaledClock,
    SkipClock,
    exact_rate,
)
from streamsim.events import ClockTaken

SECOND_NS = 10**9
HOUR_NS = 3600 * SECOND_NS
RATES = ("0.1", "0.333", "1.0", "1.5", "2.0", "29.97")
STEP_NS = 7 * SECOND_NS
"""How far apart in wall time the controls of a script are, at rate 1."""

Wakes = Callable[[int, int], int]
"""A loop's wake: (now, deadline) -> when it looks again."""
Script = Sequence[tuple[str, str | None]]


class Truth:
    """Media time by its definition: it moves at a rate, stands, or is set. In thousandths of nanoseconds."""

    def __init__(self, wall_ns: int, rate: str) -> None:
        self._wall_ns, self._media, self._rate = wall_ns, 0, thousandths(rate)
        self.bends = 1

    def media(self, wall_ns: int) -> int:
        return self._media + (wall_ns - self._wall_ns) * self._rate

    def bend(self, wall_ns: int, rate: str, media_ns: int | None = None) -> None:
        """From ``wall_ns`` on it moves at ``rate``, from ``media_ns`` if it is set."""
        self._media = self.media(wall_ns) if media_ns is None else media_ns * 1000
        self._wall_ns, self._rate = wall_ns, thousandths(rate)
        self.bends += 1

    def due_wall(self, media_ns: int) -> int:
        """The first wall nanosecond at which it has reached ``media_ns``, if it goes on like this."""
        return self._wall_ns + max(0, -(-(media_ns * 1000 - self._media) // self._rate))

    @property
    def rounding_wall_ns(self) -> int:
        """How much later a clock may get there that was rounded down at each bend."""
        return -(-self.bends * 1000 // self._rate)


def thousandths(rate: str) -> int:
    exact = Fraction(rate) * 1000
    assert exact.denominator == 1
    return exact.numerator


class Pairs:
    """What a journal keeps of a clock: its pairs as JSON lines. Stamps are computed from them alone."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._stamps: list[tuple[int, int, int]] = []

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def last_told_ns(self) -> int:
        """The newest stamp, 0 before the first."""
        return self._stamps[-1][2] if self._stamps else 0

    def add(self, taken: ClockTaken) -> None:
        self._lines.append(msgspec.json.encode(taken))

    def stamp(self, wall_ns: int, media_ns: int) -> None:
        """The clock said so, after as many pairs as there are now."""
        self._stamps.append((len(self._lines) - 1, wall_ns, media_ns))

    def check(self) -> None:
        taken = [msgspec.json.decode(line, type=ClockTaken) for line in self._lines]
        rates = [Fraction(str(pair.rate)) for pair in taken]
        for index, wall_ns, media_ns in self._stamps:
            pair, rate = taken[index], rates[index]
            elapsed_ns = (wall_ns - pair.wall_ns) * rate.numerator // rate.denominator
            assert media_ns == pair.media_ns + elapsed_ns

    def course(self) -> Course:
        course = Course()
        for line in self._lines:
            course.add(msgspec.json.decode(line, type=ClockTaken))
        return course


def early(seed: int) -> Wakes:
    """Wakes up to 1 ms before the deadline, again and again, and never after it."""
    draw = random.Random(seed)

    def wake(now_ns: int, deadline_ns: int) -> int:
        ahead_ns = draw.choice((0, 0, 1, draw.randrange(1_000_000)))
        return max(min(now_ns + 1, deadline_ns), deadline_ns - ahead_ns)

    return wake


def unsteady(seed: int) -> Wakes:
    """Wakes up to 1 ms before the deadline or up to 20 ms after it."""
    draw = random.Random(seed)

    def wake(now_ns: int, deadline_ns: int) -> int:
        return max(now_ns + 1, deadline_ns + draw.choice((-1, 0, 1)) * draw.randrange(1_000_000) * 20 // 19)

    return wake


def blocked(seed: int) -> Wakes:
    """Wakes on time, but for one time in ten, when something blocks the loop for up to 1.4 s."""
    draw = random.Random(seed)

    def wake(now_ns: int, deadline_ns: int) -> int:
        return deadline_ns + (draw.randrange(1_400_000_000) if draw.random() < 0.1 else 0)

    return wake


SCRIPTS: dict[str, Script] = {
    "nothing": (),
    "pause": (("pause", None), ("resume", None)) * 40,
    "step": (("step", None), ("step", None), ("resume", None)) * 25,
    "rate": tuple(("rate", rate) for rate in RATES) * 8,
    "all": (
        *(("pause", None), ("rate", "0.333"), ("step", None), ("pause", None), ("resume", None)),
        *(("rate", "29.97"), ("resume", None), ("step", None), ("rate", "1.5"), ("resume", None)),
    )
    * 6,
}


class Show:
    """An hour of frames on a scaled clock, released by a loop; a script of controls on the way."""

    def __init__(self, rate: str, fps: int, script: Script, wakes: Wakes) -> None:
        self.clock = ScaledClock(exact_rate(float(rate)))
        self.wakes = wakes
        self.rate = rate
        self.times_ns = [k * SECOND_NS // fps for k in range(3600 * fps)]
        self.released: list[tuple[int, int, int]] = []
        """(due media, due wall, released at wall)"""
        self.wall_ns = 12_345
        self.pairs = Pairs()
        self.pairs.add(self.clock.start(self.wall_ns))
        self.truth = Truth(self.wall_ns, rate)
        self.paused = False
        spacing_ns = ceil(STEP_NS / Fraction(rate))
        self.controls = [
            (self.wall_ns + (n + 1) * spacing_ns + n * 7_919, control, value)
            for n, (control, value) in enumerate(script)
        ]

    @property
    def next_ns(self) -> int | None:
        k = len(self.released)
        return self.times_ns[k] if k < len(self.times_ns) else None

    def play(self) -> None:
        """Look, release what is due, sleep until what comes next; every sleep may end early or late."""
        while self.next_ns is not None:
            while self.controls and self.controls[0][0] <= self.wall_ns:
                _, control, value = self.controls.pop(0)
                self.take(control, value)
            media_ns = self.look()
            while self.next_ns is not None and self.next_ns <= media_ns:
                self.release(self.next_ns)
            if self.next_ns is not None:
                self.wall_ns = self.wakes(self.wall_ns, self.next_deadline(self.next_ns))

    def look(self) -> int:
        """The clock's media time now, held to the truth."""
        now = self.clock.now(self.wall_ns)
        truth = self.truth.media(self.wall_ns)
        assert now.wall_ns == self.wall_ns
        assert 0 <= truth - now.media_ns * 1000 < self.truth.bends * 1000, "early, or more than rounded"
        self.pairs.stamp(self.wall_ns, now.media_ns)
        return now.media_ns

    def release(self, due_ns: int) -> None:
        deadline_ns = self.clock.wall_deadline(due_ns)
        assert deadline_ns is not None and deadline_ns <= self.wall_ns
        assert self.truth.media(self.wall_ns) >= due_ns * 1000, "released before it was due"
        self.released.append((due_ns, deadline_ns, self.wall_ns))

    def next_deadline(self, due_ns: int) -> int:
        deadline_ns = self.clock.wall_deadline(due_ns)
        assert (deadline_ns is None) == self.paused
        if deadline_ns is not None:
            self.check_first(due_ns, deadline_ns)
        control_ns = self.controls[0][0] if self.controls else None
        deadlines = [ns for ns in (deadline_ns, control_ns) if ns is not None]
        return min(deadlines)

    def check_first(self, due_ns: int, deadline_ns: int) -> None:
        """The deadline is the first nanosecond at which the clock is there, and no sooner than in truth."""
        assert self.clock.media_at(deadline_ns) >= due_ns
        assert self.clock.media_at(deadline_ns - 1) < due_ns
        true_ns = self.truth.due_wall(due_ns)
        assert true_ns <= deadline_ns <= true_ns + self.truth.rounding_wall_ns

    def take(self, control: str, value: str | None) -> None:
        wall_ns, due_ns = self.wall_ns, self.next_ns
        before = self.clock.now(wall_ns).media_ns
        match control:
            case "pause":
                taken = self.clock.pause(wall_ns)
                changes, self.paused = not self.paused, True
                if changes:
                    self.truth.bend(wall_ns, "0")
            case "resume":
                taken = self.clock.resume(wall_ns)
                changes, self.paused = self.paused, False
                if changes:
                    self.truth.bend(wall_ns, self.rate)
            case "rate":
                assert value is not None
                self.rate = value
                taken = self.clock.set_rate(wall_ns, exact_rate(float(value)))
                changes = not self.paused
                if changes:
                    self.truth.bend(wall_ns, self.rate)
            case _:
                assert due_ns is not None
                taken = self.clock.step(wall_ns, due_ns)
                changes, self.paused = True, True
                ahead = self.truth.media(wall_ns) < due_ns * 1000
                self.truth.bend(wall_ns, "0", due_ns if ahead else None)
        assert (taken is not None) == changes, f"{control} {'changed nothing' if changes else 'told twice'}"
        if taken is not None:
            self.pairs.add(taken)
            assert (taken.wall_ns, taken.reason) == (wall_ns, control)
            assert taken.media_ns == (max(before, due_ns or 0) if control == "step" else before)
            assert Fraction(str(taken.rate)) == Fraction("0" if self.paused else self.rate)


def check_hour(show: Show) -> None:
    """Every frame once, in order, none early; and the journalled pairs tell the same story."""
    show.play()
    assert [due_ns for due_ns, _, _ in show.released] == show.times_ns
    assert len(show.pairs) == show.truth.bends
    show.pairs.check()
    course = show.pairs.course()
    for due_ns, due_wall_ns, wall_ns in show.released:
        reached_ns = course.wall_at(due_ns)
        assert reached_ns is not None and reached_ns <= due_wall_ns <= wall_ns


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("rate", RATES)
def test_an_hour_by_a_loop_that_wakes_early_is_exact_to_the_nanosecond(rate: str, script: str) -> None:
    show = Show(rate, 1, SCRIPTS[script], early(1))
    check_hour(show)
    assert all(wall_ns == due_wall_ns for _, due_wall_ns, wall_ns in show.released)


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("rate", RATES)
def test_an_hour_by_an_unsteady_loop_releases_nothing_early_and_drifts_not(rate: str, script: str) -> None:
    show = Show(rate, 1, SCRIPTS[script], unsteady(2))
    check_hour(show)
    lateness = [wall_ns - due_wall_ns for _, due_wall_ns, wall_ns in show.released]
    assert max(lateness) < 22_000_000
    assert sum(late > 0 for late in lateness) > 1000
    if script == "nothing":  # each deadline counts from the start, whatever was late before
        assert [due_wall_ns for _, due_wall_ns, _ in show.released] == [
            12_345 + ceil(due_ns / Fraction(rate)) for due_ns in show.times_ns
        ]


@pytest.mark.slow
@pytest.mark.parametrize("rate", ["0.333", "29.97"])
def test_an_hour_at_ten_frames_a_second(rate: str) -> None:
    show = Show(rate, 10, SCRIPTS["all"], early(3))
    check_hour(show)
    assert all(wall_ns == due_wall_ns for _, due_wall_ns, wall_ns in show.released)


@pytest.mark.parametrize("fps", [1, 10])
@pytest.mark.parametrize("wakes", [early, unsteady])
def test_an_hour_of_realtime(fps: int, wakes: Callable[[int], Wakes]) -> None:
    """Due at the start plus its media time; stamps are the wall's own."""
    clock, wake, wall_ns, start_ns = RealtimeClock(), wakes(4), 1_000, 1_000
    clock.start(start_ns)
    for k in range(3600 * fps):
        due_ns = k * SECOND_NS // fps
        assert clock.wall_deadline(due_ns) == start_ns + due_ns
        while clock.now(wall_ns).media_ns < due_ns:
            wall_ns = wake(wall_ns, start_ns + due_ns)
        assert clock.now(wall_ns).media_ns == wall_ns - start_ns >= due_ns
        assert wakes is unsteady or wall_ns == start_ns + due_ns


# -------------------------------------------------------------- clocks that the session's state moves


class Desk:
    """Frames for a worker that settles them in turn, from a decoder that may be behind."""

    def __init__(self, service_ns: Callable[[int], int], decoded_ns: Sequence[int], fps: int) -> None:
        self.times_ns = [k * SECOND_NS // fps for k in range(len(decoded_ns))]
        self.service_ns = service_ns
        self.decoded_ns = decoded_ns
        self.released: list[tuple[int, int]] = []
        """(media stamp, wall)"""
        self._free_ns = 0

    @property
    def over(self) -> bool:
        return len(self.released) == len(self.times_ns)

    @property
    def due_ns(self) -> int:
        return self.times_ns[len(self.released)]

    def busy(self, wall_ns: int) -> bool:
        return self._free_ns > wall_ns

    def starved(self, wall_ns: int) -> bool:
        return self.decoded_ns[len(self.released)] > wall_ns

    def release(self, media_ns: int, wall_ns: int) -> None:
        self._free_ns = max(wall_ns, self._free_ns) + self.service_ns(len(self.released))
        self.released.append((media_ns, wall_ns))

    def changes(self, wall_ns: int) -> list[int]:
        """When the worker is free and when the next frame is decoded, as far as that is ahead."""
        ahead = (self._free_ns, self.decoded_ns[len(self.released)])
        return [change_ns for change_ns in ahead if change_ns > wall_ns]


def expect_releases(desk: Desk, *, runs: bool) -> Iterator[tuple[int, int]]:
    """(media, wall) of every release to a loop that is never late, from the definition alone.

    A frame goes out when the worker is free; if time ``runs`` while it is not, no later than the frame
    falls due; and not before it is decoded. Media time is then the frame's own.
    """
    media_ns, wall_ns, free_ns = 0, 0, 0
    for k, (due_ns, decoded_ns) in enumerate(zip(desk.times_ns, desk.decoded_ns, strict=True)):
        reached_ns = wall_ns + due_ns - media_ns
        wanted_ns = min(reached_ns, max(free_ns, wall_ns)) if runs else max(free_ns, wall_ns)
        media_ns, wall_ns = due_ns, max(wanted_ns, decoded_ns)
        free_ns = max(free_ns, wall_ns) + desk.service_ns(k)
        yield media_ns, wall_ns


def play_desk(clock: SkipClock | LockstepClock, desk: Desk, wakes: Wakes) -> None:
    """Release all frames; at every look media time is where the definition puts it."""
    runs = isinstance(clock, SkipClock)
    wall_ns, media_ns, held = 0, 0, False
    pairs = Pairs()
    pairs.add(clock.start(0))
    while not desk.over:
        due_ns, busy, starved = desk.due_ns, desk.busy(wall_ns), desk.starved(wall_ns)
        taken = clock.update(wall_ns, busy=busy, next_due_ns=due_ns, starved=starved)
        told_ns = pairs.last_told_ns
        if starved and runs and media_ns >= due_ns:  # time has stood since it was there
            media_ns, held = max(due_ns, told_ns), True
        elif not starved:
            held = False
            if not busy:
                media_ns = max(media_ns, due_ns)
        if taken is not None:
            pairs.add(taken)
            assert taken.reason in ("jump", "hold", "release") and taken.wall_ns <= wall_ns
        now = clock.now(wall_ns)
        assert (now.media_ns, now.wall_ns) == (media_ns, wall_ns)
        assert now.media_ns >= told_ns, "time went back"
        pairs.stamp(wall_ns, now.media_ns)
        if not starved and due_ns <= media_ns:
            desk.release(media_ns, wall_ns)
            continue
        wakeups = desk.changes(wall_ns)
        deadline_ns = clock.wall_deadline(due_ns)
        if due_ns > media_ns and deadline_ns is not None:
            wakeups.append(deadline_ns)
        before_ns, wall_ns = wall_ns, wakes(wall_ns, min(wakeups))
        if runs and not held:
            media_ns += wall_ns - before_ns
    pairs.check()


def service(k: int) -> int:
    """Mostly quicker than a frame a second, now and then much slower."""
    return 4_000_000_007 if k % 37 == 5 else (k * 7_919_000_003) % 400_000_000


def decoding(count: int) -> list[int]:
    """Ahead for most of the time, with stretches in which the next picture takes up to 3 s of wall time."""
    decoded_ns, ready_ns = [], 0
    for k in range(count):
        ready_ns += 3 * SECOND_NS if k % 101 in (40, 41, 42) else 30_000_001
        decoded_ns.append(ready_ns)
    return decoded_ns


@pytest.mark.slow
@pytest.mark.parametrize("fps", [1, 10])
@pytest.mark.parametrize("mode", [SkipClock, LockstepClock])
def test_an_hour_that_jumps_is_exact_to_the_nanosecond(
    mode: type[SkipClock] | type[LockstepClock], fps: int
) -> None:
    desk = Desk(lambda k: service(k) // fps, [ns // fps for ns in decoding(3600 * fps)], fps)
    play_desk(mode(), desk, early(5))
    assert desk.released == list(expect_releases(desk, runs=mode is SkipClock))


@pytest.mark.slow
@pytest.mark.parametrize("wakes", [unsteady(6), blocked(7)], ids=["unsteady", "blocked"])
@pytest.mark.parametrize("mode", [SkipClock, LockstepClock])
def test_an_hour_that_jumps_by_a_late_loop_releases_nothing_early_and_goes_not_back(
    mode: type[SkipClock] | type[LockstepClock], wakes: Wakes
) -> None:
    draw = random.Random(8)
    decoded_ns = [0]
    while len(decoded_ns) < 36_000:  # about as fast as time, in bursts: now ahead, now behind
        decoded_ns.append(decoded_ns[-1] + draw.choice((0, 0, 0, 400_000_000)))
    busy_ns = [draw.choice((0, 30_000_000, 300_000_000, 5)) for _ in decoded_ns]
    desk = Desk(lambda k: busy_ns[k], decoded_ns, 10)
    play_desk(mode(), desk, wakes)
    assert all(stamp >= due for due, (stamp, _) in zip(desk.times_ns, desk.released, strict=True))
    assert desk.released == sorted(desk.released)


# ------------------------------------------------------------------------------ arbitrary controls

gaps = st.integers(0, 400 * SECOND_NS)
controls = st.one_of(
    st.sampled_from(["pause", "resume", "step"]).map(lambda control: (control, None)),
    st.sampled_from(RATES).map(lambda rate: ("rate", rate)),
)


@given(st.sampled_from(RATES), st.lists(st.tuples(gaps, controls), max_size=12), st.integers(0, 2**32))
def test_any_sequence_of_controls(
    rate: str, sequence: list[tuple[int, tuple[str, str | None]]], seed: int
) -> None:
    """An hour of one frame a minute, controls at any instants, also several at one."""
    show = Show(rate, 1, (), early(seed))
    show.times_ns = [k * 60 * SECOND_NS for k in range(60)]
    wall_ns = show.wall_ns
    for gap_ns, (control, value) in sequence:
        wall_ns += gap_ns
        show.controls.append((wall_ns, control, value))
    show.controls.append((wall_ns + 1, "resume", None))
    check_hour(show)
    assert all(at_ns == due_wall_ns for _, due_wall_ns, at_ns in show.released)

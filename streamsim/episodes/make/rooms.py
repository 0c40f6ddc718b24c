"""The style "rooms": a camera that wanders through rooms in which things change behind its back.

Ten events a minute, half disappearances and half returns, two of them in one gap. For each the
camera looks at the spot, turns to the next room for a moment and looks again. Between events a flier
may carry something from spot to spot in full view, or the light may go out for a moment. Blinds move
and strangers come and go behind chests while their room is out of view.
"""

from __future__ import annotations

from random import Random
from typing import Literal

from streamsim.episodes.make.draft import Draft, sample_ns
from streamsim.episodes.make.scene import build_scene
from streamsim.episodes.make.script import EventKind, Pan, Script

ROOMS = 4
THINGS = 14
STRANGERS = 3
MIN_SECONDS, MAX_SECONDS = 20, 120
_FIRST_N = 2
_CYCLE_N = 3
_MAX_GAP_N = 7
_LAST_BEFORE_END_N = 11
_QUIET_END_N = 5
"""The last event comes in the last ten seconds, and there is time to look at what it did."""
_PAN_START, _PAN_END = 0.12, 0.88

Interlude = Literal["carry", "carry twice", "dark move", "dark", "calm"]


def script_rooms(random: Random, seconds: int) -> Script | None:
    """One try at an episode; None if the dice led into a corner, then the caller throws again."""
    return _Tour(random, seconds).run()


class _Tour:
    """The camera's way through the rooms, second by second. ``n`` is the present sample."""

    def __init__(self, random: Random, seconds: int) -> None:
        self._random = random
        self._draft = Draft(random, build_scene(random, ROOMS), seconds, things=THINGS, strangers=STRANGERS)
        self._seconds = seconds
        self._n = 0
        self._room = random.randrange(ROOMS)
        self._first_room = self._room
        self._rooms_at = {0: self._room}
        """The room in view at each sample."""

    def run(self) -> Script | None:
        self._furnish()
        self._wait(_FIRST_N)
        cycles = _order_cycles(self._random, _event_count(self._seconds))
        for place, (kind, count) in enumerate(cycles):
            if place and not self._approach(kind, count, remaining=len(cycles) - place):
                return None
            if not self._cycle(kind, count):
                return None
        while self._n < self._seconds:
            self._spend(min(4, self._seconds - self._n))
        self._move_blinds()
        self._send_strangers()
        draft = self._draft
        return draft.finish(
            camera_x=draft.scene.camera_x(self._first_room),
            onsets_ns=tuple(
                event.onset_ns for event in sorted(draft.events, key=lambda event: event.media_ns)
            ),
        )

    # ---------------------------------------------------------------------------- the camera's way

    def _wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self._n += 1
            self._rooms_at[self._n] = self._room

    def _turn(self, room: int) -> None:
        """Pan so that the next sample shows ``room``."""
        self._draft.pans.append(
            Pan(
                start_ns=sample_ns(self._n + _PAN_START),
                end_ns=sample_ns(self._n + _PAN_END),
                x=self._draft.scene.camera_x(room),
            )
        )
        self._room = room
        self._wait(1)

    def _go(self, room: int) -> None:
        """Room by room to ``room``."""
        while self._room != room:
            self._turn(self._room + (1 if room > self._room else -1))

    def _approach(self, kind: EventKind, count: int, *, remaining: int) -> bool:
        """Spend the time until the next event and be in its room when it is due."""
        before = self._n - _CYCLE_N
        later = remaining - 1
        low = max(_CYCLE_N, self._seconds - _LAST_BEFORE_END_N - before - later * _MAX_GAP_N)
        high = min(_MAX_GAP_N, self._seconds - _QUIET_END_N - before - later * (_CYCLE_N + 1))
        if low > high:
            return False
        ideal = (self._seconds - 9 - before) / remaining + self._random.choice((-1, 0, 0, 1))
        budget = max(low, min(high, round(ideal))) - _CYCLE_N
        rooms = [
            room
            for room in range(ROOMS)
            if abs(room - self._room) <= budget and self._suits(room, kind, count)
        ]
        if not rooms:
            return False
        room = self._random.choice([other for other in rooms if other != self._room] or rooms)
        if self._room in rooms and self._random.random() < 0.25:
            room = self._room
        spare = budget - abs(room - self._room)
        late = self._random.random() < 0.3
        if not late:
            self._spend(spare)
        self._go(room)
        if late:
            self._spend(spare)
        return self._suits(self._room, kind, count)

    def _suits(self, room: int, kind: EventKind, count: int) -> bool:
        """Whether ``count`` events of a kind can happen in a room."""
        draft = self._draft
        if kind == "disappearance":
            return len(draft.present(room)) > count
        return len(draft.free_spots(room)) > count + 2

    # -------------------------------------------------------------------------------- what happens

    def _furnish(self) -> None:
        """Objects stand in all rooms, four in one at most."""
        draft, random = self._draft, self._random
        homes = [room for room in range(ROOMS) for _ in range(4)]
        random.shuffle(homes)
        homes.sort(key=lambda room: room != self._room)
        for thing in range(THINGS):
            draft.put(thing, random.choice(draft.free_spots(homes[thing])), 0)

    def _cycle(self, kind: EventKind, count: int) -> bool:
        """Look, turn away, let ``count`` things vanish or return, look again, and once more."""
        draft, random, room = self._draft, self._random, self._room
        away = random.choice([other for other in (room - 1, room + 1) if 0 <= other < ROOMS])
        k = self._n
        self._turn(away)
        self._turn(room)
        self._wait(1)
        offsets = sorted(random.sample(range(100, 111), count))
        pool = draft.present(room) if kind == "disappearance" else draft.gone()
        if len(pool) < count:
            return False
        for thing, offset in zip(random.sample(pool, count), offsets, strict=True):
            spot = random.choice(draft.free_spots(room)) if kind == "return" else None
            draft.schedule(kind, thing, room, sample_ns(k) + offset * 10_000_000, spot=spot)
        return True

    def _spend(self, seconds: int) -> None:
        """Let ``seconds`` pass in the present room, with something to see where there is time."""
        draft, random = self._draft, self._random
        while seconds >= 2:
            choices: list[Interlude] = ["carry", "carry", "carry", "dark move", "dark", "calm"]
            if seconds >= 4:
                choices += ["carry twice"] * 4
            interlude = random.choice(choices)
            start = self._n
            match interlude:
                case "carry" | "carry twice":
                    thing = draft.carry(self._room, sample_ns(start + 0.2), sample_ns(start + 1.8))
                    if interlude == "carry twice" and thing is not None:
                        draft.carry(self._room, sample_ns(start + 2.2), sample_ns(start + 3.8), thing=thing)
                case "dark move" | "dark":
                    move = interlude == "dark move"
                    draft.darken(self._room, sample_ns(start + 0.3), sample_ns(start + 1.7), move=move)
                case "calm":
                    pass
            spent = 4 if interlude == "carry twice" else 2
            self._wait(spent)
            seconds -= spent
        self._wait(seconds)

    # ------------------------------------------------------------------- behind the camera's back

    def _absences(self, room: int) -> list[tuple[int, int]]:
        """First and last sample of each time the room was out of view after it had been seen."""
        found: list[tuple[int, int]] = []
        start: int | None = None
        for n in range(self._n + 1):
            if self._rooms_at[n] != room:
                start = n if start is None else start
            elif start is not None:
                if start > 0:
                    found.append((start, n - 1))
                start = None
        return found

    def _move_blinds(self) -> None:
        for room in range(ROOMS):
            for first, last in self._absences(room):
                if self._random.random() < 0.5:
                    self._draft.move_blind(room, sample_ns(self._random.randint(first, last)))

    def _send_strangers(self) -> None:
        """Each stranger comes to a room of its own while that is out of view, or is there from the
        start, and may go again later. Where it comes nothing else returns to the room meanwhile, and
        where it goes nothing else disappears: the edge of it must be all that a viewer has.
        """
        draft, random = self._draft, self._random
        rooms = random.sample(range(ROOMS), ROOMS)
        strangers = [index for index, thing in enumerate(draft.things) if thing.stranger]
        for stranger, room in zip(strangers, rooms, strict=False):
            gaps = [gap for gap in self._absences(room) if self._is_seen_after(room, gap)]
            comes = [gap for gap in gaps if not self._happens("return", room, gap)]
            goes = [gap for gap in gaps if not self._happens("disappearance", room, gap)]
            come = random.choice(comes) if comes and random.random() < 0.7 else None
            later = [gap for gap in goes if come is None or gap > come]
            if come is None and not later:
                continue
            draft.hide(stranger, room, 0 if come is None else sample_ns(come[0]))
            if later and (come is None or random.random() < 0.7):
                draft.put(stranger, None, sample_ns(random.choice(later)[0]))

    def _is_seen_after(self, room: int, gap: tuple[int, int]) -> bool:
        """Whether two samples in a row show the room after a gap."""
        return all(self._rooms_at.get(n) == room for n in (gap[1] + 1, gap[1] + 2))

    def _happens(self, kind: EventKind, room: int, gap: tuple[int, int]) -> bool:
        start, end = sample_ns(gap[0] - 1), sample_ns(gap[1] + 1)
        return any(
            event.kind == kind and event.room == room and start < event.media_ns < end
            for event in self._draft.events
        )


def _event_count(seconds: int) -> int:
    """Ten a minute, always an even number: half disappearances and half returns."""
    return 2 * max(1, round(seconds / 12))


def _order_cycles(random: Random, events: int) -> list[tuple[EventKind, int]]:
    """Events in an order in which only what is gone returns; from six on two of a kind share a gap."""
    half = events // 2
    pair: EventKind | None = random.choice(("disappearance", "return")) if half >= 3 else None
    while True:
        cycles: list[tuple[EventKind, int]] = []
        for kind in ("disappearance", "return"):
            if kind == pair:
                cycles += [(kind, 2)] + [(kind, 1)] * (half - 2)
            else:
                cycles += [(kind, 1)] * half
        random.shuffle(cycles)
        gone, fits = 0, True
        for kind, count in cycles:
            gone += count if kind == "disappearance" else -count
            fits = fits and 0 <= gone <= 4
        if fits:
            return cycles

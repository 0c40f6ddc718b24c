"""The style "revisit": clips of one room at 1.5 times their speed, a moment of black between them.

It imitates the benchmark's real track: three to ten visits to one region, assembled to about 45
seconds. What changes between two visits was never filmed, so that which very object it is, and which
change came first, stays open across black. Cuts lie on whole seconds: one who sees a picture a second
sees the black.
"""

from __future__ import annotations

from random import Random

from streamsim.episodes.make.draft import Draft, sample_ns
from streamsim.episodes.make.record import Record
from streamsim.episodes.make.scene import build_scene
from streamsim.episodes.make.script import SECOND, EventKind, Pan, Script, Spell

THINGS = 7
STRANGERS = 1
MIN_SECONDS, MAX_SECONDS = 20, 60
SPEED = 1.5
BLACK_NS = SECOND // 5
MIN_VISITS, MAX_VISITS = 3, 10
MIN_SOURCE_NS, MAX_SOURCE_NS = 3 * SECOND, 20 * SECOND
_MEAN_VISIT_N = 5
_MIN_VISIT_N = 4
_FRAMING_PX = 22
_FLIGHT_N, _DARK_N = 1.6 / SPEED, 1.4 / SPEED
_ROOM = 0


def script_revisit(random: Random, seconds: int) -> Script | None:
    """One try at an episode; None if the dice led into a corner, then the caller throws again."""
    draft = Draft(random, build_scene(random, 1), seconds, things=THINGS, strangers=STRANGERS)
    cuts = _cut(random, seconds)
    for thing in range(THINGS):
        draft.put(thing, random.choice(draft.free_spots(_ROOM)), 0)
    stranger_comes, stranger_goes = _stranger_cuts(random, len(cuts))
    framing = [random.randint(-_FRAMING_PX, _FRAMING_PX) for _ in range(len(cuts) + 1)]
    middle = draft.scene.camera_x(_ROOM)
    if stranger_comes == 0:
        draft.hide(THINGS, _ROOM, 0)
    _film(draft, 0, [*cuts, seconds + 1][0])
    for place, (cut, end) in enumerate(zip(cuts, [*cuts[1:], seconds + 1], strict=True), 1):
        start_ns = sample_ns(cut) - BLACK_NS // 2
        draft.black.append(Spell(start_ns=start_ns, end_ns=start_ns + BLACK_NS, room=None))
        draft.pans.append(Pan(start_ns=sample_ns(cut), end_ns=sample_ns(cut), x=middle + framing[place]))
        kinds: list[EventKind] = ["disappearance", "return"]
        if place == stranger_comes:
            draft.hide(THINGS, _ROOM, sample_ns(cut))
            kinds.remove("return")
        if place == stranger_goes:
            draft.put(THINGS, None, sample_ns(cut))
            kinds.remove("disappearance")
        _change(draft, cut, kinds)
        if random.random() < 0.5:
            draft.move_blind(_ROOM, sample_ns(cut))
        _film(draft, cut + 1, end)
    visits = (0, *(sample_ns(cut) + BLACK_NS // 2 for cut in cuts))
    return draft.finish(camera_x=middle + framing[0], onsets_ns=visits)


def find_revisit_faults(script: Script, record: Record) -> list[str]:
    """What is wrong with a script of visits, in words; empty for a good one."""
    faults = []
    starts = list(script.onsets_ns)
    ends = [spell.start_ns for spell in script.black] + [script.seconds * SECOND]
    if not MIN_VISITS <= len(starts) <= MAX_VISITS:
        faults.append(f"expected {MIN_VISITS} to {MAX_VISITS} visits, got {len(starts)}")
    for start, end in zip(starts, ends, strict=True):
        if not MIN_SOURCE_NS <= (end - start) * SPEED <= MAX_SOURCE_NS:
            faults.append(
                f"expected a visit of 3 to 20 s before the speed-up, got {(end - start) * SPEED} ns"
            )
    for event in script.events:
        if not script.is_black(event.media_ns):
            faults.append(f"{event}: expected it between two visits")
        confirmed = [
            change
            for change in record.changes
            if (change.kind, change.thing, change.first)
            == (event.kind, event.thing, event.media_ns // SECOND + 1)
        ]
        if len(confirmed) != 1:
            faults.append(f"{event}: expected the first two samples after it to confirm it")
    if len(record.changes) != len(script.events):
        faults.append(f"expected {len(script.events)} confirmed changes, got {len(record.changes)}")
    return faults


def _cut(random: Random, seconds: int) -> list[int]:
    """Whole seconds at which one visit ends and the next begins."""
    visits = max(MIN_VISITS, min(MAX_VISITS, seconds // _MEAN_VISIT_N))
    lengths = [_MIN_VISIT_N] * visits
    longest = int(MAX_SOURCE_NS / SPEED / SECOND)
    for _ in range(seconds - _MIN_VISIT_N * visits):
        growing = random.choice([place for place in range(visits) if lengths[place] < longest])
        lengths[growing] += 1
    return [sum(lengths[: place + 1]) for place in range(visits - 1)]


def _stranger_cuts(random: Random, cuts: int) -> tuple[int | None, int | None]:
    """At which cut (from 1; 0 is the start) the stranger comes, and at which it goes."""
    comes = random.randint(0, cuts - 1)
    return comes, random.randint(comes + 1, cuts) if random.random() < 0.8 else None


def _change(draft: Draft, cut: int, kinds: list[EventKind]) -> None:
    """What vanishes or returns between two visits: mostly one thing, at times two of a kind."""
    random = draft.random
    kind = random.choice(kinds)
    gone = draft.gone()
    if (kind == "return" and not gone) or (kind == "disappearance" and len(gone) >= 4):
        kind = "disappearance" if kind == "return" else "return"
        if kind not in kinds:
            return
    pool = draft.present(_ROOM) if kind == "disappearance" else gone
    count = 2 if random.random() < 0.3 and len(pool) >= 2 else 1
    for thing in random.sample(pool, min(count, len(pool))):
        spot = random.choice(draft.free_spots(_ROOM)) if kind == "return" else None
        draft.schedule(kind, thing, _ROOM, sample_ns(cut), spot=spot)


def _film(draft: Draft, first: int, end: int) -> None:
    """What happens within a visit whose samples are ``first`` to ``end`` - 1, after two calm ones."""
    random = draft.random
    n = first + 1
    carried: int | None = None
    while n + 2 < end:
        middle = n + 1
        what = random.choice(("carry", "carry", "carry", "dark move", "dark", "calm"))
        if what == "carry":
            start_ns, end_ns = sample_ns(middle - _FLIGHT_N / 2), sample_ns(middle + _FLIGHT_N / 2)
            carried = draft.carry(_ROOM, start_ns, end_ns, thing=carried)
        elif what != "calm":
            move = what == "dark move"
            draft.darken(_ROOM, sample_ns(middle - _DARK_N / 2), sample_ns(middle + _DARK_N / 2), move=move)
        n += 2

"""The acceptance of a script: every scheduled event happened as planned, to the pixel.

An episode is kept only when nothing is found; otherwise it is made anew from the next dice.
"""

from __future__ import annotations

from itertools import pairwise

from streamsim.episodes.make.record import VISIBLE_PX, Record, count_pixels
from streamsim.episodes.make.render import Renderer
from streamsim.episodes.make.scene import shown_room
from streamsim.episodes.make.script import AFTER_NS, AWAY_NS, BEFORE_NS, SECOND, Event, Script

FIRST_EVENT_NS = 4 * SECOND
LAST_EVENT_BEFORE_END_NS = 10 * SECOND
MAX_GAP_NS = 8 * SECOND


def find_faults(script: Script, record: Record) -> list[str]:
    """What is wrong with a script's events, in words; empty for a good one.

    Masks are rendered at the event's own instants, not only once a second: the thing (or its empty
    spot) is in view before, nothing of it or its room's middle is in view when it happens, and its
    new condition is in view after. Two samples in a row confirm it.
    """
    faults = _find_timing_faults(script)
    renderer = Renderer(script)
    for event in script.events:
        faults += _find_event_faults(script, renderer, event)
        confirmed = [
            change
            for change in record.changes
            if (change.kind, change.thing) == (event.kind, event.thing)
            and event.media_ns < change.first * SECOND <= event.media_ns + 2 * SECOND
        ]
        if len(confirmed) != 1:
            faults.append(f"{event}: expected two samples to confirm it, found {len(confirmed)} such changes")
    if len(record.changes) != len(script.events):
        faults.append(f"expected {len(script.events)} confirmed changes, got {len(record.changes)}")
    return faults


def _find_timing_faults(script: Script) -> list[str]:
    times = [event.media_ns for event in script.events]
    faults = []
    if times[0] > FIRST_EVENT_NS:
        faults.append(f"expected the first event by {FIRST_EVENT_NS} ns, got {times[0]}")
    if times[-1] < script.seconds * SECOND - LAST_EVENT_BEFORE_END_NS:
        faults.append(f"expected the last event in the last ten seconds, got {times[-1]}")
    if any(after - before > MAX_GAP_NS for before, after in pairwise(times)):
        faults.append(f"expected no gap above {MAX_GAP_NS} ns")
    kinds = [event.kind for event in script.events]
    if kinds.count("disappearance") != kinds.count("return"):
        faults.append("expected as many returns as disappearances")
    return faults


def _find_event_faults(script: Script, renderer: Renderer, event: Event) -> list[str]:
    before, away, after = (
        event.media_ns - BEFORE_NS,
        event.media_ns - AWAY_NS,
        event.media_ns + AFTER_NS,
    )
    vanishes = event.kind == "disappearance"
    faults = []
    for media_ns, present in ((before, vanishes), (after, not vanishes)):
        pixels = count_pixels(renderer, media_ns).get(event.thing, 0)
        if shown_room(script.scene, script.view_x(media_ns)) != event.room or script.is_dark(
            event.room, media_ns
        ):
            faults.append(f"{event}: expected its room in view and lit at {media_ns}")
        if (pixels < VISIBLE_PX) if present else (pixels > 0):
            faults.append(
                f"{event}: expected it {'visible' if present else 'absent'} at {media_ns}, got {pixels} px"
            )
    for media_ns in (away, event.media_ns):
        if event.thing in count_pixels(renderer, media_ns):
            faults.append(f"{event}: expected it out of view at {media_ns}")
        if shown_room(script.scene, script.view_x(media_ns)) == event.room:
            faults.append(f"{event}: expected its room out of view at {media_ns}")
    return faults

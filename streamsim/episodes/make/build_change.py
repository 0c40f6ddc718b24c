"""Builders of questions about what changed: what came or went, what carried it, which very one it is.

Known where the change happened in view or left no doubt; uncertain where only an edge shows, or where
the decisive moment was in the dark or behind the camera's back.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from random import Random

import msgspec

from streamsim.episodes.make.build_state import change_fields, latest_changes
from streamsim.episodes.make.palette import FLIERS
from streamsim.episodes.make.question import MOVE_OPTIONS, PLACE_OPTIONS, Item, pick_others, pick_shapes
from streamsim.episodes.make.record import Record
from streamsim.episodes.make.script import Script


class _Look(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between before and after the camera's last look away from the room in view."""

    room: int
    before: int
    after: int
    came: tuple[int, ...]
    went: tuple[int, ...]
    edges_came: tuple[int, ...]
    edges_went: tuple[int, ...]


def build_changes(script: Script, record: Record, random: Random, n: int) -> Iterator[Item]:
    """Items of state_change and object_tracking, and counts of moves, that could be asked at ``n``."""
    look = _last_look(record, n)
    if look is not None:
        yield from _what_changed(script, random, n, look)
    yield from _brought_by(script, record, n)
    yield from _since_a_change(script, record, random, n)


def _last_look(record: Record, n: int) -> _Look | None:
    """The last look away from the room in view: lit before it, and lit for two samples after it."""
    sample = record.samples[n]
    if sample.room is None or not sample.lit:
        return None
    room, after = sample.room, record.stay_start(n)
    before = max((other.n for other in record.samples[:after] if other.room == room), default=None)
    if before is None or after + 1 > n:
        return None
    old, new, again = (record.samples[at] for at in (before, after, after + 1))
    if not all(other.shows(room) and not other.fliers for other in (old, new)) or not again.shows(room):
        return None
    return _Look(
        room=room,
        before=before,
        after=after,
        came=tuple(thing for thing in new.visible if thing not in old.pixels),
        went=tuple(thing for thing in old.visible if thing not in new.pixels),
        edges_came=tuple(thing for thing in new.edges if thing not in old.pixels),
        edges_went=tuple(thing for thing in old.edges if thing not in new.pixels),
    )


def _what_changed(script: Script, random: Random, n: int, look: _Look) -> Iterator[Item]:
    room = script.scene.rooms[look.room].name
    for form, whole, edges in (
        ("turned_up", look.came, look.edges_came),
        ("went_missing", look.went, look.edges_went),
    ):
        if len(whole) + len(edges) != 1:
            continue
        known = len(whole) == 1
        thing = script.things[(whole or edges)[0]]
        shapes = pick_shapes(random, thing.shape, known=known)[known:]
        yield Item(
            form=form,
            subtype="visible_change" if known else "change_of_an_edge",
            n=n,
            fields={"room": room},
            answer=f"the {thing.name}" if known else None,
            others=tuple(f"the {thing.colour} {shape}" for shape in shapes),
            causes=() if known else ("partial_observation", "multiple_candidates"),
            span=(look.before, look.after + 1),
        )
        if form == "turned_up":
            yield Item(
                form="shape_of_new",
                subtype="category_returned" if known else "category_of_an_edge",
                n=n,
                fields={"room": room, "colour": thing.colour},
                answer=f"a {thing.shape}" if known else None,
                others=tuple(f"a {shape}" for shape in shapes),
                causes=() if known else ("partial_observation", "ambiguous_attribute"),
                span=(look.before, look.after + 1),
            )


def _brought_by(script: Script, record: Record, n: int) -> Iterator[Item]:
    options = tuple(f"a {flier}" for flier in FLIERS)
    for index, sighting in record.samples[n].visible.items():
        if sighting.spot is None:
            continue
        start = n
        while start > 0 and _spot(record, index, start - 1) == sighting.spot:
            start -= 1
        if start < 2 or (start == n and record.samples[n].fliers):
            continue
        moment, before = record.samples[start - 1], record.samples[start - 2]
        answer: str | None = None
        causes: tuple[str, ...]
        if index in moment.visible and moment.visible[index].spot is None and len(moment.fliers) == 1:
            answer, causes = f"a {moment.fliers[0]}", ()
        elif (
            not moment.lit
            and moment.room == record.samples[n].room
            and index in before.visible
            and before.visible[index].spot != sighting.spot
        ):
            causes = ("low_visual_quality",)
        elif any(
            change.thing == index and change.kind == "return" and change.first == start and change.n <= n
            for change in record.changes
        ):
            causes = ("missing_observation",)
        else:
            continue
        yield Item(
            form="brought_by",
            subtype="visible_cause" if answer else "hidden_cause",
            n=n,
            fields={"thing": script.things[index].name},
            answer=answer,
            others=tuple(option for option in options if option != answer),
            causes=causes,
            span=(start - 2, max(start, n)),
        )


def _spot(record: Record, thing: int, n: int) -> object:
    sighting = record.samples[n].visible.get(thing)
    return None if sighting is None else sighting.spot


def _since_a_change(script: Script, record: Record, random: Random, n: int) -> Iterator[Item]:
    """What became of a thing that was in view at an earlier change: its moves, and where that very one is."""
    for change in latest_changes(record, n):
        if change.n >= n:
            continue
        for index, now in record.samples[n].visible.items():
            then = record.samples[change.n].visible.get(index)
            if now.spot is None or then is None or then.spot is None or index == change.thing:
                continue
            between = record.samples[change.n : n + 1]
            unbroken = all(index in sample.visible for sample in between)
            known = unbroken and len({sample.room for sample in between}) == 1
            if not known and unbroken:
                continue
            dark = any(not sample.lit and sample.room is not None for sample in between)
            away = any(
                index not in sample.visible and (sample.lit or sample.room is None) for sample in between
            )
            fields = {"thing": script.things[index].name, **change_fields(script, change)}
            moves = _count_moves(record, index, change.n, n)
            if known and moves >= len(MOVE_OPTIONS):
                continue
            count = MOVE_OPTIONS[moves] if known else None
            yield Item(
                form="moves",
                subtype="visible_count" if known else "hidden_count",
                n=n,
                fields=fields,
                answer=count,
                others=tuple(option for option in MOVE_OPTIONS if option != count),
                causes=()
                if known
                else ("missing_observation",) * away + ("low_visual_quality",) * (dark and not away),
                span=(change.first, n),
            )
            place = PLACE_OPTIONS[now.place] if known else None
            yield Item(
                form="very_one",
                subtype="same_instance_in_view" if known else "same_instance_across_a_gap",
                n=n,
                fields=fields,
                answer=place,
                others=pick_others(random, place, list(PLACE_OPTIONS.values())),
                causes=() if known else ("ambiguous_evidence",),
                span=(change.first, n),
            )


def _count_moves(record: Record, thing: int, start: int, end: int) -> int:
    """How often a thing's spot differs from the one before, in the samples from ``start`` to ``end``."""
    spots = [_spot(record, thing, n) for n in range(start, end + 1)]
    spots = [spot for spot in spots if spot is not None]
    return sum(one != other for one, other in pairwise(spots))

"""Builders of questions about a state, now or at an earlier change: where things are, how blinds hang.

Known where the asked-for sample shows it; uncertain where the thing had gone, the room was out of
view and its blind hangs differently since, or the light was out.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from streamsim.episodes.make.palette import BLINDS
from streamsim.episodes.make.question import (
    BLIND_OPTIONS,
    CHANGE_WORDS,
    PLACE_OPTIONS,
    Item,
    pick_others,
)
from streamsim.episodes.make.record import Confirmed, Record, Sighting
from streamsim.episodes.make.script import Script

_FORGOTTEN_N = 3
"""A blind that was seen more recently than this many samples ago is not asked for while out of view."""


def build_states(script: Script, record: Record, random: Random, n: int) -> Iterator[Item]:
    """Items of current_state and factual_retrieval that could be asked at second ``n``."""
    yield from _where_now(script, record, random, n)
    yield from _blinds_now(script, record, random, n)
    for change in latest_changes(record, n):
        yield from _where_then(script, record, random, n, change)
        yield from _blinds_then(script, record, random, n, change)


def latest_changes(record: Record, n: int) -> list[Confirmed]:
    """The last confirmed change of each thing and kind up to second ``n``."""
    latest = {(change.thing, change.kind): change for change in record.changes if change.n <= n}
    return list(latest.values())


def gone_since(record: Record, thing: int, n: int) -> Confirmed | None:
    """The disappearance after which a thing has not been seen by second ``n``; None if it is not gone."""
    changes = [change for change in record.changes if change.thing == thing]
    gone: Confirmed | None = None
    for change in changes:
        if change.kind == "disappearance" and change.n <= n:
            gone = change
        elif change.kind == "return" and change.first <= n:
            gone = None
    return gone


def change_fields(script: Script, change: Confirmed) -> dict[str, str]:
    """How a question names a change: ``other`` and ``change``."""
    return {"other": script.things[change.thing].name, "change": CHANGE_WORDS[change.kind]}


def room_option(room: str) -> str:
    """A room as an option."""
    return f"in the {room}"


def _where_options(script: Script) -> tuple[bool, list[str]]:
    """Whether places are asked for (there is one room only), and the pool of options."""
    if len(script.scene.rooms) == 1:
        return True, list(PLACE_OPTIONS.values())
    return False, [room_option(room.name) for room in script.scene.rooms]


def _where_option(sighting: Sighting, *, places: bool) -> str:
    return PLACE_OPTIONS[sighting.place] if places else room_option(sighting.room)


def _where_now(script: Script, record: Record, random: Random, n: int) -> Iterator[Item]:
    places, pool = _where_options(script)
    form = "place_now" if places else "room_now"
    sample = record.samples[n]
    for index, thing in enumerate(script.things):
        fields = {"thing": thing.name}
        sighting = sample.visible.get(index)
        if sighting is not None and sighting.spot is not None and n > 0:
            answer = _where_option(sighting, places=places)
            stale = _seen_before(record, index, n, sighting, places=places)
            others = pick_others(random, answer, pool, always=stale)
            yield Item(
                form=form,
                subtype="visible_room",
                n=n,
                fields=fields,
                answer=answer,
                others=others,
                span=(n - 1, n),
            )
            continue
        gone = gone_since(record, index, n)
        if gone is not None and index not in sample.pixels and sample.lit:
            last = record.samples[gone.before].visible[index]
            stale = None if last.place not in PLACE_OPTIONS else _where_option(last, places=places)
            others = pick_others(random, None, pool, always=stale)
            yield Item(
                form=form,
                subtype="hidden_location",
                n=n,
                fields=fields,
                answer=None,
                others=others,
                causes=("missing_observation",),
                span=(gone.before, n),
            )


def _seen_before(record: Record, thing: int, n: int, now: Sighting, *, places: bool) -> str | None:
    """Where a thing was seen before, if that was elsewhere: the stale answer."""
    for sample in reversed(record.samples[:n]):
        then = sample.visible.get(thing)
        if then is not None and then.spot is not None and then.spot != now.spot:
            option = _where_option(then, places=places)
            return None if option == _where_option(now, places=places) else option
    return None


def _blinds_now(script: Script, record: Record, random: Random, n: int) -> Iterator[Item]:
    sample = record.samples[n]
    if n == 0:
        return
    for room in script.scene.rooms:
        seen = [other.n for other in record.samples[: n + 1] if other.shows(room.index)]
        if not seen:
            continue
        shown = sample.room == room.index
        answer: str | None = None
        causes: tuple[str, ...] = ("missing_observation",)
        span = (seen[-1], n)
        if shown and sample.lit:
            if sample.fliers or sample.blind is None:
                continue
            answer, causes, span = BLIND_OPTIONS[sample.blind], (), (n - 1, n)
        elif shown and not sample.lit:
            causes = ("low_visual_quality",)
        elif not sample.lit or n - seen[-1] < _FORGOTTEN_N:
            continue
        yield Item(
            form="blind_now",
            subtype="visible_blind" if answer else "hidden_blind",
            n=n,
            fields={"room": room.name},
            answer=answer,
            others=pick_others(random, answer, [BLIND_OPTIONS[name] for name in BLINDS]),
            causes=causes,
            span=span,
        )


def _where_then(script: Script, record: Record, random: Random, n: int, change: Confirmed) -> Iterator[Item]:
    places, pool = _where_options(script)
    for index, thing in enumerate(script.things):
        if index == change.thing or thing.stranger:
            continue
        fields = {"thing": thing.name, **change_fields(script, change)}
        form = "place_when" if places else "room_when"
        then = [record.samples[at].visible.get(index) for at in (change.first, change.n)]
        if (
            then[0] is not None
            and then[1] is not None
            and then[0].spot == then[1].spot
            and then[1].spot is not None
        ):
            answer = _where_option(then[1], places=places)
            yield Item(
                form=form,
                subtype="room_of_the_change",
                n=n,
                fields=fields,
                answer=answer,
                others=pick_others(random, answer, pool),
                span=(change.first, change.n),
            )
            continue
        gone = gone_since(record, index, change.n)
        if gone is not None and gone.first <= change.first:
            last = record.samples[gone.before].visible[index]
            stale = None if last.place not in PLACE_OPTIONS else _where_option(last, places=places)
            yield Item(
                form=form,
                subtype="location_in_a_gap",
                n=n,
                fields=fields,
                answer=None,
                others=pick_others(random, None, pool, always=stale),
                causes=("missing_observation",),
                span=(gone.before, change.n),
            )


def _blinds_then(script: Script, record: Record, random: Random, n: int, change: Confirmed) -> Iterator[Item]:
    pool = [BLIND_OPTIONS[name] for name in BLINDS]
    if len(script.scene.rooms) == 1:
        return
    for room in script.scene.rooms:
        answer: str | None = None
        if room.index == change.room:
            blind = record.samples[change.n].blind
            assert blind is not None, "a change is confirmed by lit samples"
            answer, span = BLIND_OPTIONS[blind], (change.first, change.n)
        else:
            before = _nearest_blind(record, room.index, range(change.first - 1, -1, -1))
            after = _nearest_blind(record, room.index, range(change.n + 1, n + 1))
            if before is None or after is None or before[1] == after[1]:
                continue
            span = (before[0], after[0])
        yield Item(
            form="blind_when",
            subtype="blind_at_the_change" if answer else "blind_in_a_gap",
            n=n,
            fields={"room": room.name, **change_fields(script, change)},
            answer=answer,
            others=pick_others(random, answer, pool),
            causes=() if answer else ("missing_observation",),
            span=span,
        )


def _nearest_blind(record: Record, room: int, samples: range) -> tuple[int, str] | None:
    """The first sample of ``samples`` that shows a room's blind, and how it hangs there."""
    for n in samples:
        sample = record.samples[n]
        if sample.shows(room) and sample.blind is not None:
            return n, sample.blind
    return None

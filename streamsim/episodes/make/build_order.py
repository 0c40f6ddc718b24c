"""Builders of questions about the order of changes: which of three was the first, second or last.

Known where the changes were found in different looks; uncertain where two that decide it fell into
one gap: both were found at once, and which came first was hidden.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from random import Random

from streamsim.episodes.make.question import ORDINALS, VERBS, Item
from streamsim.episodes.make.record import Confirmed, Record
from streamsim.episodes.make.script import Script


def build_orders(script: Script, record: Record, random: Random, n: int) -> Iterator[Item]:
    """Items of temporal_reasoning, and of history_aggregation about the latest change, at second ``n``."""
    for kind, verb in VERBS.items():
        changes = [change for change in record.changes if change.kind == kind and change.n <= n]
        once = [change for change in changes if sum(other.thing == change.thing for other in changes) == 1]
        for three in combinations(once, 3):
            ordered = sorted(three, key=lambda change: change.first)
            named = [script.things[change.thing].name for change in random.sample(three, 3)]
            fields = dict(zip(("first", "second", "third"), named, strict=True)) | {"verb": verb}
            yield _item(script, n, ordered, 2, {**fields}, form="latest")
            for rank, ordinal in enumerate(ORDINALS):
                yield _item(script, n, ordered, rank, {**fields, "ordinal": ordinal}, form="order")


def _item(
    script: Script, n: int, ordered: list[Confirmed], rank: int, fields: dict[str, str], *, form: str
) -> Item:
    """The item that asks for the change at ``rank`` (0 to 2) of three in order."""
    asked = ordered[rank]
    tied = [change for change in ordered if change.first == asked.first and change is not asked]
    names = [f"the {script.things[change.thing].name}" for change in ordered]
    answer = None if tied else names[rank]
    return Item(
        form=form,
        subtype="visible_order" if answer else "hidden_order",
        n=n,
        fields=fields,
        answer=answer,
        others=tuple(name for name in names if name != answer),
        causes=() if answer else ("missing_observation",),
        span=(min(change.before for change in ordered), ordered[-1].n),
    )

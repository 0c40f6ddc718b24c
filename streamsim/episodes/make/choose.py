"""Chooses which items of an episode are asked, and in which order their options stand.

An episode asks each question type once where the record answers it, and four types where it does not;
the types of the latter go round from episode to episode. Within that, what has been asked least so
far in the data set comes first: cells of intensity and status, forms, answers, moments. Choices
depend on the seed and on the episodes before, never on those after. This module knows no pictures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random

import msgspec

from streamsim.episodes.episode import QUESTION_TYPES, Status
from streamsim.episodes.make.question import ABSTENTION, WORDINGS, Item

SECONDS_PER_QUERY = 6
UNCERTAIN_SHARE = 0.4


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """An item that is asked: its wording and its options.

    ``stored`` are the options in the order of the annotation (the answer first), ``permutation`` says
    which of them stands where: ``presented[j] = stored[permutation[j]]``.
    """

    item: Item
    intensity: int
    wording: int
    stored: tuple[str, ...]
    permutation: tuple[int, ...]

    @property
    def options(self) -> tuple[str, ...]:
        """The options in presented order."""
        return tuple(self.stored[index] for index in self.permutation)

    @property
    def answer_index(self) -> int:
        """Where the right option stands in presented order."""
        return self.permutation.index(0)


def intensity_bin(intensity: int) -> int:
    """0, 1, 2 for low (1 to 3), middle (4 to 6) and high change intensity."""
    return 0 if intensity <= 3 else 1 if intensity <= 6 else 2


class Chooser:
    """Chooses episode after episode; its counts are those of the data set so far."""

    def __init__(self, seed: str) -> None:
        self._random = Random(f"{seed}:choose")
        self._episodes = 0
        self._counts: Counter[tuple[object, ...]] = Counter()
        self._positions: Counter[tuple[Status, int]] = Counter()

    def choose(self, items: Sequence[Item], intensity: dict[int, int], *, seconds: int) -> list[Asked]:
        """The queries of the next episode, by time. ``intensity`` is that of each second.

        Fewer than asked for only where the episode offers no more moments.
        """
        chosen: list[Item] = []
        for status, question_type in self._slots(seconds):
            fitting = [item for item in items if item.status == status]
            narrow = [item for item in fitting if item.question_type == question_type]
            item = self._best(narrow, intensity, chosen) or self._best(fitting, intensity, chosen)
            if item is not None:
                chosen.append(item)
                self._count(item, intensity)
        self._episodes += 1
        return [self._arrange(item, intensity[item.n]) for item in sorted(chosen, key=lambda item: item.n)]

    def _slots(self, seconds: int) -> list[tuple[Status, str]]:
        """Status and type of each query of the next episode, the scarcest first."""
        count = max(4, round(seconds / SECONDS_PER_QUERY))
        uncertain = round(count * UNCERTAIN_SHARE)
        kinds = len(QUESTION_TYPES)
        shares: tuple[tuple[Status, int], ...] = (("uncertain", uncertain), ("known", count - uncertain))
        slots = [
            (status, QUESTION_TYPES[(self._episodes * share + step) % kinds])
            for status, share in shares
            for step in range(share)
        ]
        return sorted(slots, key=lambda slot: slot[1] not in ("temporal_reasoning", "history_aggregation"))

    def _best(self, items: Iterable[Item], intensity: dict[int, int], chosen: Sequence[Item]) -> Item | None:
        """The item that evens the counts out most; ties fall to the dice."""
        free = [
            item
            for item in items
            if all(
                item.n != other.n and (item.form, item.fields) != (other.form, other.fields)
                for other in chosen
            )
        ]
        if not free:
            return None
        dice = {id(item): self._random.random() for item in free}
        return min(free, key=lambda item: (self._cost(item, intensity, chosen), dice[id(item)]))

    def _cost(self, item: Item, intensity: dict[int, int], chosen: Sequence[Item]) -> float:
        cost = 0.0
        for weight, key in self._keys(item, intensity):
            cost += weight * self._counts[key]
        for trait in _traits(item, intensity[item.n]):
            known = self._counts["known", trait] / (1 - UNCERTAIN_SHARE)
            uncertain = self._counts["uncertain", trait] / UNCERTAIN_SHARE
            cost += 0.5 * (known - uncertain if item.status == "known" else uncertain - known)
        for end, hit in _ends(item):
            surplus = self._counts["right", item.status, end] - self._counts["wrong", item.status, end] / 3
            cost += 0.5 * surplus * (1 if hit else -1 / 3)
        crowd = sum(abs(item.n - other.n) <= 2 for other in chosen)
        named = set(item.fields.values())
        repeats = sum(bool(named & set(other.fields.values())) for other in chosen)
        return cost + 0.6 * crowd + 0.25 * repeats

    def _keys(self, item: Item, intensity: dict[int, int]) -> list[tuple[float, tuple[object, ...]]]:
        """What is kept even, and how much it matters."""
        keys: list[tuple[float, tuple[object, ...]]] = [
            (0.15, ("cell", item.status, intensity_bin(intensity[item.n]))),
            (0.5, ("form and bin", item.status, item.form, intensity_bin(intensity[item.n]))),
            (1.0, ("form", item.status, item.form)),
            (0.4, ("age", item.status, min(3, (item.n - item.span[1]) // 4))),
        ]
        if item.answer is not None:
            keys.append((1.0, ("answer", item.form, item.answer)))
        else:
            keys.append((0.7, ("causes", item.form, item.causes)))
        return keys

    def _count(self, item: Item, intensity: dict[int, int]) -> None:
        for trait in _traits(item, intensity[item.n]):
            self._counts[item.status, trait] += 1
        for end, hit in _ends(item):
            self._counts["right" if hit else "wrong", item.status, end] += 1
        for _, key in self._keys(item, intensity):
            self._counts[key] += 1

    def _arrange(self, item: Item, intensity: int) -> Asked:
        """Put the options in order: the right one where it has stood least so far."""
        right, *wrong = _options(item)
        assert len(wrong) == 3, f"expected three wrong options, got {wrong}"
        fewest = min(self._positions[item.status, place] for place in range(4))
        place = self._random.choice([p for p in range(4) if self._positions[item.status, p] == fewest])
        self._positions[item.status, place] += 1
        order = [1, 2, 3]
        self._random.shuffle(order)
        order.insert(place, 0)
        wording = self._random.randrange(len(WORDINGS[item.form]))
        return Asked(
            item=item, intensity=intensity, wording=wording, stored=(right, *wrong), permutation=tuple(order)
        )


def _traits(item: Item, intensity: int) -> list[tuple[str, ...]]:
    """What could give an item's status away to one who only reads: form, wording of it, and moment.

    Within each of these known and uncertain items are kept in the proportion of the whole.
    """
    variant = [item.fields[name] for name in ("change", "verb", "ordinal") if name in item.fields]
    moment = str(intensity_bin(intensity))
    return [(item.form,), (item.form, moment), (item.form, *variant), (item.form, moment, *variant)]


def _options(item: Item) -> tuple[str, ...]:
    """All options, the right one first."""
    return (ABSTENTION, *item.others) if item.answer is None else (item.answer, *item.others, ABSTENTION)


def _ends(item: Item) -> list[tuple[str, bool]]:
    """Where one option is the longest, or the shortest, of all: which of the two, and if it is right.

    By chance the right one is so in a quarter of the cases; more would be a cue.
    """
    options = _options(item)
    lengths = [len(option) for option in options]
    ends = (("longest", max(lengths)), ("shortest", min(lengths)))
    return [(end, lengths[0] == length) for end, length in ends if lengths.count(length) == 1]

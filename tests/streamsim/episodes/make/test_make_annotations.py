"""The annotations of made episodes against the construction rules, recounted here from the script.

Nothing of the maker's acceptance or record is called to say what is right: events, times and state are
read from the script as plain data, texts and options are counted.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from random import Random

import msgspec
import pytest

from streamsim.episodes.episode import EpisodeQuery, KeyEntry
from streamsim.episodes.make import question
from streamsim.episodes.make.produce import Annotations, Recipe, annotate, make_script, outline_episode
from streamsim.episodes.make.scene import Spot
from streamsim.episodes.make.script import Script

pytestmark = pytest.mark.slow  # the first test of each style pays for its annotations

COUNT = 36
ROOMS = Recipe(count=COUNT, seed=20260817)
REVISIT = Recipe(count=12, seed=5, seconds=45, style="revisit")
SECOND = 10**9

Pair = tuple[EpisodeQuery, KeyEntry]


def make(recipe: Recipe) -> Annotations:
    return annotate(recipe, (outline_episode(recipe, index) for index in range(recipe.count)))


@pytest.fixture(scope="module")
def rooms() -> Annotations:
    return make(ROOMS)


@pytest.fixture(scope="module")
def revisit() -> Annotations:
    return make(REVISIT)


@pytest.fixture(scope="module")
def scripts() -> list[Script]:
    return [make_script(ROOMS, index) for index in range(3)]


def pairs(annotations: Annotations) -> list[Pair]:
    key = {entry.id: entry for entry in annotations.key}
    queries = [query for episode in annotations.episodes for query in episode.queries]
    assert [query.id for query in queries] == list(key)
    return [(query, key[query.id]) for query in queries]


def test_ten_events_half_of_a_kind_on_time(scripts: list[Script]) -> None:
    for script in scripts:
        times = [event.media_ns for event in script.events]
        assert times == sorted(times)
        assert Counter(event.kind for event in script.events) == {"disappearance": 5, "return": 5}
        assert times[0] <= 4 * SECOND
        assert times[-1] >= 50 * SECOND
        assert all(after - before <= 8 * SECOND for before, after in pairwise(times))


def test_an_event_happens_while_the_view_is_elsewhere(scripts: list[Script]) -> None:
    """Geometry only: the spot lies in the view at T - 1.05 s and T + 1.20 s, not at T - 0.10 s nor T."""
    for script in scripts:
        for event in script.events:
            spot = spot_of(script, event.thing, event.media_ns, gone=event.kind == "disappearance")
            assert in_view(script, spot, event.media_ns - 1_050_000_000)
            assert in_view(script, spot, event.media_ns + 1_200_000_000)
            assert not in_view(script, spot, event.media_ns - 100_000_000)
            assert not in_view(script, spot, event.media_ns)


def test_intensity_counts_the_events_begun(rooms: Annotations, scripts: list[Script]) -> None:
    entries = defaultdict(list)
    for entry in rooms.key:
        entries[entry.episode_id].append(entry)
    for index, script in enumerate(scripts):
        begun = [event.media_ns - 1_050_000_000 for event in script.events]
        for entry in entries[ROOMS.episode_id(index)]:
            assert entry.intensity == max(1, sum(onset <= entry.media_ns for onset in begun))


def test_hidden_location_is_asked_inside_the_gap(rooms: Annotations) -> None:
    asked = [(q, k) for q, k in pairs(rooms) if k.notes["form"] == "room_now" and k.status == "uncertain"]
    assert len(asked) > 5
    for query, entry in asked:
        script = make_script(ROOMS, int(entry.episode_id[-3:]))
        name = re.search(r"the (\w+ \w+) ", query.stem.split("Go by")[0].replace("the house", ""))
        assert name is not None
        thing = next(i for i, thing in enumerate(script.things) if thing.name == name[1])
        own = [event for event in script.events if event.thing == thing]
        before = [event for event in own if event.media_ns < query.media_ns]
        assert before[-1].kind == "disappearance"
        # confirmed by two samples before it is asked
        assert query.media_ns - before[-1].media_ns > SECOND


def test_every_item_is_well_formed(rooms: Annotations, revisit: Annotations) -> None:
    for query, entry in [*pairs(rooms), *pairs(revisit)]:
        assert len(set(query.options)) == 4
        assert question.ABSTENTION in query.options
        assert not re.search(r"\d", query.stem + "".join(query.options))
        assert (entry.status == "uncertain") == bool(entry.causes)
        assert (query.options[entry.answer_index or 0] == question.ABSTENTION) == (
            entry.status == "uncertain"
        )
        assert entry.answer_index is not None
        assert entry.answer_text == query.options[entry.answer_index]
        ((start, end),) = entry.spans_ns
        assert 0 <= start < end <= query.media_ns
        assert sorted(entry.permutation) == [0, 1, 2, 3]
        assert entry.permutation[entry.answer_index] == 0  # stored with the answer first


def test_six_types_and_cells_with_known_and_uncertain_items(rooms: Annotations) -> None:
    dozen = [entry for entry in rooms.key if int(entry.episode_id[-3:]) < 12]
    assert len(dozen) == 120
    types = Counter((entry.question_type, entry.status) for entry in dozen)
    assert len(types) == 12
    cells = Counter((sum((entry.intensity or 0) > cut for cut in (3, 6)), entry.status) for entry in dozen)
    assert len(cells) == 6
    assert min(cells.values()) >= 5
    assert {cause for entry in rooms.key for cause in entry.causes} == {
        "missing_observation",
        "partial_observation",
        "low_visual_quality",
        "ambiguous_evidence",
        "ambiguous_attribute",
        "multiple_candidates",
    }


def test_answer_positions_are_balanced(rooms: Annotations, revisit: Annotations) -> None:
    for made in (rooms, revisit):
        for status in ("known", "uncertain"):
            positions = Counter(entry.answer_index for entry in made.key if entry.status == status)
            assert len(positions) == 4
            assert max(positions.values()) - min(positions.values()) <= 1


def test_each_form_is_asked_with_and_without_an_answer(rooms: Annotations) -> None:
    """Who only reads must not be able to tell known from uncertain by how a question is worded."""
    forms: defaultdict[str, list[bool]] = defaultdict(list)
    for entry in rooms.key:
        forms[entry.notes["form"]].append(entry.status == "uncertain")
    assert len(forms) == 12
    for form, uncertain in forms.items():
        share = sum(uncertain) / len(uncertain)
        assert 0.25 <= share <= 0.55, f"{form}: {share:.2f} of {len(uncertain)} are uncertain"


Heuristic = Callable[[EpisodeQuery], list[float]]


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower()))


HEURISTICS: dict[str, Heuristic] = {
    "longest": lambda query: [len(option) for option in query.options],
    "shortest": lambda query: [-len(option) for option in query.options],
    "most words": lambda query: [len(option.split()) for option in query.options],
    "overlap": lambda query: [
        len(words(option) & words(query.stem)) / len(words(option)) for option in query.options
    ],
    **{f"position {place}": lambda query, place=place: [i == place for i in range(4)] for place in range(4)},  # type: ignore[misc]
}


@pytest.mark.parametrize("name", HEURISTICS)
def test_heuristics_stay_near_chance_on_known_items(rooms: Annotations, name: str) -> None:
    """Expected accuracy of always taking the top option, ties at random: within 0.25 ± 0.07."""
    hits = Fraction(0)
    known = [(query, entry) for query, entry in pairs(rooms) if entry.status == "known"]
    for query, entry in known:
        values = HEURISTICS[name](query)
        tops = [place for place, value in enumerate(values) if value == max(values)]
        hits += Fraction(entry.answer_index in tops, len(tops))
    assert 0.18 <= float(hits / len(known)) <= 0.32


def test_abstention_first_scores_exactly_the_uncertain_share(rooms: Annotations) -> None:
    """STORM-Bench's option-structure heuristic: with an abstention everywhere it is right on U of N."""
    found = pairs(rooms)
    right = sum(query.options.index(question.ABSTENTION) == entry.answer_index for query, entry in found)
    uncertain = sum(entry.status == "uncertain" for _, entry in found)
    assert right == uncertain
    assert Fraction(uncertain, len(found)) == Fraction(4, 10)


def test_same_seed_same_bytes_whatever_follows() -> None:
    few = Recipe(count=2, seed=9, seconds=20)
    more = msgspec.structs.replace(few, count=4)
    other = msgspec.structs.replace(few, seed=10)
    first, again, longer, different = (encode(make(recipe)) for recipe in (few, few, more, other))
    assert first == again
    assert longer.startswith(first)
    assert different != first


def encode(annotations: Annotations) -> bytes:
    rows = []
    for episode in annotations.episodes:
        rows.append(msgspec.json.encode(episode))
        rows += [msgspec.json.encode(entry) for entry in annotations.key if entry.episode_id == episode.id]
    return b"\n".join(rows)


def test_revisit_counts_visits_and_asks_for_the_very_one_across_black(revisit: Annotations) -> None:
    for index in range(REVISIT.count):
        script = make_script(REVISIT, index)
        blacks = [(spell.start_ns, spell.end_ns) for spell in script.black]
        assert 3 <= len(blacks) + 1 <= 10
        assert all(end - start == 200_000_000 for start, end in blacks)
        starts = [0, *(end for _, end in blacks)]
        ends = [*(start for start, _ in blacks), 45 * SECOND]
        for start, end in zip(starts, ends, strict=True):
            assert 3 * SECOND <= (end - start) * 3 / 2 <= 20 * SECOND
        for entry in revisit.key:
            if entry.episode_id == REVISIT.episode_id(index):
                assert entry.intensity == sum(start <= entry.media_ns for start in starts)
                if entry.question_subtype == "same_instance_across_a_gap":
                    (span,) = entry.spans_ns
                    hidden = [*blacks, *((spell.start_ns, spell.end_ns) for spell in script.dark)]
                    assert any(span[0] < start and end < span[1] for start, end in hidden)
    assert {entry.status for entry in revisit.key} == {"known", "uncertain"}


def spot_of(script: Script, thing: int, media_ns: int, *, gone: bool) -> Spot:
    """Where a thing stood just before an event, or stands just after it."""
    timeline = script.whereabouts[thing]
    held = (
        [where for since, where in timeline if since < media_ns]
        if gone
        else [where for since, where in timeline if since <= media_ns]
    )
    assert isinstance(held[-1], Spot)
    return held[-1]


def in_view(script: Script, spot: Spot, media_ns: int) -> bool:
    """Whether any of a spot's 44 columns lies in the view, which is 512 wide."""
    left = script.view_x(media_ns)
    return left < spot.x + 22 and spot.x - 22 < left + 512


def test_shapes_to_choose_from_do_not_tell_known_from_uncertain() -> None:
    """Threes are as often of each kind for an edge as for a known shape, which is any of three alike."""
    random = Random(1)
    shapes = ("ball", "cube", "cone", "star", "ring")
    kinds: dict[bool, Counter[tuple[str, ...]]] = {True: Counter(), False: Counter()}
    answers: Counter[tuple[tuple[str, ...], str]] = Counter()
    for known in (True, False):
        for draw in range(20_000):
            pool = shapes if known else tuple(shape for shape in shapes if shape != "cube")
            shape = pool[draw % len(pool)]
            options = question.pick_shapes(random, shape, known=known)
            assert options[0] == shape and len(set(options)) == 3
            three = tuple(sorted(options))
            kinds[known][three] += 1
            if known:
                answers[three, shape] += 1
    assert kinds[True].keys() == kinds[False].keys()
    for three, count in kinds[True].items():
        assert count == pytest.approx(kinds[False][three], rel=0.12)
        for shape in three:
            assert answers[three, shape] / count == pytest.approx(1 / 3, abs=0.04)

"""The sightings agent on made episodes, played offline as the chain rule wants it.

Scores are computed here from STORM-Bench's formulas, in their plain form.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from streamsim.episodes.dataset import Dataset, load_answer_key, load_dataset
from streamsim.episodes.episode import CAUSES, Episode, EpisodeQuery, KeyEntry
from streamsim.episodes.make.produce import Recipe, Style, make_dataset
from streamsim.episodes.video import sample_video
from streamsim_agents.agent import Frame, Query, Turn
from streamsim_agents.sightings import Sightings
from streamsim_agents.testing import check_agent, draw_frame, make_session
from streamsim_protocol.messages import Probe

pytestmark = pytest.mark.slow

SECONDS = {"rooms": 60, "revisit": 45}


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What was answered to one query."""

    option: int
    status: str
    causes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    accuracy: float
    known_accuracy: float
    storm_br: float
    cause_f1: float


@pytest.fixture(scope="module", params=["rooms", "revisit"])
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    style: Style = request.param
    folder = tmp_path_factory.mktemp("made") / style
    make_dataset(Recipe(count=4, seed=606, seconds=SECONDS[style], fps=2, style=style), folder)
    return load_dataset(folder)


@pytest.fixture(scope="module")
def frames(dataset: Dataset) -> dict[str, list[Frame]]:
    return {
        episode.id: [
            Frame(k=sample.k, media_ns=sample.media_ns, data=sample.data or b"")
            for sample in sample_video(dataset.video_path(episode))
        ]
        for episode in dataset.episodes
    }


def play(agent: Sightings, episode: Episode, frames: list[Frame]) -> Iterator[tuple[str, Said]]:
    """Frames in turn, each query after those that it may see: task, status and, if uncertain, cause."""
    agent.begin(make_session())
    waiting = list(frames)
    for query in episode.queries:
        while waiting and waiting[0].media_ns <= query.media_ns + 1_000:
            agent.observe(waiting.pop(0))
        option = "ABCD".index(ask(agent, query, "task"))
        status = "known" if ask(agent, query, "status") in "AB" else "uncertain"
        letters = ask(agent, query, "cause").split(", ") if status == "uncertain" else []
        causes = frozenset(CAUSES["ABCDEF".index(letter)] for letter in letters)
        yield query.id, Said(option=option, status=status, causes=causes)


def ask(agent: Sightings, query: EpisodeQuery, probe: Probe) -> str:
    options = query.options if probe == "task" else ()
    asked = Query(
        id="q1",
        kind="choice",
        probe=probe,
        text="",
        stem=query.stem,
        options=options,
        media_ns=query.media_ns,
    )
    return "".join(agent.answer(asked, Turn(1, media_ns=query.media_ns, seen_media_ns=None)))


def score(said: dict[str, Said], key: dict[str, KeyEntry]) -> Scores:
    """Task accuracy, that of known items, Storm-BR = harmonic mean over occupied cells of
    (sum of J + 1) / (n + 2), and mean cause F1 over uncertain items."""
    assert said.keys() == key.keys()
    right = {id: one.option == key[id].answer_index for id, one in said.items()}
    cells: defaultdict[tuple[int, str | None], list[bool]] = defaultdict(list)
    f1 = []
    for id, one in said.items():
        entry = key[id]
        level = sum((entry.intensity or 0) > cut for cut in (3, 6))
        cells[level, entry.status].append(right[id] and one.status == entry.status)
        if entry.status == "uncertain":
            common = len(one.causes & set(entry.causes))
            f1.append(2 * common / (len(one.causes) + len(entry.causes)))
    smoothed = [(sum(joint) + 1) / (len(joint) + 2) for joint in cells.values()]
    known = [right[id] for id in said if key[id].status == "known"]
    return Scores(
        accuracy=sum(right.values()) / len(right),
        known_accuracy=sum(known) / len(known),
        storm_br=len(smoothed) / sum(1 / value for value in smoothed),
        cause_f1=sum(f1) / len(f1),
    )


def test_it_answers_by_looking(dataset: Dataset, frames: dict[str, list[Frame]]) -> None:
    """With the right videos nearly all is right; with the videos swapped in pairs known items fall
    below chance among the substantive options, and Storm-BR by more than half."""
    key = load_answer_key(dataset.public)
    agent = Sightings()
    episodes = dataset.episodes
    own = score({id: one for e in episodes for id, one in play(agent, e, frames[e.id])}, key)
    assert own.accuracy >= 0.95
    assert own.storm_br >= 0.7  # four episodes: the smoothing alone holds perfection below 0.9
    assert own.cause_f1 >= 0.9
    pairs = zip(episodes, (episodes[1], episodes[0], episodes[3], episodes[2]), strict=True)
    swapped = score({id: one for e, other in pairs for id, one in play(agent, e, frames[other.id])}, key)
    assert swapped.known_accuracy <= 0.35
    assert swapped.storm_br <= own.storm_br / 2


def test_a_short_memory_knows_the_present_and_not_the_past(
    dataset: Dataset, frames: dict[str, list[Frame]]
) -> None:
    """Four looks are enough for where things are now, not for what happened before them."""
    key = load_answer_key(dataset.public)
    agent = Sightings(looks=4)
    said = {id: one for e in dataset.episodes for id, one in play(agent, e, frames[e.id])}
    right: dict[bool, list[bool]] = {True: [], False: []}
    for id, one in said.items():
        entry = key[id]
        if entry.status == "known":
            past = entry.media_ns - entry.spans_ns[0][0] > 4 * 10**9
            if past or entry.notes["form"].endswith("_now"):
                right[past].append(one.option == entry.answer_index)
    assert sum(right[False]) >= 0.9 * len(right[False]) > 0
    assert sum(right[True]) <= 0.35 * len(right[True])


def test_black_pictures_give_it_nothing(dataset: Dataset) -> None:
    episode = dataset.episodes[0]
    black = [draw_frame(k, colour=(0, 0, 0), background=(0, 0, 0)) for k in range(61)]
    assert {one.status for _, one in play(Sightings(), episode, black)} == {"uncertain"}


def test_it_keeps_the_agents_contract(tmp_path: Path) -> None:
    report = check_agent(Sightings)
    assert "answers leave no trace" in report.checked
    assert "begin forgets" in report.checked

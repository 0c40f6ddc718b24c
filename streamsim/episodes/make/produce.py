"""Makes a data set: draws episodes over the cores, chooses what is asked, encodes, writes the folder.

Two passes: the first throws scripts and records them through their masks, the second draws and
encodes the videos. Between them the questions are chosen in order of the episodes, so that the
annotations depend on the seed alone and not on how many processes took part.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from random import Random
from typing import Any, Literal

import msgspec

from streamsim.episodes.dataset import DatasetInfo, require_free, write_dataset
from streamsim.episodes.episode import CAUSES, Episode, EpisodeQuery, KeyEntry
from streamsim.episodes.make import revisit, rooms
from streamsim.episodes.make.accept import find_faults
from streamsim.episodes.make.build_change import build_changes
from streamsim.episodes.make.build_order import build_orders
from streamsim.episodes.make.build_state import build_states
from streamsim.episodes.make.choose import Asked, Chooser
from streamsim.episodes.make.encode import encode_video
from streamsim.episodes.make.palette import HEIGHT, WIDTH
from streamsim.episodes.make.question import Item, word
from streamsim.episodes.make.record import Record, take_record
from streamsim.episodes.make.render import Renderer
from streamsim.episodes.make.script import SECOND, Script
from streamsim.errors import StreamsimError, UsageError
from streamsim.writing import folder_for

Style = Literal["rooms", "revisit"]
MAX_COUNT = 10_000
MAX_SEED = 2**63 - 1
MAX_FPS = 60
"""The most that a recipe may ask for; lengths are limited by the styles."""
_ATTEMPTS = 200
_Spread = Callable[[Callable[[int], Any], Iterable[int]], Iterator[Any]]


_STYLES: dict[Style, tuple[Callable[[Random, int], Script | None], Callable[[Script, Record], list[str]]]] = {
    "rooms": (rooms.script_rooms, find_faults),
    "revisit": (revisit.script_revisit, revisit.find_revisit_faults),
}
"""How each style throws a script, and what it finds wrong with one."""


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """What to make: everything that the annotations depend on, and the videos' frame rate."""

    count: int
    seed: int
    seconds: int = 60
    fps: int = 10
    style: Style = "rooms"

    def episode_id(self, index: int) -> str:
        """An id that says nothing of the episode's content."""
        return f"{self.style}-{self.seed}-{index:03d}"


class Outline(msgspec.Struct, frozen=True, kw_only=True):
    """What the first pass finds of an episode: everything that could be asked."""

    items: tuple[Item, ...]
    intensity: dict[int, int]


class Annotations(msgspec.Struct, frozen=True, kw_only=True):
    """Both halves of a data set, in order."""

    episodes: tuple[Episode, ...]
    key: tuple[KeyEntry, ...]


def require_legal(recipe: Recipe) -> None:
    """``UsageError``, by the name of the option, for what no episodes can be made of."""
    module = rooms if recipe.style == "rooms" else revisit
    limits = (
        ("--count", recipe.count, 1, MAX_COUNT),
        ("--seed", recipe.seed, 0, MAX_SEED),
        ("--seconds", recipe.seconds, module.MIN_SECONDS, module.MAX_SECONDS),
        ("--fps", recipe.fps, 1, MAX_FPS),
    )
    for name, value, low, high in limits:
        if not low <= value <= high:
            raise UsageError(f"expected {name} from {low} to {high} for style {recipe.style!r}, got {value}")


def make_script(recipe: Recipe, index: int) -> Script:
    """The script of an episode: the first throw of its dice whose events are all accepted."""
    write, find = _STYLES[recipe.style]
    for attempt in range(_ATTEMPTS):
        random = Random(f"{recipe.style}:{recipe.seed}:{index}:{recipe.seconds}:{attempt}")
        script = write(random, recipe.seconds)
        if script is not None and not find(script, take_record(script)):
            return script
    raise AssertionError(f"none of {_ATTEMPTS} throws gave an episode for {recipe}, episode {index}")


def outline_episode(recipe: Recipe, index: int) -> Outline:
    """Everything that could be asked in an episode, from its masks alone."""
    script = make_script(recipe, index)
    record = take_record(script)
    random = Random(f"{recipe.style}:{recipe.seed}:{index}:items")
    items: list[Item] = []
    for n in range(1, recipe.seconds):
        for build in (build_states, build_changes, build_orders):
            items += build(script, record, random, n)
    intensity = {n: script.intensity(n * SECOND) for n in range(recipe.seconds + 1)}
    return Outline(items=tuple(items), intensity=intensity)


def annotate(recipe: Recipe, outlines: Iterable[Outline]) -> Annotations:
    """Choose the questions of all episodes, in order; ``outlines`` are those of episodes 0, 1, …"""
    chooser = Chooser(f"{recipe.style}:{recipe.seed}")
    episodes, key = [], []
    for index, outline in enumerate(outlines):
        episode_id = recipe.episode_id(index)
        asked = chooser.choose(outline.items, outline.intensity, seconds=recipe.seconds)
        ids = [f"{episode_id}-q{place:02d}" for place in range(1, len(asked) + 1)]
        episodes.append(
            Episode(
                id=episode_id,
                subset=recipe.style,
                video=video_path(episode_id),
                queries=tuple(_query(id, one) for id, one in zip(ids, asked, strict=True)),
            )
        )
        key += [
            _key_entry(id, one, episode_id=episode_id, subset=recipe.style)
            for id, one in zip(ids, asked, strict=True)
        ]
    return Annotations(episodes=tuple(episodes), key=tuple(key))


def video_path(episode_id: str) -> str:
    """Where an episode's video lies in the public half."""
    return f"videos/{episode_id}.mp4"


def make_dataset(
    recipe: Recipe,
    folder: Path,
    *,
    processes: int = 1,
    progress: Callable[[str, int], None] | None = None,
) -> Annotations:
    """Make a whole data set at ``folder``; it appears whole or not at all.

    ``progress(stage, done)`` is called after each episode of the stages "plan" and "draw".
    ``DatasetError`` if ``folder`` exists and is not empty, before anything is drawn.
    """
    require_free(folder)
    report = progress or (lambda stage, done: None)
    with (
        folder_for(folder.parent),
        tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as staging,
        _pool(min(processes, recipe.count)) as spread,
    ):
        indices = range(recipe.count)
        outlines = []
        for outline in spread(functools.partial(outline_episode, recipe), indices):
            outlines.append(outline)
            report("plan", len(outlines))
        annotations = annotate(recipe, outlines)
        videos: dict[str, Path] = {}
        for index, path in enumerate(spread(functools.partial(draw_episode, recipe, Path(staging)), indices)):
            videos[video_path(recipe.episode_id(index))] = path
            report("draw", len(videos))
        info = DatasetInfo(name=folder.name, chain="full", source=describe(recipe))
        write_dataset(folder, info, annotations.episodes, annotations.key, move=videos)
    return annotations


def draw_episode(recipe: Recipe, folder: Path, index: int) -> Path:
    """Draw and encode one episode's video; returns its path in ``folder``.

    One picture more than ``seconds`` holds: the last is presented at the last second itself.
    """
    renderer = Renderer(make_script(recipe, index))
    path = folder / f"{recipe.episode_id(index)}.mp4"
    times = (SECOND * k // recipe.fps for k in range(recipe.seconds * recipe.fps + 1))
    encode_video(path, map(renderer.picture, times), fps=recipe.fps, size=(WIDTH, HEIGHT))
    return path


def describe(recipe: Recipe) -> str:
    """What the data set says of its origin: the command that makes it again."""
    return (
        f"streamsim make {recipe.style if recipe.style == 'rooms' else 'rooms --style revisit'} "
        f"--count {recipe.count} --seed {recipe.seed} --seconds {recipe.seconds} --fps {recipe.fps}"
    )


def _query(id: str, asked: Asked) -> EpisodeQuery:
    return EpisodeQuery(
        id=id,
        kind="choice",
        media_ns=asked.item.n * SECOND,
        stem=word(asked.item, asked.wording),
        options=asked.options,
    )


def _key_entry(id: str, asked: Asked, *, episode_id: str, subset: str) -> KeyEntry:
    item = asked.item
    return KeyEntry(
        id=id,
        episode_id=episode_id,
        subset=subset,
        media_ns=item.n * SECOND,
        answer_index=asked.answer_index,
        answer_text=asked.stored[0],
        permutation=asked.permutation,
        status=item.status,
        causes=tuple(cause for cause in CAUSES if cause in item.causes),
        intensity=asked.intensity,
        spans_ns=((item.span[0] * SECOND, item.span[1] * SECOND),),
        question_type=item.question_type,
        question_subtype=item.subtype,
        notes={"form": item.form},
    )


@contextlib.contextmanager
def _pool(processes: int) -> Iterator[_Spread]:
    """A ``map`` over processes, in order; in this process if one is enough."""
    if processes <= 1:
        yield map
        return
    context = multiprocessing.get_context("spawn")
    ignore = (signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for this process alone, which then ends them
    with ProcessPoolExecutor(
        processes, mp_context=context, initializer=signal.signal, initargs=ignore
    ) as pool:

        def spread(function: Callable[[int], Any], items: Iterable[int]) -> Iterator[Any]:
            with _no_interrupt():  # the processes that start here have not yet learnt to ignore it
                return pool.map(function, items)

        try:
            yield spread
        except BrokenProcessPool as error:
            raise StreamsimError(
                "a process that made episodes was killed: free memory, or lower --processes"
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def _no_interrupt() -> Iterator[None]:
    """Let a Ctrl-C wait for the end of the block; processes that are started in it never see one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

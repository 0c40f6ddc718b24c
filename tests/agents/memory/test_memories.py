"""What each memory keeps, shows and weighs; that reading changes nothing and saving loses nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsim_agents.memory import Cue, Entry, Memory, Part, make_memory
from streamsim_agents.memory.kv_retrieval import KvRetrieval
from streamsim_agents.memory.long_short import LongShort, averaged, similarity
from streamsim_agents.memory.memory import MemoryFileError
from streamsim_agents.memory.recent import Recent
from streamsim_agents.memory.registry import MEMORIES, MemoryChoiceError
from streamsim_agents.memory.uniform import Uniform

SECOND = 10**9


def file(at: int, *, session: int = 0) -> Entry:
    """A frame at second ``at``; its file is a few bytes that tell it apart."""
    return Entry(session=session, first_ns=at * SECOND, last_ns=at * SECOND, value=f"{session}/{at}".encode())


def tokens(at: int, *rows: tuple[float, ...], session: int = 0, frames: int = 1) -> Entry:
    """An encoded step at second ``at`` of one level with ``rows`` as tokens."""
    return Entry(
        session=session,
        first_ns=at * SECOND,
        last_ns=at * SECOND,
        frames=frames,
        grid=(1, len(rows)),
        value=np.array([rows], dtype=np.float32),
    )


def keys(at: int, index: tuple[float, ...]) -> Entry:
    """Keys and values of a step at second ``at``, found by ``index``."""
    block = np.full((2, 1, 3, 4), at, dtype=np.int16)
    return Entry(
        session=0,
        first_ns=at * SECOND,
        last_ns=at * SECOND,
        value={"index": np.array(index, dtype=np.float32), "keys": block, "values": block + 1},
    )


def seconds(parts: list[Part]) -> list[list[int]]:
    """The seconds at which the entries of each part begin."""
    return [[entry.first_ns // SECOND for entry in part.entries] for part in parts]


def any_entry(memory: Memory, at: int, session: int) -> Entry:
    """An entry that fits ``memory``; its content depends on ``at`` only."""
    draw = np.random.default_rng(at)
    if memory.kind == "frames":
        return file(at, session=session)
    if memory.kind == "tokens":
        return tokens(at, *map(tuple, draw.normal(size=(3, 4)).tolist()), session=session)
    return keys(at, tuple(draw.normal(size=5).tolist()))


# ------------------------------------------------------------------------------------ all of them


CHOICES = ["recent,frames=3", "uniform,budget=4", "long_short,window=2,slots=3", "kv_retrieval,local=2,top=2"]


@settings(deadline=None, max_examples=40)
@given(
    choice=st.sampled_from(CHOICES),
    steps=st.lists(st.integers(0, 1), max_size=14),
    vector=st.lists(st.floats(-3, 3, width=32), min_size=5, max_size=5),
)
def test_reading_changes_nothing(choice: str, steps: list[int], vector: list[float]) -> None:
    memory = make_memory(choice)
    session = 0
    for at, new_session in enumerate(steps):
        session += new_session
        memory.write(any_entry(memory, at, session))
    before = memory.digest()
    cue = Cue(text="where is it?", media_ns=5, vector=np.array(vector, dtype=np.float32))
    first, again = memory.read(cue), memory.read(cue)
    assert seconds(first) == seconds(again)
    assert memory.digest() == before
    for part in first:
        times = [(entry.session, entry.first_ns) for entry in part.entries]
        assert times == sorted(times)


@settings(deadline=None, max_examples=25)
@given(choice=st.sampled_from(CHOICES), steps=st.lists(st.integers(0, 1), max_size=12))
def test_saving_restores_bit_for_bit(
    choice: str, steps: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    memory = make_memory(choice)
    session = 0
    for at, new_session in enumerate(steps):
        session += new_session
        memory.write(any_entry(memory, at, session))
    folder, second = tmp_path_factory.mktemp("memory"), tmp_path_factory.mktemp("memory")
    memory.save(folder)
    restored = make_memory(choice)
    restored.write(any_entry(restored, 99, 0))
    restored.load(folder)
    assert restored.digest() == memory.digest()
    assert restored.nbytes() == memory.nbytes()
    restored.save(second)
    for name in ("memory.json", "memory.npz"):
        assert (folder / name).read_bytes() == (second / name).read_bytes()
    for at in range(100, 104):  # they also go on alike
        memory.write(any_entry(memory, at, session))
        restored.write(any_entry(restored, at, session))
    assert restored.digest() == memory.digest()


@pytest.mark.parametrize("choice", CHOICES)
def test_a_cleared_memory_is_a_new_one(choice: str) -> None:
    memory = make_memory(choice)
    empty = memory.digest()
    assert memory.read(Cue()) in ([], [Part(entries=())])
    memory.write(any_entry(memory, 1, 0))
    assert memory.digest() != empty
    memory.clear()
    assert memory.digest() == empty
    assert memory.nbytes() == 0


def test_another_memory_s_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MemoryFileError, match="no memory in"):
        Recent().load(tmp_path)
    Recent().save(tmp_path)
    with pytest.raises(MemoryFileError, match=r"holds Recent \(format 1\), expected Uniform"):
        Uniform().load(tmp_path)


# ------------------------------------------------------------------------------------------- each


def test_recent_keeps_the_latest_four() -> None:
    memory = Recent()
    for at in range(7):
        memory.write(file(at))
    assert seconds(memory.read(Cue())) == [[3, 4, 5, 6]]
    assert memory.nbytes() == 4 * len(b"0/3")


def test_uniform_keeps_all_and_shows_an_even_sample() -> None:
    memory = Uniform(budget=5)
    for at in range(5):
        memory.write(file(at))
    (whole,) = memory.read(Cue())
    assert seconds([whole]) == [[0, 1, 2, 3, 4]]
    assert whole.fps is None
    for at in range(5, 17):
        memory.write(file(at))
    (sample,) = memory.read(Cue())
    assert seconds([sample]) == [[0, 4, 8, 12, 16]]
    assert sample.fps == pytest.approx(0.25)  # four seconds from one to the next
    assert memory.nbytes() == sum(len(f"0/{at}") for at in range(17))


def test_long_short_averages_the_most_similar_neighbours() -> None:
    memory = LongShort(window=1, slots=2)
    east, north = (1.0, 0.0), (0.0, 1.0)
    for at, row in enumerate([east, north, north, east]):
        memory.write(tokens(at, row))
    # 0, 1 and 2 left the window; 1 and 2 are the same, so they share a slot
    long, short = memory.read(Cue())
    assert (long.label, short.label) == ("long", "short")
    assert [(entry.first_ns, entry.last_ns, entry.frames) for entry in long.entries] == [
        (0, 0, 1),
        (1 * SECOND, 2 * SECOND, 2),
    ]
    assert seconds([short]) == [[3]]
    memory.write(tokens(4, (0.6, 0.8)))
    # 3 (east) joins the slots and is as unlike its neighbour as the first pair is: the earlier pair goes
    long, _ = memory.read(Cue())
    assert [entry.frames for entry in long.entries] == [3, 1]


def test_an_average_weighs_each_side_by_its_frames() -> None:
    left, right = tokens(0, (3.0, 0.0), frames=2), tokens(2, (0.0, 3.0), frames=1)
    both = averaged(left, right)
    assert isinstance(both.value, np.ndarray)
    np.testing.assert_allclose(both.value[0], [[2.0, 1.0]], rtol=1e-6)
    assert (both.first_ns, both.last_ns, both.frames) == (0, 2 * SECOND, 3)


def test_similarity_is_the_mean_cosine_of_tokens_at_the_same_place() -> None:
    left = np.array([[[1.0, 0.0], [0.0, 2.0]]], dtype=np.float32)
    right = np.array([[[1.0, 1.0], [0.0, -5.0]]], dtype=np.float32)
    assert similarity(left, right) == pytest.approx((np.sqrt(0.5) - 1) / 2)


def test_long_short_does_not_average_across_sessions() -> None:
    memory = LongShort(window=1, slots=2)
    for at, session in enumerate([0, 1, 2, 3]):
        memory.write(tokens(at, (1.0, 0.0), session=session))
    long, _ = memory.read(Cue())
    assert [entry.session for entry in long.entries] == [1, 2]  # the oldest went


def test_kv_retrieval_finds_by_cosine_and_shows_in_order() -> None:
    memory = KvRetrieval(local=2, top=2)
    for at, index in enumerate([(1.0, 0.0), (0.0, 9.0), (0.9, 0.1), (-1.0, 0.0), (1.0, 0.0), (1.0, 0.0)]):
        memory.write(keys(at, index))
    assert seconds(memory.read(Cue())) == [[4, 5]]
    cue = Cue(vector=np.array([2.0, 0.0], dtype=np.float32))
    assert seconds(memory.read(cue)) == [[0, 2], [4, 5]]
    cue = Cue(vector=np.array([0.0, 1.0], dtype=np.float32))
    assert seconds(memory.read(cue)) == [[1, 2], [4, 5]]


# --------------------------------------------------------------------------------------- by name


def test_a_memory_of_one_s_own_is_found_by_its_path() -> None:
    memory = make_memory("streamsim_agents.memory.recent:Recent, frames = 2")
    assert isinstance(memory, Recent)


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        ("recnt", "no memory 'recnt': expected one of recent, uniform, long_short, kv_retrieval"),
        ("recent,size=3", "memory 'recent' has no setting 'size=3'; it has: frames"),
        ("recent,frames=many", "setting 'frames' must be int, got 'many'"),
        ("recent,frames=0", "memory 'recent': frames must be at least 1, got 0"),
        ("no.such.module:Memory", "cannot find memory 'no.such.module:Memory'"),
        ("pathlib:Path", "'pathlib:Path' is not a subclass"),
    ],
)
def test_a_wrong_choice_is_refused_with_what_there_is(choice: str, text: str) -> None:
    with pytest.raises(MemoryChoiceError) as error:
        make_memory(choice)
    assert text in str(error.value)


@pytest.mark.parametrize("name", sorted(MEMORIES))
def test_each_memory_says_which_system_it_follows(name: str) -> None:
    text = sys.modules[type(make_memory(name)).__module__].__doc__ or ""
    assert "Follows" in text and "Kept:" in text and "Changed:" in text

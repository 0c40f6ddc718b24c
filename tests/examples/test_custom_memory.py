"""examples/custom_memory.py: found as its first lines say, short, a memory like any other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streamsim_agents.memory import Cue, Entry, Memory, make_memory
from streamsim_agents.testing import draw_frame

ROOT = Path(__file__).parents[2]
CHOICE = "examples.custom_memory:Novel,frames=3,threshold=12"


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Memory]:
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda: make_memory(CHOICE)


def entry(k: int, level: int) -> Entry:
    frame = draw_frame(k, background=(level, level, level))
    return Entry(session=0, first_ns=frame.media_ns, last_ns=frame.media_ns, value=frame.data)


def seconds(memory: Memory) -> list[int]:
    return [kept.first_ns // 10**9 for part in memory.read(Cue()) for kept in part.entries]


def test_it_is_short() -> None:
    assert len((ROOT / "examples/custom_memory.py").read_text(encoding="utf-8").splitlines()) < 60


def test_it_keeps_what_is_new(make: Callable[[], Memory]) -> None:
    memory = make()
    for k, level in enumerate((20, 22, 60, 61, 200)):
        memory.write(entry(k, level))
    assert seconds(memory) == [0, 2, 4]
    memory.write(entry(5, 10))  # one too many: 60 after 20 was least new
    assert seconds(memory) == [0, 4, 5]


def test_it_is_saved_and_restored(make: Callable[[], Memory], tmp_path: Path) -> None:
    memory, other = make(), make()
    for k, level in enumerate((20, 120, 220)):
        memory.write(entry(k, level))
    before = memory.digest()
    memory.read(Cue(text="?"))
    assert memory.digest() == before
    memory.save(tmp_path)
    other.load(tmp_path)
    assert other.digest() == before

"""Pictures that wait: in memory, on disk, in any order, and nothing left behind."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsim_agents.spool import Spool


def picture(n: int, size: int = 100) -> bytes:
    return random.Random(n).randbytes(size)


def test_overflow_goes_to_disk_and_comes_back() -> None:
    spool = Spool(in_memory=2)
    handles = [spool.put(picture(n)) for n in range(5)]
    assert spool.disk_bytes == 300
    assert [spool.take(handle) for handle in handles] == [picture(n) for n in range(5)]
    assert spool.disk_bytes == 0
    spool.close()


def test_memory_is_used_again() -> None:
    spool = Spool(in_memory=1)
    for take in (spool.take, spool.drop):
        take(spool.put(b"a"))
        handle = spool.put(b"b")
        assert spool.disk_bytes == 0
        spool.drop(handle)
    spool.close()


def test_a_handle_is_used_up() -> None:
    spool = Spool(in_memory=1)
    memory, disk = spool.put(b"a"), spool.put(b"b")
    spool.take(memory)
    spool.drop(disk)
    for handle in (memory, disk, 99):
        with pytest.raises(KeyError):
            spool.take(handle)
    spool.close()


def test_an_empty_picture_is_one_too() -> None:
    spool = Spool(in_memory=0)
    handle = spool.put(b"")
    assert spool.take(handle) == b""
    spool.close()


def test_a_backlog_that_never_goes_away_needs_no_more_disk() -> None:
    """Ten pictures wait at any time, a thousand pass: old files are given back."""
    spool = Spool(in_memory=0, segment_bytes=500)
    waiting = [spool.put(picture(n)) for n in range(10)]
    for n in range(1000):
        assert spool.take(waiting.pop(0)) == picture(n)
        waiting.append(spool.put(picture(n + 10)))
        assert spool.disk_bytes <= 10 * 100 + 2 * 500
    spool.close()


def test_nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    descriptors = Path("/proc/self/fd")
    before = sum(1 for _ in descriptors.iterdir())
    spool = Spool(in_memory=1, segment_bytes=150)
    for n in range(9):
        spool.put(picture(n))
    assert list(tmp_path.iterdir()) == [], "the files have no names"
    assert sum(1 for _ in descriptors.iterdir()) == before + 4
    spool.close()
    spool.close()
    assert sum(1 for _ in descriptors.iterdir()) == before
    handle = spool.put(picture(1))
    assert spool.take(handle) == picture(1), "it may be used again"


@given(st.integers(0, 3), st.sampled_from([1, 150, 10**6]), st.data())
def test_any_order_of_putting_taking_and_dropping(
    in_memory: int, segment_bytes: int, data: st.DataObject
) -> None:
    # closed however the draw ends: a discarded one stops in the middle
    with contextlib.closing(Spool(in_memory=in_memory, segment_bytes=segment_bytes)) as spool:
        kept: dict[int, int] = {}
        for n in range(data.draw(st.integers(0, 25))):
            if data.draw(st.booleans()) and kept:
                handle = data.draw(st.sampled_from(sorted(kept)))
                number = kept.pop(handle)
                if data.draw(st.booleans()):
                    assert spool.take(handle) == picture(number, number * 7 % 200)
                else:
                    spool.drop(handle)
            else:
                kept[spool.put(picture(n, n * 7 % 200))] = n
        for handle, number in kept.items():
            assert spool.take(handle) == picture(number, number * 7 % 200)
        assert spool.disk_bytes == 0

"""The monitor of the server's loop, on a clock that the test moves."""

from __future__ import annotations

from streamsim.server.loop_lag import LagFigures, LoopLag, overdue

MS = 1_000_000


class Clock:
    """A wall clock that stands until it is moved."""

    def __init__(self) -> None:
        self.ns = 5_000 * MS

    def __call__(self) -> int:
        return self.ns


def test_every_beat_that_was_missed_counts_with_its_own_lag() -> None:
    assert overdue(1_000, 999) == []
    assert overdue(1_000, 1_000) == [0]
    assert overdue(100 * MS, 450 * MS) == [350 * MS, 250 * MS, 150 * MS, 50 * MS]


async def test_a_block_is_seen_though_no_beat_was_on_time() -> None:
    clock = Clock()
    with LoopLag(clock) as lag:
        window = lag.open_window()
        clock.ns += 1_400 * MS
        # 14 beats were due, the first 1.3 s ago
        assert window.figures() == LagFigures(watched_ns=1_400 * MS, p99_ns=1_300 * MS, max_ns=1_300 * MS)


async def test_a_quiet_loop_has_no_lag() -> None:
    clock = Clock()
    with LoopLag(clock) as lag:
        window = lag.open_window()
        clock.ns += 99 * MS
        assert window.figures() == LagFigures(watched_ns=99 * MS, p99_ns=0, max_ns=0)


async def test_a_window_sees_what_happens_while_it_is_open() -> None:
    clock = Clock()
    with LoopLag(clock) as lag:
        early = lag.open_window()
        clock.ns += 350 * MS
        lag.beat()
        late = lag.open_window()
        clock.ns += 50 * MS
        lag.beat()
        assert early.figures().max_ns == 250 * MS
        assert late.figures().max_ns == 0
        early.close()
        clock.ns += 130 * MS
        lag.beat()
        assert late.figures() == LagFigures(watched_ns=180 * MS, p99_ns=30 * MS, max_ns=30 * MS)

"""The runtime's word about its own loop, on a clock that the test moves."""

from __future__ import annotations

from streamsim_agents.loop_lag import LoopLag, overdue

MS = 1_000_000


async def test_missed_beats_count_with_the_lag_they_would_have_had() -> None:
    now_ns = 7_000 * MS
    with LoopLag(lambda: now_ns) as lag:
        assert lag.figures() == (0, 0)
        now_ns += 100 * MS
        assert lag.figures() == (0, 0)  # the first beat, on time
        now_ns += 950 * MS
        assert lag.figures() == (950 * MS, 950 * MS)
    assert overdue(100 * MS, 320 * MS) == [220 * MS, 120 * MS, 20 * MS]

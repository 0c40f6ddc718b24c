"""What falls due when: the order of release, due times, and what a late decoder holds back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsim.episodes.episode import EpisodeQuery
from streamsim.testing import seconds, tiny_query, tiny_samples
from streamsim.timeline import DueFrame, DueQuery, Timeline, wire_name


def order(timeline: Timeline) -> list[tuple[int, str]]:
    """(due, what) of everything, in the order of release."""
    released = []
    while (item := timeline.next_item()) is not None:
        assert timeline.next_due_ns() == item.media_ns
        timeline.release(item)
        name = f"F{item.sample.k}" if isinstance(item, DueFrame) else wire_name(item.index)
        released.append((item.media_ns, name))
    return released


def timeline_of(queries: list[EpisodeQuery], times_ns: list[int], decoded: int | None = None) -> Timeline:
    timeline = Timeline(queries, times_ns)
    for sample in tiny_samples(len(times_ns) if decoded is None else decoded):
        timeline.add_sample(sample)
    return timeline


def test_a_frame_goes_before_a_query_of_the_same_instant() -> None:
    timeline = timeline_of([tiny_query("a", 1)], [0, seconds(1), seconds(2)])
    assert order(timeline) == [(0, "F0"), (seconds(1), "F1"), (seconds(1), "q1"), (seconds(2), "F2")]
    assert timeline.exhausted and timeline.next_due_ns() is None


def test_queries_of_one_instant_keep_the_order_of_the_file() -> None:
    timeline = timeline_of([tiny_query("later", 3), tiny_query("z", 1), tiny_query("a", 1)], [0])
    assert [query.id for query in timeline.queries] == ["z", "a", "later"]
    assert order(timeline) == [(0, "F0"), (seconds(1), "q1"), (seconds(1), "q2"), (seconds(3), "q3")]


@pytest.mark.parametrize(("shift_ns", "due_ns"), [(1_000, seconds(1) + 1_000), (1_001, seconds(1))])
def test_a_query_is_due_with_its_newest_visible_frame(shift_ns: int, due_ns: int) -> None:
    """Visible within one microsecond after the query's time, as STORM-Bench's evaluator has it."""
    timeline = timeline_of([tiny_query("a", 1)], [0, seconds(1) + shift_ns])
    assert timeline.query_due_ns(0) == due_ns
    (plan,) = timeline.plan()
    assert (plan.query, plan.id, plan.media_ns, plan.due_media_ns) == ("q1", "a", seconds(1), due_ns)
    assert [name for _, name in order(timeline)] == (
        ["F0", "F1", "q1"] if shift_ns == 1_000 else ["F0", "q1", "F1"]
    )


def test_what_is_not_decoded_holds_everything_behind_it() -> None:
    timeline = timeline_of([tiny_query("a", 1)], [0, seconds(1)], decoded=1)
    assert order(timeline) == [(0, "F0")]
    assert timeline.next_due_ns() == seconds(1) and not timeline.exhausted
    timeline.add_sample(tiny_samples(2)[1])
    assert order(timeline) == [(seconds(1), "F1"), (seconds(1), "q1")]


def test_queries_before_any_frame_and_after_the_last() -> None:
    timeline = timeline_of([tiny_query("a", 0), tiny_query("b", 9)], [seconds(2)])
    assert order(timeline) == [(0, "q1"), (seconds(2), "F0"), (seconds(9), "q2")]


def test_an_empty_episode_is_over_at_once() -> None:
    assert Timeline([], []).exhausted and Timeline([], []).next_item() is None


@given(
    st.lists(st.integers(0, 50), max_size=6).map(sorted),
    st.lists(st.integers(0, 50), max_size=6),
)
def test_release_order_against_the_definition(frames_us: list[int], queries_us: list[int]) -> None:
    """Sorted by (due, frame before query, time of the query, place in the file), due as defined."""
    queries = [
        EpisodeQuery(id=str(n), kind="open", media_ns=at_us * 500, stem="")
        for n, at_us in enumerate(queries_us)
    ]
    times_ns = [at_us * 500 for at_us in frames_us]
    by_time = sorted(queries, key=lambda query: query.media_ns)
    expected = [(time, 0, k, 0, f"F{k}") for k, time in enumerate(times_ns)]
    for n, query in enumerate(by_time):
        due_ns = max([query.media_ns, *(time for time in times_ns if time <= query.media_ns + 1_000)])
        expected.append((due_ns, 1, query.media_ns, n, f"q{n + 1}"))
    assert order(timeline_of(queries, times_ns)) == [(due, name) for due, *_, name in sorted(expected)]


def test_items_are_told_apart() -> None:
    timeline = timeline_of([tiny_query("a", 0)], [])
    assert timeline.next_item() == DueQuery(0, 0)

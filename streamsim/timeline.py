"""What falls due when: the frames and queries of one episode in the order of their release.

A frame comes before a query of the same instant; queries of one instant keep the file's order. The
times of all samples are known from the start, their pictures come as the decoder makes them. This
module knows no clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from streamsim.episodes.episode import EpisodeQuery, sort_queries
from streamsim.events import QueryPlan
from streamsim_protocol.messages import VISIBILITY_TOLERANCE_NS


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A decoded sample by reference. ``digest`` (SHA-256, hex) is None where no picture is visible yet."""

    k: int
    size_bytes: int
    digest: str | None


class DueFrame(msgspec.Struct, frozen=True):
    """Sample ``sample.k`` is next, due at ``media_ns``."""

    media_ns: int
    sample: Sample


class DueQuery(msgspec.Struct, frozen=True):
    """Query ``index`` is next, due at ``media_ns``."""

    media_ns: int
    index: int


class Timeline:
    """The schedule of one episode; a cursor moves over it as things are released.

    ``times_ns`` is the media time of every sample that there will be, ascending.
    """

    def __init__(self, queries: Sequence[EpisodeQuery], times_ns: Sequence[int]) -> None:
        self.queries = sort_queries(queries)
        self._times_ns = tuple(times_ns)
        self._samples: list[Sample] = []
        self._next_frame = 0
        self._next_query = 0
        self._queries_due_ns = [self._query_due_ns(query) for query in self.queries]

    def add_sample(self, sample: Sample) -> None:
        """The decoder has one more sample; they come in order."""
        assert sample.k == len(self._samples) < len(self._times_ns), f"unexpected sample {sample.k}"
        self._samples.append(sample)

    @property
    def frames_total(self) -> int:
        """How many samples the episode has."""
        return len(self._times_ns)

    @property
    def exhausted(self) -> bool:
        """Everything has been released."""
        return self._next_frame == len(self._times_ns) and self._next_query == len(self.queries)

    def next_due_ns(self) -> int | None:
        """Media time of what is due next; None when all has been released."""
        query_ns = self._next_query_ns()
        if self._next_frame == len(self._times_ns):
            return query_ns
        frame_ns = self._times_ns[self._next_frame]
        return frame_ns if query_ns is None or frame_ns <= query_ns else query_ns

    def next_item(self) -> DueFrame | DueQuery | None:
        """What is due next, if it can be released: None at the end and while the decoder is behind."""
        query_ns = self._next_query_ns()
        if self._next_frame < len(self._times_ns):
            frame_ns = self._times_ns[self._next_frame]
            if query_ns is None or frame_ns <= query_ns:
                decoded = self._next_frame < len(self._samples)
                return DueFrame(frame_ns, self._samples[self._next_frame]) if decoded else None
        return None if query_ns is None else DueQuery(query_ns, self._next_query)

    def release(self, item: DueFrame | DueQuery) -> None:
        """Move past ``item``, which ``next_item`` gave."""
        if isinstance(item, DueFrame):
            self._next_frame += 1
        else:
            self._next_query += 1

    def query_due_ns(self, index: int) -> int:
        """The later of the query's own time and its newest visible frame's."""
        return self._queries_due_ns[index]

    def _next_query_ns(self) -> int | None:
        due_ns = self._queries_due_ns
        return due_ns[self._next_query] if self._next_query < len(due_ns) else None

    def _query_due_ns(self, query: EpisodeQuery) -> int:
        visible = bisect_right(self._times_ns, query.media_ns + VISIBILITY_TOLERANCE_NS)
        return max(query.media_ns, self._times_ns[visible - 1]) if visible else query.media_ns

    def plan(self) -> tuple[QueryPlan, ...]:
        """The queries with their names on the wire, as the journal maps them."""
        return tuple(
            QueryPlan(
                query=wire_name(index),
                id=query.id,
                kind=query.kind,
                media_ns=query.media_ns,
                due_media_ns=self.query_due_ns(index),
                option_count=len(query.options),
            )
            for index, query in enumerate(self.queries)
        )


def wire_name(index: int) -> str:
    """The opaque name of the query ``index`` (from 0) on the wire: q1, q2, …"""
    return f"q{index + 1}"

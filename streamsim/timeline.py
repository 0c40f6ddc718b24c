"""What falls due when: the frames and queries of one episode in the order of their release.

A frame comes before a query of the same instant; queries of one instant keep the file's order. How
many frames there are is only known once the decoder has reached the end. This module knows no clock.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from streamsim.episodes.episode import EpisodeQuery, frame_media_ns, is_visible, sort_queries
from streamsim.events import QueryPlan


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
    """The schedule of one episode; a cursor moves over it as things are released."""

    def __init__(self, queries: Sequence[EpisodeQuery], fps: float) -> None:
        self.fps = fps
        self.queries = sort_queries(queries)
        self.samples: list[Sample] = []
        self.media_ended = False
        self._next_frame = 0
        self._next_query = 0

    def add_sample(self, sample: Sample) -> None:
        """The decoder has one more sample; they come in order."""
        assert sample.k == len(self.samples), f"expected sample {len(self.samples)}, got {sample.k}"
        assert not self.media_ended
        self.samples.append(sample)

    def end_media(self) -> None:
        """No further sample will come."""
        self.media_ended = True

    @property
    def exhausted(self) -> bool:
        """Everything has been released and nothing more can come."""
        return (
            self.media_ended
            and self._next_frame >= len(self.samples)
            and self._next_query >= len(self.queries)
        )

    @property
    def released_queries(self) -> int:
        """How many queries, counted in order, have been released."""
        return self._next_query

    def next_due_ns(self) -> int | None:
        """Media time of what is due next; None when all has been released."""
        due = [self.query_due_ns(self._next_query)] if self._next_query < len(self.queries) else []
        if not self.media_ended or self._next_frame < len(self.samples):
            due.append(frame_media_ns(self._next_frame, self.fps))
        return min(due, default=None)

    def next_item(self) -> DueFrame | DueQuery | None:
        """What is due next, if it can be released: None at the end and while the decoder is behind."""
        frame_ns = frame_media_ns(self._next_frame, self.fps)
        frame_known = self._next_frame < len(self.samples)
        query_ns = self.query_due_ns(self._next_query) if self._next_query < len(self.queries) else None
        if (frame_known or not self.media_ended) and (query_ns is None or frame_ns <= query_ns):
            return DueFrame(frame_ns, self.samples[self._next_frame]) if frame_known else None
        return None if query_ns is None else DueQuery(query_ns, self._next_query)

    def release(self, item: DueFrame | DueQuery) -> None:
        """Move past ``item``, which ``next_item`` gave."""
        if isinstance(item, DueFrame):
            self._next_frame += 1
        else:
            self._next_query += 1

    def query_due_ns(self, index: int) -> int:
        """The later of the query's own time and its newest visible frame's."""
        media_ns = self.queries[index].media_ns
        newest = newest_visible(media_ns, self.fps)
        if self.media_ended and newest >= len(self.samples):
            return media_ns
        return max(media_ns, frame_media_ns(newest, self.fps))

    def plan(self) -> tuple[QueryPlan, ...]:
        """The queries with their names on the wire, as the journal maps them."""
        return tuple(
            QueryPlan(
                query=wire_name(index),
                id=query.id,
                kind=query.kind,
                media_ns=query.media_ns,
                due_media_ns=self.query_due_ns(index),
            )
            for index, query in enumerate(self.queries)
        )


def wire_name(index: int) -> str:
    """The opaque name of the query ``index`` (from 0) on the wire: q1, q2, …"""
    return f"q{index + 1}"


def newest_visible(media_ns: int, fps: float) -> int:
    """The largest k whose frame time a query at ``media_ns`` may see, at least 0."""
    k = max(0, int(media_ns * fps / 1e9) - 1)
    while is_visible(frame_media_ns(k + 1, fps), media_ns):
        k += 1
    return k

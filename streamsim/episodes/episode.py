"""Episodes as pure data: the public half that the server plays, and the answer key that scoring reads.

All times are integer nanoseconds of media time; seconds of annotation files are converted once, by
``seconds_to_ns``. Evidence spans are closed, as the benchmarks write them. This module knows no
files, no videos and no clocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Literal

import msgspec

from streamsim_protocol.messages import VISIBILITY_TOLERANCE_NS, QueryKind

CAUSES = (
    "missing_observation",
    "partial_observation",
    "low_visual_quality",
    "ambiguous_evidence",
    "ambiguous_attribute",
    "multiple_candidates",
)
"""The causes of uncertainty in the benchmark's order: letters A to F."""

QUESTION_TYPES = (
    "factual_retrieval",
    "current_state",
    "state_change",
    "object_tracking",
    "temporal_reasoning",
    "history_aggregation",
)
"""The question types of STORM-Bench."""

Status = Literal["known", "uncertain"]
Chain = Literal["full", "task"]


class EpisodeQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something asked at ``media_ns``. ``options`` are in presented order, empty for open questions."""

    id: str
    kind: QueryKind
    media_ns: int
    stem: str
    options: tuple[str, ...] = ()


class Episode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One recorded video with its timed queries, sorted by time (ties keep the file's order).

    ``video`` is a path: absolute, or relative to the public folder of the dataset.
    """

    id: str
    subset: str
    video: str
    queries: tuple[EpisodeQuery, ...]


class KeyEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The hidden half of one query.

    ``answer_index`` counts in presented order, where ``presented[j] = stored[permutation[j]]``.
    ``status`` is None where the source has no known/uncertain labels. ``spans_ns`` are closed.
    ``intensity`` is the change intensity 1 to 10, None where the source has none.
    """

    id: str
    episode_id: str
    subset: str
    media_ns: int
    answer_index: int | None = None
    answer_text: str | None = None
    permutation: tuple[int, ...] = ()
    status: Status | None = None
    causes: tuple[str, ...] = ()
    intensity: int | None = None
    spans_ns: tuple[tuple[int, int], ...] = ()
    question_type: str = ""
    question_subtype: str = ""
    notes: dict[str, str] = {}


def seconds_to_ns(seconds: float | int | str) -> int:
    """Seconds as an annotation file writes them, to the nearest nanosecond, free of binary error.

    ``ValueError`` for what is no finite number.
    """
    value = Decimal(str(seconds))
    if not value.is_finite():
        raise ValueError(f"expected a finite number of seconds, got {seconds!r}")
    return int((value * 1_000_000_000).to_integral_value())


def frame_media_ns(k: int, fps: float) -> int:
    """Media time of sample ``k`` at ``fps`` samples a second: the nearest nanosecond to ``k / fps``."""
    return int((Decimal(k) * 1_000_000_000 / Decimal(str(fps))).to_integral_value())


def is_visible(frame_media_ns: int, query_media_ns: int) -> bool:
    """Whether a frame may be seen by a query."""
    return frame_media_ns <= query_media_ns + VISIBILITY_TOLERANCE_NS


def sort_queries(queries: Sequence[EpisodeQuery]) -> tuple[EpisodeQuery, ...]:
    """Queries by time; those of one instant keep their order."""
    return tuple(sorted(queries, key=lambda query: query.media_ns))

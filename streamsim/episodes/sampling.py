"""Which pictures of a video become samples, and at what size: rules and records without a decoder.

Times are integer nanoseconds on the media timeline, whose zero is the start of the file as a player
counts it (see ``video.probe_video``). This module knows no files and no PyAV, so that a server may
use it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Literal

import msgspec

from streamsim.episodes.episode import frame_media_ns, seconds_to_ns
from streamsim.errors import UsageError

Encoding = Literal["jpeg", "png"]
SamplingRule = Literal["presentation", "storm-evaluator"]
SAMPLING_RULES: tuple[SamplingRule, ...] = ("presentation", "storm-evaluator")

MIN_FPS, MAX_FPS = 1e-6, 10_000.0
PIXEL_BUDGET = 200_704
"""448 x 448, the pixel budget of STORM-Bench."""
MAX_SAMPLES = 5_000_000
"""Of one video; beyond lies only a broken time stamp (a day at 50 a second is 4,320,000)."""
FIRST_PICTURE_GRACE_NS = 100_000_000
"""A first picture up to this late counts as time 0: encoders delay it, players show it at once."""


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How a video becomes samples. Two sessions with equal records may share one decode.

    ``fps`` samples a second; ``pixel_budget`` the most pixels of a picture; ``quality`` of JPEG, 1 to
    100. ``UsageError`` for values out of range.
    """

    fps: float = 1.0
    pixel_budget: int = PIXEL_BUDGET
    encoding: Encoding = "jpeg"
    quality: int = 90
    rule: SamplingRule = "presentation"

    def __post_init__(self) -> None:
        if not MIN_FPS <= self.fps <= MAX_FPS:
            raise UsageError(f"expected a sampling rate from {MIN_FPS:g} to {MAX_FPS:g}, got {self.fps!r}")
        if self.pixel_budget < 1:
            raise UsageError(f"expected a pixel budget of at least 1, got {self.pixel_budget!r}")
        if not 1 <= self.quality <= 100:
            raise UsageError(f"expected a quality from 1 to 100, got {self.quality!r}")
        if self.encoding not in ("jpeg", "png"):
            raise UsageError(f"expected encoding 'jpeg' or 'png', got {self.encoding!r}")
        if self.rule not in SAMPLING_RULES:
            raise UsageError(f"expected sampling {' or '.join(SAMPLING_RULES)}, got {self.rule!r}")


class VideoInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a demux-only pass says about a video.

    ``width`` and ``height`` are the picture's as a player shows it: rotation and pixel aspect
    applied, not yet shrunk. ``first_picture_ns`` (0 if at most 100 ms late) and ``last_picture_ns``
    are presentation times; ``end_ns`` is where the last picture's packet ends. ``pictures`` counts
    the packets that are shown; ``average_fps`` is the container's claim, None where it makes none.
    """

    width: int
    height: int
    first_picture_ns: int
    last_picture_ns: int
    end_ns: int
    pictures: int
    average_fps: float | None

    def sample_times(self, sampling: Sampling) -> tuple[int, ...]:
        """Media time of every sample, in order; never empty.

        ``UsageError`` for more than ``MAX_SAMPLES``, or for an evaluator without an average rate.
        """
        if sampling.rule == "storm-evaluator":
            rate = self._average_fps()
            return tuple(seconds_to_ns(index / rate) for index in self.evaluator_indices(sampling.fps))
        count = self.sample_count(sampling.fps)
        if count > MAX_SAMPLES:
            raise UsageError(
                f"expected at most {MAX_SAMPLES} samples, {sampling.fps:g} a second up to "
                f"{self.last_picture_ns / 1e9:.0f} s are {count}: lower the rate or mend the time stamps"
            )
        return tuple(frame_media_ns(k, sampling.fps) for k in range(count))

    def sample_count(self, fps: float) -> int:
        """Number of samples by presentation time: k = 0 ... floor(last presentation time x fps)."""
        last_ns = max(self.last_picture_ns, 0)
        k = int(last_ns * Fraction(str(fps)) / 1_000_000_000)
        # the grid is rounded to nanoseconds, so that its end may lie one step further or nearer
        while frame_media_ns(k + 1, fps) <= last_ns:
            k += 1
        while k > 0 and frame_media_ns(k, fps) > last_ns:
            k -= 1
        return k + 1

    def evaluator_indices(self, fps: float) -> tuple[int, ...]:
        """Picture numbers that STORM-Bench's public evaluator takes, in order.

        rint(k x average_fps / fps), unique, clipped to the file, for k from 0 to
        floor((pictures - 1) / average_fps x fps); in double precision, as there.
        """
        rate = self._average_fps()
        last_k = math.floor((self.pictures - 1) / rate * fps)
        indices = (min(round(k * rate / fps), self.pictures - 1) for k in range(last_k + 1))
        return tuple(dict.fromkeys(indices))

    def _average_fps(self) -> float:
        if not self.average_fps:
            raise UsageError(
                "expected an average frame rate in the container for sampling 'storm-evaluator', "
                "found none: use sampling 'presentation'"
            )
        return self.average_fps


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What a viewer sees at ``media_ns``.

    ``source_ns`` is the presentation time of the picture shown, ``data`` a picture file of ``width``
    by ``height`` pixels. All four are None while nothing is visible yet.
    """

    k: int
    media_ns: int
    source_ns: int | None = None
    width: int | None = None
    height: int | None = None
    data: bytes | None = None


def shown_size(width: int, height: int, pixel_aspect: Fraction, turned: bool) -> tuple[int, int]:
    """Size as a player shows it: the width stretched by the pixel aspect, then a quarter turn if any."""
    stretched = max(1, round(width * pixel_aspect))
    return (height, stretched) if turned else (stretched, height)


def fit_size(width: int, height: int, pixel_budget: int) -> tuple[int, int]:
    """Shrink to at most ``pixel_budget`` pixels, keeping the aspect, both sides floored; never enlarge."""
    if width * height <= pixel_budget:
        return width, height
    # floor(width * sqrt(budget / (width * height))), in integers
    fitted = math.isqrt(pixel_budget * width // height), math.isqrt(pixel_budget * height // width)
    if fitted[0] == 0:
        return 1, min(height, pixel_budget)
    if fitted[1] == 0:
        return min(width, pixel_budget), 1
    return fitted


def describe_times(times_ns: Iterable[int], limit: int = 8) -> str:
    """Times as a short list of seconds: the first few, then how many more and up to when."""
    ordered = sorted(times_ns)
    text = ", ".join(f"{time_ns / 1e9:.3f}" for time_ns in ordered[:limit])
    if len(ordered) > limit:
        text += f" and {len(ordered) - limit} more up to {ordered[-1] / 1e9:.3f}"
    return f"{text} s"

"""Which instants are sampled and at what size, against computations of their own."""

from __future__ import annotations

from fractions import Fraction
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsim.episodes.sampling import Sampling, VideoInfo, describe_times, fit_size, shown_size
from streamsim.errors import UsageError


def info(last_picture_ns: int = 0, pictures: int = 1, average_fps: float | None = None) -> VideoInfo:
    return VideoInfo(
        width=4,
        height=3,
        first_picture_ns=0,
        last_picture_ns=last_picture_ns,
        end_ns=last_picture_ns,
        pictures=pictures,
        average_fps=average_fps,
    )


@pytest.mark.parametrize(
    ("last_picture_ns", "fps", "count"),
    [
        (0, 1.0, 1),
        (999_999_999, 1.0, 1),
        (1_000_000_000, 1.0, 2),
        (5_966_666_667, 1.0, 6),
        (333_333_333, 3.0, 2),  # the picture at exactly 1/3 s
        (333_333_332, 3.0, 1),
        (66_733_333, 29.97, 2),
        (10_000_000_000, 0.1, 2),
        (9_999_999_999, 0.1, 1),
        (-40_000_000, 1.0, 1),
    ],
)
def test_samples_run_to_the_last_picture(last_picture_ns: int, fps: float, count: int) -> None:
    assert info(last_picture_ns).sample_count(fps) == count


@settings(deadline=None)
@given(st.integers(0, 20_000_000_000), st.sampled_from([0.1, 0.3, 1.0, 2.5, 3.0, 7.0, 23.976, 30.0]))
def test_sample_times_are_the_grid_up_to_the_last_picture(last_picture_ns: int, fps: float) -> None:
    times_ns = info(last_picture_ns).sample_times(Sampling(fps=fps))
    rate = Fraction(str(fps))
    assert all(abs(time_ns - k * 10**9 / rate) <= Fraction(1, 2) for k, time_ns in enumerate(times_ns))
    assert times_ns[-1] <= last_picture_ns
    assert len(times_ns) * 10**9 / rate > last_picture_ns - Fraction(1, 2)


@settings(deadline=None)
@given(
    pictures=st.integers(1, 4000),
    average_fps=st.sampled_from([24000 / 1001, 25.0, 29.97, 30.0, 6.699766704552252, 0.5]),
    fps=st.sampled_from([0.5, 1.0, 2.0, 3.0, 30.0]),
)
def test_the_evaluators_rule_equals_a_computation_in_arrays(
    pictures: int, average_fps: float, fps: float
) -> None:
    k = np.arange(int(np.floor((pictures - 1) / average_fps * fps)) + 1)
    indices = np.unique(np.clip(np.rint(k * average_fps / fps), 0, pictures - 1).astype(int))
    found = info(pictures=pictures, average_fps=average_fps)
    assert found.evaluator_indices(fps) == tuple(indices)
    times_ns = found.sample_times(Sampling(fps=fps, rule="storm-evaluator"))
    assert np.allclose(np.array(times_ns), indices / average_fps * 1e9, rtol=1e-12, atol=0.51)


def test_the_evaluators_rule_rounds_halves_to_even() -> None:
    # 25 pictures a second at 2 samples: 12.5 -> 12, 37.5 -> 38
    assert info(pictures=40, average_fps=25.0).evaluator_indices(2.0) == (0, 12, 25, 38)


def test_the_evaluators_rule_needs_an_average_rate() -> None:
    with pytest.raises(UsageError, match="use sampling 'presentation'"):
        info(pictures=40).sample_times(Sampling(rule="storm-evaluator"))


def test_a_broken_time_stamp_makes_no_endless_session() -> None:
    with pytest.raises(UsageError, match="1 a second up to 9223372037 s are 9223372037"):
        info((1 << 63) - 1).sample_times(Sampling())


@pytest.mark.parametrize(
    ("width", "height", "budget", "expected"),
    [
        (640, 480, 200_704, (517, 387)),  # 640 x sqrt(200704 / 307200) = 517.30…
        (1920, 1080, 200_704, (597, 336)),  # both x 448 / 1440: 597.33… and 336 exactly
        (1080, 1920, 200_704, (336, 597)),
        (448, 448, 200_704, (448, 448)),
        (320, 240, 200_704, (320, 240)),
        (449, 448, 200_704, (448, 447)),
        (100_000, 1, 1_000, (1_000, 1)),
        (3, 10_000, 10, (1, 10)),
    ],
)
def test_fit_size(width: int, height: int, budget: int, expected: tuple[int, int]) -> None:
    assert fit_size(width, height, budget) == expected


@settings(deadline=None)
@given(st.integers(1, 8000), st.integers(1, 8000), st.integers(1, 400_000))
def test_pictures_fit_the_budget_and_keep_their_aspect(width: int, height: int, budget: int) -> None:
    new_width, new_height = fit_size(width, height, budget)
    assert 1 <= new_width <= width and 1 <= new_height <= height
    if width * height <= budget:
        assert (new_width, new_height) == (width, height)
        return
    assert new_width * new_height <= budget
    scale = sqrt(budget / (width * height))
    if min(width, height) * scale >= 1:
        assert abs(new_width - width * scale) < 1 + 1e-6
        assert abs(new_height - height * scale) < 1 + 1e-6


def test_shown_size_stretches_before_it_turns() -> None:
    assert shown_size(720, 576, Fraction(16, 15), turned=False) == (768, 576)
    assert shown_size(720, 480, Fraction(8, 9), turned=False) == (640, 480)
    assert shown_size(320, 240, Fraction(2), turned=True) == (240, 640)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"fps": 0.0}, "sampling rate from 1e-06 to 10000, got 0.0"),
        ({"fps": float("nan")}, "sampling rate from 1e-06 to 10000, got nan"),
        ({"fps": float("inf")}, "sampling rate from 1e-06 to 10000, got inf"),
        ({"pixel_budget": 0}, "pixel budget of at least 1, got 0"),
        ({"quality": 101}, "quality from 1 to 100, got 101"),
        ({"encoding": "gif"}, "'jpeg' or 'png', got 'gif'"),
        ({"rule": "index"}, "presentation or storm-evaluator, got 'index'"),
    ],
)
def test_sampling_refuses_what_makes_no_sense(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Sampling(**wrong)  # type: ignore[arg-type]


def test_long_lists_of_times_are_cut() -> None:
    assert describe_times([2_000_000_000, 1_500_000_000]) == "1.500, 2.000 s"
    assert (
        describe_times([n * 10**9 for n in range(12)], limit=3)
        == "0.000, 1.000, 2.000 and 9 more up to 11.000 s"
    )

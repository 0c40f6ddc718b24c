"""The sampler, to the picture: clips whose pictures carry their own time, rendered here or given."""

from __future__ import annotations

import io
import itertools
import json
import random
import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from streamsim.episodes.sampling import Sample, Sampling
from streamsim.episodes.video import VideoSampler, probe_video, sample_video
from streamsim.errors import VideoError

MakeClip = Callable[..., Path]
ShownMs = Callable[[bytes | None], int | None]

CASES = (
    "anamorphic.mp4",
    "audio_only.m4a",
    "cfr30_bframes.mp4",
    "corrupt_middle.mp4",
    "edit_list.mp4",
    "empty.mp4",
    "odd_size.mkv",
    "one_keyframe.mp4",
    "rotated_90.mp4",
    "slower_than_1fps.mp4",
    "truncated.mp4",
    "vfr.mp4",
    "video_starts_late.mp4",
)


def sampled(path: Path, sampling: Sampling | None = None) -> tuple[list[Sample], VideoSampler]:
    with VideoSampler(path, sampling or Sampling(encoding="png")) as sampler:
        return list(sampler), sampler


def last_at_or_before(times_ms: Sequence[int], grid_ms: Sequence[float]) -> list[int | None]:
    return [max((time for time in times_ms if time <= due), default=None) for due in grid_ms]


# ---------------------------------------------------------------------------------- the given cases


@pytest.mark.parametrize("name", CASES)
def test_a_given_clip_gives_what_is_expected(name: str, test_data: Path, shown_ms: ShownMs) -> None:
    folder = test_data / "cases" / "video"
    expected = json.loads((folder / "expected.json").read_text())[name]
    if expected.get("error") in ("ends early", "no video"):
        with pytest.raises(VideoError, match=expected["error"]):
            probe_video(folder / name)
        return
    samples, sampler = sampled(folder / name)
    assert [sample.k for sample in samples] == list(range(len(samples)))
    assert [sample.media_ns for sample in samples] == [k * 10**9 for k in range(len(samples))]
    shown = [shown_ms(sample.data) for sample in samples]
    if "approx" in expected:
        assert len(shown) == len(expected["approx"])
        for shown_time, time_ms in zip(shown, expected["approx"], strict=True):
            assert shown_time is not None and abs(shown_time - time_ms) <= 34
    elif "samples" in expected:
        assert shown == expected["samples"]
    if "upright" in expected:
        assert (sampler.info.width, sampler.info.height) == tuple(expected["upright"])
        assert {(sample.width, sample.height) for sample in samples} == {tuple(expected["upright"])}
    if "error" in expected:
        assert sampler.damaged > 0
        assert f"damaged pictures: {sampler.damaged}" in sampler.warnings[0]
    else:
        assert sampler.damaged == 0
        with av.open(str(folder / name)) as container:  # pictures that an edit list hides do not count
            assert sampler.info.pictures == sum(1 for _ in container.decode(video=0))


def test_no_given_clip_is_left_out(test_data: Path) -> None:
    assert set(json.loads((test_data / "cases" / "video" / "expected.json").read_text())) == set(CASES)


@pytest.mark.slow
def test_real_footage_gives_the_pictures_of_each_second(test_data: Path) -> None:
    folder = test_data / "data" / "real"
    # swing: picture n at (n + 1) x 1001/24000 s; the first, 42 ms late, counts as time 0
    samples, _ = sampled(folder / "swing.mp4", Sampling())
    times = [Fraction(0), *(Fraction((n + 1) * 1001, 24_000) for n in range(1, 929))]
    expected = [max(time for time in times if time <= k) for k in range(39)]
    assert [sample.source_ns for sample in samples] == [round(time * 10**9) for time in expected]
    assert {(sample.width, sample.height) for sample in samples} == {(480, 360)}
    # drive: two pictures a second from 0, an edit list takes the delay of reordering away
    samples, sampler = sampled(folder / "drive.mp4", Sampling())
    assert [sample.source_ns for sample in samples] == [k * 10**9 for k in range(17)]
    assert sampler.info.end_ns == 16_500_000_000
    samples, sampler = sampled(folder / "one_keyframe.mp4", Sampling())
    assert [sample.source_ns for sample in samples] == [k * 10**9 for k in range(6)]
    assert sampler.warnings == []


# ------------------------------------------------------------------------------------------- times


def test_reordered_pictures_are_sampled_in_order_of_time(long_clip: Path, shown_ms: ShownMs) -> None:
    with av.open(str(long_clip)) as container:
        pts = [packet.pts for packet in container.demux(video=0) if packet.pts is not None]
    assert pts != sorted(pts), "the clip should have B-frames"
    times_ms = [int(round(n * 1000 / 30, -1)) for n in range(90)]
    for fps in (1.0, 4.0, 30.0):
        samples, _ = sampled(long_clip, Sampling(fps=fps, encoding="png"))
        grid_ms = [k * 1000 / fps for k in range(int(2970 * fps / 1000) + 1)]
        assert [shown_ms(sample.data) for sample in samples] == last_at_or_before(times_ms, grid_ms)


@pytest.mark.parametrize("container", ["mp4", "mkv", "ts", "flv"])
def test_irregular_times_in_any_container(container: str, make_clip: MakeClip, shown_ms: ShownMs) -> None:
    generator = random.Random(container)
    steps = [generator.choice((10, 20, 40, 170, 900)) for _ in range(40)]
    times_ms = [0, *itertools.accumulate(steps)]
    samples, sampler = sampled(make_clip(f"clip.{container}", times_ms), Sampling(fps=2.5, encoding="png"))
    grid_ms = [k * 400 for k in range(times_ms[-1] * 10 // 4000 + 1)]
    expected = last_at_or_before(times_ms, grid_ms)
    assert [shown_ms(sample.data) for sample in samples] == expected
    assert [sample.source_ns for sample in samples] == [time * 10**6 for time in expected if time is not None]
    assert sampler.info.pictures == len(times_ms)
    assert sampler.info.last_picture_ns == times_ms[-1] * 10**6


def test_nothing_is_visible_before_a_late_first_picture(make_clip: MakeClip, shown_ms: ShownMs) -> None:
    path = make_clip("late.mp4", [700, 1010, 1990, 2600], sound_ms=2500)
    samples, sampler = sampled(path)
    assert [shown_ms(sample.data) for sample in samples] == [None, 700, 1990]
    assert samples[0] == Sample(k=0, media_ns=0)
    assert [sample.source_ns for sample in samples] == [None, 700_000_000, 1_990_000_000]
    assert sampler.info.first_picture_ns == 700_000_000
    assert sampler.warnings == ["samples without a picture: 1; nothing is visible before 0.700 s"]


@pytest.mark.parametrize(("first_ms", "shown"), [(100, 100), (110, None)])
def test_a_first_picture_up_to_100_ms_late_counts_as_time_0(
    first_ms: int, shown: int | None, make_clip: MakeClip, shown_ms: ShownMs
) -> None:
    samples, sampler = sampled(make_clip("late.mp4", [first_ms, 990, 1500], sound_ms=1000))
    assert [shown_ms(sample.data) for sample in samples] == [shown, 990]
    assert samples[0].source_ns == (0 if shown else None)
    assert sampler.info.first_picture_ns == (0 if shown else 110_000_000)


def test_one_picture_is_one_sample_at_any_rate(make_clip: MakeClip) -> None:
    samples, sampler = sampled(make_clip("one.mp4", [90], sound_ms=500), Sampling(fps=30.0))
    assert [sample.source_ns for sample in samples] == [0]
    assert sampler.info.last_picture_ns == 0


def test_a_picture_that_stays_is_encoded_once(make_clip: MakeClip, shown_ms: ShownMs) -> None:
    samples, _ = sampled(make_clip("slow.mp4", [0, 2000, 4000]), Sampling(encoding="png"))
    assert [shown_ms(sample.data) for sample in samples] == [0, 0, 2000, 2000, 4000]
    assert samples[0].data is samples[1].data
    assert samples[1].data is not samples[2].data


def test_the_evaluators_rule_takes_pictures_by_number(make_clip: MakeClip, shown_ms: ShownMs) -> None:
    times_ms = [0, 40, 400, 1100, 1200, 1300, 2900, 3000]
    path = make_clip("vfr.mkv", times_ms, declared_fps=2)
    assert probe_video(path).average_fps == 2.0
    samples, _ = sampled(path, Sampling(encoding="png", rule="storm-evaluator"))
    # k x 2 pictures, each stamped number / 2, whatever its real time
    assert [shown_ms(sample.data) for sample in samples] == [times_ms[n] for n in (0, 2, 4, 6)]
    assert [sample.media_ns for sample in samples] == [0, 10**9, 2 * 10**9, 3 * 10**9]
    assert [sample.source_ns for sample in samples] == [times_ms[n] * 10**6 for n in (0, 2, 4, 6)]


# ---------------------------------------------------------------------------------------- pictures


def test_pictures_are_shrunk_to_the_budget_never_enlarged(make_clip: MakeClip) -> None:
    path = make_clip("large.mp4", [0, 40], size=(322, 240))
    for budget, size in ((200_704, (322, 240)), (322 * 240, (322, 240)), (20_000, (163, 122))):
        for encoding, kind in (("jpeg", "JPEG"), ("png", "PNG")):
            sample = next(sample_video(path, pixel_budget=budget, encoding=encoding))  # type: ignore[arg-type]
            picture = Image.open(io.BytesIO(sample.data or b""))
            assert (picture.format, picture.mode, picture.size) == (kind, "RGB", size)
            assert (sample.width, sample.height) == size


def test_shrinking_keeps_what_is_shown(make_clip: MakeClip, shown_ms: ShownMs) -> None:
    path = make_clip("large.mp4", [0, 430, 990], size=(642, 482))
    samples, _ = sampled(path, Sampling(fps=2.0, pixel_budget=10_000, encoding="jpeg"))
    assert [shown_ms(sample.data) for sample in samples] == [0, 430]


def test_quality_is_that_of_pillow(make_clip: MakeClip) -> None:
    path = make_clip("clip.mp4", [0])
    lossless = Image.open(io.BytesIO(next(sample_video(path, encoding="png")).data or b""))
    for quality in (40, 90):
        file = io.BytesIO()
        lossless.save(file, "JPEG", quality=quality)
        assert next(sample_video(path, quality=quality)).data == file.getvalue()


@pytest.mark.parametrize(("aspect", "width"), [(Fraction(2), 256), (Fraction(8, 9), 114)])
def test_pixel_aspect_stretches_the_width(
    aspect: Fraction, width: int, make_clip: MakeClip, shown_ms: ShownMs
) -> None:
    path = make_clip("anamorphic.mp4", [0, 990], pixel_aspect=aspect)
    samples, sampler = sampled(path)
    assert (samples[0].width, samples[0].height) == (width, 96)
    assert (sampler.info.width, sampler.info.height) == (width, 96)
    assert [shown_ms(sample.data) for sample in samples] == [0]


def test_colours_are_those_of_the_source(make_clip: MakeClip) -> None:
    sample = next(sample_video(make_clip("clip.mp4", [0], options={"crf": "1"}), encoding="png"))
    pixels = np.asarray(Image.open(io.BytesIO(sample.data or b""))).astype(int)
    assert np.abs(pixels[80, 6] - (200, 30, 30)).max() <= 6  # the red bar
    assert np.abs(pixels[70, 80] - (90, 90, 90)).max() <= 3
    assert np.abs(pixels[8, 8] - (20, 20, 20)).max() <= 3


def test_colours_of_a_tagged_file_follow_its_tag(tmp_path: Path) -> None:
    red = np.full((64, 64, 3), (200, 30, 30), np.uint8)
    with av.open(str(tmp_path / "hd.mp4"), "w") as container:
        stream = container.add_stream("libx264", rate=1, options={"crf": "1"})
        assert isinstance(stream, av.VideoStream)
        stream.width = stream.height = 64
        stream.codec_context.colorspace = 1  # BT.709
        picture = av.VideoFrame.from_ndarray(red, "rgb24").reformat(format="yuv420p", dst_colorspace=1)
        container.mux(stream.encode(picture))
        container.mux(stream.encode())
    sample = next(sample_video(tmp_path / "hd.mp4", encoding="png"))
    pixels = np.asarray(Image.open(io.BytesIO(sample.data or b""))).astype(int)
    assert np.abs(pixels[32, 32] - red[32, 32]).max() <= 4


@pytest.mark.parametrize("matrix", [
    (1, 0, 0, 1), (-1, 0, 0, 1), (1, 0, 0, -1), (-1, 0, 0, -1),
    (0, 1, -1, 0), (0, -1, 1, 0), (0, 1, 1, 0), (0, -1, -1, 0),
])  # fmt: skip
def test_every_orientation_is_turned_upright(matrix: tuple[int, int, int, int], make_clip: MakeClip) -> None:
    path = make_clip("clip.mp4", [0], size=(64, 48), options={"crf": "1"})
    stored = np.asarray(Image.open(io.BytesIO(next(sample_video(path, encoding="png")).data or b"")))
    a, b, c, d = matrix
    # the matrix of the track header, ISO 14496-12: x' = ax + cy, y' = bx + dy, in 16.16
    identity = struct.pack(">9i", 1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30)
    turned = struct.pack(">9i", a << 16, b << 16, 0, c << 16, d << 16, 0, 0, 0, 1 << 30)
    data = path.read_bytes()
    track = data.index(b"tkhd")
    path.write_bytes(data[:track] + data[track:].replace(identity, turned, 1))
    height, width, _ = stored.shape
    y, x = np.mgrid[:height, :width]
    new_x, new_y = a * x + c * y, b * x + d * y
    new_x, new_y = new_x - new_x.min(), new_y - new_y.min()
    upright = np.empty((new_y.max() + 1, new_x.max() + 1, 3), np.uint8)
    upright[new_y, new_x] = stored
    sample = next(sample_video(path, encoding="png"))
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(sample.data or b""))), upright)
    info = probe_video(path)
    assert (info.width, info.height) == (sample.width, sample.height) == (upright.shape[1], upright.shape[0])


# -------------------------------------------------------------------------------------- bad files


TIMES_MS = range(0, 4000, 40)


@pytest.mark.parametrize(("name", "options"), [
    ("clip.mp4", {"movflags": "faststart"}),  # the track declares the end
    ("clip.mkv", {}),  # only the container does
])  # fmt: skip
def test_a_file_that_ends_early_is_refused(name: str, options: dict[str, str], make_clip: MakeClip) -> None:
    path = make_clip(name, TIMES_MS, container_options=options, options={"bf": "0", "g": "10"})
    whole = path.read_bytes()
    with av.open(str(path)) as container:
        positions = [packet.pos for packet in container.demux(video=0) if packet.pos]
    path.write_bytes(whole[: positions[80]])  # the last picture ends at 3.2 s
    info = probe_video(path)
    assert info.pictures == 80
    path.write_bytes(whole[: positions[74]])  # at 2.96 s
    with pytest.raises(
        VideoError, match=r"ends early: it declares 4\.00 s, its data stop at (2\.96|3\.00) s"
    ):
        probe_video(path)


@pytest.mark.parametrize("container", ["mp4", "mkv", "flv"])
def test_sound_that_goes_on_is_no_early_end(container: str, make_clip: MakeClip) -> None:
    # mp4: the picture's track declares its own end; else the last packet of any stream counts
    info = probe_video(make_clip(f"clip.{container}", [0, 500], sound_ms=4000))
    assert info.pictures == 2
    assert 500_000_000 <= info.last_picture_ns < 600_000_000  # flv adds the sound encoder's delay


def test_damaged_pictures_are_counted_and_the_rest_is_shown(make_clip: MakeClip, shown_ms: ShownMs) -> None:
    path = make_clip("clip.mp4", TIMES_MS, options={"bf": "0", "g": "25"})
    with av.open(str(path)) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
        start, end = packets[55].pos or 0, packets[60].pos or 0
    whole = path.read_bytes()
    path.write_bytes(whole[:start] + b"\xff" * (end - start) + whole[end:])
    samples, sampler = sampled(path)
    assert len(samples) == 4
    assert 5 <= sampler.damaged <= 20  # what follows up to the next key picture may suffer too
    assert sampler.warnings[0].startswith(f"damaged pictures: {sampler.damaged} at 2.200, 2.240")
    shown = [shown_ms(sample.data) for sample in samples]
    assert shown[:3] == [0, 1000, 2000]
    assert shown[3] == 3000  # key pictures come every second: the damage is over


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no video in .*: the file is empty"),
        (b"\x00\x01garbage" * 1000, "cannot read .*expected a video file"),
        (b"just a line of text\n", "cannot read .*expected a video file"),
    ],
)
def test_what_is_no_video_is_refused(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "clip.mp4").write_bytes(content)
    with pytest.raises(VideoError, match=says):
        probe_video(tmp_path / "clip.mp4")


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.mp4", tmp_path):
        with pytest.raises(VideoError, match="no video file at"):
            probe_video(path)


def test_sound_alone_is_no_video(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "sound.m4a"), "w", format="mp4") as container:
        stream = container.add_stream("aac", rate=16_000, layout="mono")
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 16_000), np.float32), format="fltp", layout="mono")
        sound.sample_rate = 16_000
        container.mux(stream.encode(sound))
        container.mux(stream.encode())
    with pytest.raises(VideoError, match=r"no video in .*: expected a video stream, found audio"):
        probe_video(tmp_path / "sound.m4a")


def test_pictures_without_times_are_refused(make_clip: MakeClip) -> None:
    with pytest.raises(VideoError, match=r"no presentation times in .*remux"):
        probe_video(make_clip("raw.h264", [0, 40, 80]))


def test_a_file_without_its_index_is_refused(make_clip: MakeClip) -> None:
    path = make_clip("clip.mp4", TIMES_MS)
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rindex(b"moov")])  # the index lies at the end
    with pytest.raises(VideoError, match="cannot read"):
        probe_video(path)


def test_titles_in_an_old_encoding_do_no_harm(make_clip: MakeClip) -> None:
    path = make_clip("clip.mp4", [0])
    data = path.read_bytes()
    path.write_bytes(data.replace(b"VideoHandler", "Vidéo-Ablage".encode("latin-1")))
    assert path.read_bytes() != data
    assert probe_video(path).pictures == 1


def test_names_that_look_like_addresses_are_files(
    make_clip: MakeClip, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_clip("concat:a|b.mp4", [0, 990])
    monkeypatch.chdir(path.parent)
    assert probe_video(Path(path.name)).pictures == 2


def test_files_are_closed_also_when_sampling_is_given_up(long_clip: Path) -> None:
    def opened() -> list[str]:
        return [link for link in map(_link, Path("/proc/self/fd").iterdir()) if link == str(long_clip)]

    probe_video(long_clip)
    assert opened() == []
    samples = sample_video(long_clip)
    next(samples)
    assert len(opened()) == 1
    samples.close()  # type: ignore[attr-defined]
    assert opened() == []


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except FileNotFoundError:
        return ""


def test_samples_come_while_the_file_is_still_being_decoded(long_clip: Path) -> None:
    with VideoSampler(long_clip, Sampling(fps=30.0)) as sampler:
        decoded: list[int] = []
        pictures = sampler._pictures
        sampler._pictures = lambda: (decoded.append(p[1]) or p for p in pictures())  # type: ignore[method-assign,func-returns-value]
        for sample in sampler:
            # at most one picture beyond the one shown was taken from the decoder
            assert sum(time_ns > (sample.source_ns or 0) for time_ns in decoded) <= 1
        assert len(decoded) == 90

"""The only door to PyAV: what a video holds, and the pictures that a viewer sees at given times.

Media time counts from the start of the container, which is the start of its earliest stream: where
sound begins before the picture, nothing is visible yet; where only the file's clock is offset
(MPEG-TS, fragments, reordered pictures without an edit list), the offset is taken off. Pictures that
an edit list hides are neither shown nor counted. Nothing here knows sessions or agents.
"""

from __future__ import annotations

import io
import struct
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import cast

import av
from av.container import InputContainer
from av.stream import Disposition
from av.video.reformatter import Interpolation, VideoReformatter
from av.video.stream import VideoStream
from PIL import Image

from streamsim.episodes.sampling import (
    FIRST_PICTURE_GRACE_NS,
    PIXEL_BUDGET,
    Encoding,
    Sample,
    Sampling,
    SamplingRule,
    VideoInfo,
    describe_times,
    fit_size,
    shown_size,
)
from streamsim.errors import VideoError

EARLY_END_TOLERANCE_NS = 1_000_000_000
"""A file whose last video packet ends further than this before its declared end is refused."""

_WHOLE_LENGTH_FORMATS = ("matroska,webm", "flv", "asf")
"""Containers that declare one length for all streams; FFmpeg may pass it off as a stream's own."""

_SCALING = Interpolation.BICUBIC | Interpolation.ACCURATE_RND | Interpolation.BITEXACT
_TURNS = {
    # (a, b, c, d) of a display matrix, x' = ax + cy, y' = bx + dy, y downwards; Pillow turns to the left
    (-1, 0, 0, 1): Image.Transpose.FLIP_LEFT_RIGHT,
    (1, 0, 0, -1): Image.Transpose.FLIP_TOP_BOTTOM,
    (-1, 0, 0, -1): Image.Transpose.ROTATE_180,
    (0, 1, -1, 0): Image.Transpose.ROTATE_270,
    (0, -1, 1, 0): Image.Transpose.ROTATE_90,
    (0, 1, 1, 0): Image.Transpose.TRANSPOSE,
    (0, -1, -1, 0): Image.Transpose.TRANSVERSE,
}
_QUARTER_TURNS = {
    Image.Transpose.ROTATE_90,
    Image.Transpose.ROTATE_270,
    Image.Transpose.TRANSPOSE,
    Image.Transpose.TRANSVERSE,
}


def probe_video(path: Path) -> VideoInfo:
    """What a video holds, from one pass over its packets; only its first picture is decoded.

    ``VideoError`` if there is no such file, no video in it, no decoder or time stamp for it, or if it
    ends more than a second before its declared end.
    """
    return _scan(path).info


def sample_video(
    path: Path,
    *,
    fps: float = 1.0,
    pixel_budget: int = PIXEL_BUDGET,
    encoding: Encoding = "jpeg",
    quality: int = 90,
    rule: SamplingRule = "presentation",
) -> Iterator[Sample]:
    """All samples of a video in order; ``VideoSampler`` also tells what was damaged."""
    sampling = Sampling(fps=fps, pixel_budget=pixel_budget, encoding=encoding, quality=quality, rule=rule)
    with VideoSampler(path, sampling) as samples:
        yield from samples


class VideoSampler:
    """Decodes a video once, forward, and yields what a viewer sees at each sample time.

    Sample k is the last picture whose presentation time is at most the sample's (rule
    ``presentation``), or the picture of that number (rule ``storm-evaluator``). One picture is held at
    a time; a picture shown by several samples is encoded once and its ``data`` is the same object.
    A context manager, to be iterated once; ``VideoError`` from the constructor as ``probe_video``.

    ``damaged`` counts pictures that failed to decode or are flagged corrupt; ``warnings`` is complete
    when the iteration has ended.
    """

    def __init__(self, path: Path, sampling: Sampling | None = None) -> None:
        self.path = path
        self.sampling = sampling or Sampling()
        self.warnings: list[str] = []
        self._scanned = _scan(path)
        self.info = self._scanned.info
        self.times_ns = self.info.sample_times(self.sampling)
        self._wanted_ns = self._picture_times()
        self._damaged: set[int | None] = set()
        self._reformatter = VideoReformatter()
        self._opening = _opened(path)

    @property
    def damaged(self) -> int:
        """Number of damaged pictures met so far."""
        return len(self._damaged)

    def __enter__(self) -> VideoSampler:
        self._container, self._stream = self._opening.__enter__()
        self._aspect = self._stream.sample_aspect_ratio or Fraction(1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opening.__exit__(kind, error, trace)

    def __iter__(self) -> Iterator[Sample]:
        k = empty = disordered = 0
        held: av.VideoFrame | None = None
        held_ns = 0
        shown: Sample | None = None
        for picture, picture_ns in self._pictures():
            if held is not None and picture_ns < held_ns:
                disordered += 1
                continue
            while k < len(self.times_ns) and self._wanted_ns[k] < picture_ns:
                shown = self._sample(k, held, held_ns, shown)
                empty += held is None
                yield shown
                k += 1
            held, held_ns, shown = picture, picture_ns, None
        for last_k in range(k, len(self.times_ns)):
            shown = self._sample(last_k, held, held_ns, shown)
            empty += held is None
            yield shown
        self._report(empty, disordered)

    def _picture_times(self) -> tuple[int, ...]:
        """For each sample, the presentation time that its picture may have at most."""
        if self.sampling.rule == "presentation":
            return self.times_ns
        ticks = sorted(self._scanned.ticks)
        return tuple(
            self._scanned.media_ns(ticks[index]) for index in self.info.evaluator_indices(self.sampling.fps)
        )

    def _pictures(self) -> Iterator[tuple[av.VideoFrame, int]]:
        """Every picture that can be decoded with its presentation time, to the end of the file."""
        first = True
        for packet in _packets(self._container, self._stream):
            if packet is not None and packet.is_corrupt:
                self._damaged.add(packet.pts)
            try:
                pictures = self._stream.codec_context.decode(packet)
            except av.EOFError:
                continue
            except av.FFmpegError:
                self._damaged.add(None if packet is None else packet.pts)
                continue
            for picture in pictures:
                ticks = picture.pts if picture.pts is not None else picture.dts
                if picture.is_corrupt or ticks is None:
                    self._damaged.add(ticks)
                if ticks is None:
                    continue
                picture_ns = self._scanned.media_ns(ticks)
                if first and 0 < picture_ns <= FIRST_PICTURE_GRACE_NS:
                    picture_ns = 0
                first = False
                yield picture, picture_ns

    def _sample(self, k: int, picture: av.VideoFrame | None, picture_ns: int, shown: Sample | None) -> Sample:
        """Sample ``k`` showing ``picture``; ``shown`` is an earlier sample of the same picture."""
        media_ns = self.times_ns[k]
        if picture is None:
            return Sample(k=k, media_ns=media_ns)
        if shown is None:
            width, height, data = self._encode(picture)
        else:
            width, height, data = cast(int, shown.width), cast(int, shown.height), cast(bytes, shown.data)
        return Sample(k=k, media_ns=media_ns, source_ns=picture_ns, width=width, height=height, data=data)

    def _encode(self, picture: av.VideoFrame) -> tuple[int, int, bytes]:
        """Turn, stretch and shrink a picture as it is shown, and write it as a file."""
        turn = _turn(picture)
        turned = turn in _QUARTER_TURNS
        width, height = fit_size(
            *shown_size(picture.width, picture.height, self._aspect, turned), self.sampling.pixel_budget
        )
        try:
            rgb = self._reformatter.reformat(
                picture,
                width=height if turned else width,
                height=width if turned else height,
                format="rgb24",
                interpolation=_SCALING,
                threads=1,
            )
        except av.FFmpegError as error:
            raise VideoError(
                f"cannot convert pictures of {str(self.path)!r} from {picture.format.name} "
                f"({_reason(error)}): re-encode it as H.264"
            ) from error
        plane = rgb.planes[0]
        size = rgb.width, rgb.height
        image: Image.Image = Image.frombuffer("RGB", size, bytes(plane), "raw", "RGB", plane.line_size, 1)
        if turn is not None:
            image = image.transpose(turn)
        file = io.BytesIO()
        if self.sampling.encoding == "jpeg":
            image.save(file, "JPEG", quality=self.sampling.quality)
        else:
            image.save(file, "PNG")
        return width, height, file.getvalue()

    def _report(self, empty: int, disordered: int) -> None:
        if self._damaged:
            times = [self._scanned.media_ns(ticks) for ticks in self._damaged if ticks is not None]
            where = f" at {describe_times(times)}" if times else ""
            self.warnings.append(
                f"damaged pictures: {self.damaged}{where}; each is shown as far as it could be decoded, "
                "else the picture before it stays"
            )
        if disordered:
            self.warnings.append(
                f"pictures out of time order: {disordered}, not shown; mend the time stamps by remuxing"
            )
        if empty:
            self.warnings.append(
                f"samples without a picture: {empty}; nothing is visible before "
                f"{self.info.first_picture_ns / 1e9:.3f} s"
            )


class _Scan:
    """What a pass over the packets found: the public record, and the clock of the video stream."""

    def __init__(self, origin: Fraction, time_base: Fraction) -> None:
        self.origin = origin
        self.time_base = time_base
        self.ticks = array("q")
        self.info: VideoInfo

    def media_ns(self, ticks: int) -> int:
        """Media time of a time stamp of the video stream, to the nearest nanosecond."""
        return round((ticks * self.time_base - self.origin) * 1_000_000_000)


def _scan(path: Path) -> _Scan:
    with _opened(path) as (container, stream):
        time_base = _time_base(stream)
        scan = _Scan(_origin(container, stream), time_base)
        first_picture: av.VideoFrame | None = None
        last_ticks, last_end_ticks = None, 0
        any_end = Fraction(0)
        for packet in _packets(container, *container.streams):
            if packet is not None and packet.stream is not stream:
                if packet.pts is not None:
                    any_end = max(any_end, (packet.pts + (packet.duration or 0)) * packet.time_base)
                continue
            if first_picture is None:
                first_picture = _try_decode(stream, packet)
            if packet is None or packet.is_discard:
                continue
            ticks = packet.pts if packet.pts is not None else packet.dts
            if ticks is None:
                raise VideoError(
                    f"no presentation times in {str(path)!r}: remux it into a container that keeps them, "
                    "such as mp4"
                )
            scan.ticks.append(ticks)
            if last_ticks is None or ticks >= last_ticks:
                last_ticks, last_end_ticks = ticks, ticks + (packet.duration or 0)
        if last_ticks is None:
            raise VideoError(f"no video in {str(path)!r}: its video stream holds no picture")
        _check_end(path, container, stream, last_end_ticks * time_base, any_end)
        if first_picture is None:
            raise VideoError(f"cannot decode any picture of {str(path)!r}: get the file anew")
        first_ns, last_ns = scan.media_ns(min(scan.ticks)), scan.media_ns(last_ticks)
        if first_ns <= FIRST_PICTURE_GRACE_NS:
            last_ns = max(last_ns, 0) if last_ns > first_ns else 0
            first_ns = 0
        width, height = shown_size(
            first_picture.width,
            first_picture.height,
            stream.sample_aspect_ratio or Fraction(1),
            _turn(first_picture) in _QUARTER_TURNS,
        )
        scan.info = VideoInfo(
            width=width,
            height=height,
            first_picture_ns=first_ns,
            last_picture_ns=last_ns,
            end_ns=scan.media_ns(last_end_ticks),
            pictures=len(scan.ticks),
            average_fps=float(stream.average_rate) if stream.average_rate else None,
        )
        return scan


@contextmanager
def _opened(path: Path) -> Iterator[tuple[InputContainer, VideoStream]]:
    """The container and its video stream, closed at the end; ``VideoError`` says why it cannot be."""
    name = repr(str(path))
    try:
        if not path.is_file():
            raise VideoError(f"no video file at {name}")
        if path.stat().st_size == 0:
            raise VideoError(f"no video in {name}: the file is empty")
        # plain files only: a playlist must not lead to other addresses
        container = av.open(f"file:{path}", options={"protocol_whitelist": "file"}, metadata_errors="replace")
    except (av.FFmpegError, OSError) as error:
        raise VideoError(f"cannot read {name} ({_reason(error)}): expected a video file") from error
    with container:
        stream = next(
            (s for s in container.streams.video if not s.disposition & Disposition.attached_pic), None
        )
        if stream is None:
            kinds = ", ".join(sorted({s.type for s in container.streams})) or "nothing"
            raise VideoError(f"no video in {name}: expected a video stream, found {kinds}")
        if cast(object, stream.codec_context) is None:
            raise VideoError(f"no decoder for the video in {name}: re-encode it as H.264")
        # one thread costs the least processor time, and several videos are decoded at once
        stream.thread_type = "NONE"
        stream.codec_context.thread_count = 1
        yield container, stream


def _packets(
    container: InputContainer, *streams: av.stream.Stream
) -> Iterator[av.Packet[VideoStream] | None]:
    """Packets with content, then None to flush. A read error ends the file there."""
    try:
        for packet in container.demux(*streams):
            if packet.size:
                yield cast("av.Packet[VideoStream]", packet)
    except av.FFmpegError:
        pass  # whether too much is missing is decided by the times
    yield None


def _try_decode(stream: VideoStream, packet: av.Packet[VideoStream] | None) -> av.VideoFrame | None:
    try:
        pictures = stream.codec_context.decode(packet)
    except av.FFmpegError:
        return None
    return pictures[0] if pictures else None


def _time_base(stream: av.stream.Stream) -> Fraction:
    return stream.time_base or Fraction(1, av.time_base)


def _origin(container: InputContainer, stream: VideoStream) -> Fraction:
    """The container's start in seconds, exact: the container itself rounds it to microseconds.

    A start before zero counts only if it is the picture's own: sound often begins with hidden samples.
    """
    if container.start_time is None:
        return Fraction(0)
    start = Fraction(container.start_time, av.time_base)
    starts = [s.start_time * _time_base(s) for s in container.streams if s.start_time is not None]
    exact = min(
        (candidate for candidate in starts if abs(candidate - start) <= Fraction(1, av.time_base)),
        default=start,
    )
    if exact < 0 and stream.start_time is not None:
        return min(stream.start_time * _time_base(stream), Fraction(0))
    return exact


def _check_end(
    path: Path, container: InputContainer, stream: VideoStream, video_end: Fraction, any_end: Fraction
) -> None:
    """Refuse a file that ends too early. Times are seconds of the file's own clock."""
    if stream.duration is not None and container.format.name not in _WHOLE_LENGTH_FORMATS:
        declared = (stream.start_time or 0) * _time_base(stream) + stream.duration * _time_base(stream)
        end = video_end
    elif container.duration is not None:
        # such a length is counted from zero
        declared = Fraction(container.duration, av.time_base)
        end = max(video_end, any_end)
    else:
        return
    if (declared - end) * 1_000_000_000 > EARLY_END_TOLERANCE_NS:
        raise VideoError(
            f"{str(path)!r} ends early: it declares {float(declared):.2f} s, its data stop at "
            f"{float(end):.2f} s; get the file anew"
        )


def _turn(picture: av.VideoFrame) -> Image.Transpose | None:
    """How a picture must be turned to be upright, from its display matrix (16.16 fixed point)."""
    matrix = picture.side_data.get("DISPLAYMATRIX")
    if matrix is None:
        return None
    a, b, _, c, d = struct.unpack("=9i", cast(bytes, matrix))[:5]
    if abs(a) + abs(d) >= abs(b) + abs(c):
        signs = (1 if a > 0 else -1, 0, 0, 1 if d > 0 else -1)
    else:
        signs = (0, 1 if b > 0 else -1, 1 if c > 0 else -1, 0)
    return _TURNS.get(signs)


def _reason(error: BaseException) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()

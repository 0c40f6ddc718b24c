"""The decoder as a process of its own, so that a server neither imports PyAV nor waits for it.

    python -m streamsim.episodes.decoder VIDEO --spool PATH [--fps F] [--pixel-budget N] ...
    python -m streamsim.episodes.decoder --probe VIDEO [VIDEO ...]

It decodes once, appends the bytes of every picture to the spool file and writes one JSON line to
stdout for each sample as soon as its bytes are there: first an ``InfoLine``, then ``SampleRef`` s, at
the end an ``EndLine``, or an ``ErrorLine`` with exit code 2. With ``--probe`` one ``InfoLine`` or
``ErrorLine`` a video. It lowers its own priority, and ends when nobody reads its stdout any more.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import select
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

import msgspec

from streamsim.episodes.sampling import SAMPLING_RULES, Encoding, Sample, Sampling, VideoInfo
from streamsim.errors import StreamsimError

NICENESS = 10
_STDOUT = 1


class Line(msgspec.Struct, frozen=True, kw_only=True, tag_field="line"):
    """One line of the decoder's stdout."""


class InfoLine(Line, frozen=True, kw_only=True, tag="info"):
    """What the demux-only pass found, and the media times of all samples to come."""

    info: VideoInfo
    times_ns: tuple[int, ...]


class SampleRef(Line, frozen=True, kw_only=True, tag="sample"):
    """A sample whose bytes lie in the spool file; ``digest`` is their SHA-256 in hex.

    As with ``Sample``, all but ``k`` and ``media_ns`` are None while nothing is visible yet. Samples
    that show the same picture share its bytes.
    """

    k: int
    media_ns: int
    source_ns: int | None = None
    width: int | None = None
    height: int | None = None
    offset: int | None = None
    size: int | None = None
    digest: str | None = None


class EndLine(Line, frozen=True, kw_only=True, tag="end"):
    """All samples have been written."""

    samples: int
    damaged: int
    warnings: tuple[str, ...]


class ErrorLine(Line, frozen=True, kw_only=True, tag="error"):
    """Why there is nothing, or nothing more."""

    error: str


AnyLine = InfoLine | SampleRef | EndLine | ErrorLine


def main(argv: Sequence[str] | None = None) -> int:
    """Run the decoder; 0, or 2 if it ended in an ``ErrorLine``."""
    args = _parser().parse_args(argv)
    os.nice(NICENESS)
    _end_with_reader()
    try:
        if args.probe:
            for video in args.videos:
                _write_line(_probe(video))
            return 0
        return _decode(args)
    except BrokenPipeError:
        return 1


def _decode(args: argparse.Namespace) -> int:
    from streamsim.episodes.video import VideoSampler

    try:
        sampling = Sampling(
            fps=args.fps,
            pixel_budget=args.pixel_budget,
            encoding=args.encoding,
            quality=args.quality,
            rule=args.sampling,
        )
        with VideoSampler(args.videos[0], sampling) as samples, _SpoolWriter(args.spool) as spool:
            _write_line(InfoLine(info=samples.info, times_ns=samples.times_ns))
            for sample in samples:
                _write_line(spool.write(sample))
        _write_line(
            EndLine(samples=len(samples.times_ns), damaged=samples.damaged, warnings=tuple(samples.warnings))
        )
    except StreamsimError as error:
        _write_line(ErrorLine(error=str(error)))
        return 2
    return 0


class _SpoolWriter:
    """Appends pictures to the spool file; a picture shown again is not written again."""

    def __init__(self, path: Path) -> None:
        with _spool_errors():
            self._file = path.open("ab", buffering=0)
            self._end = self._file.seek(0, os.SEEK_END)
        self._data: bytes | None = None
        self._place: tuple[int, int, str] | None = None

    def __enter__(self) -> _SpoolWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, sample: Sample) -> SampleRef:
        if sample.data is None:
            return SampleRef(k=sample.k, media_ns=sample.media_ns)
        if self._place is None or sample.data is not self._data:
            with _spool_errors():
                _write_all(self._file.fileno(), sample.data)
            self._place = self._end, len(sample.data), hashlib.sha256(sample.data).hexdigest()
            self._data = sample.data
            self._end += len(sample.data)
        offset, size, digest = self._place
        return SampleRef(
            k=sample.k,
            media_ns=sample.media_ns,
            source_ns=sample.source_ns,
            width=sample.width,
            height=sample.height,
            offset=offset,
            size=size,
            digest=digest,
        )


@contextmanager
def _spool_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StreamsimError(f"cannot keep the decoded pictures: {reason}; is the disk full?") from error


def _probe(video: Path) -> InfoLine | ErrorLine:
    from streamsim.episodes.video import probe_video

    try:
        return InfoLine(info=probe_video(video), times_ns=())
    except StreamsimError as error:
        return ErrorLine(error=str(error))


def _write_line(line: AnyLine) -> None:
    _write_all(_STDOUT, msgspec.json.encode(line) + b"\n")


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _end_with_reader() -> None:
    """End this process at once when the other end of stdout is closed, also while it decodes."""

    def watch() -> None:
        poll = select.poll()
        poll.register(_STDOUT, 0)  # errors and hang-ups only
        poll.poll()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _parser() -> argparse.ArgumentParser:
    defaults = Sampling()
    parser = argparse.ArgumentParser(prog="python -m streamsim.episodes.decoder")
    parser.add_argument("videos", metavar="VIDEO", nargs="+", type=Path)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--spool", type=Path, metavar="PATH", help="file that the pictures are appended to")
    mode.add_argument("--probe", action="store_true", help="only say what the videos hold")
    parser.add_argument("--fps", type=float, default=defaults.fps)
    parser.add_argument("--pixel-budget", type=int, default=defaults.pixel_budget)
    parser.add_argument("--encoding", choices=get_args(Encoding), default=defaults.encoding)
    parser.add_argument("--quality", type=int, default=defaults.quality)
    parser.add_argument("--sampling", choices=SAMPLING_RULES, default=defaults.rule)
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""``streamsim frames``: what an agent will see of a video."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from streamsim.notice import notice
from streamsim.plural import counted

if TYPE_CHECKING:
    from streamsim.episodes.sampling import Sample

HELP = "show which pictures of a video an agent will see, and what is wrong with the file"
EPILOG = """\
example:
  streamsim frames video.mp4 --fps 1 -o pictures

exit codes: 0 good, 1 the video cannot be read, holds no picture, or ends early, 2 no such file
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A video, and how to sample it."""
    parser.add_argument("video", type=Path, metavar="VIDEO", help="a video file")
    parser.add_argument("--fps", type=float, default=1.0, help="samples a second (default 1)")
    parser.add_argument(
        "-o", "--out", type=Path, metavar="DIR", help="write the pictures here as PNG files; a new folder"
    )
    parser.add_argument(
        "--sampling",
        choices=("presentation", "storm-evaluator"),
        default="presentation",
        help="by presentation time (default), or by picture number as STORM-Bench's public evaluator does",
    )
    parser.add_argument("--pixel-budget", type=int, metavar="N", help="shrink to N pixels (default 200704)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(args: argparse.Namespace) -> int:
    """Print the samples; 1 if the video is bad. ``UsageError`` for paths that cannot be used."""
    import msgspec

    from streamsim.episodes.sampling import PIXEL_BUDGET, Sampling
    from streamsim.episodes.video import VideoSampler
    from streamsim.errors import UsageError, VideoError

    sampling = Sampling(
        fps=args.fps,
        pixel_budget=PIXEL_BUDGET if args.pixel_budget is None else args.pixel_budget,
        encoding="png",
        rule=args.sampling,
    )
    if not args.video.is_file():
        raise UsageError(f"expected a video file at {str(args.video)!r}, found none")

    _check_folder(args.out)

    rows: list[dict[str, int | str | None]] = []
    count = damaged = 0
    problem: str | None = None
    written: list[Path] = []
    try:
        with _folder_for(args.out), VideoSampler(args.video, sampling) as samples:
            for sample in samples:
                row = _row(sample, _write_picture(args.out, sample, written))
                damaged = samples.damaged
                count += 1
                if args.json:
                    rows.append(row)
                else:
                    print(_line(row), flush=True)
        damaged = samples.damaged
        for warning in samples.warnings:
            notice(f"streamsim frames: {warning}")
    except VideoError as error:
        problem = str(error)
        notice(f"streamsim frames: {problem}")
    if args.json:
        print(msgspec.json.encode({"samples": rows, "damaged": damaged, "error": problem}).decode())
    elif count or not problem:
        pictures = counted(damaged, "damaged picture")
        print(f"{args.video}: {counted(count, 'sample')}, {pictures} in the file")
    return 1 if problem else 0


def _check_folder(folder: Path | None) -> None:
    """Pictures of two videos in one folder cannot be told apart."""
    from streamsim.errors import UsageError
    from streamsim.writing import cannot_write

    if folder is None:
        return
    try:
        taken = folder.is_dir() and any(folder.iterdir())
    except OSError as error:
        raise UsageError(cannot_write(folder, error)) from error
    if taken:
        raise UsageError(f"{str(folder)!r} exists and is not empty: choose another folder or remove it")


@contextlib.contextmanager
def _folder_for(folder: Path | None) -> Iterator[None]:
    """Have the folder for the pictures, if there is to be one; one that stays empty goes with an error."""
    from streamsim.errors import UsageError
    from streamsim.writing import cannot_write, folder_for

    with contextlib.ExitStack() as stack:
        if folder is not None:
            try:
                stack.enter_context(folder_for(folder))
            except OSError as error:
                raise UsageError(cannot_write(folder, error)) from error
        yield


def _write_picture(folder: Path | None, sample: Sample, written: list[Path]) -> Path | None:
    """Write a picture and add it to ``written``; those are taken back if it cannot be written."""
    if folder is None or sample.data is None:
        return None
    from streamsim.errors import UsageError
    from streamsim.writing import cannot_write

    path = folder / f"{sample.k:06d}.png"
    written.append(path)
    try:
        path.write_bytes(sample.data)
    except OSError as error:
        for picture in written:
            with contextlib.suppress(OSError):
                picture.unlink()
        raise UsageError(cannot_write(folder, error)) from error
    return path


def _row(sample: Sample, png: Path | None) -> dict[str, int | str | None]:
    return {
        "k": sample.k,
        "media_ns": sample.media_ns,
        "source_ns": sample.source_ns,
        "width": sample.width,
        "height": sample.height,
        "png": None if png is None else str(png),
    }


def _line(row: dict[str, int | str | None]) -> str:
    """``   12   12.000 s  picture of   11.980 s  640x240  pictures/000012.png``"""
    start = f"{row['k']:>5}  {_seconds(row['media_ns'])}"
    if row["source_ns"] is None:
        return f"{start}  nothing visible yet"
    line = f"{start}  picture of {_seconds(row['source_ns'])}  {row['width']}x{row['height']}"
    return line if row["png"] is None else f"{line}  {row['png']}"


def _seconds(time_ns: int | str | None) -> str:
    assert isinstance(time_ns, int)
    return f"{time_ns / 1e9:9.3f} s"

"""Feeding all queries of an episode: one streamed session against the usual offline ways."""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from streamsim.bench.footage import make_footage
from streamsim.bench.live import played_wall_s, read_journals, run_streamsim
from streamsim.bench.report import Report
from streamsim.events import FrameSent, ProbeSent
from streamsim.journal.read import JournalFile
from streamsim_protocol.messages import VISIBILITY_TOLERANCE_NS

PIXEL_BUDGET = 200_704


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """What feeding all queries of an episode took, and how many pictures each was shown."""

    wall_s: float
    cpu_s: float
    disk_bytes: int
    shown: list[int]


def measure_queries(folder: Path, args: argparse.Namespace) -> Report:
    """All queries of one episode: one streamed session against the offline ways."""
    from streamsim.bench.offline import copy_clips, encode_clips, redecode_prefixes

    # between whole seconds, so that no rule of sampling decides what is visible
    seconds = [(number + 1) * args.episode / args.queries - 0.5 for number in range(args.queries)]
    dataset = make_footage(
        folder / "episode",
        seconds=args.episode,
        query_seconds=seconds,
        fps=10,
        size=(640, 480),
        noise=4,  # some 1 Mbit/s, as real footage of that size
    )
    video = dataset / "public" / "videos" / "v.mp4"
    clips = folder / "clips"
    clips.mkdir()
    out = folder / "queries"
    ways = {
        "streamed, the whole of `run`": _timed(
            lambda: _stream(dataset, out), resource.RUSAGE_CHILDREN, out / "sessions"
        ),
        "prefix decoded anew a query": _timed(
            lambda: redecode_prefixes(video, seconds, 1.0, PIXEL_BUDGET), resource.RUSAGE_SELF, None
        ),
        "clip copied a query, decoded": _timed(
            lambda: copy_clips(video, clips, seconds, 1.0, PIXEL_BUDGET), resource.RUSAGE_SELF, clips
        ),
    }
    for clip in clips.iterdir():
        clip.unlink()
    ways["clip encoded a query, decoded"] = _timed(
        lambda: encode_clips(video, clips, seconds, 1.0, PIXEL_BUDGET), resource.RUSAGE_SELF, clips
    )
    (journal,) = read_journals(out)
    spool_bytes = sum(
        {
            entry.event.digest: entry.event.size_bytes
            for entry in journal.entries
            if isinstance(entry.event, FrameSent)
        }.values()
    )
    return _report_queries(ways, played_wall_s(journal), spool_bytes, args)


def _stream(dataset: Path, out: Path) -> list[int]:
    """One lockstep session with an agent that decodes every picture; what each query was shown."""
    run_streamsim(dataset, out, "--clock", "lockstep", "--agent", "streamsim_agents.workload:Looker")
    (journal,) = read_journals(out)
    return _shown(journal)


def _shown(journal: JournalFile) -> list[int]:
    """Frames sent before each task probe that its query may see, in the order of queries."""
    frames: list[int] = []
    shown = []
    for entry in journal.entries:
        event = entry.event
        if isinstance(event, FrameSent):
            frames.append(event.media_ns)
        elif isinstance(event, ProbeSent) and event.probe == "task":
            visible_until_ns = event.media_ns + VISIBILITY_TOLERANCE_NS
            shown.append(sum(media_ns <= visible_until_ns for media_ns in frames))
    return shown


def _timed(feed: Callable[[], list[int]], who: int, written: Path | None) -> _Way:
    """Wall and CPU of ``feed`` (of this process or its children), and what lies in ``written`` then."""
    before, began = resource.getrusage(who), time.perf_counter()
    shown = feed()
    wall_s, after = time.perf_counter() - began, resource.getrusage(who)
    return _Way(
        wall_s=wall_s,
        cpu_s=after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime,
        disk_bytes=sum(file.stat().st_size for file in written.iterdir()) if written else 0,
        shown=shown,
    )


def _report_queries(
    ways: dict[str, _Way], playing_s: float, spool_bytes: int, args: argparse.Namespace
) -> Report:
    ours, *others = ways.values()
    agree = all(way.shown == ours.shown for way in others)
    lines = [
        f"{args.queries} queries of an episode of {args.episode} s (640 x 480, 10 FPS, sampled at 1 FPS); "
        f"pictures shown to each: {'the same in all ways' if agree else 'DIFFERENT'}",
        f"  {'':32} {'wall s':>7} {'CPU s':>7} {'disk MB':>8}",
    ]
    lines += [
        f"  {name:32} {way.wall_s:7.2f} {way.cpu_s:7.2f} {way.disk_bytes / 1e6:8.2f}"
        for name, way in ways.items()
    ]
    lines.append(
        f"  of `run`: {playing_s:.2f} s from ready to the end; its disk is the journal, and "
        f"{spool_bytes / 1e6:.2f} MB of pictures while it runs"
    )
    return Report(
        met=agree,
        lines=lines,
        figures={
            "queries_agree": agree,
            "queries_shown": ours.shown,
            "queries": {
                name: {"wall_s": way.wall_s, "cpu_s": way.cpu_s, "disk_bytes": way.disk_bytes}
                for name, way in ways.items()
            },
            "queries_playing_s": playing_s,
            "queries_spool_bytes": spool_bytes,
        },
    )

"""``bench.py frames``: what a frame costs the server, how late it is, and what the offline ways cost."""

from __future__ import annotations

import argparse
import asyncio
import math
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from streamsim.bench.bare import STEPS, BareLoop, BarePlan
from streamsim.bench.cpu import cpu_seconds
from streamsim.bench.footage import NOISE_OF_40_KB, PICTURE_SIZE, make_footage
from streamsim.bench.light import LightClients
from streamsim.bench.live import frame_lateness_ns, played_wall_s, read_journals, run_streamsim
from streamsim.bench.report import Report
from streamsim.bench.serving import serve, start_agent
from streamsim.events import FrameSent, ProbeSent
from streamsim.journal.read import JournalFile
from streamsim_protocol.messages import VISIBILITY_TOLERANCE_NS

TAIL_S = 0.5
FRAME_BYTES = 40 << 10
PIXEL_BUDGET = 200_704
PARTS = ("cpu", "lateness", "queries")
WHAT = {
    "bare": "bare: a picture out, one small message back",
    "codec": "codec: as messages of streamsim.v1",
    "acks": "acks: two messages back, received and settled",
    "journal": "journal: a chained line for each of the three",
    "streamsim": "session, clocks, pictures from disk: the server",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Pace, lengths and numbers."""
    new = parser.add_argument
    new("--parts", nargs="+", choices=PARTS, default=PARTS, help="default: all")
    new("--warm-up", type=float, default=2.0, help="seconds, in which the decoder beside us gets done (2)")
    new("--rate", type=float, default=200.0, help="frames a second of the one paced connection (200)")
    new("--seconds", type=float, default=5.0, help="measured of each step and round (5)")
    new("--rounds", type=int, default=5, help="of all steps in turn (5)")
    new("--clients", type=int, default=100, help="staggered light clients at 1 FPS (100)")
    new("--late-seconds", type=float, default=20.0, help="in which lateness is measured (20)")
    new("--episode", type=int, default=60, help="seconds of the episode with queries (60)")
    new("--queries", type=int, default=10, help="in it (10)")
    new("--target", type=float, default=2.0, help="largest ratio of CPU to the bare loop (2)")


def measure(args: argparse.Namespace) -> Report:
    """CPU per frame against a bare websockets loop, lateness, and feeding queries against offline ways.

    CPU: server and client are two processes; one connection, a 40 KB picture when it is due, the real
    runtime as the client. Lateness: released minus due, at one client (50 FPS) and at many (1 FPS each,
    evenly spread), light clients in one process on both sides. The steps of a round follow one another,
    so only ratios within this run mean anything.
    """
    with tempfile.TemporaryDirectory(prefix="streamsim-bench-") as name:
        folder = Path(name)
        measures = {"cpu": _cpu, "lateness": _lateness, "queries": _queries}
        parts = [measures[name](folder, args) for name in PARTS if name in args.parts]
    return Report(
        met=all(part.met for part in parts),
        lines=[line for part in parts for line in part.lines],
        figures={key: value for part in parts for key, value in part.figures.items()},
    )


# --------------------------------------------------------------------------------------------- CPU


def _cpu(folder: Path, args: argparse.Namespace) -> Report:
    """One paced connection, the steps from the bare loop to the server in turn."""
    length_s = args.warm_up + args.seconds + TAIL_S
    dataset = make_footage(
        folder / "one", seconds=math.ceil(length_s), query_seconds=(), size=PICTURE_SIZE, noise=NOISE_OF_40_KB
    )
    rounds: list[dict[str, float]] = []
    for number in range(args.rounds):
        found: dict[str, float] = {}
        for step in STEPS:
            plan = BarePlan(
                step=step,
                connections=1,
                rate_hz=args.rate,
                seconds=length_s,
                size_bytes=FRAME_BYTES,
                journal=str(folder / f"bare-{number}-{step}.jsonl"),
            )
            with BareLoop(plan) as bare:
                found[step] = _cpu_per_frame(bare.pid, args.rate, args.seconds, args.warm_up)
                bare.finish()
        found["streamsim"] = asyncio.run(_cpu_of_server(dataset, folder / f"cpu-{number}", args))
        rounds.append(found)
    return _report_cpu(rounds, args)


def _cpu_per_frame(pid: int, rate_hz: float, seconds: float, warm_up_s: float) -> float:
    """Microseconds of CPU a frame, from the warm-up's end on; frames are paced, so time counts them."""
    time.sleep(warm_up_s)
    began, cpu_s = time.perf_counter(), cpu_seconds(pid)
    time.sleep(seconds)
    cpu_s = cpu_seconds(pid) - cpu_s
    return 1e6 * cpu_s / (rate_hz * (time.perf_counter() - began))


async def _cpu_of_server(dataset: Path, out: Path, args: argparse.Namespace) -> float:
    async with serve(dataset, out, sessions=1, clock="realtime", fps=args.rate) as server:
        agent = start_agent(server.urls[0], "null")
        await server.wait_until_ready(1)
        found = await asyncio.to_thread(_cpu_per_frame, server.pid, args.rate, args.seconds, args.warm_up)
        await server.wait()
        agent.wait()
    (journal,) = read_journals(out)
    sent = [late for _, late in frame_lateness_ns(journal)]
    assert len(sent) > args.rate * (args.warm_up + args.seconds), "the server did not keep the pace"
    return found


def _report_cpu(rounds: Sequence[dict[str, float]], args: argparse.Namespace) -> Report:
    steps = [*STEPS, "streamsim"]
    ratio = median(found["streamsim"] / found["bare"] for found in rounds)
    middle = {step: median(found[step] for found in rounds) for step in steps}
    lines = [
        f"server CPU a frame, one connection paced at {args.rate:g} a second, {FRAME_BYTES // 1024} KB, "
        f"medians of {len(rounds)} rounds of {args.seconds:g} s:",
        f"  {'':50} {'us':>6} {'part':>6} {'ratio':>6}",
    ]
    before = 0.0
    for step in steps:
        share = median(found[step] / found["bare"] for found in rounds)
        lines.append(f"  {WHAT[step]:50} {middle[step]:6.0f} {middle[step] - before:+6.0f} {share:6.2f}")
        before = middle[step]
    lines.append(f"  ratio of the server to the bare loop: {ratio:.2f} (target at most {args.target:g})")
    return Report(
        met=ratio <= args.target,
        lines=lines,
        figures={"cpu_ratio": ratio, "cpu_us": middle, "cpu_us_rounds": list(rounds)},
    )


# ---------------------------------------------------------------------------------------- lateness


@dataclass(frozen=True, slots=True, kw_only=True)
class _Late:
    """Release lateness in milliseconds, and CPU microseconds a frame."""

    n: int
    p50_ms: float
    p99_ms: float
    cpu_us: float


def _lateness(folder: Path, args: argparse.Namespace) -> Report:
    """One client and many, each beside the bare loop at the same pace."""
    lines = []
    figures: dict[str, Any] = {}
    length_s = args.warm_up + args.late_seconds + TAIL_S
    for clients, fps in ((1, 50.0), (args.clients, 1.0)):
        dataset = make_footage(
            folder / f"late-{clients}-{fps:g}",
            seconds=math.ceil(length_s),
            query_seconds=(),
            episodes=clients,
            size=PICTURE_SIZE,
            noise=NOISE_OF_40_KB,
        )
        ours = asyncio.run(_late_server(dataset, folder / f"late-run-{clients}", clients, fps, args))
        plan = BarePlan(
            step="bare",
            connections=clients,
            rate_hz=fps,
            seconds=length_s,
            size_bytes=FRAME_BYTES,
            journal="",
        )
        with BareLoop(plan) as loop:
            cpu_us = _cpu_per_frame(loop.pid, fps * clients, args.late_seconds, args.warm_up)
            bare = _late(loop.finish(), cpu_us)
        plural = "s" if clients > 1 else ""
        lines.append(
            f"release lateness, {clients} light client{plural} at {fps:g} FPS, p50 / p99: "
            f"{ours.p50_ms:.2f} / {ours.p99_ms:.2f} ms (n = {ours.n}), bare loop {bare.p50_ms:.2f} / "
            f"{bare.p99_ms:.2f} ms; CPU a frame {ours.cpu_us:.0f} us, bare {bare.cpu_us:.0f}"
        )
        for whose, late in (("server", ours), ("bare", bare)):
            figures[f"late_{clients}_{whose}"] = {
                "n": late.n,
                "p50_ms": late.p50_ms,
                "p99_ms": late.p99_ms,
                "cpu_us": late.cpu_us,
            }
    return Report(met=True, lines=lines, figures=figures)


async def _late_server(dataset: Path, out: Path, clients: int, fps: float, args: argparse.Namespace) -> _Late:
    async with serve(dataset, out, sessions=clients, clock="realtime", fps=fps) as server:
        with LightClients(server.urls) as light:
            await asyncio.to_thread(light.wait_until_greeted)
            light.begin()
            cpu_us = await asyncio.to_thread(
                _cpu_per_frame, server.pid, fps * clients, args.late_seconds, args.warm_up
            )
            await asyncio.to_thread(light.finish)
        await server.wait()
    return _late(
        [
            late
            for journal in read_journals(out)
            for media_ns, late in frame_lateness_ns(journal)
            if media_ns >= args.warm_up * 1e9
        ],
        cpu_us,
    )


def _late(lateness_ns: Sequence[int], cpu_us: float) -> _Late:
    p50, p99 = np.percentile(np.array(lateness_ns) / 1e6, [50, 99])
    return _Late(n=len(lateness_ns), p50_ms=float(p50), p99_ms=float(p99), cpu_us=cpu_us)


# ----------------------------------------------------------------------------------------- queries


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """What feeding all queries of an episode took, and how many pictures each was shown."""

    wall_s: float
    cpu_s: float
    disk_bytes: int
    shown: list[int]


def _queries(folder: Path, args: argparse.Namespace) -> Report:
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

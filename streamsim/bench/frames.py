"""``bench.py frames``: what a frame costs the server, how late it is, and what the offline ways cost."""

from __future__ import annotations

import argparse
import asyncio
import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from streamsim.bench.bare import STEPS, BareLoop, BarePlan, Step
from streamsim.bench.cpu import cpu_seconds
from streamsim.bench.feeding import measure_queries
from streamsim.bench.footage import NOISE_OF_40_KB, PICTURE_SIZE, make_footage
from streamsim.bench.light import LightClients
from streamsim.bench.live import frame_lateness_ns, read_journals
from streamsim.bench.report import Report
from streamsim.bench.serving import serve, start_agent

START_S = 10.0
"""More than a server and its agent take to start: so much longer a loop beside them lives."""
SERVER = "server"
SERVER_PAIRS = 2
"""In each round: single pairs differ by a fifth on a shared machine, and the target is for this step."""
TAIL_S = 0.5
FRAME_BYTES = 40 << 10
PARTS = ("cpu", "lateness", "queries")
WHAT = {
    "bare": "bare: a picture out, one small message back",
    "codec": "codec: as messages of streamsim.v1",
    "acks": "acks: two messages back, received and settled",
    "journal": "journal: a chained line for each of the three",
    SERVER: "session, clocks, pictures from disk: the server",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Pace, lengths and numbers."""
    new = parser.add_argument
    new("--parts", nargs="+", choices=PARTS, default=PARTS, help="default: all")
    new("--warm-up", type=float, default=2.0, help="seconds, in which the decoder beside us gets done (2)")
    new("--rate", type=float, default=200.0, help="frames a second of the one paced connection (200)")
    new("--seconds", type=float, default=4.0, help="measured of each step and round (4)")
    new("--rounds", type=int, default=5, help="of all steps in turn (5)")
    new("--clients", type=int, default=100, help="staggered light clients at 1 FPS (100)")
    new("--late-seconds", type=float, default=20.0, help="in which lateness is measured (20)")
    new("--episode", type=int, default=60, help="seconds of the episode with queries (60)")
    new("--queries", type=int, default=10, help="in it (10)")
    new("--target", type=float, default=2.0, help="largest ratio of CPU to the bare loop (2)")


def measure(args: argparse.Namespace) -> Report:
    """CPU per frame against a bare websockets loop, lateness, and feeding queries against offline ways.

    CPU: server and client are two processes; one connection, a 40 KB picture when it is due, the real
    runtime as the client. Each step runs beside a bare loop of its own, in the same seconds. Lateness:
    released minus due, at one client (50 FPS) and at many (1 FPS each, evenly spread), light clients in
    one process on both sides, one after the other. Only ratios within this run mean anything.
    """
    with tempfile.TemporaryDirectory(prefix="streamsim-bench-") as name:
        folder = Path(name)
        measures = {"cpu": _cpu, "lateness": _lateness, "queries": measure_queries}
        parts = [measures[name](folder, args) for name in PARTS if name in args.parts]
    return Report(
        met=all(part.met for part in parts),
        lines=[line for part in parts for line in part.lines],
        figures={key: value for part in parts for key, value in part.figures.items()},
    )


# --------------------------------------------------------------------------------------------- CPU


def _cpu(folder: Path, args: argparse.Namespace) -> Report:
    """One paced connection: each step from the bare loop to the server, always beside a bare loop.

    Both of a pair meet the same disturbances, so their ratio is steadier than either.
    """
    length_s = args.warm_up + args.seconds + TAIL_S
    dataset = make_footage(
        folder / "one", seconds=math.ceil(length_s), query_seconds=(), size=PICTURE_SIZE, noise=NOISE_OF_40_KB
    )
    pairs: dict[str, list[_Pair]] = {step: [] for step in (*STEPS[1:], SERVER)}
    for number in range(args.rounds):
        for step in STEPS[1:]:
            with (
                BareLoop(_paced("bare", folder, args)) as bare,
                BareLoop(_paced(step, folder / f"{step}-{number}.jsonl", args)) as other,
            ):
                pairs[step].append(_read_pair(bare, other.pid, args))
        for again in range(SERVER_PAIRS):
            out = folder / f"cpu-{number}-{again}"
            pairs[SERVER].append(asyncio.run(_pair_with_server(dataset, out, args)))
    return _report_cpu(pairs, args)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """Microseconds of CPU a frame of two servers in the same seconds."""

    bare_us: float
    other_us: float

    @property
    def ratio(self) -> float:
        """The other to the bare one."""
        return self.other_us / self.bare_us


def _paced(step: Step, journal: Path, args: argparse.Namespace) -> BarePlan:
    return BarePlan(
        step=step,
        connections=1,
        rate_hz=args.rate,
        seconds=args.warm_up + args.seconds + START_S,
        size_bytes=FRAME_BYTES,
        journal=str(journal),
    )


def _read_pair(bare: BareLoop, pid: int, args: argparse.Namespace) -> _Pair:
    bare_us, other_us = _cpu_per_frame([bare.pid, pid], args.rate, args.seconds, args.warm_up)
    return _Pair(bare_us=bare_us, other_us=other_us)


def _cpu_per_frame(pids: Sequence[int], rate_hz: float, seconds: float, warm_up_s: float) -> list[float]:
    """Microseconds of CPU a frame, from the warm-up's end on; frames are paced, so time counts them."""
    time.sleep(warm_up_s)
    began, before = time.perf_counter(), [cpu_seconds(pid) for pid in pids]
    time.sleep(seconds)
    after, frames = [cpu_seconds(pid) for pid in pids], rate_hz * (time.perf_counter() - began)
    return [1e6 * (end - start) / frames for start, end in zip(before, after, strict=True)]


async def _pair_with_server(dataset: Path, out: Path, args: argparse.Namespace) -> _Pair:
    async with serve(dataset, out, sessions=1, clock="realtime", fps=args.rate) as server:
        with BareLoop(_paced("bare", out, args)) as bare:
            agent = start_agent(server.urls[0], "null")
            await server.wait_until_ready(1)
            pair = await asyncio.to_thread(_read_pair, bare, server.pid, args)
            await server.wait()
            agent.wait()
    (journal,) = read_journals(out)
    sent = len(frame_lateness_ns(journal))
    assert sent > args.rate * (args.warm_up + args.seconds), f"only {sent} frames were sent"
    return pair


def _report_cpu(pairs: dict[str, list[_Pair]], args: argparse.Namespace) -> Report:
    bare_us = median(pair.bare_us for found in pairs.values() for pair in found)
    ratios = {"bare": 1.0} | {step: median(pair.ratio for pair in found) for step, found in pairs.items()}
    lines = [
        f"server CPU a frame, one connection paced at {args.rate:g} a second, {FRAME_BYTES // 1024} KB, each "
        f"beside a bare loop, medians of {args.rounds} pairs of {args.seconds:g} s "
        f"({len(pairs[SERVER])} of the server):",
        f"  {'':50} {'ratio':>6} {'part':>6} {'us':>6}",
    ]
    before = 0.0
    for step, ratio in ratios.items():
        lines.append(f"  {WHAT[step]:50} {ratio:6.2f} {ratio - before:+6.2f} {ratio * bare_us:6.0f}")
        before = ratio
    single = [pair.ratio for pair in pairs[SERVER]]
    lines.append(
        f"  ratio of the server to the bare loop: {ratios[SERVER]:.2f} (target at most {args.target:g}; "
        f"single pairs {min(single):.2f} to {max(single):.2f}); us: the ratio times the bare loop's median"
    )
    return Report(
        met=ratios[SERVER] <= args.target,
        lines=lines,
        figures={
            "cpu_ratio": ratios[SERVER],
            "cpu_ratios": ratios,
            "cpu_bare_us": bare_us,
            "cpu_rounds": {
                step: [[pair.bare_us, pair.other_us] for pair in found] for step, found in pairs.items()
            },
        },
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
            (cpu_us,) = _cpu_per_frame([loop.pid], fps * clients, args.late_seconds, args.warm_up)
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
            (cpu_us,) = await asyncio.to_thread(
                _cpu_per_frame, [server.pid], fps * clients, args.late_seconds, args.warm_up
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

"""``bench.py time``: is time true? ``skip`` against ``realtime``, drift, and lateness against a bare loop."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from streamsim.bench.footage import make_footage
from streamsim.bench.live import (
    delivery_log,
    frame_lateness_ns,
    played_wall_s,
    read_journals,
    run_streamsim,
    skip_log,
)
from streamsim.bench.report import Report

QUERY_SECONDS = tuple(range(3, 60, 3))
SLOW = ("frame=0.3", "stall=3.5", "stall_every=5")
SPANS = ("due_to_first", "due_to_final", "sent_to_first", "sent_to_final")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How long the drift is watched."""
    parser.add_argument("--minutes", type=float, default=10.0, help="of real time for the drift (10)")
    parser.add_argument("--seconds", type=int, default=60, help="of the episode (60)")


def measure(args: argparse.Namespace) -> Report:
    """Skip against realtime, drift over real minutes, release lateness against a bare asyncio loop."""
    with tempfile.TemporaryDirectory(prefix="streamsim-bench-") as name:
        folder = Path(name)
        queries = tuple(second for second in QUERY_SECONDS if second <= args.seconds)
        dataset = make_footage(folder / "minute", seconds=args.seconds, query_seconds=queries)
        parts = [
            _equal_experience(dataset, folder, "all", ("frame=0.05", "answer=0.05"), timed=True),
            _equal_experience(dataset, folder, "latest", SLOW, timed=False),
            _drift(folder, args.minutes),
        ]
    return Report(
        met=all(part.met for part in parts),
        lines=[line for part in parts for line in part.lines],
        figures={key: value for part in parts for key, value in part.figures.items()},
    )


def _equal_experience(
    dataset: Path, folder: Path, frames: str, arguments: tuple[str, ...], *, timed: bool
) -> Report:
    """One agent under both clocks: the same deliveries, the same skips, the same latencies."""
    options = ["--agent", "fixed-delay", "--frames", frames]
    for argument in arguments:
        options += ["--agent-arg", argument]
    reports = {}
    journals = {}
    for clock in ("realtime", "skip"):
        out = folder / f"{frames}-{clock}"
        reports[clock] = run_streamsim(dataset, out, "--clock", clock, *options)
        journals[clock] = read_journals(out)
    logs = {clock: [delivery_log(journal) for journal in found] for clock, found in journals.items()}
    skips = {clock: [skip_log(journal) for journal in found] for clock, found in journals.items()}
    same_log = logs["realtime"] == logs["skip"]
    same_skips = skips["realtime"] == skips["skip"]
    walls = {clock: sum(map(played_wall_s, found)) for clock, found in journals.items()}
    speed_up = walls["realtime"] / walls["skip"]
    skipped = sum(map(len, skips["realtime"]))
    lines = [
        f"{frames}, {' '.join(arguments)}: {sum(map(len, logs['realtime']))} deliveries, "
        f"{'identical' if same_log else 'DIFFERENT'} in skip and realtime; {skipped} skips, "
        f"{'identical' if same_skips else 'DIFFERENT'}",
        f"  realtime {walls['realtime']:.1f} s, skip {walls['skip']:.1f} s: {speed_up:.1f} times faster"
        + (" (target 6)" if timed else ""),
    ]
    figures: dict[str, Any] = {
        f"{frames}_identical_deliveries": same_log,
        f"{frames}_identical_skips": same_skips,
        f"{frames}_speed_up": speed_up,
    }
    met = same_log and same_skips
    if timed:
        worst = 0.0
        for probe in ("task", "status", "cause"):
            for span in SPANS:
                real, skip = (_median(reports[clock], probe, span) for clock in ("realtime", "skip"))
                if real is not None and skip is not None:
                    worst = max(worst, abs(skip / real - 1))
        lines.append(f"  medians of all spans differ by at most {100 * worst:.1f} % (target 5 %)")
        figures["worst_median_difference"] = worst
        met = met and worst <= 0.05 and speed_up >= 6
    return Report(met=met, lines=lines, figures=figures)


def _median(report: dict[str, Any], probe: str, span: str) -> float | None:
    figures = report["latency"].get(probe)
    value: float | None = figures[span]["p50"] if figures else None
    return value


def _drift(folder: Path, minutes: float) -> Report:
    """Frames at 1 FPS over real minutes, while a bare absolute-deadline loop releases nothing beside it."""
    seconds = round(60 * minutes)
    dataset = make_footage(folder / "long", seconds=seconds, query_seconds=())
    bare: list[float] = []
    stop = threading.Event()
    loop_thread = threading.Thread(target=lambda: bare.extend(asyncio.run(_bare_loop(seconds, stop))))
    loop_thread.start()
    run_streamsim(dataset, folder / "long-run", "--agent", "null", "--clock", "realtime")
    stop.set()
    loop_thread.join()
    (journal,) = read_journals(folder / "long-run")
    lateness = frame_lateness_ns(journal)
    window_ns = min(60, seconds // 2) * 1_000_000_000
    first = [late for media_ns, late in lateness if media_ns < window_ns]
    last = [late for media_ns, late in lateness if media_ns >= seconds * 1_000_000_000 - window_ns]
    drift_ms = (median(last) - median(first)) / 1e6
    ours = np.percentile([late / 1e6 for _, late in lateness], [50, 99])
    theirs = np.percentile(np.array(bare) * 1e3, [50, 99])
    early = sum(late < 0 for _, late in lateness)
    return Report(
        met=drift_ms < 2 and early == 0,
        lines=[
            f"drift over {seconds} s: median lateness of the last minute minus the first {drift_ms:+.3f} ms "
            f"(target under 2); {early} of {len(lateness)} frames early",
            f"  release lateness p50 / p99: {ours[0]:.2f} / {ours[1]:.2f} ms; "
            f"bare asyncio loop in the same minutes: {theirs[0]:.2f} / {theirs[1]:.2f} ms",
        ],
        figures={
            "drift_ms": drift_ms,
            "early": early,
            "lateness_ms": {"p50": ours[0], "p99": ours[1]},
            "bare_lateness_ms": {"p50": theirs[0], "p99": theirs[1]},
        },
    )


async def _bare_loop(seconds: int, stop: threading.Event) -> list[float]:
    """Sleep to absolute deadlines, one a second; how late each wake-up was, in seconds."""
    origin = time.monotonic()
    late = []
    for k in range(1, seconds + 1):
        await asyncio.sleep(origin + k - time.monotonic())
        late.append(time.monotonic() - origin - k)
        if stop.is_set():
            break
    return late

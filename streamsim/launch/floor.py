"""The harness's own floor on this machine: runs with agents that do nothing, or a known amount.

A clip of plain pictures is rendered, played in realtime to ``null`` and to ``fixed-delay``, and what
their answers took beyond their own work is the harness's: server, wire, runtime, journal and all.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamsim.episodes.dataset import DatasetInfo, write_dataset
from streamsim.episodes.episode import Episode, EpisodeQuery, KeyEntry
from streamsim.episodes.make.encode import encode_video
from streamsim.journal.folder import read_last_attempts
from streamsim.launch.options import RunOptions
from streamsim.launch.planning import plan_run
from streamsim.launch.running import play
from streamsim.report.run_summary import RunSummary, summarise_run
from streamsim.scoring.record import read_record
from streamsim.scoring.spread import Sample, describe

FPS = 10
QUERY_INTERVAL_NS = 90_000_000
"""Eleven queries a second, at no fixed distance from the frames."""
SIZE = (320, 240)
AGENTS: Mapping[str, tuple[str, ...]] = {
    "null": (),
    "fixed-delay": ("frame=0.005", "answer=0.02"),
}


def measure_floor(
    seconds: float, *, on_agent: Callable[[str], None] = lambda agent: None
) -> dict[str, dict[str, Any]]:
    """Play ``seconds`` of media to each agent; figures by agent, in seconds.

    ``overhead`` is sent to final less the agent's own service; ``service`` what that was. ``on_agent``
    is told which agent plays next.
    """
    with tempfile.TemporaryDirectory(prefix="streamsim-floor-") as folder:
        dataset = Path(folder) / "dataset"
        make_floor_dataset(dataset, seconds)
        figures = {}
        for name, arguments in AGENTS.items():
            on_agent(name)
            out = Path(folder) / name
            play(
                plan_run(
                    RunOptions(
                        dataset=dataset, agent=name, agent_arguments=arguments, out=out, fps=float(FPS)
                    )
                ),
                quiet=True,
            )
            figures[name] = _figures(out, summarise_run(out))
    return figures


def make_floor_dataset(folder: Path, seconds: float) -> None:
    """A clip whose pictures all differ, and a query every 90 ms; answers are of no interest."""
    video = folder.with_name("floor.mp4")
    encode_video(video, _pictures(round(seconds * FPS)), fps=FPS, size=SIZE)
    last_ns = round((seconds - 1 / FPS) * 1e9)
    queries = tuple(
        EpisodeQuery(
            id=f"floor_{number:04d}",
            kind="choice",
            media_ns=media_ns,
            stem="Which side is brighter?",
            options=("Left", "Right", "Both", "None"),
        )
        for number, media_ns in enumerate(range(0, last_ns, QUERY_INTERVAL_NS))
    )
    episode = Episode(id="floor", subset="floor", video="videos/floor.mp4", queries=queries)
    key = [
        KeyEntry(id=query.id, episode_id="floor", subset="floor", media_ns=query.media_ns, answer_index=0)
        for query in queries
    ]
    info = DatasetInfo(name="floor", chain="task", source="rendered by streamsim doctor")
    write_dataset(folder, info, [episode], key, move={"videos/floor.mp4": video})


def _pictures(count: int) -> Iterator[NDArray[np.uint8]]:
    width, height = SIZE
    across = np.linspace(0, 255, width, dtype=np.float32)
    for number in range(count):
        row = ((across + number * 16) % 256).astype(np.uint8)
        yield np.broadcast_to(row[None, :, None], (height, width, 3)).copy()


def _figures(folder: Path, summary: RunSummary) -> dict[str, Any]:
    records = [read_record(journal.events()) for journal in read_last_attempts(folder)]
    parts = [
        split
        for record in records
        if record is not None
        for probe in record.probes
        if (split := probe.parts()) is not None
    ]
    overheads = [(split.total_ns - split.dispatch_ns - split.agent_service_ns) / 1e9 for split in parts]
    return {
        "verdict": msgspec.to_builtins(summary.verdict),
        "due_to_sent": summary.harness["release_lateness"],
        "transport": summary.harness["probe_transport"],
        "frame_transport": summary.harness["frame_transport"],
        "overhead": {
            "origin": "sent to final, server's wall clock, less the agent's own service",
            **describe([Sample(overhead_s) for overhead_s in overheads]),
        },
        "service": {
            "origin": "turn started to final, the agent's own duration",
            **describe([Sample(split.agent_service_ns / 1e9) for split in parts]),
        },
        "loop_lag": summary.harness["loop_lag"],
    }

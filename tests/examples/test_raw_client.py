"""The client that knows nothing but the contract, against the real server."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from streamsim.episodes.dataset import DatasetInfo, write_dataset
from streamsim.episodes.episode import Episode, EpisodeQuery, KeyEntry
from streamsim.events import ChainClosed, FrameSent, FrameSettled, ProbeSent, TextReceived, TurnStarted
from streamsim.journal.folder import read_last_attempts
from streamsim.journal.read import JournalFile

CLIENT = Path(__file__).parents[2] / "examples" / "raw_client.py"
GUARD_S = 60
"""No step waits longer; one that does has found a stall."""
FRAME_NS = 100_000_000
QUERIES_NS = (0, 450_000_000, 450_000_000, 900_000_000)


def write_clip(path: Path) -> None:
    """Ten pictures, one each 100 ms."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=10, options={"preset": "ultrafast"})
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(10):
            picture = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 20 * number, np.uint8), "rgb24")
            picture.pts, picture.time_base = number, Fraction(1, 10)
            container.mux(stream.encode(picture))
        container.mux(stream.encode())


def write_episodes(folder: Path, names: tuple[str, ...]) -> Path:
    write_clip(folder / "clip.mp4")
    episodes, key = [], []
    for name in names:
        queries = tuple(
            EpisodeQuery(
                id=f"{name}/{number}",
                kind="open" if number == 3 else "choice",
                media_ns=media_ns,
                stem="How grey is it?",
                options=() if number == 3 else ("light", "dark"),
            )
            for number, media_ns in enumerate(QUERIES_NS)
        )
        episodes.append(Episode(id=name, subset="s", video="videos/clip.mp4", queries=queries))
        key += [
            KeyEntry(id=query.id, episode_id=name, subset="s", media_ns=query.media_ns, answer_index=0)
            for query in queries
        ]
    info = DatasetInfo(name="raw", chain="full", source="rendered")
    write_dataset(folder / "dataset", info, episodes, key, copy={"videos/clip.mp4": folder / "clip.mp4"})
    return folder / "dataset"


def test_client_is_short_and_imports_neither_package() -> None:
    source = CLIENT.read_text(encoding="utf-8")
    assert source.count("\n") < 60
    imported = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
    assert imported == {"contextlib", "itertools", "msgpack", "sys", "typing", "websockets"}


@pytest.mark.slow
def test_client_plays_all_sessions_of_a_run_and_leaves_when_there_are_no_more(tmp_path: Path) -> None:
    dataset, run = write_episodes(tmp_path, ("one", "two")), tmp_path / "run"
    command = [sys.executable, "-m", "streamsim.cli", "serve", str(dataset), "--out", str(run), "--json"]
    command += ["--clock", "lockstep", "--fps", "10"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            url = next(line.split()[1] for line in server.stderr if line.startswith("listening: "))
            client = subprocess.run(
                [sys.executable, str(CLIENT), url],
                capture_output=True,
                text=True,
                timeout=GUARD_S,
                check=False,
            )
            report, _ = server.communicate(timeout=GUARD_S)
        finally:
            server.kill()
    assert (client.returncode, client.stdout, client.stderr) == (0, "", "")
    assert server.returncode == 0
    assert json.loads(report)["outcomes"]["answered"] == 2 * len(QUERIES_NS)
    journals = {journal.started.episode: journal for journal in read_last_attempts(run)}
    assert {name: journal.complete for name, journal in journals.items()} == {"one": True, "two": True}
    for journal in journals.values():
        check_session(journal)


def check_session(journal: JournalFile) -> None:
    events = [entry.event for entry in journal.entries]
    frames = [event for event in events if isinstance(event, FrameSent)]
    assert [frame.media_ns for frame in frames] == [k * FRAME_NS for k in range(10)]
    assert sorted(event.k for event in events if isinstance(event, FrameSettled)) == list(range(10))
    outcomes = {event.query: event.outcome for event in events if isinstance(event, ChainClosed)}
    assert outcomes == dict.fromkeys(("q1", "q2", "q3", "q4"), "answered")
    probes = {event.turn: event for event in events if isinstance(event, ProbeSent)}
    # the answer A is a status of certainty, so no cause is asked; an open query has a task alone
    assert [(probe.query, probe.probe) for probe in probes.values()] == [
        ("q1", "task"),
        ("q1", "status"),
        ("q2", "task"),
        ("q3", "task"),
        ("q2", "status"),
        ("q3", "status"),
        ("q4", "task"),
    ]
    assert {event.turn: event.text for event in events if isinstance(event, TextReceived)} == dict.fromkeys(
        probes, "A"
    )
    seen = {event.turn: event.seen_media_ns for event in events if isinstance(event, TurnStarted)}
    newest = {turn: probe.media_ns // FRAME_NS * FRAME_NS for turn, probe in probes.items()}
    assert seen == newest

"""Real runs on every clock are verified, also against their videos; what is changed in them is named."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import av
import pytest

from streamsim.episodes.dataset import DatasetInfo, load_dataset, write_dataset
from streamsim.episodes.episode import Episode, EpisodeQuery
from streamsim.journal.folder import read_last_attempts
from streamsim.journal.redecode import compare_with_dataset
from tests.end_to_end.dataset_for_tests import NS, write_clip
from tests.end_to_end.harness import Simulator
from tests.streamsim.journal.simulated_run import Edit, Lines, rewrite_journal

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Path:
    """A folder with three runs of two episodes: realtime, skip and lockstep."""
    folder = tmp_path_factory.mktemp("played")
    simulator = Simulator(folder)
    delays = ("--agent-arg", "frame=0.02", "--agent-arg", "answer=0.01")
    episodes = ("--episode", "tiny-2", "--episode", "tiny-3")
    for clock, options in (
        ("realtime", ("--agent", "random", "--sessions", 2)),
        ("skip", ("--agent", "fixed-delay", *delays, "--frames", "latest")),
        ("lockstep", ("--agent", "abstain", "--sessions", 2)),
    ):
        done = simulator.call("run", tiny, "--clock", clock, "--out", clock, "--json", *episodes, *options)
        assert done.code == 0, done.err
        (folder / f"{clock}.json").write_text(done.out)
    return folder


@pytest.mark.parametrize("clock", ["realtime", "skip", "lockstep"])
def test_a_completed_run_is_verified(played: Path, tiny: Path, simulator: Simulator, clock: str) -> None:
    digest = json.loads((played / f"{clock}.json").read_text())["digest"]
    done = simulator.call("verify", played / clock, "--digest", digest, "--against", tiny)
    assert done.code == 0, done.out
    assert done.out.startswith("verified: 2 journals, ")
    assert f"digest: {digest}" in done.out


def edited(played: Path, folder: Path, clock: str, edit: Edit) -> Path:
    """A copy of a run, its first journal changed and chained anew."""
    run = folder / "changed"
    shutil.copytree(played / clock, run)
    rewrite_journal(run / "sessions" / "tiny-2.1.1.jsonl", edit)
    return run


def find(run: Path, event: str, **fields: Any) -> int:
    """The number of the first such line of ``tiny-2``."""
    lines = [json.loads(line) for line in (run / "sessions" / "tiny-2.1.1.jsonl").read_bytes().splitlines()]
    return next(
        number
        for number, line in enumerate(lines, 1)
        if line["event"] == event and fields.items() <= line.items()
    )


def release_early(number: int, due_field: str) -> Edit:
    """Let line ``number`` have happened 1 ms before it was due, on both clocks."""

    def edit(lines: Lines) -> None:
        line = lines[number - 1]
        back_ns = line["at_media_ns"] - line[due_field] + 1_000_000
        line["at_media_ns"] -= back_ns
        line["at_wall_ns"] -= back_ns

    return edit


@pytest.mark.parametrize(
    ("event", "fields", "due_field"),
    [
        ("FrameSent", {"k": 1}, "media_ns"),
        ("ProbeSent", {"query": "q4", "probe": "task"}, "due_media_ns"),
    ],
    ids=["frame", "query"],
)
def test_an_early_release_of_a_real_run_is_named(
    played: Path, simulator: Simulator, event: str, fields: dict[str, Any], due_field: str
) -> None:
    number = find(played / "realtime", event, **fields)
    run = edited(played, simulator.folder, "realtime", release_early(number, due_field))
    done = simulator.call("verify", run)
    shutil.rmtree(run)
    assert done.code == 1
    assert done.out.startswith(f"not verified: tiny-2.1.1.jsonl:{number}: found ")


def test_changed_pictures_show_against_the_dataset_only(
    played: Path, tiny: Path, simulator: Simulator
) -> None:
    def change_picture(lines: Lines) -> None:
        line = next(line for line in lines if line["event"] == "FrameSent" and line["k"] == 1)
        line["picture_digest"] = line["picture_digest"][::-1]

    run = edited(played, simulator.folder, "lockstep", change_picture)
    assert simulator.call("verify", run).code == 0
    done = simulator.call("verify", run, "--against", tiny, "--json")
    assert done.code == 1
    report = done.report
    assert report["verified"] is False
    offence = report["offence"]
    assert offence["file"] == "tiny-2.1.1.jsonl"
    assert offence["found"].startswith("frame 1 of 1000000000 ns")
    line = json.loads((run / "sessions" / offence["file"]).read_bytes().splitlines()[offence["line"] - 1])
    assert (line["event"], line["k"]) == ("FrameSent", 1)


def test_changed_prompts_show_against_the_dataset(played: Path, tiny: Path, simulator: Simulator) -> None:
    def add_hint(lines: Lines) -> None:
        line = next(line for line in lines if line["event"] == "ProbeSent")
        line["text"] += " (it is A)"

    run = edited(played, simulator.folder, "lockstep", add_hint)
    done = simulator.call("verify", run, "--against", tiny)
    assert done.code == 1 and "found the prompt" in done.out


def shorten(clip: Path, seconds: int) -> None:
    """Leave only the pictures of the first ``seconds``, as they are in the file."""
    whole = clip.read_bytes()
    with av.open(io.BytesIO(whole), "r") as source, av.open(str(clip), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.pts is not None and packet.pts * packet.time_base < seconds:
                packet.stream = stream
                target.mux(packet)


@pytest.mark.parametrize(
    ("last_query_s", "event", "found", "expected"),
    [
        (3, "ProbeSent", "q2 asked after 3 samples", "sample 3 of 3000000000 ns, which the video has"),
        (1, "MediaEnded", "the end of media after 3 samples", "4"),
    ],
    ids=["before a query", "behind the last query"],
)
def test_what_a_shorter_video_left_out_shows_against_the_dataset(
    simulator: Simulator, last_query_s: int, event: str, found: str, expected: str
) -> None:
    """The leading pictures are the same, so all that is in the journal is in the dataset too."""
    clip = write_clip(simulator.folder / "clip.mp4", 4)
    queries = [
        EpisodeQuery(id=f"at-{at_s}", kind="open", media_ns=at_s * NS, stem="What is there?")
        for at_s in (0, last_query_s)
    ]
    episode = Episode(id="one", subset="tiny", video="clip.mp4", queries=tuple(queries))
    info = DatasetInfo(name="shorter", chain="task", source="rendered for tests")
    write_dataset(simulator.folder / "dataset", info, [episode], [], copy={"clip.mp4": clip})
    video = simulator.folder / "dataset" / "public" / "clip.mp4"
    shorten(video, 3)
    options = ("--agent", "abstain", "--clock", "lockstep", "--out", "run")
    assert simulator.call("run", "dataset", *options).code == 0
    shorter = simulator.call("verify", "run", "--against", "dataset")
    assert shorter.code == 0, shorter.out

    shutil.copyfile(clip, video)
    assert simulator.call("verify", "run").code == 0
    offence = simulator.call("verify", "run", "--against", "dataset", "--json").report["offence"]
    assert offence["found"] == found and offence["expected"].startswith(expected)
    (journal,) = (simulator.folder / "run" / "sessions").iterdir()
    assert json.loads(journal.read_bytes().splitlines()[offence["line"] - 1])["event"] == event


def test_a_session_that_ended_early_owes_nothing(played: Path, tiny: Path, tmp_path: Path) -> None:
    """Every beginning of an honest journal agrees with the dataset."""
    dataset = load_dataset(tiny)
    run = tmp_path / "run"
    shutil.copytree(played / "realtime", run)
    (run / "sessions" / "tiny-3.1.1.jsonl").unlink()
    journal = run / "sessions" / "tiny-2.1.1.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    ends = [
        number for number, line in enumerate(lines, 1) if b'"FrameSent"' in line or b'"ProbeSent"' in line
    ]
    assert len(ends) > 6
    for end in ends:
        journal.write_bytes(b"".join(lines[:end]))
        assert compare_with_dataset(run, dataset) is None, f"the first {end} lines"


def test_another_dataset_is_another_dataset(played: Path, one_clip: Path, simulator: Simulator) -> None:
    done = simulator.call("verify", played / "lockstep", "--against", one_clip)
    assert done.code == 1
    assert done.out.startswith("not verified: run.json: found dataset digest")


def test_an_unsealed_journal_gives_a_prefix(played: Path, simulator: Simulator) -> None:
    run = simulator.folder / "cut"
    shutil.copytree(played / "realtime", run)
    journal = run / "sessions" / "tiny-3.1.1.jsonl"
    journal.write_bytes(journal.read_bytes()[:-40])
    done = simulator.call("verify", run)
    assert done.code == 1
    assert done.out.startswith("prefix verified: 2 journals, ")
    assert "no end: tiny-3.1.1.jsonl" in done.out
    report = simulator.call("verify", run, "--json").report
    assert (report["verified"], report["prefix_only"], report["offence"]) == (False, True, None)


def test_lockstep_runs_are_the_same_and_others_are_not(played: Path, simulator: Simulator) -> None:
    same = simulator.call("verify", played / "lockstep", "--same", played / "lockstep")
    assert same.code == 0 and "equal to run" in same.out
    other = simulator.call("verify", played / "lockstep", "--same", played / "skip")
    assert other.code == 2 and "skip' is a skip run: --same compares lockstep runs" in other.err


def test_what_is_no_run_is_wrong_usage(simulator: Simulator) -> None:
    done = simulator.call("verify", "nothing")
    assert done.code == 2
    assert done.err.startswith("streamsim verify: no run at 'nothing'")


def test_the_report_of_a_real_run(played: Path) -> None:
    for clock in ("realtime", "skip"):
        report = json.loads((played / f"{clock}.json").read_text())
        verdict = report["verdict"]
        assert set(verdict) == {"grade", "reasons", "hints"}
        assert (verdict["grade"] == "VALID") == (not verdict["reasons"])
        assert bool(verdict["reasons"]) == bool(verdict["hints"])
        for record in report["latency"].values():
            assert record["n"] == 8 if record is report["latency"]["task"] else record["n"] > 0
            due, sent = record["due_to_final"], record["sent_to_final"]
            assert due["max"] >= sent["max"] > 0 and due["p50"] >= sent["p50"]
            parts = record["parts"]
            assert parts["transport"]["n"] == record["n"]
            assert parts["transport"]["p50"] > 0
        lag = report["harness"]["loop_lag"]
        assert all(lag[name] is not None for name in ("server_p99", "server_max", "agent_p99", "agent_max"))
        assert report["harness"]["early"] == report["early_releases"] == 0
    skip = json.loads((played / "skip.json").read_text())
    service = skip["latency"]["task"]["parts"]["agent_service"]
    assert service["p50"] >= 0.01  # what fixed-delay was told to take
    assert skip["agent"]["frame_service"]["p50"] >= 0.02
    withheld = json.loads((played / "lockstep.json").read_text())
    assert list(withheld["latency"]) == ["withheld"]
    assert len(read_last_attempts(played / "lockstep")) == 2

"""Runs that are killed and go on: nothing that was complete is played again, and the score is the same."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
from pathlib import Path

import pytest

from streamsim import prompts as prompts_module
from streamsim.episodes.dataset import load_dataset
from streamsim.errors import StreamsimError
from streamsim.journal.compare import canonical_lines
from streamsim.journal.folder import journal_path, read_last_attempts
from streamsim.journal.read import JournalFile, read_journal
from streamsim.launch.options import RunOptions
from streamsim.launch.planning import plan_run
from streamsim.launch.running import play
from tests.end_to_end.harness import Simulator, read_sessions

pytestmark = pytest.mark.slow

EPISODES = 6
KILLS = 5
SEED = 20260817
CALLS_PER_SESSION = 30
"""One begin, eight frames, twice ten probes, one save."""


def options(simulator: Simulator, dataset: Path, moments: list[int]) -> list[object]:
    """The command line of all these runs."""
    spent = simulator.folder / "spent"
    spent.mkdir(exist_ok=True)
    return [
        *("run", dataset, "--json", "--limit", EPISODES, "--fps", 4, "--clock", "lockstep"),
        *("--agent", "agents_for_tests:Assassin", "--agent-arg", f"spent={spent}"),
        *("--agent-arg", f"moments={','.join(map(str, moments))}"),
    ]


def story(journal: JournalFile) -> list[dict[str, object]]:
    """What a session tells, whichever attempt it was: all but its first line, which names the attempt."""
    return [line for _, line in canonical_lines(journal.entries)[1:]]


def tear(path: Path, chance: random.Random) -> None:
    """Cut a file somewhere in its last line, as a power cut may."""
    data = path.read_bytes()
    last = data[:-1].rfind(b"\n") + 1
    path.write_bytes(data[: chance.randrange(last, len(data))])


def test_run_killed_five_times_scores_as_if_undisturbed(simulator: Simulator, one_clip: Path) -> None:
    chance = random.Random(SEED)
    moments = [chance.randrange(1, 2 * CALLS_PER_SESSION) for _ in range(KILLS)]
    command = options(simulator, one_clip, moments)
    run = simulator.folder / "run"
    complete: dict[str, bytes] = {}
    for kill in range(KILLS):
        more = ["--resume"] if kill else []
        done = simulator.call(*command, "--out", run, "--sessions", 1 + kill % 2, *more)
        assert done.code == 1 and done.out == "", done.out
        assert done.err.splitlines()[-1].startswith("streamsim run: the server process ended unexpectedly")
        assert "continue with --resume" in done.err
        assert simulator.wait_for_processes() == {}
        journals = sorted((run / "sessions").glob("*.jsonl"))
        torn = [path for path in journals if read_journal(path).ended is None]
        assert torn, "the kill ended a session"
        if kill % 2:
            tear(torn[-1], chance)
        for path in journals:
            journal = read_journal(path)
            # all that was written whole is read, and the line that was not is known
            lines = path.read_bytes().split(b"\n")
            assert len(journal.entries) == len(lines) - 1
            assert (journal.fault is None) == (lines[-1] == b"")
        for name, data in complete.items():
            assert (run / "sessions" / name).read_bytes() == data, "a complete session was touched"
        complete |= {path.name: path.read_bytes() for path in journals if read_journal(path).complete}
    assert len(list((simulator.folder / "spent").iterdir())) == KILLS

    resume = ("run", "--json", "--out", run, "--resume")  # under which options, the run knows
    # all moments are spent now
    done, undisturbed = simulator.call_together(
        (*resume, "--sessions", 3), (*command, "--out", "undisturbed", "--sessions", 2)
    )
    assert (done.code, undisturbed.code) == (0, 0), done.err + undisturbed.err
    report = done.report
    assert (report["sessions"], report["complete"]) == (EPISODES, EPISODES)
    assert report["outcomes"]["answered"] == report["queries"] == 4 * EPISODES
    for name, data in complete.items():
        assert (run / "sessions" / name).read_bytes() == data
    attempts = {journal.started.attempt for journal in read_last_attempts(run)}
    assert max(attempts) > 1

    scores = undisturbed.report["scores"]
    assert {**report["scores"], "run": ""} == {**scores, "run": ""}
    assert scores["n"] == 4 * EPISODES and scores["partial"] is None
    resumed, once = read_sessions(run), read_sessions(simulator.folder / "undisturbed")
    for episode, journal in once.items():
        assert story(resumed[episode]) == story(journal)  # later prompts and seeds too

    # there is nothing left to do, and nothing is done; another configuration is another run
    again, refused = simulator.call_together(resume, (*resume, "--seed", 7, "--answer-timeout", 3))
    assert again.code == 0
    assert again.report["scores"] == report["scores"]
    assert again.report["digests"] == report["digests"]
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert "seed: the run has 0, the command says 7" in refused.err
    assert "answer_timeout_s: the run has 600.0, the command says 3.0" in refused.err
    assert json.loads((run / "scores.json").read_text()) == report["scores"]


def test_run_is_played_by_one_process_at_a_time(simulator: Simulator, one_clip: Path) -> None:
    serve = ("serve", one_clip, "--out", "run", "--limit", 1, "--json")
    first = simulator.start(*serve)
    simulator.read_urls(first, 1)
    second = simulator.call(*serve, "--resume")
    assert second.code == 2
    assert "run folder" in second.err and "is in use by another process" in second.err
    first.terminate()
    assert simulator.finish(first).code == 143
    assert (simulator.folder / "run" / "run.json").is_file()


def test_resume_by_the_same_words_and_by_others(simulator: Simulator, one_clip: Path, tmp_path: Path) -> None:
    """What is given must be as the run has it, what is not given is as the run has it."""
    words = (
        "--agent",
        "fixed-delay",
        "--agent-arg",
        "frame=0",
        "--limit",
        2,
        "--clock",
        "scaled",
        "--rate",
        8,
    )
    started = simulator.call("run", one_clip, *words, "--json", "--out", "run")
    assert started.code == 0, started.err
    (served,) = simulator.call_together(
        ("serve", one_clip, "--limit", 1, "--ready-timeout", 0.1, "--json", "--out", "served")
    )
    assert served.code == 1
    resume = ("--resume", "--json", "--out")
    same, fewer, other_clock, other_agent, to_serve, to_run = simulator.call_together(
        ("run", one_clip, *words, *resume, "run"),
        ("run", *resume, "run", "--limit", 1),
        ("run", *resume, "run", "--clock", "lockstep"),
        ("run", *resume, "run", "--agent", "null", "--agent-arg", "x=1"),
        ("serve", *resume, "run"),
        ("run", *resume, "served"),
    )
    assert same.code == 0 and same.report["digests"] == started.report["digests"]
    refused = [fewer, other_clock, other_agent, to_serve, to_run]
    assert [(done.code, done.out, done.err.count("\n")) for done in refused] == [(2, "", 1)] * 5
    assert 'episodes: the run has ["' in fewer.err
    assert 'clock: the run has "scaled", the command says "lockstep"' in other_clock.err
    assert "rate: the run has 8.0, the command says 1.0" in other_clock.err
    assert "x" in other_agent.err
    (part,) = simulator.call_together(("run", *resume, "run", "--agent-arg", "frame=0"))
    assert part.code == 0 and part.report["digests"] == started.report["digests"]
    assert "this run starts its agents: go on with it by `streamsim run --resume`" in to_serve.err
    assert "this run was served: go on with it by `streamsim serve --resume`" in to_run.err


def test_resume_of_what_is_another_run(simulator: Simulator, one_clip: Path, tiny: Path) -> None:
    started = simulator.call(
        *("run", one_clip, "--agent", "null", "--limit", 1, "--clock", "lockstep", "--json", "--out", "run")
    )
    assert started.code == 0, started.err
    copy = simulator.folder / "run" / "sessions" / "copy.1.1.jsonl"
    shutil.copy(next(copy.parent.iterdir()), copy)
    done = simulator.call("run", "--resume", "--json", "--out", "run")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert f"{copy.relative_to(simulator.folder)}: expected the session of its name" in done.err
    copy.unlink()
    done = simulator.call("run", tiny, "--resume", "--json", "--out", "run")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "--resume: no episode" in done.err or "dataset_digest: the run has" in done.err


def test_run_that_another_process_finished_meanwhile(tiny: Path, tmp_path: Path) -> None:
    """Two resumes at the same time: what the first completes is not played again by the second."""
    (first, *_) = load_dataset(tiny).episodes
    options = RunOptions(
        dataset=tiny, agent="null", out=tmp_path / "run", clock="lockstep", episodes=(first.id,)
    )
    planned = plan_run(options)
    journal = journal_path(planned.folder, first.id, 1, 1)
    play(planned, quiet=True)
    done = journal.read_bytes()
    assert read_journal(journal).complete
    # one plan is made before the first line of the first process, one in its middle
    for left, attempt in ((b"", 1), (b"".join(done.splitlines(keepends=True)[:3]), 2)):
        journal.unlink()
        if left:
            journal.write_bytes(left)
        planned = plan_run(dataclasses.replace(options, resume=True))
        assert [job.attempt for job in planned.plan.jobs] == [attempt]
        journal.write_bytes(done)
        with pytest.raises(StreamsimError, match=r"another process has played .* meanwhile: call again"):
            play(planned, quiet=True)
        assert [path.name for path in journal.parent.iterdir()] == [journal.name]
        assert journal.read_bytes() == done
    assert plan_run(dataclasses.replace(options, resume=True)).plan.jobs == ()


def test_resume_without_the_folders_that_were_empty(simulator: Simulator, one_clip: Path) -> None:
    """Git and tools that copy folders leave empty ones out, and logs are deleted."""
    words = ("--agent", "null", "--limit", 1, "--clock", "lockstep", "--json")
    started = simulator.call("run", one_clip, *words, "--out", "run")
    assert started.code == 0
    for name in ("sessions", "logs", "memory"):
        shutil.rmtree(simulator.folder / "run" / name)
    again = simulator.call("run", "--resume", "--json", "--out", "run")
    assert (again.code, again.report["complete"]) == (0, 1), again.err
    assert again.report["scores"] == started.report["scores"]


def test_resume_where_the_dataset_has_moved(simulator: Simulator, tiny: Path, tmp_path: Path) -> None:
    """Its content counts, not its place."""
    before, after = tmp_path / "before", tmp_path / "after"
    shutil.copytree(tiny, before)
    prompts = tmp_path / "prompts.toml"
    shutil.copy(Path(prompts_module.__file__).with_name("prompts.toml"), prompts)
    words = ("--agent", "null", "--limit", 2, "--clock", "lockstep", "--json", "--prompts", prompts)
    started = simulator.call("run", before, *words, "--out", "run")
    assert started.code == 0, started.err
    shutil.move(before, after)
    prompts = prompts.rename(tmp_path / "moved.toml")
    next((simulator.folder / "run" / "sessions").iterdir()).unlink()
    lost = simulator.call("run", "--resume", "--json", "--out", "run")
    assert (lost.code, lost.err.count("\n")) == (2, 1)
    assert "is no longer at" in lost.err and "give DATASET" in lost.err
    found = simulator.call("run", after, "--resume", "--json", "--out", "run", "--prompts", prompts)
    assert (found.code, found.report["complete"]) == (0, 2), found.err
    assert found.report["scores"] == started.report["scores"]


def test_resume_with_another_video(simulator: Simulator, tiny: Path, tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    shutil.copytree(tiny, dataset)
    started = simulator.call(
        *("run", dataset, "--agent", "null", "--episode", "tiny-3", "--clock", "lockstep", "--json"),
        *("--out", "run"),
    )
    assert started.code == 0, started.err
    (journal,) = (simulator.folder / "run" / "sessions").iterdir()
    journal.unlink()
    video = dataset / "public" / "videos" / "3.mp4"
    before = video.stat().st_size
    with video.open("ab") as file:
        file.write(b"\0" * 8)  # players pass over it, so nothing else would tell
    done = simulator.call("run", "--resume", "--json", "--out", "run")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert f"video of 'tiny-3': {before} bytes when the run began, {before + 8} now" in done.err
    assert list(journal.parent.iterdir()) == []


def test_resume_needs_a_run(simulator: Simulator, one_clip: Path) -> None:
    for arguments, shown in (
        (["--resume"], "--resume: expected --out DIR"),
        (["--resume", "--out", "nowhere"], "no run at 'nowhere': expected run.json in it"),
    ):
        done = simulator.call("run", one_clip, "--agent", "null", *arguments)
        assert (done.code, shown in done.err) == (2, True)
        assert done.err.count("\n") == 1

"""What a user may get wrong: one line that says what to do, exit code 2, and nothing changed."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from streamsim.cli import main
from streamsim.errors import UsageError
from streamsim.launch.options import RunOptions
from streamsim.launch.planning import check_numbers
from tests.end_to_end.harness import Simulator


def refuse(
    capsys: pytest.CaptureFixture[str], *arguments: object, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> str:
    """Run a command that must be refused; its one line."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    before = sorted(folder.rglob("*"))
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith("streamsim run: ") and err.count("\n") == 1
    assert sorted(folder.rglob("*")) == before, "something was changed"
    return err


Refuse = Callable[..., str]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Refuse:
    """Calls ``streamsim run`` with what it must refuse, and gives the line it says."""
    return lambda *arguments: refuse(
        capsys, "run", *arguments, "--clock", "lockstep", monkeypatch=monkeypatch, folder=tmp_path
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--agent", "nul"], "no agent 'nul': did you mean 'null'?"),
        (["--agent", "no_such_module:Agent"], "no module 'no_such_module'"),
        (["--agent", "agents_for_tests:Missing"], "has no 'Missing'; agents there: Scripted"),
        (["--agent", "agent_that_exits:Agent"], "importing 'agent_that_exits' failed with SystemExit: 7"),
        (["--agent", "agent_that_dies:Agent"], "agent 'agent_that_dies:Agent' cannot be loaded by '"),
        (["--agent", "agent_that_dies:Agent"], "it ended with signal 9; the last it said was 'farewell'"),
        (["--agent", "null", "--agent-arg", "speed=3"], "speed"),
        (["--agent", "null", "--agent-arg", "speed"], "--agent-arg: expected KEY=VALUE, got 'speed'"),
        (["--agent", "fixed-delay", "--agent-arg", "frame=fast"], "frame"),
        (["--agent", "fixed-delay", "--agent-arg", "frame=-1"], "frame: expected 0 or more, got -1"),
        (["--agent", "null", "--agent-python", "/no/such/python"], "cannot run '/no/such/python'"),
    ],
)
def test_agents(refused: Refuse, one_clip: Path, arguments: list[str], shown: str) -> None:
    assert shown in refused(one_clip, "--limit", 1, *arguments)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--sessions", "0"], "--sessions: expected at least 1, got 0"),
        (["--repeat", "0"], "--repeat: expected at least 1, got 0"),
        (["--limit", "0"], "--limit: expected at least 1, got 0"),
        (["--port", "65536"], "--port: expected at most 65535, got 65536"),
        (["--credit", "0"], "--credit: expected at least 1, got 0"),
        (["--credit", "2000"], "--credit: expected at most 1024, got 2000"),
        (["--quality", "101"], "--quality: expected at most 100, got 101"),
        (["--fps", "0"], "--fps: expected from 1e-06 to 10000, got 0"),
        (["--fps", "1e300"], "--fps: expected from 1e-06 to 10000, got 1e+300"),
        (["--fps", "1e-300"], "--fps: expected from 1e-06 to 10000, got 1e-300"),
        (["--repeat", "1000000000"], "--repeat: expected at most 10000, got 1000000000"),
        (["--rate", "3"], "--rate: only --clock scaled has one, got --clock lockstep"),
        (["--answer-timeout", "nan"], "--answer-timeout: expected a number above 0, at most 1e+09, got nan"),
        (["--hang-timeout", "-1"], "--hang-timeout: expected a number above 0, at most 1e+09, got -1"),
        (
            ["--ready-timeout", "1e300"],
            "--ready-timeout: expected a number above 0, at most 1e+09, got 1e+300",
        ),
        (["--episode", "e99"], "--episode: no episode 'e99' in the dataset"),
        (["--reader", "loose"], "--reader: expected"),
        (["--prompts", "nowhere.toml"], "nowhere.toml"),
    ],
)
def test_options(refused: Refuse, one_clip: Path, arguments: list[str], shown: str) -> None:
    assert shown in refused(one_clip, "--agent", "null", *arguments)


@pytest.mark.parametrize("rate", [0.0, 1e-9, 1001.0, float("nan"), float("inf")])
def test_rates(tiny: Path, rate: float) -> None:
    with pytest.raises(UsageError, match=f"--rate: expected from 0.001 to 1000, got {rate:g}"):
        check_numbers(RunOptions(dataset=tiny, agent="null", clock="scaled", rate=rate))


def test_dataset_that_is_not_there(refused: Refuse) -> None:
    assert "no dataset at 'nowhere'" in refused("nowhere", "--agent", "null")


@pytest.mark.slow
def test_videos(refused: Refuse, tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    dataset = tmp_path_factory.mktemp("broken") / "dataset"
    shutil.copytree(tiny, dataset)
    videos = dataset / "public" / "videos"
    # the two-second clip in place of the three-second one: its last query then lies beyond the end
    (videos / "3.mp4").write_bytes((videos / "2.mp4").read_bytes())
    line = refused(dataset, "--agent", "null")
    assert "tiny-3/4" in line and "3" in line
    assert line.endswith(" (`streamsim check` lists all)\n")
    (videos / "3.mp4").unlink()
    line = refused(dataset, "--agent", "null")
    assert "tiny-3" in line
    assert line.endswith(" (`streamsim check` lists all; --available plays what is there)\n")
    (videos / "3.mp4").write_bytes(b"no video at all")
    assert "3.mp4" in refused(dataset, "--agent", "null")


@pytest.mark.slow
def test_episode_that_stands_there_twice(
    refused: Refuse, tiny: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    dataset = tmp_path_factory.mktemp("twice") / "dataset"
    shutil.copytree(tiny, dataset)
    path = dataset / "public" / "episodes.jsonl"
    path.write_text(path.read_text() + path.read_text().splitlines()[0] + "\n")
    assert "some episode ids twice" in refused(dataset, "--agent", "null")


@pytest.mark.slow
def test_run_folder_that_exists(refused: Refuse, one_clip: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    line = refused(one_clip, "--limit", 1, "--agent", "null", "--out", "taken")
    assert "run folder 'taken' exists: choose another --out, or continue it with --resume" in line


def test_what_only_a_resumed_run_knows(refused: Refuse, one_clip: Path) -> None:
    assert "expected DATASET, the folder of a dataset" in refused("--agent", "null")
    assert "expected --agent, whom to play the dataset to" in refused(one_clip)


@pytest.mark.slow
def test_port_in_use(simulator: Simulator, one_clip: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = ("--limit", 1, "--port", port, "--json", "--out")
        commands = {
            "run": ("run", one_clip, "--agent", "null", *options, "a"),
            "serve": ("serve", one_clip, *options, "b"),
        }
        for name, done in zip(commands, simulator.call_together(*commands.values()), strict=True):
            assert (done.code, done.out) == (2, "")
            assert done.err == (
                f"streamsim {name}: port {port} is in use: choose another --port, or 0 for any free one\n"
            )
    assert not (simulator.folder / "a").exists() and not (simulator.folder / "b").exists()

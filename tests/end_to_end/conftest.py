"""Fixtures of the end-to-end tests: tiny datasets and a command line that leaves nothing behind."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:  # so that these tests share `tests.end_to_end.…` however pytest was called
    sys.path.insert(0, str(ROOT))

from streamsim.journal.verify import verify_run  # noqa: E402
from tests.end_to_end.dataset_for_tests import ONE_CLIP_EPISODES, write_one_clip, write_tiny  # noqa: E402
from tests.end_to_end.harness import Simulator  # noqa: E402


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of three episodes of 2, 3 and 4 s, four queries each."""
    return write_tiny(tmp_path_factory.mktemp("tiny") / "dataset")


@pytest.fixture(scope="session")
def one_clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of many episodes that all play the same clip of 2 s, four queries each."""
    return write_one_clip(tmp_path_factory.mktemp("one-clip") / "dataset", ONE_CLIP_EPISODES)


@pytest.fixture
def simulator(tmp_path: Path) -> Iterator[Simulator]:
    """The command line in a folder of its own.

    A test that leaves a process behind fails, and so does one that leaves a run which is not as it
    must be: whatever was done to it, what its journals hold is verified.
    """
    simulator = Simulator(tmp_path)
    yield simulator
    left = simulator.wait_for_processes()
    simulator.kill_processes()
    assert not left, f"left behind: {left}"
    for run_file in tmp_path.glob("**/run.json"):
        proof = verify_run(run_file.parent)
        assert proof.offence is None, str(proof.offence)

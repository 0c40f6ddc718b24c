"""What a person sees of a run that goes wrong, while it goes wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.end_to_end.harness import Simulator

pytestmark = pytest.mark.slow


def test_failures_are_told_while_the_run_goes_on(simulator: Simulator, one_clip: Path) -> None:
    done = simulator.call(
        *("run", one_clip, "--out", "run", "--clock", "lockstep", "--limit", 4),
        *("--agent", "agents_for_tests:Faulty", "--agent-arg", "faults=task-raise,ok,begin-raise,task-raise"),
    )
    raised = r": RuntimeError: broken on purpose \(agents_for_tests\.py:\d+\)"
    expected = [
        rf"e00: the agent raised in answer{raised}; the run goes on",
        r"\[1/4\] e00: completed, 3 of 4 answered, 1 failed",
        r"\[2/4\] e01: completed, 4 of 4 answered",
        rf"e02: the agent raised in begin{raised}",
        r"\[3/4\] e02: agent_failed: the agent raised in begin, 0 of 4 answered, 4 not reached",
        r"\[4/4\] e03: completed, 3 of 4 answered, 1 failed",
    ]
    lines = done.err.splitlines()
    assert lines[0] == "run folder: run"
    for line, pattern in zip(lines[1:], expected, strict=True):
        assert re.fullmatch(pattern, line), (line, pattern)
    assert done.code == 1

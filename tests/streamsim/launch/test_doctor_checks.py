"""What doctor tries, and what it says where something is wrong."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from streamsim.episodes.codec import try_round_trip
from streamsim.errors import UsageError
from streamsim.launch import doctor


def test_this_machine_can_play(tmp_path: Path) -> None:
    checks = {check.name: check for check in doctor.run_checks(tmp_path)}
    assert {"streamsim", "packages", "models", "codecs", "gpu", "port", "disk", "clock"} <= set(checks)
    for name in ("streamsim", "packages", "codecs", "port", "disk"):
        assert checks[name].status == "good", checks[name]
    assert f"av {version('av')}" in checks["packages"].detail
    assert all(check.hint for check in checks.values() if check.status == "bad")


def test_a_round_trip_through_h264(tmp_path: Path) -> None:
    try_round_trip(tmp_path)
    assert (tmp_path / "round-trip.mp4").stat().st_size > 0


def test_a_folder_that_cannot_be_written_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = tmp_path / "absent"
    checks = {check.name: check for check in doctor.run_checks(absent)}
    assert checks["disk"].status == "bad"
    assert checks["disk"].detail == f"cannot write in {str(absent)!r}: no such file or directory"
    assert "--out" in checks["disk"].hint
    monkeypatch.setattr(doctor, "MIN_FREE_BYTES", 1 << 60)
    full = {check.name: check for check in doctor.run_checks(tmp_path)}
    assert full["disk"].status == "bad" and "free some space" in full["disk"].hint


@pytest.mark.slow
def test_agents_are_listed_with_their_arguments() -> None:
    agents = {agent["name"]: agent for agent in doctor.list_agents()}
    assert {"null", "fixed-delay", "random", "abstain"} <= set(agents)
    assert agents["fixed-delay"]["arguments"][0] == {
        "name": "frame",
        "type": "float",
        "default": "0",
        "meaning": "seconds of work for each frame",
    }
    assert agents["null"]["problem"] is None


@pytest.mark.slow
def test_another_interpreter_is_asked(tmp_path: Path) -> None:
    assert doctor.list_agents(sys.executable) == doctor.list_agents()
    with pytest.raises(UsageError, match=r"cannot run .*nowhere.*--agent-python"):
        doctor.list_agents(str(tmp_path / "nowhere"))
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\necho 'no room' >&2\nexit 1\n")
    bare.chmod(0o755)
    with pytest.raises(UsageError, match=r"cannot list agents: it ended with exit code 1; .* 'no room'"):
        doctor.list_agents(str(bare))

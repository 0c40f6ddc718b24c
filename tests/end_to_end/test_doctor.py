"""``streamsim doctor`` as a user calls it."""

from __future__ import annotations

import pytest

from tests.end_to_end.harness import Simulator

pytestmark = pytest.mark.slow


def test_timing_tells_the_floor(simulator: Simulator) -> None:
    done = simulator.call("doctor", "--timing", "--timing-seconds", 1, "--json")
    report = done.report
    bad = [check for check in report["checks"] if check["status"] == "bad"]
    assert done.code == (1 if bad else 0)
    assert list(report["timing"]) == ["null", "fixed-delay"]
    for figures in report["timing"].values():
        assert figures["overhead"]["n"] == figures["service"]["n"] == 10  # every 90 ms before 0.9 s
        assert 0 < figures["transport"]["p50"] <= figures["overhead"]["p50"]
        assert figures["due_to_sent"]["n"] == 20  # ten frames as well
        assert figures["due_to_sent"]["max"] >= figures["due_to_sent"]["p50"] >= 0
        assert figures["overhead"]["origin"].startswith("sent to final")
    assert report["timing"]["fixed-delay"]["service"]["p50"] >= 0.02


def test_for_people_there_are_lines(simulator: Simulator) -> None:
    checks, refused, alone = simulator.call_together(
        ("doctor",), ("doctor", "--timing-seconds", 0), ("doctor", "--agent-python", "python")
    )
    assert "good  port: loopback connections work\n" in checks.out
    assert "fixed-delay" not in checks.out
    assert (refused.code, alone.code) == (2, 2)
    assert "--agent-python: expected --agents with it" in alone.err


def test_agents_are_listed_alone_with_what_their_arguments_mean(simulator: Simulator) -> None:
    lines, in_json = simulator.call_together(("doctor", "--agents"), ("doctor", "--agents", "--json"))
    assert lines.code == 0
    assert lines.out.startswith("null: ")  # no checks before it
    assert "  frame (float, default 0): seconds of work for each frame\n" in lines.out
    assert list(in_json.report) == ["agents"]
    assert {"null", "fixed-delay"} <= {agent["name"] for agent in in_json.report["agents"]}

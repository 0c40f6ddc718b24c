"""``streamsim doctor`` as a user calls it."""

from __future__ import annotations

import pytest

from tests.end_to_end.harness import Simulator

pytestmark = pytest.mark.slow


def test_timing_tells_the_floor(simulator: Simulator) -> None:
    done = simulator.call("doctor", "--timing", "--timing-seconds", 1, "--agents", "--json")
    report = done.report
    bad = [check for check in report["checks"] if check["status"] == "bad"]
    assert done.code == (1 if bad else 0)
    assert {"null", "fixed-delay"} <= {agent["name"] for agent in report["agents"]}
    assert list(report["timing"]) == ["null", "fixed-delay"]
    for figures in report["timing"].values():
        assert figures["overhead"]["n"] == figures["service"]["n"] == 10  # every 90 ms before 0.9 s
        assert 0 < figures["transport"]["p50"] <= figures["overhead"]["p50"]
        assert figures["due_to_sent"]["n"] == 20  # ten frames as well
        assert figures["due_to_sent"]["max"] >= figures["due_to_sent"]["p50"] >= 0
        assert figures["overhead"]["origin"].startswith("sent to final")
    assert report["timing"]["fixed-delay"]["service"]["p50"] >= 0.02


def test_for_people_there_are_lines(simulator: Simulator) -> None:
    done = simulator.call("doctor", "--agents")
    assert "good  port: loopback connections work\n" in done.out
    assert "  fixed-delay: " in done.out
    assert "    frame (float): default 0\n" in done.out
    assert simulator.call("doctor", "--timing-seconds", 0).code == 2

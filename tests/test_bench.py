"""Benchmarks at small sizes: that they run and that both sides agree, never how fast they are."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[1] / "bench.py"


def test_bootstrap_agrees_with_the_plain_loop(capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(BENCH))["main"]
    sizes = ["--items", "400", "--episodes", "25", "--replicates", "30", "--loop-replicates", "30"]
    assert main(["bootstrap", *sizes, "--rounds", "1", "--target", "0", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["met"]
    assert report["figures"]["largest_difference"] <= 1e-12


@pytest.mark.slow
def test_kill_loses_nothing_and_resumes(capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(BENCH))["main"]
    assert main(["kill", "--moments", "2", "--references", "1", "--seconds", "6", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)["figures"]
    assert (figures["kills"], figures["good"], figures["faults"]) == (2, 2, [])


@pytest.mark.slow
def test_stall_counts_the_same_releases_in_both_halves(capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(BENCH))["main"]
    sizes = ["--sessions", "3", "--stall", "0.6", "--lead", "0.6", "--rounds", "1", "--kinds", "blocked"]
    main(["stall", *sizes, "--json"])  # whether it was fast enough is not for a test to say
    figures = json.loads(capsys.readouterr().out)["figures"]["blocked"]
    assert figures["n"] == 3 * 10 * 0.6
    assert len(figures["quiet_p99_ms"]) == len(figures["stalled_p99_ms"]) == 1
    (left_s,) = figures["left_s"]
    (from_due_s,) = figures["waits_from_due_s"]
    assert from_due_s > left_s - 0.1  # a stall can only last longer than it was told to


@pytest.mark.slow
def test_frames_shows_the_same_pictures_in_all_ways(capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(BENCH))["main"]
    sizes = ["--rate", "50", "--seconds", "0.2", "--warm-up", "0.2", "--rounds", "1", "--target", "1000"]
    sizes += ["--parts", "cpu", "queries", "--episode", "6", "--queries", "3"]
    assert main(["frames", *sizes, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)["figures"]
    assert figures["queries_agree"]
    assert figures["queries_shown"] == [2, 4, 6]  # asked at 1.5, 3.5 and 5.5 s, one picture a second
    assert list(figures["cpu_ratios"]) == ["bare", "codec", "acks", "journal", "server"]
    assert min(us for rounds in figures["cpu_rounds"].values() for pair in rounds for us in pair) > 0

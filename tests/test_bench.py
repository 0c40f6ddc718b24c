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

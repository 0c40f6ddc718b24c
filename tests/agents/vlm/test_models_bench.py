"""The benchmark of models at a tiny size: that it runs and adds up, never how fast it is."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="needs torch and transformers: pip install 'streamsim[vlm]'")

from streamsim_agents.vlm import shape
from streamsim_agents.vlm.bench import main

SMALL = ["--size", "56x56", "--rounds", "1", "--memory-frames", "16", "--no-targets"]


@pytest.mark.slow
def test_both_ways_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--frames", "3,8", "--realtime", "1", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)["figures"]
    assert [row["frames"] for row in figures["first_token"]] == [3, 8]
    assert all(row["agreement"] == 1.0 for row in figures["first_token"])
    # two pairs of four tokens more; keys and values of 2 layers, 2 heads of 16, in float32; and what
    # stands between them: nothing, in this architecture
    grown = figures["first_token"][1]["cache_bytes"] - figures["first_token"][0]["cache_bytes"]
    assert grown == 2 * 4 * (2 * 2 * 2 * 16 * 4)
    memories = {row["memory"]: row for row in figures["memories"]}
    assert memories["recent,frames=4"]["bytes_after_an_hour"] == memories["recent,frames=4"]["bytes"]
    assert memories["all"]["bytes_after_an_hour"] > memories["all"]["bytes"]
    assert figures["realtime"]["frames"] == 1
    assert figures["model"]["architecture"] == "qwen2_5_vl"


@pytest.mark.slow
def test_bfloat16_reports_how_often_it_agrees(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "--shape",
        "qwen3_5",
        "--dtype",
        "bfloat16",
        "--frames",
        "4",
        "--memories",
        "kv_retrieval;recent",
    ]
    assert main([*SMALL, *arguments]) == 0
    text = capsys.readouterr().out
    assert "bfloat16 on cpu" in text
    assert "kv_retrieval doesn't fit 'qwen3_5'" in text


@pytest.mark.slow
def test_the_prepared_gpu_run_at_a_tiny_size(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command of the module's first lines, with the large shape made small and on a CPU."""
    small = replace(
        shape.QWEN2_5_VL_7B, hidden=256, layers=2, heads=4, kv_heads=2, inner=512, vision=64, vision_layers=2,
        vision_heads=2, vision_inner=128, vocabulary=1000,
    )  # fmt: skip
    monkeypatch.setattr(shape, "QWEN2_5_VL_7B", small)
    arguments = ["--shape", "qwen2_5_vl_7b", "--device", "cpu", "--dtype", "bfloat16", "--realtime", "1"]
    assert main([*arguments, *SMALL, "--frames", "4,9", "--size", "112x112", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)["figures"]
    assert figures["model"]["dtype"] == "bfloat16"
    assert {"flat", "probes", "realtime"} <= figures["targets"].keys()


def test_its_help_needs_no_torch() -> None:
    code = "import sys, streamsim_agents.vlm.bench; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

"""Time for people, from runs whose durations are known."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from streamsim.report.latency_table import print_time
from streamsim.report.run_summary import summarise_run
from streamsim.simulation import SimulatedAgent, say
from streamsim.testing import seconds, tiny_query, tiny_simulation

ROOT = Path(__file__).parents[3]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.streamsim.journal.simulated_run import write_run  # noqa: E402

MS = 1_000_000


def show(
    folder: Path, *, answer_ms: int = 200, deadlines_s: tuple[float, ...] = (1.0,), **options: Any
) -> str:
    """What is printed for a run of 12 queries, one a second from 0.5 s, a frame each second before them."""
    agent = SimulatedAgent(observe=lambda k: 10 * MS, answer=lambda probe: say("A", answer_ms * MS))
    queries = [tiny_query(f"q{number}", number + 0.5) for number in range(12)]
    simulation = tiny_simulation(
        queries, agent, samples=13, chain="task", to_agent_ns=MS, to_server_ns=2 * MS, **options
    ).run()
    write_run(folder / "run", simulation, len(queries))
    output = io.StringIO()
    print_time(summarise_run(folder / "run", deadlines_s=deadlines_s), Console(file=output, width=100))
    return output.getvalue()


def row(text: str, *begin: str) -> list[str]:
    """The cells behind ``begin``."""
    cells = next(line.split() for line in text.splitlines() if tuple(line.split()[: len(begin)]) == begin)
    return cells[len(begin) :]


def test_harness_first_then_due_then_parts(tmp_path: Path) -> None:
    text = show(tmp_path)
    lines = text.splitlines()
    assert lines[0] == "verdict: VALID"
    assert lines[1].startswith(
        "harness: 25 releases, 0 late; lateness p50 0.0 ms, max 0.0 ms; way to the agent"
    )
    assert "p50 3.0 ms, max 3.0 ms" in lines[1]
    assert "its share of an answer's time: 1.5% (median)" in lines[2]  # 3 of 203 ms
    assert lines[3].startswith("agent: real-time factor 0.195")  # 13 × 0.01 + 12 × 0.2 of 13 s
    assert row(text, "task", "due", "→", "final") == ["12", "0", "0.203", "0.203"]
    assert row(text, "task", "due", "→", "first") == ["12", "0", "0.203", "0.203"]
    dispatch, transport, waited, service, stale, backlog, missed = lines[-2].split()[1:]
    assert (dispatch, transport, waited, service) == ("0.000", "0.003", "0.000", "0.200")
    assert (stale, backlog, missed) == ("0.703", "0", "0")
    assert lines[-1] == "task: n too small for p90, p95, p99 (needs 64, 130, 662)"


def test_timeouts_are_lower_bounds(tmp_path: Path) -> None:
    text = show(tmp_path, answer_ms=1_500, answer_timeout_ns=seconds(1), deadlines_s=(0.5, 2.0))
    assert row(text, "task", "due", "→", "final") == ["12", "12", "≥1.000", "≥1.000"]
    assert "later than 0.5/2 s" in text
    assert "12/12" in text


def test_latency_is_withheld_with_its_reason(tmp_path: Path) -> None:
    text = show(tmp_path, clock="lockstep")
    assert text.splitlines()[-1].startswith("latency withheld: in lockstep media time stands")


def test_reasons_and_hints_are_lines(tmp_path: Path) -> None:
    text = show(tmp_path, decoded_ns=lambda k: 0 if k < 5 else seconds(k + 0.3))
    lines = text.splitlines()
    assert lines[0] == "verdict: INVALID"
    assert any(line.startswith("  8 of 25 releases more than 50 ms late (32.0%)") for line in lines)
    assert any(line.startswith("  hint: ") for line in lines)


@pytest.mark.parametrize("clock", ["realtime", "skip"])
def test_the_summary_has_the_fixed_keys(tmp_path: Path, clock: str) -> None:
    show(tmp_path, clock=clock)
    summary = summarise_run(tmp_path / "run")
    assert summary.outcomes["answered"] == 12 and summary.early_releases == 0
    assert summary.frames == {"sent": 13, "settled": 13, "skipped": 0, "failed": 0, "late": 0}
    task = summary.latency["task"]
    assert isinstance(task, dict)
    for key in ("due_to_first", "due_to_final", "sent_to_first", "sent_to_final"):
        assert {"p50", "max"} <= set(task[key])
    assert task["n"] == 12 and task["timed_out"] == 0
    assert len(summary.digest) == 64 and list(summary.digests) == ["episode.1.1.jsonl"]

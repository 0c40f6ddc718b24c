"""The agents of the benchmarks keep the contract, and do what their names say."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamsim_agents.testing import check_agent, draw_frame, make_session
from streamsim_agents.workload import Blocked, Looker, Witness


@pytest.mark.parametrize("make", [Looker, Witness, lambda: Blocked(at=1.0, seconds=0.0)])
def test_contract(make: type[Looker]) -> None:
    check_agent(make)


def test_witness_saves_what_it_saw(tmp_path: Path) -> None:
    witness = Witness()
    frames = [draw_frame(k) for k in range(3)]
    for session in range(2):  # what the first showed is not in the second's memory
        witness.begin(make_session())
        for frame in frames[session:]:
            witness.observe(frame)
    witness.save(tmp_path)
    saved = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert saved == {
        "00001-1000000000-64x48.jpg": frames[1].data,
        "00002-2000000000-64x48.jpg": frames[2].data,
    }


def test_blocked_stands_still_once_in_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    stood: list[tuple[int, float]] = []
    agent = Blocked(at=2.0, seconds=7.5)
    k = -1
    monkeypatch.setattr("streamsim_agents.workload.time.sleep", lambda seconds: stood.append((k, seconds)))
    for _ in range(2):
        agent.begin(make_session())
        for k in range(5):
            agent.observe(draw_frame(k))
    assert stood == [(2, 7.5), (2, 7.5)]

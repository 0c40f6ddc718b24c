"""examples/custom_agent.py: found as its first lines say, short, and right."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamsim_agents.agent import Agent, Query, Turn
from streamsim_agents.registry import make_agent
from streamsim_agents.testing import check_agent, draw_frame, make_session

ROOT = Path(__file__).parents[2]


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Agent:
    monkeypatch.syspath_prepend(str(ROOT))
    return make_agent("examples.custom_agent:ChangeCounter", {"threshold": "30"})


def test_it_is_short() -> None:
    assert len((ROOT / "examples/custom_agent.py").read_text(encoding="utf-8").splitlines()) < 60


def test_it_keeps_the_contract(counter: Agent) -> None:
    report = check_agent(counter)
    assert "save and load" in report.checked


def test_it_counts_scene_changes(counter: Agent) -> None:
    counter.begin(make_session())
    for k, level in enumerate((20, 20, 200, 200, 20, 20)):
        counter.observe(draw_frame(k, background=(level, level, level)))
    options = ("Once", "1 time", "2 times", "3 times")
    query = Query(id="q1", kind="choice", probe="task", text="", stem="", options=options, media_ns=0)
    assert list(counter.answer(query, Turn(1, media_ns=0, seen_media_ns=0))) == ["C"]
    assert counter.stats()["memory_items"] == 2

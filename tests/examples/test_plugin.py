"""examples/plugin: an installed package whose agent is found by its entry point."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from streamsim_agents.agent import Query, Turn
from streamsim_agents.registry import list_agents, make_agent
from streamsim_agents.testing import check_agent, draw_frame, make_session

PLUGIN = Path(__file__).parents[2] / "examples" / "plugin"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What an installer leaves of the plug-in: its module on the path, its metadata beside it."""
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    lines = [
        line
        for group, points in project["entry-points"].items()
        for line in [f"[{group}]", *(f"{name} = {target}" for name, target in points.items())]
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(PLUGIN))


@pytest.mark.usefixtures("installed")
def test_it_is_found_by_name() -> None:
    listing = {agent.name: agent for agent in list_agents()}["brightness"]
    assert listing.problem is None
    assert listing.target == "streamsim_brightness:Brightness"
    assert [argument.name for argument in listing.arguments] == ["limit"]


@pytest.mark.usefixtures("installed")
def test_it_keeps_the_contract_and_sees() -> None:
    check_agent(lambda: make_agent("brightness", {}))
    agent = make_agent("brightness", {"limit": "100"})
    agent.begin(make_session())
    options = ("it is dark", "it is light")
    query = Query(id="q1", kind="choice", probe="task", text="", stem="", options=options, media_ns=0)
    for level, letter in ((30, "A"), (220, "B")):
        agent.observe(draw_frame(0, background=(level, level, level), colour=(level, level, level)))
        assert list(agent.answer(query, Turn(1, media_ns=0, seen_media_ns=0))) == [letter]

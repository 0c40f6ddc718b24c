"""What agents/README.md promises: its agent works as it stands there, and its tables are true."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from streamsim_agents.agent import Agent, Query, Turn
from streamsim_agents.registry import BUILT_IN, find_agent
from streamsim_agents.testing import check_agent, draw_frame, make_session

README = Path(__file__).parents[2] / "agents" / "README.md"


@pytest.fixture
def colour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Agent]:
    """The first Python block of the README, as a module, found as --agent finds it."""
    block = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S)
    assert block is not None
    assert len(block[1].splitlines()) <= 20
    (tmp_path / "my_agent.py").write_text(block[1], encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_agent", raising=False)
    return find_agent("my_agent:Colour")


def test_the_agent_in_twenty_lines_keeps_the_contract(colour: type[Agent]) -> None:
    check_agent(colour)


@pytest.mark.parametrize(
    ("rgb", "letter"),
    [((210, 30, 50), "B"), ((30, 150, 70), "D"), ((35, 70, 190), "A"), ((120, 130, 125), "C")],
)
def test_the_agent_in_twenty_lines_sees_colours(
    colour: type[Agent], rgb: tuple[int, int, int], letter: str
) -> None:
    agent = colour()
    agent.begin(make_session())
    options = ("Blue", "A red one", "Grey", "Green")
    query = Query(id="q1", kind="choice", probe="task", text="", stem="", options=options, media_ns=0)
    agent.observe(draw_frame(0, colour=rgb, background=rgb))
    assert list(agent.answer(query, Turn(1, media_ns=0, seen_media_ns=0))) == [letter]


def test_every_agent_that_ships_is_in_the_table() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|", README.read_text(encoding="utf-8"), re.M)
    assert rows == list(BUILT_IN)


def test_every_method_of_an_agent_is_in_the_table() -> None:
    text = README.read_text(encoding="utf-8")
    methods = [
        name
        for name, value in vars(Agent).items()
        if not name.startswith("_") and callable(getattr(Agent, name))
    ]
    assert len(methods) >= 8
    for name in methods:
        assert re.search(rf"^\|.*`{name}\(", text, re.M), name

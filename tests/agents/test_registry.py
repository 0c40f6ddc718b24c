"""Agents by name, and their arguments from the command line."""

from __future__ import annotations

import importlib.metadata
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from streamsim_agents import registry
from streamsim_agents.agent import Agent, Frame, Query, Turn
from streamsim_agents.argument import Argument, convert_arguments, list_arguments, read_meanings
from streamsim_agents.memory.registry import MEMORIES
from streamsim_agents.registry import (
    BUILT_IN,
    AgentArgumentError,
    find_agent,
    list_agents,
    main,
    make_agent,
    parse_arguments,
)
from streamsim_agents.scripted import FixedDelay, Null, Random

CUSTOM = '''
from streamsim_agents.agent import Agent

print("a module that talks")

class Mine(Agent):
    """Says what it was told. And more."""
    frames = "latest"
    def __init__(self, *, word: str, times: int = 2):
        self.word = word
    def observe(self, frame): pass
    def answer(self, query, turn): yield self.word

class NotOne: pass

def dumps(): pass

class Half(Agent):
    def observe(self, frame): pass

class Empty(Agent): pass
'''


class Many(Agent):
    """Takes one argument of every kind."""

    def __init__(  # type: ignore[no-untyped-def]
        self,
        *,
        name: str = "x",
        count: int = 1,
        share: float = 0.5,
        quiet: bool = False,
        folder: Path | None = None,
        limit: int | None = 3,
        size: Literal["small", "large"] = "small",
        plain=7,
        bare="y",
    ) -> None:
        self.given: tuple[object, ...] = (name, count, share, quiet, folder, limit, size, plain, bare)

    def observe(self, frame: Frame) -> None: ...

    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        yield "A"


class Awkward(Many):
    def __init__(self, *, must: int, items: list[int] | None = None, **others: str) -> None:
        self.given = ()


@pytest.fixture
def custom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_agents.py").write_text(CUSTOM)
    (tmp_path / "broken_agents.py").write_text("raise OSError('no disk')\n")
    (tmp_path / "needy_agents.py").write_text("import no_such_library_at_all\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("my_agents", "broken_agents", "needy_agents"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_built_in_agents_go_by_their_names() -> None:
    assert find_agent("null") is Null
    assert find_agent("fixed-delay") is FixedDelay
    assert find_agent("random") is Random
    assert {"null", "fixed-delay", "random", "abstain", "sightings", "openai", "vlm"} == set(BUILT_IN)


def test_ones_own_agent_goes_by_module_and_class(custom: Path) -> None:
    found = find_agent("my_agents:Mine")
    assert found.__name__ == "Mine"
    assert found.frames == "latest"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nul", "no agent 'nul': did you mean 'null'?"),
        ("xyzzy", "no agent 'xyzzy': known are null, fixed-delay, random, abstain"),
        ("no_such_module_at_all:Mine", "no module 'no_such_module_at_all' on Python's path (started in "),
        ("my_agents.inner:Mine", "no module 'my_agents.inner' on Python's path"),
        ("my_agents:Yours", "module 'my_agents' has no 'Yours'; agents there: Mine"),
        (
            "my_agents:NotOne",
            "expected a class derived from streamsim_agents.Agent, got <class 'my_agents.NotOne'>",
        ),
        ("my_agents:dumps", "expected a class derived from streamsim_agents.Agent, got 'dumps', a function"),
        (
            "my_agents:Half",
            "class 'Half' has no answer of its own: an agent must write observe and answer",
        ),
        ("my_agents:Empty", "class 'Empty' has no observe and no answer of its own: an agent must write"),
        ("my_agents:", "expected package.module:Class"),
        ("broken_agents:Mine", "importing 'broken_agents' failed with OSError: no disk"),
        ("needy_agents:Mine", "importing 'needy_agents' failed: No module named 'no_such_library_at_all'"),
    ],
)
def test_an_agent_that_is_not_there_is_told_so(custom: Path, name: str, message: str) -> None:
    with pytest.raises(AgentArgumentError) as caught:
        find_agent(name)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow  # imports every agent
def test_installed_agents_are_found_by_their_entry_point(
    custom: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = custom / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[streamsim.agents]\nmine = my_agents:Mine\nnull = my_agents:Mine\n"
    )
    importlib.metadata.MetadataPathFinder().invalidate_caches()
    assert find_agent("mine").__name__ == "Mine"
    assert find_agent("null") is Null  # a built-in name is not taken over
    assert "mine" in {listing.name for listing in list_agents()}


def test_arguments_are_converted_by_their_annotations() -> None:
    texts = {
        "name": "3",
        "count": "-4",
        "share": "1e-3",
        "quiet": "yes",
        "folder": "/a/b",
        "limit": "none",
        "size": "large",
        "plain": "8",
        "bare": "none",
    }
    agent = Many(**convert_arguments("many", Many, texts))
    assert agent.given == ("3", -4, 0.001, True, Path("/a/b"), None, "large", 8, "none")


def test_what_is_not_given_keeps_its_default() -> None:
    assert convert_arguments("many", Many, {}) == {}
    assert convert_arguments("many", Many, {"limit": "9"}) == {"limit": 9}
    assert convert_arguments("many", Many, {"quiet": "False"}) == {"quiet": False}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"nme": "x"},
            "agent 'many' has no argument 'nme': did you mean 'name'? its arguments are: name, count, share",
        ),
        ({"zzz": "x"}, "agent 'many' has no argument 'zzz': its arguments are: name, count, share"),
        ({"count": "2.5"}, "argument 'count': expected int, got '2.5'"),
        ({"share": "a lot"}, "argument 'share': expected float, got 'a lot'"),
        ({"share": "nan"}, "argument 'share': expected float, got 'nan'"),
        ({"quiet": "maybe"}, "argument 'quiet': expected bool, got 'maybe'"),
        ({"limit": "x"}, "argument 'limit': expected int or none, got 'x'"),
        ({"size": "huge"}, "argument 'size': expected small or large, got 'huge'"),
    ],
)
def test_an_argument_that_does_not_fit_says_what_would(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(AgentArgumentError) as caught:
        convert_arguments("many", Many, arguments)
    assert message in str(caught.value)


def test_an_argument_that_must_be_given_is_asked_for() -> None:
    with pytest.raises(AgentArgumentError, match="agent 'awkward' needs --agent-arg must=…"):
        convert_arguments("awkward", Awkward, {})
    with pytest.raises(
        AgentArgumentError, match=r"argument 'items' of type list\[int\] or none cannot be given"
    ):
        convert_arguments("awkward", Awkward, {"must": "1", "items": "1,2"})


def test_the_agent_itself_may_refuse_a_value() -> None:
    with pytest.raises(AgentArgumentError, match="agent 'fixed-delay': frame: expected 0 or more, got -1"):
        make_agent("fixed-delay", {"frame": "-1"})


def test_an_agent_is_made_with_its_arguments(custom: Path) -> None:
    agent = make_agent("my_agents:Mine", {"word": "B"})
    query = Query(id="q1", kind="choice", probe="task", text="", stem="", options=(), media_ns=0)
    assert list(agent.answer(query, Turn(1, media_ns=0, seen_media_ns=None))) == ["B"]


def test_pairs_are_parsed() -> None:
    assert parse_arguments(["a=1", "b-c=x=y", "d="]) == {"a": "1", "b_c": "x=y", "d": ""}
    for bad, message in (
        (["a"], "expected key=value, got 'a'"),
        (["=1"], "expected key=value"),
        (["a=1", "a=2"], "'a' was given twice"),
    ):
        with pytest.raises(AgentArgumentError, match=message):
            parse_arguments(bad)


def test_arguments_are_listed_as_a_user_would_write_them() -> None:
    assert list_arguments(FixedDelay)[0] == Argument(
        name="frame", type="float", default="0", meaning="seconds of work for each frame"
    )
    assert {argument.name: (argument.type, argument.default) for argument in list_arguments(Many)} == {
        "name": ("str", "x"),
        "count": ("int", "1"),
        "share": ("float", "0.5"),
        "quiet": ("bool", "false"),
        "folder": ("Path or none", "none"),
        "limit": ("int or none", "3"),
        "size": ("small or large", "small"),
        "plain": ("int", "7"),
        "bare": ("str", "y"),
    }
    assert [(argument.name, argument.default) for argument in list_arguments(Awkward)] == [
        ("must", None),
        ("items", "none"),
    ]
    assert list_arguments(Null) == ()


def test_meanings_come_from_the_docstring() -> None:
    docstring = """Says things.

    A word: not in the section.

    Args:
        word: what it says
            again and again
        times (int): how often

        a line that is none
            and goes on
        quiet:  whether it is heard
    Returns:
        nothing: of this
    """
    assert read_meanings(inspect.cleandoc(docstring)) == {
        "word": "what it says again and again",
        "times": "how often",
        "quiet": "whether it is heard",
    }
    assert read_meanings("word: no section") == read_meanings("") == {}


class Told(Many):
    """Has its meanings in two places.

    Arguments:
        name: of the class
        count: how many
    """

    def __init__(self, *, name: str, count: int = 1, share: float = 0.0) -> None:
        """Make it.

        Arguments:
            name: of the object
        """
        self.given = ()


def test_meanings_of_the_init_go_before_those_of_the_class() -> None:
    assert [argument.meaning for argument in list_arguments(Told)] == ["of the object", "how many", ""]


@pytest.mark.slow  # imports every agent
def test_every_argument_of_an_agent_that_ships_has_a_meaning() -> None:
    code = (
        "import sys; from streamsim_agents.registry import main\n"
        "main(['--list'])\nprint('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    listed, has_torch = result.stdout.splitlines()
    arguments = {
        (agent["name"], argument["name"]): argument["meaning"]
        for agent in json.loads(listed)
        for argument in agent["arguments"]
    }
    assert ("vlm", "memory") in arguments and all(arguments.values()), arguments
    for name in MEMORIES:
        assert name in arguments["vlm", "memory"]
    assert has_torch == "False"


@pytest.mark.slow  # imports every agent
def test_all_agents_are_listed_with_a_line_each() -> None:
    listings = {listing.name: listing for listing in list_agents()}
    assert set(BUILT_IN) <= set(listings)
    assert listings["null"].summary == "Does nothing and says A at once: the harness's own floor."
    for listing in listings.values():
        assert listing.problem or listing.summary.endswith("."), listing.name


def test_an_agent_that_cannot_be_imported_is_listed_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "BUILT_IN", {"lost": "no_such_module_at_all:Lost"})
    listing = list_agents()[0]
    assert listing.problem is not None
    assert "no module 'no_such_module_at_all'" in listing.problem


class Vague(Many):
    def __init__(self, *, thing: NoSuchType) -> None:  # type: ignore[name-defined]  # noqa: F821
        self.given = ()


def test_an_argument_of_an_unknown_type_is_told() -> None:
    with pytest.raises(
        AgentArgumentError, match="'Vague': the types of its arguments cannot be looked up: name"
    ):
        list_arguments(Vague)


def test_check_answers_in_json(custom: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", "my_agents:Mine", "--agent-arg", "word=B"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"name": "my_agents:Mine", "frames": "latest"}
    assert captured.err == "a module that talks\n"


@pytest.mark.parametrize(
    "arguments", [["--check", "nul"], ["--check", "null", "--arg", "x=1"], ["--check", "null", "--arg", "x"]]
)
def test_check_says_no_in_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("streamsim agent: ")
    assert captured.err.count("\n") == 1


def test_checking_a_scripted_agent_imports_nothing_heavy() -> None:
    heavy = ("numpy", "torch", "aiohttp", "PIL", "websockets", "av")
    code = (
        "import sys; from streamsim_agents.registry import main\n"
        "main(['--check', 'fixed-delay', '--arg', 'frame=1'])\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert result.stdout.splitlines() == ['{"name": "fixed-delay", "frames": "all"}', "[]"]

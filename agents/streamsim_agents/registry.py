"""Agents by name: built in, ``package.module:Class``, or an installed entry point.

An agent's module is imported only when it is asked for, so the heavy ones cost nothing until then.
``python -m streamsim_agents.registry --check NAME`` lets a server find a mistyped agent before a run
starts, without importing agents itself; ``--list`` lists what is there.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import inspect
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import cast

from streamsim_agents.agent import Agent
from streamsim_agents.argument import AgentArgumentError as AgentArgumentError
from streamsim_agents.argument import Argument, convert_arguments, list_arguments
from streamsim_agents.argument import parse_arguments as parse_arguments
from streamsim_protocol.terminal import for_terminal

ENTRY_POINT_GROUP = "streamsim.agents"
BUILT_IN: Mapping[str, str] = {
    "null": "streamsim_agents.scripted:Null",
    "fixed-delay": "streamsim_agents.scripted:FixedDelay",
    "random": "streamsim_agents.scripted:Random",
    "abstain": "streamsim_agents.scripted:Abstain",
    "sightings": "streamsim_agents.sightings:Sightings",
    "openai": "streamsim_agents.openai_api:OpenAI",
    "vlm": "streamsim_agents.vlm.agent:VLM",
}
"""Where each built-in agent lives; these names win over entry points."""
MUST_WRITE = ("observe", "answer")
"""Methods without which nothing is an agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentListing:
    """What a list of agents says of one. ``problem`` is why it cannot be used here; None if it can."""

    name: str
    target: str
    summary: str
    arguments: tuple[Argument, ...]
    problem: str | None


def find_agent(name: str) -> type[Agent]:
    """The class behind ``name``: a built-in name, ``package.module:Class`` or an entry point.

    ``AgentArgumentError`` if there is none, if its module cannot be imported, or if it is no agent.
    """
    target = BUILT_IN.get(name)
    if target is None and ":" in name:
        target = name
    if target is not None:
        return _load(name, target)
    for entry_point in _entry_points():
        if entry_point.name == name:
            return _load(name, entry_point.value)
    known = [*BUILT_IN, *(entry_point.name for entry_point in _entry_points())]
    near = difflib.get_close_matches(name, known, n=3)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"known are {', '.join(known)}"
    raise AgentArgumentError(f"no agent {name!r}: {hint} (your own is package.module:Class)")


def make_agent(name: str, arguments: Mapping[str, str]) -> Agent:
    """Make the agent ``name`` with ``arguments`` as the command line gives them.

    ``AgentArgumentError`` as in ``find_agent``, and for arguments that it does not take. What the
    agent's own ``__init__`` raises passes through.
    """
    agent_class = find_agent(name)
    return agent_class(**convert_arguments(name, agent_class, arguments))


def list_agents() -> list[AgentListing]:
    """All built-in and installed agents, those that cannot be used here with the reason."""
    targets = dict(BUILT_IN)
    for entry_point in _entry_points():
        targets.setdefault(entry_point.name, entry_point.value)
    return [_describe(name, target) for name, target in targets.items()]


def _entry_points() -> Iterator[EntryPoint]:
    return iter(sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry_point: entry_point.name))


def _load(name: str, target: str) -> type[Agent]:
    module_name, _, class_name = target.partition(":")
    if not module_name or not class_name:
        raise AgentArgumentError(f"agent {name!r}: expected package.module:Class")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise AgentArgumentError(f"agent {name!r}: {_import_problem(name, module_name, error)}") from error
    except (Exception, SystemExit) as error:  # a module is the user's own code: it may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise AgentArgumentError(f"agent {name!r}: importing {module_name!r} failed with {reason}") from error
    found = getattr(module, class_name, None)
    if found is None:
        there = [
            key for key, value in vars(module).items() if _is_agent(value) and value.__module__ == module_name
        ]
        hint = f"agents there: {', '.join(there)}" if there else "there is no agent in it"
        raise AgentArgumentError(f"agent {name!r}: module {module_name!r} has no {class_name!r}; {hint}")
    if not _is_agent(found):
        kind = repr(found) if isinstance(found, type) else f"{class_name!r}, a {type(found).__name__}"
        raise AgentArgumentError(
            f"agent {name!r}: expected a class derived from streamsim_agents.Agent, got {kind}"
        )
    agent_class = cast(type[Agent], found)
    lacking = [method for method in MUST_WRITE if getattr(agent_class, method) is getattr(Agent, method)]
    if lacking:
        raise AgentArgumentError(
            f"agent {name!r}: class {class_name!r} has no {' and no '.join(lacking)} of its own: "
            f"an agent must write {' and '.join(MUST_WRITE)}"
        )
    return agent_class


def _is_agent(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Agent) and value is not Agent


def _import_problem(name: str, module_name: str, error: ImportError) -> str:
    missing = error.name or ""
    if isinstance(error, ModuleNotFoundError) and (
        module_name == missing or module_name.startswith(missing + ".")
    ):
        return f"no module {missing!r} on Python's path (started in {_here()})"
    if BUILT_IN.get(name, "").startswith("streamsim_agents.vlm") and missing:
        return f"it needs {missing!r}: install streamsim with its extra, pip install 'streamsim[vlm]'"
    return f"importing {module_name!r} failed: {error}"


def _here() -> str:
    try:
        return repr(str(Path.cwd()))
    except OSError:
        return "a folder that has been deleted"


def _describe(name: str, target: str) -> AgentListing:
    try:
        agent_class = find_agent(name)
        arguments = list_arguments(agent_class)
    except AgentArgumentError as error:
        return AgentListing(name=name, target=target, summary="", arguments=(), problem=str(error))
    return AgentListing(
        name=name,
        target=target,
        summary=(inspect.getdoc(agent_class) or "").partition("\n")[0],
        arguments=arguments,
        problem=None,
    )


# --------------------------------------------------------------------------------- as a program


def main(argv: Sequence[str] | None = None) -> int:
    """Check one agent or list all; JSON on stdout, exit code 2 with one line on stderr if it is no good."""
    parser = argparse.ArgumentParser(
        prog="python -m streamsim_agents.registry",
        description="Look an agent up without starting it.",
        epilog="example: python -m streamsim_agents.registry --check fixed-delay --agent-arg frame=0.2",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", metavar="NAME", help="find this agent and check its arguments")
    what.add_argument("--list", action="store_true", help="list all agents with their arguments")
    parser.add_argument("--agent-arg", "--arg", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args(argv)
    if args.list:
        with contextlib.redirect_stdout(sys.stderr):
            listings = list_agents()
        print(json.dumps([asdict(listing) for listing in listings]))
        return 0
    try:
        arguments = parse_arguments(args.agent_arg)
        with contextlib.redirect_stdout(sys.stderr):  # what an agent's module prints is not our answer
            agent_class = find_agent(args.check)
        convert_arguments(args.check, agent_class, arguments)
    except AgentArgumentError as error:
        print(f"streamsim agent: {for_terminal(str(error))}", file=sys.stderr)
        return 2
    print(json.dumps({"name": args.check, "frames": agent_class.frames}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

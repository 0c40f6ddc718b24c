"""Arguments of an agent: from ``key=value`` on the command line to keywords of its ``__init__``.

Types come from the annotations, and what an argument means from the docstring of the class or of its
``__init__``: a section ``Arguments:`` (or ``Args:``) with indented lines ``name: meaning``; lines that are
indented deeper go on. This module knows no names of agents.
"""

from __future__ import annotations

import difflib
import inspect
import math
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from streamsim_agents.agent import Agent


class AgentArgumentError(Exception):
    """No such agent, or it does not take these arguments; the text says which are there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of an agent. ``default`` is None where it must be given, else as a user would write it.

    ``meaning`` is what the docstring says of it in one line, empty where it says nothing.
    """

    name: str
    type: str
    default: str | None
    meaning: str = ""


def parse_arguments(pairs: Sequence[str]) -> dict[str, str]:
    """``key=value`` pairs as a dict; ``AgentArgumentError`` for what is no pair, or given twice."""
    arguments: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise AgentArgumentError(f"--agent-arg: expected key=value, got {pair!r}")
        key = key.strip().replace("-", "_")
        if key in arguments:
            raise AgentArgumentError(f"--agent-arg: {key!r} was given twice")
        arguments[key] = value
    return arguments


def convert_arguments(name: str, agent_class: type[Agent], arguments: Mapping[str, str]) -> dict[str, Any]:
    """``arguments`` converted by the annotations of the class's ``__init__``, and looked over by the class.

    Understood are str, int, float, bool, Path, ``Literal`` and unions of these with None ("none"); an
    argument without annotation goes by the type of its default, else stays a string.
    ``AgentArgumentError`` names the argument and says what is legal.
    """
    parameters = {
        parameter.name: (parameter, annotation) for parameter, annotation in _parameters(agent_class)
    }
    converted: dict[str, Any] = {}
    for key, text in arguments.items():
        if key not in parameters:
            legal = ", ".join(parameters) or "none"
            near = difflib.get_close_matches(key, parameters, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise AgentArgumentError(
                f"agent {name!r} has no argument {key!r}: {hint}its arguments are: {legal}"
            )
        annotation = parameters[key][1]
        try:
            converted[key] = _convert(text, annotation)
        except TypeError:
            problem = f"of type {_type_name(annotation)} cannot be given on the command line"
            raise AgentArgumentError(f"agent {name!r}: argument {key!r} {problem}") from None
        except ValueError:
            expected = f"expected {_type_name(annotation)}, got {text!r}"
            raise AgentArgumentError(f"agent {name!r}: argument {key!r}: {expected}") from None
    missing = [
        key
        for key, (parameter, _) in parameters.items()
        if parameter.default is parameter.empty and key not in converted
    ]
    if missing:
        wanted = " ".join(f"--agent-arg {key}=…" for key in missing)
        raise AgentArgumentError(f"agent {name!r} needs {wanted}")
    try:
        agent_class.check_arguments(**converted)
    except ValueError as error:
        raise AgentArgumentError(f"agent {name!r}: {error}") from error
    return converted


def list_arguments(agent_class: type[Agent]) -> tuple[Argument, ...]:
    """The arguments that the class's ``__init__`` takes by name, in its order."""
    meanings = {
        **read_meanings(inspect.getdoc(agent_class) or ""),
        **read_meanings(inspect.getdoc(agent_class.__init__) or ""),
    }
    return tuple(
        Argument(
            name=parameter.name,
            type=_type_name(annotation),
            default=None if parameter.default is parameter.empty else _written(parameter.default),
            meaning=meanings.get(parameter.name, ""),
        )
        for parameter, annotation in _parameters(agent_class)
    )


_SECTION = re.compile(r"Arg(?:ument)?s:\s*")
_MEANING = re.compile(r"(\w+)(?: \([^)]*\))?: +(\S.*)")


def read_meanings(docstring: str) -> dict[str, str]:
    """Meaning by argument, each on one line, of the section ``Arguments:`` of a cleaned docstring."""
    meanings: dict[str, str] = {}
    lines = iter(docstring.splitlines())
    if not any(_SECTION.fullmatch(line) for line in lines):
        return meanings
    width, name = 0, ""
    for line in lines:  # those after the section's head
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        if not text:
            continue
        if not indent:
            break
        width = width or indent
        if indent > width and name:
            meanings[name] += f" {text}"
        elif begun := _MEANING.fullmatch(text):
            name = begun[1]
            meanings[name] = begun[2]
        else:
            name = ""
    return meanings


def _parameters(agent_class: type[Agent]) -> list[tuple[inspect.Parameter, Any]]:
    """The arguments of ``__init__`` that have a name of their own, each with its type."""
    init = agent_class.__init__
    if init is object.__init__:
        return []
    try:
        hints = typing.get_type_hints(init)
    except NameError as error:
        raise AgentArgumentError(
            f"agent class {agent_class.__name__!r}: the types of its arguments cannot be looked up: {error}"
        ) from error
    found: list[tuple[inspect.Parameter, Any]] = []
    for parameter in list(inspect.signature(init).parameters.values())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            continue
        has_plain_default = isinstance(parameter.default, (bool, int, float))
        found.append(
            (parameter, hints.get(parameter.name, type(parameter.default) if has_plain_default else str))
        )
    return found


_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def _convert(text: str, annotation: Any) -> Any:
    """``text`` as ``annotation``; ``ValueError`` if it is none, ``TypeError`` if no text can be one."""
    if get_origin(annotation) in (Union, types.UnionType):
        return _convert_union(text, get_args(annotation))
    if get_origin(annotation) is Literal:
        for choice in get_args(annotation):
            if text == str(choice):
                return choice
        raise ValueError
    if annotation is bool:
        if text.lower() not in (*_TRUE, *_FALSE):
            raise ValueError
        return text.lower() in _TRUE
    if annotation is float:
        number = float(text)
        if not math.isfinite(number):
            raise ValueError
        return number
    if annotation in (int, str, Path):
        return annotation(text)
    raise TypeError


def _convert_union(text: str, members: Sequence[Any]) -> Any:
    if types.NoneType in members and text.lower() == "none":
        return None
    understood = False
    for member in sorted(members, key=lambda member: member is str):  # str takes what no other does
        if member is types.NoneType:
            continue
        try:
            return _convert(text, member)
        except ValueError:
            understood = True
        except TypeError:
            continue
    raise ValueError if understood else TypeError


def _type_name(annotation: Any) -> str:
    if get_origin(annotation) in (Union, types.UnionType):
        return " or ".join(_type_name(member) for member in get_args(annotation))
    if get_origin(annotation) is Literal:
        return " or ".join(str(choice) for choice in get_args(annotation))
    if annotation is types.NoneType:
        return "none"
    return (
        annotation.__name__
        if get_origin(annotation) is None and isinstance(annotation, type)
        else str(annotation)
    )


def _written(default: object) -> str:
    if default is None or isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, float) else str(default)

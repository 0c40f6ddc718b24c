"""Finding a memory by what the user wrote: ``uniform,budget=128`` or ``my_module:MyMemory,size=3``."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from streamsim_agents.memory.memory import Memory

MEMORIES = {
    "recent": "streamsim_agents.memory.recent:Recent",
    "uniform": "streamsim_agents.memory.uniform:Uniform",
    "long_short": "streamsim_agents.memory.long_short:LongShort",
    "kv_retrieval": "streamsim_agents.memory.kv_retrieval:KvRetrieval",
}


class MemoryChoiceError(ValueError):
    """No such memory, or no such setting of it; the text says what there is."""


def make_memory(choice: str) -> Memory:
    """A memory from its name (or ``module:Class``) and settings, separated by commas.

    Settings are converted by the class's annotations (int, float, bool, str).
    """
    name, *settings = (piece.strip() for piece in choice.split(","))
    memory_class = _find(name)
    parameters = inspect.signature(memory_class).parameters
    arguments: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = (piece.strip() for piece in setting.partition("="))
        if not equals or key not in parameters:
            known = ", ".join(parameters) or "none"
            raise MemoryChoiceError(f"memory {name!r} has no setting {setting!r}; it has: {known}")
        arguments[key] = _convert(parameters[key].annotation, key, value)
    try:
        return memory_class(**arguments)
    except ValueError as error:
        raise MemoryChoiceError(f"memory {name!r}: {error}") from None


def _find(name: str) -> type[Memory]:
    target = MEMORIES.get(name, name)
    module, colon, attribute = target.partition(":")
    if not colon:
        raise MemoryChoiceError(
            f"no memory {name!r}: expected one of {', '.join(MEMORIES)}, or package.module:Class"
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise MemoryChoiceError(f"cannot find memory {name!r}: {error}") from None
    if not (isinstance(found, type) and issubclass(found, Memory)):
        raise MemoryChoiceError(f"{name!r} is not a subclass of streamsim_agents.memory.memory.Memory")
    return found


def _convert(annotation: Any, key: str, value: str) -> Any:
    kind = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "str")
    try:
        match kind:
            case "int":
                return int(value)
            case "float":
                return float(value)
            case "bool":
                return {"true": True, "false": False}[value.lower()]
            case _:
                return value
    except (ValueError, KeyError):
        raise MemoryChoiceError(f"setting {key!r} must be {kind}, got {value!r}") from None

"""The interface of a memory: what is written, what is shown, what it weighs, and how it is kept.

A memory knows no model and no clock. It takes entries in the order of time and gives parts of them
back; an agent turns those into a prompt. Write ``write``, ``read``, ``state`` and ``restore``; saving
and loading follow from the last two, bit for bit. ``read`` must not change anything: every probe of a
query, and every query, meets the same memory.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from streamsim_agents.memory.entry import Cue, Entry, Kind, Part

State = Mapping[str, "Sequence[Entry] | int"]
"""Everything a memory consists of: named lists of entries and whole numbers."""
_FORMAT = 1


class MemoryFileError(ValueError):
    """A folder holds no memory, or that of another kind; the text says which."""


class Memory(ABC):
    """Remembers entries of one ``kind``; what it forgets and what it shows is up to the subclass."""

    kind: ClassVar[Kind] = "frames"
    local: int = 1
    """For ``keys``: so many of the latest entries stay in the model's own cache."""

    @abstractmethod
    def write(self, entry: Entry) -> None:
        """Take the next entry; entries come in the order of session and time."""

    @abstractmethod
    def read(self, cue: Cue) -> list[Part]:
        """What to show for ``cue``, in the order of time. Changes nothing."""

    @abstractmethod
    def state(self) -> State:
        """All that the memory consists of; ``restore`` makes an equal one of it."""

    @abstractmethod
    def restore(self, state: State) -> None:
        """Become what ``state`` says."""

    @abstractmethod
    def clear(self) -> None:
        """Forget everything."""

    def nbytes(self) -> int:
        """Bytes of all values that are kept."""
        return sum(_value_bytes(entry) for _, entries in _lists(self.state()) for entry in entries)

    def digest(self) -> str:
        """SHA-256 (hex) over everything: equal if and only if two memories are equal."""
        digest = hashlib.sha256()
        for name, array in _arrays(self.state()):
            digest.update(f"{name}:{array.dtype}:{array.shape}:".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update(json.dumps(_outline(self.state()), sort_keys=True).encode())
        return digest.hexdigest()

    def save(self, folder: Path) -> None:
        """Write everything into ``folder``: an outline (JSON) and the values (npz)."""
        state = self.state()
        outline = {"format": _FORMAT, "memory": type(self).__name__, "state": _outline(state)}
        (folder / "memory.json").write_text(json.dumps(outline, indent=1), encoding="utf-8")
        np.savez(folder / "memory.npz", **dict(_arrays(state)))

    def load(self, folder: Path) -> None:
        """Become what ``save`` wrote. Raises MemoryFileError for another memory's folder."""
        try:
            outline = json.loads((folder / "memory.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError) as error:
            raise MemoryFileError(f"no memory in {str(folder)!r}: {error}") from None
        if outline.get("memory") != type(self).__name__ or outline.get("format") != _FORMAT:
            found = f"{outline.get('memory')} (format {outline.get('format')})"
            raise MemoryFileError(
                f"{str(folder)!r} holds {found}, expected {type(self).__name__} (format {_FORMAT})"
            )
        with np.load(folder / "memory.npz", allow_pickle=False) as values:
            self.restore(_inflate(outline["state"], values))


def total(parts: Iterable[Part]) -> int:
    """How many entries ``parts`` hold."""
    return sum(len(part.entries) for part in parts)


def entries(state: State, name: str) -> list[Entry]:
    """The list of entries ``name`` of a state."""
    value = state[name]
    assert not isinstance(value, int)
    return list(value)


def number(state: State, name: str) -> int:
    """The whole number ``name`` of a state."""
    value = state[name]
    assert isinstance(value, int)
    return value


def _lists(state: State) -> list[tuple[str, Sequence[Entry]]]:
    return [(name, value) for name, value in state.items() if not isinstance(value, int)]


def _value_bytes(entry: Entry) -> int:
    value = entry.value
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, dict):
        return sum(array.nbytes for array in value.values())
    return value.nbytes


def _arrays(state: State) -> list[tuple[str, Any]]:
    """Named arrays of all values, in order."""
    found: list[tuple[str, Any]] = []
    for name, items in _lists(state):
        for index, entry in enumerate(items):
            if isinstance(entry.value, bytes):
                found.append((f"{name}.{index}", np.frombuffer(entry.value, dtype=np.uint8)))
            elif isinstance(entry.value, dict):
                found += [(f"{name}.{index}.{key}", array) for key, array in sorted(entry.value.items())]
            else:
                found.append((f"{name}.{index}", entry.value))
    return found


def _outline(state: State) -> dict[str, Any]:
    outline: dict[str, Any] = {}
    for name, value in state.items():
        if isinstance(value, int):
            outline[name] = value
            continue
        outline[name] = [
            {
                "session": entry.session,
                "first_ns": entry.first_ns,
                "last_ns": entry.last_ns,
                "frames": entry.frames,
                "grid": entry.grid,
                "value": sorted(entry.value)
                if isinstance(entry.value, dict)
                else "file"
                if isinstance(entry.value, bytes)
                else "array",
            }
            for entry in value
        ]
    return outline


def _inflate(outline: dict[str, Any], values: Any) -> State:
    state: dict[str, list[Entry] | int] = {}
    for name, value in outline.items():
        if isinstance(value, int):
            state[name] = value
            continue
        state[name] = [
            Entry(
                session=item["session"],
                first_ns=item["first_ns"],
                last_ns=item["last_ns"],
                frames=item["frames"],
                grid=None if item["grid"] is None else (item["grid"][0], item["grid"][1]),
                value=_value(item["value"], f"{name}.{index}", values),
            )
            for index, item in enumerate(value)
        ]
    return state


def _value(form: Any, name: str, values: Any) -> Any:
    if form == "file":
        return values[name].tobytes()
    if form == "array":
        return values[name]
    return {key: values[f"{name}.{key}"] for key in form}

"""Reads what lies under ``protocol/vectors``: bytes in hex, their JSON twins, and whole conversations.

Only the ``msgpack`` package packs and unpacks here, so that none of it depends on our own codec. After
a change of the twins in transcripts, ``python -m tests.protocol.vectors`` packs their bytes anew.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgpack

VECTORS = Path(__file__).parents[2] / "protocol" / "vectors"
TRANSCRIPTS = VECTORS / "transcripts"

Side = Literal["agent", "server"]


def read_hex(parts: str | list[Any]) -> bytes:
    """Bytes from hex, or from an array of parts."""
    if isinstance(parts, str):
        return bytes.fromhex(parts)
    return b"".join(
        bytes.fromhex(part) if isinstance(part, str) else bytes.fromhex(part["repeat"]) * part["times"]
        for part in parts
    )


def read_twin(value: Any) -> Any:
    """A JSON twin as Python values."""
    match value:
        case {"$base64": text}:
            return base64.b64decode(text)
        case {"$int": text}:
            return int(text)
        case {"$ext": [code, text]}:
            return msgpack.ExtType(code, base64.b64decode(text))
        case {"$repeat": [text, times]}:
            return text * times
        case dict():
            return {key: read_twin(item) for key, item in value.items()}
        case list():
            return [read_twin(item) for item in value]
        case _:
            return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One message: at ``at_ns`` of the server's wall time it is sent by the server, or received by it.

    ``map`` is None where the bytes hold no map. Text messages are ``str``.
    """

    at_ns: int
    sender: Side
    data: bytes | str
    map: dict[str, Any] | None

    @property
    def tag(self) -> str:
        """The message's type, for people."""
        return "bytes" if self.map is None else str(self.map["type"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """Something that is done at the server's side beside messages: the run's owner takes a hand."""

    at_ns: int
    act: Literal["pause", "resume", "step", "rate", "interrupt"]
    rate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """A whole conversation as the server has it; see the README beside the files.

    ``table`` is the whole file. From ``faulty_from`` on, an index into ``steps``, what the side
    ``faulty`` does, or leaves undone, breaks the contract.
    """

    name: str
    table: dict[str, Any]
    steps: tuple[Step | Act, ...]
    faulty: Side | None
    faulty_from: int

    @property
    def session(self) -> dict[str, Any] | None:
        """The rules of the session; None where there is none."""
        session: dict[str, Any] | None = self.table.get("session")
        return session

    @property
    def close(self) -> dict[str, Any]:
        """When and by whom the connection was closed, and with which code."""
        close: dict[str, Any] = self.table["close"]
        return close

    @property
    def kept(self) -> dict[str, Any] | None:
        """What the server keeps of it: how the session ended, the queries' outcomes, late text."""
        kept: dict[str, Any] | None = self.table.get("kept")
        return kept

    def is_faulty(self, index: int) -> bool:
        """Whether step ``index`` is the offence, or comes after it."""
        return self.faulty is not None and index >= self.faulty_from


def read_transcript(path: Path) -> Transcript:
    """One file, its repeated steps spelled out."""
    return make_transcript(path.stem, json.loads(path.read_text(encoding="utf-8")))


def read_transcripts() -> list[Transcript]:
    """All of them by name."""
    return [read_transcript(path) for path in sorted(TRANSCRIPTS.glob("*.json"))]


def make_transcript(name: str, table: dict[str, Any]) -> Transcript:
    """A transcript from what its file holds."""
    fault = table.get("fault")
    steps: list[Step | Act] = []
    faulty_from = 0
    for index, row in enumerate(table["steps"]):
        if fault is not None and index == fault["step"]:
            faulty_from = len(steps)
        steps.extend(_read_row(row))
    if fault is not None and fault["step"] == len(table["steps"]):
        faulty_from = len(steps)
    return Transcript(
        name=name,
        table=table,
        steps=tuple(steps),
        faulty=None if fault is None else fault["by"],
        faulty_from=faulty_from,
    )


def _read_row(row: dict[str, Any]) -> list[Step | Act]:
    if "act" in row:
        return [Act(**row)]
    data = row["text"] if "text" in row else read_hex(row["hex"])
    first = Step(
        at_ns=row["at_ns"],
        sender=row["from"],
        data=data,
        map=read_twin(row["map"]) if "map" in row else None,
    )
    steps: list[Step | Act] = [first]
    for repeat in range(1, row.get("times", 1)):
        assert first.map is not None
        following = {**first.map, "seq": first.map["seq"] + repeat}
        steps.append(replace(first, data=msgpack.packb(following), map=following))
    return steps


def pack_anew(text: str) -> str:
    """A transcript's file with the bytes of every step that has a twin packed from it."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if line.startswith("    {") and '"map": ' in line:
            row = json.loads(line.rstrip(","))
            row["hex"] = write_hex(msgpack.packb(read_twin(row["map"])))
            lines[number] = "    " + json.dumps(row, ensure_ascii=False) + "," * line.endswith(",")
    return "\n".join(lines)


def write_hex(data: bytes) -> str | list[Any]:
    """Hex, a run of a thousand times the same byte or more in short."""
    run = max(re.finditer(rb"(.)\1{999,}", data, re.DOTALL), key=lambda found: len(found[0]), default=None)
    if run is None:
        return data.hex()
    parts = [
        data[: run.start()].hex(),
        {"repeat": run[1].hex(), "times": len(run[0])},
        data[run.end() :].hex(),
    ]
    return [part for part in parts if part]


if __name__ == "__main__":
    for path in sorted(TRANSCRIPTS.glob("*.json")):
        path.write_text(pack_anew(path.read_text(encoding="utf-8")), encoding="utf-8")

"""Prompt texts: what an agent is asked, per probe and kind of query.

The texts come from a TOML file, ours (``prompts.toml`` beside this module) or the user's. Rendering
fills placeholders in one pass, so that braces in a question are never taken for placeholders.
``load_prompts`` alone reads a file.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import get_args

from streamsim.errors import UsageError
from streamsim.text import read_text
from streamsim.writing import describe
from streamsim_protocol.messages import Probe, QueryKind

PROBES: tuple[Probe, ...] = get_args(Probe)
KINDS: tuple[QueryKind, ...] = get_args(QueryKind)
PLACEHOLDERS = ("stem", "options", "frame_stamps", "interval", "day", "session")
TRAJECTORY_PLACEHOLDERS = ("day", "session")
"""They have a value only where an episode is part of a trajectory."""
SHIPPED = Path(__file__).with_suffix(".toml")

_ANY = "any"
_PREFIX = "prefix"
_DEFAULT_OPTION = "({letter}) {text}"
_PLACEHOLDER = re.compile(r"\{\{([a-z_]+)\}\}|\{([a-z_]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """All texts of one file, checked. ``texts`` has one for every probe and kind, prefix included.

    ``option`` is the form of one option's line; ``digest`` (SHA-256, hex) is over the texts, so that
    a comment changes nothing.
    """

    texts: Mapping[tuple[Probe, QueryKind], str]
    option: str
    digest: str

    def render(
        self,
        probe: Probe,
        *,
        kind: QueryKind,
        stem: str,
        options: Sequence[str] = (),
        frame_stamps: Sequence[int] = (),
        interval: tuple[int, int] | None = None,
        day: str | None = None,
        session: str | None = None,
    ) -> str:
        """The text of one probe.

        ``frame_stamps`` and ``interval`` are nanoseconds of media time, written in seconds; without an
        interval it is that of the stamps (empty where there are none). ``UsageError`` where a text
        wants ``day`` or ``session`` and there is none.
        """
        text = self.texts[probe, kind]
        if interval is None and frame_stamps:
            interval = (frame_stamps[0], frame_stamps[-1])

        def value(name: str) -> str:
            match name:
                case "stem":
                    return stem
                case "options":
                    return "\n".join(self._option(index, option) for index, option in enumerate(options))
                case "frame_stamps":
                    return ", ".join(map(format_seconds, frame_stamps))
                case "interval":
                    return "" if interval is None else " to ".join(map(format_seconds, interval))
            given = day if name == "day" else session
            if given is None:
                raise UsageError(
                    f"prompt {probe}.{kind} uses {{{name}}}, which this dataset has not: take it out"
                )
            return given

        return _fill(text, value)

    def _option(self, index: int, text: str) -> str:
        letter = ascii_uppercase[index]
        return _fill(self.option, lambda name: letter if name == "letter" else text)


def load_prompts(path: Path | None = None, *, trajectory: bool = False) -> Prompts:
    """Read the prompt texts of ``path``, or ours where it is None.

    ``trajectory`` says that days and sessions have names; without it a text that uses them is refused.
    ``UsageError`` for a file that cannot be read or used, with what and where.
    """
    path = SHIPPED if path is None else path
    try:
        table = tomllib.loads(read_text(path))
    except OSError as error:
        raise UsageError(f"cannot read prompts {str(path)!r}: {describe(error)}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"prompts {str(path)!r} are not TOML: {error}") from None
    try:
        return parse_prompts(table, trajectory=trajectory)
    except UsageError as error:
        raise UsageError(f"prompts {str(path)!r}: {error}") from None


def parse_prompts(table: Mapping[str, object], *, trajectory: bool = False) -> Prompts:
    """Check a file's tables and make prompts of them; ``UsageError`` names section and key."""
    unknown = [name for name in table if name not in (*PROBES, "format")]
    if unknown:
        raise UsageError(f"unknown section [{unknown[0]}]: expected [format] and {_brackets(PROBES)}")
    texts: dict[tuple[Probe, QueryKind], str] = {}
    for probe in PROBES:
        if probe not in table:
            raise UsageError(f"section [{probe}] is missing: a file of prompts needs {_brackets(PROBES)}")
        section = _strings(table[probe], probe, (_PREFIX, _ANY, *KINDS))
        for key, text in section.items():
            _check_text(f"{probe}.{key}", text, probe=probe, trajectory=trajectory)
        for kind in KINDS:
            key = kind if kind in section else _ANY
            if key not in section:
                raise UsageError(
                    f"[{probe}] has no text for queries of kind {kind!r}: add {kind!r} or {_ANY!r}"
                )
            text = section.get(_PREFIX, "") + section[key]
            _check_complete(f"{probe}.{key}", text, probe=probe, kind=kind)
            texts[probe, kind] = text
    option = _strings(table.get("format", {}), "format", ("option",)).get("option", _DEFAULT_OPTION)
    if sorted(_placeholders(option)) != ["letter", "text"]:
        raise UsageError(f"format.option: expected {{letter}} and {{text}} once each, got {option!r}")
    canonical = [[probe, kind, texts[probe, kind]] for probe in PROBES for kind in KINDS]
    digest = hashlib.sha256(json.dumps([option, canonical]).encode()).hexdigest()
    return Prompts(texts=texts, option=option, digest=digest)


def format_seconds(media_ns: int) -> str:
    """Media time in seconds, to the millisecond, without idle zeros: ``17.05 s``, ``3 s``."""
    milliseconds = (media_ns + 500_000) // 1_000_000
    return f"{milliseconds / 1000:.3f}".rstrip("0").rstrip(".") + " s"


def _strings(table: object, section: str, keys: Sequence[str]) -> dict[str, str]:
    if not isinstance(table, dict):
        raise UsageError(f"{section}: expected a section [{section}], got {table!r}")
    strings: dict[str, str] = {}
    for key, value in table.items():
        if key not in keys:
            raise UsageError(f"[{section}] has no key {key!r}: expected {', '.join(keys)}")
        if not isinstance(value, str):
            raise UsageError(f"{section}.{key}: expected a text, got {value!r}")
        strings[key] = value
    return strings


def _check_text(where: str, text: str, *, probe: Probe, trajectory: bool) -> None:
    """Refuse placeholders that do not exist, or not here."""
    for name in _placeholders(text):
        if name not in PLACEHOLDERS:
            known = ", ".join(f"{{{known}}}" for known in PLACEHOLDERS)
            raise UsageError(
                f"{where}: unknown placeholder {{{name}}}: expected one of {known}, "
                f"or {{{{{name}}}}} for the word in braces"
            )
        if name == "options" and probe != "task":
            raise UsageError(f"{where}: a {probe} prompt never shows the options: take {{options}} out")
        if name in TRAJECTORY_PLACEHOLDERS and not trajectory:
            raise UsageError(f"{where}: {{{name}}} needs a dataset of trajectories: take it out of the text")


def _check_complete(where: str, text: str, *, probe: Probe, kind: QueryKind) -> None:
    """Refuse a text that leaves out the question, or the options of a choice."""
    names = set(_placeholders(text))
    if "stem" not in names:
        raise UsageError(f"{where}: expected {{stem}}, the question, somewhere in the text or its prefix")
    if probe == "task" and kind == "choice" and "options" not in names:
        raise UsageError(f"{where}: expected {{options}} in the text of a choice")


def _placeholders(text: str) -> Iterator[str]:
    return (match[2] for match in _PLACEHOLDER.finditer(text) if match[2])


def _fill(text: str, value: Callable[[str], str]) -> str:
    return _PLACEHOLDER.sub(lambda match: f"{{{match[1]}}}" if match[1] else value(match[2]), text)


def _brackets(names: Sequence[str]) -> str:
    return ", ".join(f"[{name}]" for name in names)

"""How each checkpoint is driven: one record per entry of ``profiles.toml``. No torch here.

An entry is found by hub id, or by the architecture that a local folder's ``config.json`` names; a
folder whose architecture is unknown gets ``GENERIC``: images between lines of text, nothing ahead.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

CHOICE_TOKENS = 8
"""New tokens for an answer that is a letter, as the public evaluator has it."""


Streaming = Literal["auto", "on", "off"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Quantization = Literal["none", "8bit", "4bit"]


class ProfileError(ValueError):
    """A model or its settings cannot be used; the text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One entry; the head of ``profiles.toml`` says what each field means."""

    id: str
    model_type: str
    max_frames: int
    load: str = ""
    unit: int = 1
    stamps: Literal["processor", "axis", "line", "none"] = "none"
    order: Literal["video", "text"] = "video"
    thinking: int = 0
    answer_tokens: int = 0
    template: dict[str, Any] = field(default_factory=dict)
    remote: bool = False
    tested: Sequence[str] = ()

    @property
    def checkpoint(self) -> str:
        """What to load: the native checkpoint where there is another one."""
        return self.load or self.id


GENERIC = Profile(id="", model_type="", max_frames=32, stamps="line")


@cache
def profiles() -> tuple[Profile, ...]:
    """All entries, in the file's order."""
    text = files("streamsim_agents.vlm").joinpath("profiles.toml").read_text(encoding="utf-8")
    return tuple(Profile(**entry) for entry in tomllib.loads(text)["profile"])


def find_profile(model: str) -> Profile:
    """The entry for a hub id or a checkpoint folder; its ``checkpoint`` is what to load.

    A folder's own path replaces the hub id. An unknown hub id gets ``GENERIC``; the architecture is
    looked at again once its configuration is loaded (``for_model_type``). Raises ProfileError for a
    folder without a ``config.json``, and for a path that is neither folder nor hub id.
    """
    folder = Path(model)
    if folder.is_dir():
        return replace(for_model_type(_model_type(folder)), id=model, load="")
    for entry in profiles():
        if model in (entry.id, entry.load):
            return entry
    if model.count("/") != 1 or model.startswith((".", "/", "~")):
        raise ProfileError(f"no checkpoint at {model!r}: expected a folder with config.json, or a hub id")
    return replace(GENERIC, id=model)


def not_trusted(model: str) -> ProfileError:
    """The error for a checkpoint whose own code nobody has allowed."""
    return ProfileError(
        f"{model!r} brings its own code: read it, then allow it with --agent-arg trust_remote_code=true"
    )


def for_model_type(model_type: str) -> Profile:
    """The first entry of an architecture, or ``GENERIC`` with its name."""
    for entry in profiles():
        if entry.model_type == model_type:
            return entry
    return replace(GENERIC, model_type=model_type)


def _model_type(folder: Path) -> str:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ProfileError(f"no checkpoint at {str(folder)!r}: expected a config.json inside") from None
    except ValueError as error:
        raise ProfileError(f"cannot read {str(path)!r}: {error}") from None
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise ProfileError(f"{str(path)!r} names no model_type")
    return str(config["model_type"])

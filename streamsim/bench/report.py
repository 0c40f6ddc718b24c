"""What a benchmark gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a benchmark found. ``lines`` are for people, ``figures`` for ``--json``."""

    met: bool
    lines: list[str]
    figures: dict[str, Any] = field(default_factory=dict)

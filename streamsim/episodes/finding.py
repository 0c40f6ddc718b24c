"""A finding: something that an importer or a check has to say about one field of one item."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

Level = Literal["error", "warning"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One fault or oddity, with the place where it is.

    ``file`` is as the user wrote it, or relative to the dataset folder; ``line`` counts from 1, None
    where the file has no lines of its own (a JSON array) or the finding is about many. ``item`` is the
    id of a query or episode, else ``row N``, or a group such as ``subset storm_cook``.
    """

    level: Level
    file: str
    line: int | None = None
    item: str
    field: str
    text: str

    def __str__(self) -> str:
        """One line: level, file and line, item, field, text."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{self.level}: {place}: {self.item}: {self.field}: {self.text}"


def errors(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The errors among findings."""
    return tuple(finding for finding in findings if finding.level == "error")

"""What memories are made of: entries, the parts that a memory shows, and the cue that asks for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Kind = Literal["frames", "tokens", "keys"]
"""What a memory stores: picture files, encoded pictures, or the keys and values of a model's layers."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entry:
    """One thing remembered: what was seen from ``first_ns`` to ``last_ns`` (equal for one frame).

    ``session`` counts the sessions that this memory has lived through, from 0. ``frames`` is how many
    frames went into it. ``value`` is a JPEG or PNG file for ``frames``; for ``tokens`` an array
    (levels, count, width) float32 with its ``grid`` of (rows, columns); for ``keys`` a mapping of
    named arrays that the model's engine made and alone understands, except for ``index``: (width,)
    float32, by which an entry is found.
    """

    session: int
    first_ns: int
    last_ns: int
    value: bytes | NDArray[np.float32] | dict[str, NDArray[Any]] = field(repr=False)
    frames: int = 1
    grid: tuple[int, int] | None = None

    @property
    def key(self) -> tuple[int, int, int, int]:
        """What tells entries of one memory apart."""
        return self.session, self.first_ns, self.last_ns, self.frames


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A stretch of memory to be shown together, in the order of time.

    ``label`` says what it is ("long", "short", "" for the plain history). ``fps`` is the rate of its
    frames where it isn't that of the stream.
    """

    entries: tuple[Entry, ...]
    label: str = ""
    fps: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cue:
    """What a memory is asked with.

    ``vector`` is the question in the space of the entries' ``index`` (None: nothing was asked yet, or
    the memory needs none).
    """

    text: str = ""
    media_ns: int = 0
    vector: NDArray[np.float32] | None = None

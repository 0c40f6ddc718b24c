"""What keeps a due item back, and what fell due behind it: the client's credit, or our own decoder."""

from __future__ import annotations

from typing import Literal

Holder = Literal["credit", "decoder"]


class Hold:
    """One ordered stream: an item that is held holds all that fall due after it."""

    def __init__(self) -> None:
        self._holder: Holder | None = None
        self._last: tuple[Holder | None, int] = None, 0

    def begin(self, holder: Holder) -> None:
        """The next item is due and cannot go out, because of ``holder``."""
        self._holder = holder

    def end(self, due_wall_ns: int | None, wall_ns: int) -> Holder | None:
        """An item due at ``due_wall_ns`` goes out: the hold that ends with it, or in which it fell due."""
        if self._holder is not None:
            holder, self._holder = self._holder, None
            self._last = holder, wall_ns
            return holder
        holder_before, ended_wall_ns = self._last
        return holder_before if due_wall_ns is not None and due_wall_ns < ended_wall_ns else None

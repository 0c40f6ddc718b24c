"""Server-sent events, as chat endpoints stream them: bytes in, the data of whole events out.

Follows the parsing rules of the HTML standard (section "Server-sent events") as far as chat streams
need them: comments and fields other than ``data`` are passed over. This module knows no sockets and
no JSON.
"""

from __future__ import annotations

import codecs

MAX_EVENT_CHARS = 1 << 20


class EventTooLong(Exception):
    """An event that goes on for more than ``MAX_EVENT_CHARS``: no chat stream does that."""


class EventDecoder:
    """Feed it bytes as they come, in any pieces."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._rest = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[str]:
        """The data of every event that ``chunk`` completes, in order; an event ends at an empty line."""
        text = self._rest + self._decoder.decode(chunk)
        lines = text.replace("\r\n", "\n")
        held = "\r" if lines.endswith("\r") else ""  # it may be half of a line's end
        lines = lines.removesuffix("\r").replace("\r", "\n")
        *whole, rest = lines.split("\n")
        self._rest = rest + held
        events = [data for line in whole if (data := self._take(line)) is not None]
        if len(self._rest) + sum(map(len, self._data)) > MAX_EVENT_CHARS:
            raise EventTooLong(f"an event of more than {MAX_EVENT_CHARS} characters")
        return events

    def end(self) -> str | None:
        """The data of an event that the stream ends within, which the standard passes over; None if none."""
        if self._rest.removesuffix("\r"):
            self._take(self._rest.removesuffix("\r"))
        self._rest = ""
        return self._take("")

    def _take(self, line: str) -> str | None:
        """The data of the event that ``line`` ends, if it ends one."""
        if line:
            field, _, value = line.partition(":")
            if field == "data":
                self._data.append(value.removeprefix(" "))
            return None
        data, self._data = self._data, []
        return "\n".join(data) if data else None

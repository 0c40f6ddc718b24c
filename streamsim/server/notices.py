"""What a server process tells whoever started it, one JSON object a line.

Notices are a courtesy: the journal has everything. A reader that does not keep up misses some, and
never stalls the server.
"""

from __future__ import annotations

import os
import select
import time
from typing import Literal

import msgspec

from streamsim.events import (
    AgentReady,
    AnyEvent,
    ChainClosed,
    FrameSent,
    Instant,
    SessionEnded,
    SessionStarted,
    WarningRaised,
)
from streamsim.server.failure import FirstFailures
from streamsim.server.plan import Job

POSITION_INTERVAL_NS = 500_000_000
MAX_DETAIL_CHARS = 500
"""At six bytes a character, escaped, a line stays under the 4,096 bytes that a pipe takes whole."""


class Notice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One notice; which fields are set depends on ``kind``."""

    kind: Literal[
        "listening",
        "refused",
        "failed",
        "session",
        "ready",
        "position",
        "outcome",
        "failure",
        "warning",
        "ended",
    ]
    lane: int = 0
    episode: str = ""
    repeat: int = 0
    queries: int = 0
    media_ns: int = 0
    detail: str = ""
    port: int = 0
    url: str = ""


class Notices:
    """Writes notices to a descriptor, without ever waiting once sessions are played."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._open = True
        self._last_position_ns: dict[int, int] = {}
        self._failures = FirstFailures()
        self._encoder = msgspec.json.Encoder()
        os.set_blocking(descriptor, False)

    def listening(self, port: int, urls: list[str]) -> None:
        """The server accepts connections; one notice a lane."""
        for lane, url in enumerate(urls, 1):
            self._write(Notice(kind="listening", lane=lane, port=port, url=url), wait=True)

    def refused(self, detail: str) -> None:
        """The plan cannot be served."""
        self._write(Notice(kind="refused", detail=detail))

    def failed(self, detail: str) -> None:
        """The run cannot go on."""
        self._write(Notice(kind="failed", detail=detail))

    def observe(self, lane: int, job: Job, at: Instant, event: AnyEvent) -> None:
        """Something happened in a session."""
        match event:
            case SessionStarted():
                self._write(
                    Notice(
                        kind="session",
                        lane=lane,
                        episode=event.episode,
                        repeat=event.repeat,
                        queries=len(event.queries),
                    )
                )
            case AgentReady():
                self._write(Notice(kind="ready", lane=lane))
            case FrameSent():
                now_ns = time.monotonic_ns()
                if now_ns - self._last_position_ns.get(lane, 0) >= POSITION_INTERVAL_NS:
                    self._last_position_ns[lane] = now_ns
                    self._write(Notice(kind="position", lane=lane, media_ns=event.media_ns))
            case ChainClosed():
                self._write(Notice(kind="outcome", lane=lane, detail=event.outcome, media_ns=at.media_ns))
            case WarningRaised():
                self._write(Notice(kind="warning", lane=lane, detail=f"{event.code}: {event.detail}"))
            case SessionEnded():
                detail = f"{event.reason}: {event.detail}" if event.detail else event.reason
                self._write(Notice(kind="ended", lane=lane, detail=detail, media_ns=at.media_ns))
            case _:
                pass
        failure = self._failures.see(event)
        if failure is not None and self._write(Notice(kind="failure", lane=lane, detail=failure)):
            self._failures.note_told(failure)

    def _write(self, notice: Notice, *, wait: bool = False) -> bool:
        """Whether it was written."""
        if not self._open:
            return False
        if wait:  # nothing is being played yet
            select.select([], [self._descriptor], [])
        if len(notice.detail) > MAX_DETAIL_CHARS:
            notice = msgspec.structs.replace(notice, detail=notice.detail[:MAX_DETAIL_CHARS] + "…")
        line = self._encoder.encode(notice) + b"\n"
        try:
            os.write(self._descriptor, line)  # shorter than PIPE_BUF: whole or not at all
        except BlockingIOError:
            return False
        except OSError:
            self._open = False
            return False
        return True

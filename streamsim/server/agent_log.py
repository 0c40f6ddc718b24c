"""What an agent prints: a file that keeps its beginning and its end, so that a flood cannot fill the disk.

The agent writes to the file itself: through a pipe, a pause of ours would hold it up and show in its figures.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

LIMIT_BYTES = 64 << 20
KEPT_BYTES = 1 << 20
"""Of the beginning and of the end, when there is too much between them."""
INTERVAL_S = 1.0


class AgentLog:
    """An open log. The agent notices nothing of a cut; what it writes meanwhile may be lost or misplaced."""

    def __init__(self, path: Path, *, limit_bytes: int = LIMIT_BYTES, kept_bytes: int = KEPT_BYTES) -> None:
        """Open ``path`` to append to it; ``OSError`` if it cannot be."""
        self.path = path
        self._limit = limit_bytes
        self._kept = kept_bytes
        path.parent.mkdir(parents=True, exist_ok=True)
        # appending, so that whoever writes goes on at the new end
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)

    def fileno(self) -> int:
        """For the process that is to write."""
        return self._descriptor

    async def keep_short(self, interval_s: float = INTERVAL_S) -> None:
        """Look now and then, until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            if self._too_long():
                await asyncio.to_thread(self.shorten)

    def shorten(self) -> None:
        """Cut the middle out if the file is longer than its limit; whole lines stay."""
        if not self._too_long():
            return
        size = os.fstat(self._descriptor).st_size
        head = os.pread(self._descriptor, self._kept, 0)
        tail = os.pread(self._descriptor, self._kept, size - self._kept)
        head = head[: head.rfind(b"\n") + 1] or head
        tail = tail[tail.find(b"\n") + 1 :]
        note = b"\n... %d bytes left out ...\n" % (size - len(head) - len(tail))
        os.ftruncate(self._descriptor, len(head))
        os.write(self._descriptor, note + tail)

    def close(self) -> None:
        """Shorten once more and close; calling it twice does no harm."""
        if self._descriptor >= 0:
            try:
                self.shorten()
            finally:
                os.close(self._descriptor)
                self._descriptor = -1

    def _too_long(self) -> bool:
        return os.fstat(self._descriptor).st_size > self._limit

"""Pictures that wait for a slow agent, in a bounded piece of memory: the overflow goes to a file.

The file is temporary and unlinked, so nothing of it outlives the process. Thread-safe only under the
caller's lock.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass

IN_MEMORY = 64
"""So many pictures stay in memory; further ones go to disk until the backlog is gone."""


@dataclass(frozen=True, slots=True)
class _OnDisk:
    offset: int
    size_bytes: int


class Spool:
    """Bytes by handle: ``put`` gives one, ``take`` uses it up."""

    def __init__(self, in_memory: int = IN_MEMORY) -> None:
        self._in_memory = in_memory
        self._items: dict[int, bytes | _OnDisk] = {}
        self._resident = 0
        self._next_handle = 0
        self._descriptor: int | None = None
        self._end = 0

    def put(self, data: bytes) -> int:
        """Keep ``data``; the handle finds it again."""
        handle = self._next_handle
        self._next_handle += 1
        if self._resident < self._in_memory:
            self._items[handle] = data
            self._resident += 1
        else:
            self._items[handle] = self._write(data)
        return handle

    def take(self, handle: int) -> bytes:
        """The bytes of ``handle``, which is gone afterwards."""
        item = self._items[handle]
        if isinstance(item, _OnDisk):
            assert self._descriptor is not None
            data = os.pread(self._descriptor, item.size_bytes, item.offset)
        else:
            data = item
        self.drop(handle)
        return data

    def drop(self, handle: int) -> None:
        """Forget ``handle`` unread."""
        item = self._items.pop(handle)
        if not isinstance(item, _OnDisk):
            self._resident -= 1
        if not self._items and self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            self._end = 0

    def close(self) -> None:
        """Forget everything and free the file."""
        self._items.clear()
        self._resident = 0
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            self._end = 0

    def _write(self, data: bytes) -> _OnDisk:
        if self._descriptor is None:
            self._descriptor, path = tempfile.mkstemp(prefix="streamsim-backlog-")
            os.unlink(path)  # noqa: PTH108 - the descriptor is all we keep
        offset = self._end
        view = memoryview(data)
        position = offset
        while view:
            written = os.pwrite(self._descriptor, view, position)
            view = view[written:]
            position += written
        self._end = position
        return _OnDisk(offset, len(data))

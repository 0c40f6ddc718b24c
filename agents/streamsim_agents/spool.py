"""Pictures that wait for a slow agent, in a bounded piece of memory: the overflow goes to files.

The files are temporary and unlinked, so nothing of them outlives the process. A file is given back when
the last picture in it was taken, so a backlog that never quite goes away needs no more disk than it is
long. Thread-safe only under the caller's lock.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass

IN_MEMORY = 64
"""So many pictures stay in memory; further ones go to disk until some of those are taken."""
SEGMENT_BYTES = 32 << 20
"""A file that has grown beyond this is not written to any more."""


class _Segment:
    """One file and the number of pictures in it that are still wanted."""

    def __init__(self) -> None:
        self.descriptor, path = tempfile.mkstemp(prefix="streamsim-backlog-")
        os.unlink(path)  # noqa: PTH108 - the descriptor is all we keep
        self.size_bytes = 0
        self.wanted = 0

    def append(self, data: bytes) -> int:
        """Write ``data`` at the end; returns its offset."""
        offset = position = self.size_bytes
        view = memoryview(data)
        while view:
            written = os.pwrite(self.descriptor, view, position)
            view = view[written:]
            position += written
        self.size_bytes = position
        self.wanted += 1
        return offset

    def clear(self) -> None:
        """Give the disk space back."""
        os.ftruncate(self.descriptor, 0)
        self.size_bytes = 0


@dataclass(frozen=True, slots=True)
class _OnDisk:
    segment: _Segment
    offset: int
    size_bytes: int


class Spool:
    """Bytes by handle: ``put`` gives one, ``take`` uses it up."""

    def __init__(self, in_memory: int = IN_MEMORY, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._in_memory = in_memory
        self._segment_bytes = segment_bytes
        self._items: dict[int, bytes | _OnDisk] = {}
        self._resident = 0
        self._next_handle = 0
        self._segments: list[_Segment] = []

    @property
    def disk_bytes(self) -> int:
        """How much disk is in use."""
        return sum(segment.size_bytes for segment in self._segments)

    def put(self, data: bytes) -> int:
        """Keep ``data``; the handle finds it again."""
        if self._resident < self._in_memory:
            item: bytes | _OnDisk = data
            self._resident += 1
        else:
            segment = self._open_segment()
            item = _OnDisk(segment, segment.append(data), len(data))
        handle = self._next_handle
        self._next_handle += 1
        self._items[handle] = item
        return handle

    def take(self, handle: int) -> bytes:
        """The bytes of ``handle``, which is gone afterwards. ``KeyError`` if it is gone already."""
        item = self._items[handle]
        if isinstance(item, _OnDisk):
            data = os.pread(item.segment.descriptor, item.size_bytes, item.offset)
        else:
            data = item
        self.drop(handle)
        return data

    def drop(self, handle: int) -> None:
        """Forget ``handle`` unread."""
        item = self._items.pop(handle)
        if not isinstance(item, _OnDisk):
            self._resident -= 1
            return
        item.segment.wanted -= 1
        if item.segment.wanted:
            return
        if item.segment is self._segments[-1]:
            item.segment.clear()
        else:
            self._segments.remove(item.segment)
            os.close(item.segment.descriptor)

    def close(self) -> None:
        """Forget everything and free the files."""
        self._items.clear()
        self._resident = 0
        for segment in self._segments:
            os.close(segment.descriptor)
        self._segments.clear()

    def _open_segment(self) -> _Segment:
        if not self._segments or self._segments[-1].size_bytes >= self._segment_bytes:
            self._segments.append(_Segment())
        return self._segments[-1]

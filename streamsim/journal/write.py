"""Writing a session's journal: one ``write`` per event, so that a kill loses at most the line in it.

A line is a JSON object: ``n`` (from 1), ``at_media_ns``, ``at_wall_ns``, the event's own keys, and last
``digest``, the SHA-256 (hex) over the previous line's digest and this line without its digest. The
chain shows later change against a digest kept elsewhere; it stops nobody from forging a whole file.
One thread syncs all open journals to disk in turn, so that no disk wait ever meets the event loop.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from pathlib import Path
from types import TracebackType

import msgspec

from streamsim.events import AnyEvent, Instant

FIRST_DIGEST = "0" * 64
SYNC_INTERVAL_S = 1.0

_encoder = msgspec.json.Encoder()


def encode_line(n: int, at: Instant, event: AnyEvent, previous_digest: str) -> tuple[bytes, str]:
    """One journal line with its newline, and its digest."""
    head = b'{"n":%d,"at_media_ns":%d,"at_wall_ns":%d,' % (n, at.media_ns, at.wall_ns)
    body = head + _encoder.encode(event)[1:]
    digest = line_digest(previous_digest, body)
    return body[:-1] + b',"digest":"%s"}\n' % digest.encode(), digest


def line_digest(previous_digest: str, body: bytes) -> str:
    """SHA-256, hex, of the previous digest's hex text followed by the line as it reads without its own."""
    return hashlib.sha256(previous_digest.encode() + body).hexdigest()


class JournalSync:
    """One thread that calls ``fdatasync`` on every open journal, once a second.

    A sync that fails is told to whoever closes that journal: later syncs would claim that all is well.
    """

    def __init__(self, interval_s: float = SYNC_INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._descriptors: set[int] = set()
        self._dirty: set[int] = set()
        self._failures: dict[int, OSError] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="journal-sync", daemon=True)

    def __enter__(self) -> JournalSync:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def add(self, descriptor: int) -> None:
        """Sync ``descriptor`` from now on."""
        with self._lock:
            self._descriptors.add(descriptor)

    def touch(self, descriptor: int) -> None:
        """Something was written to ``descriptor``."""
        self._dirty.add(descriptor)

    def remove(self, descriptor: int) -> OSError | None:
        """Never touch ``descriptor`` again: it is about to be closed. Returns a sync's failure, if any."""
        with self._lock:
            self._descriptors.discard(descriptor)
            self._dirty.discard(descriptor)
            return self._failures.pop(descriptor, None)

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            for descriptor in tuple(self._descriptors):
                with self._lock:
                    if descriptor not in self._descriptors or descriptor not in self._dirty:
                        continue
                    self._dirty.discard(descriptor)
                    duplicate = os.dup(descriptor)
                try:
                    os.fdatasync(duplicate)
                except OSError as error:
                    with self._lock:
                        if descriptor in self._descriptors:
                            self._failures[descriptor] = error
                finally:
                    os.close(duplicate)


class JournalWriter:
    """An open journal. ``digest`` is that of the last line: print it, and keep it elsewhere."""

    def __init__(self, path: Path, sync: JournalSync) -> None:
        """Create ``path``; ``FileExistsError`` if it is there: a journal is written once."""
        self.path = path
        self.lines = 0
        self.digest = FIRST_DIGEST
        self._size_bytes = 0
        self._sync = sync
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        sync.add(self._descriptor)

    def write(self, at: Instant, event: AnyEvent) -> None:
        """Append one event in one ``write``. ``OSError`` if it cannot be; the lines before stay whole."""
        line, digest = encode_line(self.lines + 1, at, event, self.digest)
        try:
            written = os.write(self._descriptor, line)
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._size_bytes)
            raise
        self._size_bytes += len(line)
        self.lines += 1
        self.digest = digest
        self._sync.touch(self._descriptor)

    def close(self) -> None:
        """Sync once more and close; calling it twice does no harm. ``OSError`` if any sync failed."""
        if self._descriptor < 0:
            return
        descriptor, self._descriptor = self._descriptor, -1
        failure = self._sync.remove(descriptor)
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        if failure is not None:
            raise failure

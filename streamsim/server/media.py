"""Decoded media for sessions: the server's side of the decoder processes.

A decoder (``streamsim.episodes.decoder``) is a process of its own with low priority. Its pictures go
to a spool file without a name, so that nothing stays behind however either process ends. This module
imports no PyAV and knows no sessions: it says which samples there are, and reads their bytes. All of
it runs in one event loop and needs no task of its own.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

from streamsim.episodes.decoder import AnyLine, EndLine, ErrorLine, InfoLine, SampleRef
from streamsim.episodes.sampling import Sampling, VideoInfo
from streamsim.errors import VideoError
from streamsim.server.decoder_process import DecoderProcess

__all__ = ["Media", "MediaStore", "SampleRef", "probe_videos"]

PATIENCE_S = 300.0
"""A decoder that says nothing for so long hangs; looking through hours of video takes less."""
_PROBES_PER_PROCESS = 64


class Media:
    """The samples of one video, growing while a decoder works.

    Made by ``open`` or leased from a ``MediaStore``. ``info`` and ``times_ns`` (the media time of
    every sample that there will be) are known from the start; ``samples`` grows in order of k.
    ``ended``: all samples are there, ``damaged`` and ``warnings`` are complete. ``error``: no more
    samples will come, and why, in one line.
    """

    info: VideoInfo
    times_ns: tuple[int, ...]

    def __init__(self, path: Path, sampling: Sampling, *, patience_s: float = PATIENCE_S) -> None:
        self.path = path
        self.sampling = sampling
        self.patience_s = patience_s
        self._watch: asyncio.TimerHandle | None = None
        self.samples: list[SampleRef] = []
        self.ended = False
        self.error: str | None = None
        self.damaged = 0
        self.warnings: tuple[str, ...] = ()
        self._known = False
        self._spool: IO[bytes] | None = None
        self._decoder: DecoderProcess | None = None
        self._subscribers: list[Callable[[], None]] = []

    @classmethod
    async def open(
        cls,
        path: Path,
        sampling: Sampling | None = None,
        *,
        folder: Path | None = None,
        on_decoder_gone: Callable[[], None] | None = None,
        patience_s: float = PATIENCE_S,
    ) -> Media:
        """Start a decoder and wait until it has looked through the file; ``close`` what is returned.

        The spool file lies in ``folder``, None for the system's folder of temporary files.
        ``on_decoder_gone`` is called once, when no decoder process of this media is left.
        ``VideoError`` if the file is refused, the decoder dies, or it says nothing for ``patience_s``.
        """
        media = cls(path, sampling or Sampling(), patience_s=patience_s)
        try:
            media._spool = tempfile.TemporaryFile(dir=folder, prefix="streamsim-")  # noqa: SIM115
            await media._start(on_decoder_gone)
        except BaseException:
            await media.close()
            if media._decoder is None and on_decoder_gone is not None:
                on_decoder_gone()
            raise
        return media

    @property
    def stopped(self) -> bool:
        """No more samples will come."""
        return self.ended or self.error is not None

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` in the loop after each piece of news; returns what ends the subscription."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    async def wait_for(self, count: int) -> None:
        """Return when ``count`` samples are there, or all that will come."""
        await self._until(lambda: len(self.samples) >= count)

    def read(self, sample: SampleRef) -> bytes:
        """The picture file of a sample; ``ValueError`` for one without a picture, and after ``close``."""
        if self._spool is None:
            raise ValueError("the media is closed")
        if sample.offset is None or sample.size is None:
            raise ValueError(f"sample {sample.k} has no picture")
        data = os.pread(self._spool.fileno(), sample.size, sample.offset)
        if len(data) != sample.size:
            raise VideoError(f"pictures of {str(self.path)!r} are lost: its spool file was cut short")
        return data

    async def close(self) -> None:
        """End the decoder and give back the disk space. May be called twice."""
        if not self.stopped:
            self.error = "closed before all samples were decoded"
        try:
            if self._decoder is not None:
                await self._decoder.end()
        finally:
            if self._spool is not None:
                self._spool.close()
                self._spool = None
            self._publish()

    async def _start(self, on_decoder_gone: Callable[[], None] | None) -> None:
        assert self._spool is not None
        spool = self._spool.fileno()

        def gone(how: str) -> None:
            self._stop_watching()
            if not self.stopped:
                self.error = f"the decoder of {str(self.path)!r} {how} after {len(self.samples)} samples"
            self._publish()
            if on_decoder_gone is not None:
                on_decoder_gone()

        self._decoder = DecoderProcess(self._receive, gone)
        arguments = [*_options(self.sampling), "--spool", f"/dev/fd/{spool}", "--", str(self.path)]
        self.keep_watching()
        await self._decoder.start(arguments, pass_fds=(spool,))
        await self._until(lambda: self._known)
        if not self._known:
            raise VideoError(self.error)

    async def _until(self, reached: Callable[[], bool]) -> None:
        news = asyncio.Event()
        unsubscribe = self.subscribe(news.set)
        try:
            while not reached() and not self.stopped:
                news.clear()
                await news.wait()
        finally:
            unsubscribe()

    def keep_watching(self) -> None:
        """Give the decoder ``patience_s`` from now on to say something."""
        self._stop_watching()
        self._watch = asyncio.get_running_loop().call_later(self.patience_s, self._give_up)

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _give_up(self) -> None:
        assert self._decoder is not None
        if not self.stopped:
            self.error = (
                f"the decoder of {str(self.path)!r} made no progress for {self.patience_s:g} s "
                f"after {len(self.samples)} samples"
            )
        self._decoder.kill()
        self._publish()

    def _receive(self, lines: Sequence[AnyLine]) -> None:
        self.keep_watching()
        for line in lines:
            match line:
                case InfoLine():
                    self.info, self.times_ns, self._known = line.info, line.times_ns, True
                case SampleRef():
                    self.samples.append(line)
                case EndLine():
                    self.damaged, self.warnings, self.ended = line.damaged, line.warnings, True
                case ErrorLine():
                    self.error = line.error
        self._publish()

    def _publish(self) -> None:
        for callback in tuple(self._subscribers):
            callback()


class _Shared:
    """One media and how many use it."""

    def __init__(self) -> None:
        self.users = 0
        self.opening = asyncio.Lock()
        self.media: Media | None = None
        self.refusal: str | None = None

    @property
    def failed(self) -> bool:
        return self.refusal is not None or (self.media is not None and self.media.error is not None)


class MediaStore:
    """Shares one decode among all sessions that play the same video in the same way.

    At most ``decoders`` (None: the number of processors) work at a time; further ones wait their
    turn. Spool files lie in ``folder`` (None: the system's folder of temporary files). An async
    context manager: leaving it closes whatever is still leased.
    """

    def __init__(self, *, decoders: int | None = None, folder: Path | None = None) -> None:
        self._folder = folder
        self._slots = asyncio.Semaphore(decoders or os.cpu_count() or 1)
        self._shared: dict[tuple[Path, Sampling], _Shared] = {}

    async def __aenter__(self) -> MediaStore:
        return self

    async def __aexit__(self, *_: object) -> None:
        for shared in list(self._shared.values()):
            if shared.media is not None:
                await shared.media.close()

    @asynccontextmanager
    async def lease(self, path: Path, sampling: Sampling | None = None) -> AsyncIterator[Media]:
        """The media of a video while the block runs; the last user's leaving closes it.

        ``VideoError`` if the file is refused. A media that has failed is not shared further: the next
        lease decodes anew.
        """
        key = (path, sampling or Sampling())
        shared = self._shared.get(key)
        if shared is None or shared.failed:
            shared = self._shared[key] = _Shared()
        shared.users += 1
        try:
            async with shared.opening:  # who waits here takes over if the first is cancelled
                if shared.media is None:
                    shared.media = await self._open(path, key[1], shared)
            yield shared.media
        finally:
            shared.users -= 1
            if not shared.users:
                if self._shared.get(key) is shared:
                    del self._shared[key]
                if shared.media is not None:
                    await shared.media.close()

    async def _open(self, path: Path, sampling: Sampling, shared: _Shared) -> Media:
        if shared.refusal is not None:
            raise VideoError(shared.refusal)
        await self._slots.acquire()
        try:
            return await Media.open(path, sampling, folder=self._folder, on_decoder_gone=self._slots.release)
        except VideoError as error:
            shared.refusal = str(error)
            raise


async def probe_videos(paths: Sequence[Path]) -> list[VideoInfo | VideoError]:
    """What each video holds or why it is refused, in the order given; found in a process of its own.

    A video that kills the decoder is refused; the others are still looked at.
    """
    found: list[VideoInfo | VideoError] = []
    while len(found) < len(paths):
        batch = paths[len(found) : len(found) + _PROBES_PER_PROCESS]
        lines, how = await _probe_batch(batch)
        found.extend(line.info if isinstance(line, InfoLine) else VideoError(line.error) for line in lines)
        if len(lines) < len(batch):
            found.append(VideoError(f"the decoder {how} on {str(batch[len(lines)])!r}"))
    return found


async def _probe_batch(paths: Sequence[Path]) -> tuple[list[InfoLine | ErrorLine], str]:
    """The decoder's lines, and how it ended."""
    answers: list[InfoLine | ErrorLine] = []
    ended = asyncio.Event()
    ways: list[str] = []

    def receive(lines: Sequence[AnyLine]) -> None:
        answers.extend(line for line in lines if isinstance(line, InfoLine | ErrorLine))

    def gone(how: str) -> None:
        ways.append(how)
        ended.set()

    decoder = DecoderProcess(receive, gone)
    try:
        await decoder.start(["--probe", "--", *map(str, paths)])
        await ended.wait()
    finally:
        await decoder.end()
    return answers, ways[0]


def _options(sampling: Sampling) -> list[str]:
    return [
        f"--fps={sampling.fps!r}",
        f"--pixel-budget={sampling.pixel_budget}",
        f"--encoding={sampling.encoding}",
        f"--quality={sampling.quality}",
        f"--sampling={sampling.rule}",
    ]

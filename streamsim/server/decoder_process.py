"""One decoder process: started, listened to, ended. Knows its lines, not what they are for."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence

import msgspec

from streamsim.episodes.decoder import AnyLine

_STDERR_BYTES = 4096
_decode_line = msgspec.json.Decoder(AnyLine).decode


class DecoderProcess(asyncio.SubprocessProtocol):
    """Hands over the lines of a decoder as they come, and says once how it ended.

    ``on_lines`` gets one or more lines at a time. ``on_gone`` gets a predicate such as
    ``was killed by SIGSEGV``, after the last line, if the process ever began.
    """

    def __init__(self, on_lines: Callable[[Sequence[AnyLine]], None], on_gone: Callable[[str], None]) -> None:
        self._on_lines = on_lines
        self._on_gone = on_gone
        self._transport: asyncio.SubprocessTransport | None = None
        self._gone = asyncio.Event()
        self._stdout = b""
        self._stderr = b""
        self._nonsense: str | None = None

    @property
    def pid(self) -> int | None:
        """Process id, None before it began."""
        return None if self._transport is None else self._transport.get_pid()

    async def start(self, arguments: Sequence[str], pass_fds: Sequence[int] = ()) -> None:
        """Start the process. Cancelled meanwhile, none is left."""
        await asyncio.get_running_loop().subprocess_exec(
            lambda: self,
            sys.executable,
            "-P",  # no modules from the current folder
            "-m",
            "streamsim.episodes.decoder",
            *arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=tuple(pass_fds),
            process_group=0,  # Ctrl-C is for us: we end it when nobody needs it any more
        )

    def kill(self) -> None:
        """Kill the process if it runs."""
        if self._transport is not None:
            self._transport.close()

    async def end(self) -> None:
        """Kill the process if it runs, and wait until it is gone."""
        if self._transport is not None:
            self.kill()
            await self._gone.wait()

    # what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._stderr = (self._stderr + data)[-_STDERR_BYTES:]
            return
        *whole, self._stdout = (self._stdout + data).split(b"\n")
        try:
            lines = [_decode_line(line) for line in whole]
        except msgspec.DecodeError as error:
            assert self._transport is not None
            self._nonsense = f"said what is no line of a decoder ({error})"
            self._transport.close()
            return
        if lines:
            self._on_lines(lines)

    def connection_lost(self, exc: BaseException | None) -> None:
        assert self._transport is not None
        how = self._nonsense or self._how_it_ended(self._transport.get_returncode())
        self._transport.close()
        self._gone.set()
        self._on_gone(how)

    def _how_it_ended(self, code: int | None) -> str:
        if code is not None and code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        last_words = self._stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return f"ended with exit code {code}" + (f" ({last_words})" if last_words else "")

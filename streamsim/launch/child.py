"""The server process as its parent sees it: started, listened to, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from types import TracebackType

import msgspec

from streamsim.server.leftovers import MARK, end_marked, new_mark
from streamsim.server.notices import Notice
from streamsim.server.plan import Control, ServerPlan

STOP_GRACE_S = 30.0
MAX_ERROR_BYTES = 1 << 16


class ServerProcess:
    """A running server. An async context manager: leaving it ends the process, come what may."""

    def __init__(self, plan: ServerPlan) -> None:
        self._plan = plan
        self._mark = new_mark()
        self._process: asyncio.subprocess.Process | None = None
        self._signalled: signal.Signals | None = None
        self._errors = bytearray()
        self._error_reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> ServerProcess:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "streamsim.server",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, MARK: self._mark},
        )
        assert self._process.stdin is not None
        if self._signalled is not None:
            self._signal(self._signalled)
        self._error_reader = asyncio.create_task(self._read_errors())
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(msgspec.json.encode(self._plan) + b"\n")
            await self._process.stdin.drain()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None and self._error_reader is not None
        if self._process.returncode is None:
            self.stop()
            try:
                async with asyncio.timeout(STOP_GRACE_S):
                    await self._process.wait()
            except TimeoutError:
                self.kill()
        await self._process.wait()
        end_marked(self._mark)  # a server that was killed could not
        await self._error_reader

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def errors(self) -> str:
        """What the server printed on standard error, its last part."""
        return self._errors.decode("utf-8", "replace")

    def command(self, control: Control) -> None:
        """Have the sessions with a scaled clock paused, resumed, stepped or run at another rate."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(control) + b"\n")

    def stop(self) -> None:
        """Ask the server to end its sessions and go."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the server at once; its agents go with it."""
        self._signal(signal.SIGKILL)

    async def notices(self) -> AsyncIterator[Notice]:
        """What the server tells, until it has gone."""
        assert self._process is not None and self._process.stdout is not None
        while line := await self._process.stdout.readline():
            with contextlib.suppress(msgspec.DecodeError):  # the last line of a killed server
                yield msgspec.json.decode(line, type=Notice)

    async def wait(self) -> int:
        """Its exit code; negative for the signal that ended it."""
        assert self._process is not None and self._error_reader is not None
        code = await self._process.wait()
        await self._error_reader
        return code

    def _signal(self, number: signal.Signals) -> None:
        self._signalled = number
        if self._process is None:
            return  # it is being started, and gets the signal then
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def _read_errors(self) -> None:
        assert self._process is not None and self._process.stderr is not None
        while data := await self._process.stderr.read(1 << 12):
            self._errors += data
            del self._errors[:-MAX_ERROR_BYTES]

"""A real server process whose agents the benchmark starts itself: light ones, real ones, bad ones."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from streamsim.errors import StreamsimError
from streamsim.launch.child import ServerProcess
from streamsim.launch.options import RunOptions
from streamsim.launch.planning import plan_run

GUARD_S = 60.0


class Server:
    """A server that listens. ``urls`` has one address a lane, in order."""

    def __init__(self, process: ServerProcess, lanes: int) -> None:
        self._process = process
        self._urls: dict[int, str] = {}
        self._listening = asyncio.Event()
        self._ready = [asyncio.Event() for _ in range(lanes)]
        self._refused = ""

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def urls(self) -> list[str]:
        """One address a lane."""
        return [url for _, url in sorted(self._urls.items())]

    async def wait_until_ready(self, lane: int) -> None:
        """Return when the agent of ``lane`` (from 1) said ``ready``; ``TimeoutError`` if it does not."""
        async with asyncio.timeout(GUARD_S):
            await self._ready[lane - 1].wait()

    async def wait(self) -> None:
        """Return when all sessions have been played; ``StreamsimError`` if the server failed."""
        code = await self._process.wait()
        if code != 0 or self._process.errors:
            raise StreamsimError(
                f"the server ended with exit code {code}: {self._refused or self._process.errors[-500:]}"
            )

    async def listen(self) -> None:
        """Return when agents may connect."""
        await self._listening.wait()

    async def follow(self) -> None:
        """Take the server's notices, to its end."""
        async for notice in self._process.notices():
            if notice.kind == "listening":
                self._urls[notice.lane] = notice.url
                if len(self._urls) == len(self._ready):
                    self._listening.set()
            elif notice.kind == "ready":
                self._ready[notice.lane - 1].set()
            elif notice.kind == "refused":
                self._refused = notice.detail
        self._listening.set()


@asynccontextmanager
async def serve(dataset: Path, out: Path, *, sessions: int, **options: Any) -> AsyncIterator[Server]:
    """Serve all episodes of ``dataset`` in ``sessions`` lanes; ``options`` are those of ``RunOptions``."""
    planned = plan_run(RunOptions(dataset=dataset, agent=None, out=out, sessions=sessions, **options))
    async with ServerProcess(planned.plan) as process, asyncio.TaskGroup() as group:
        server = Server(process, planned.plan.lanes)
        group.create_task(server.follow())
        await server.listen()
        try:
            yield server
        except BaseException:
            process.kill()  # so that the notices end too
            raise


def start_agent(url: str, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    """One real agent process, as ``join`` would start it."""
    command = [sys.executable, "-m", "streamsim_agents", url, "--agent", name]
    for argument in arguments:
        command += ["--agent-arg", argument]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

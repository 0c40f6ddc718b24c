"""Agent processes: started with a URL and nothing else, never left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

from streamsim.journal.folder import AgentSpec
from streamsim.server.agent_log import AgentLog

TERM_GRACE_S = 2.0


class AgentProcess:
    """One agent process of a lane; what it prints goes to ``log``."""

    def __init__(self, process: asyncio.subprocess.Process, log: AgentLog) -> None:
        self._process = process
        self._log = log
        self._log_keeper = asyncio.create_task(log.keep_short())

    @classmethod
    async def start(
        cls, agent: AgentSpec, url: str, *, lane: int, lanes: int, memory: Path, log: Path
    ) -> AgentProcess:
        """Start ``agent`` under its interpreter, in a process group of its own.

        STREAMSIM_LANE (from 1) and STREAMSIM_LANES in its environment let it share out accelerators.
        """
        arguments = [
            part for key, value in agent.arguments.items() for part in ("--agent-arg", f"{key}={value}")
        ]
        output = AgentLog(log)
        try:
            process = await asyncio.create_subprocess_exec(
                agent.python or sys.executable,
                "-m",
                "streamsim_agents",
                url,
                "--agent",
                agent.name,
                *arguments,
                "--memory-dir",
                str(memory),
                "--die-with-parent",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output.fileno(),
                stderr=output.fileno(),
                start_new_session=True,
                env={**os.environ, "STREAMSIM_LANE": str(lane), "STREAMSIM_LANES": str(lanes)},
            )
        except BaseException:
            output.close()
            raise
        return cls(process, output)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """The process has not been seen to end."""
        return self._process.returncode is None

    async def wait(self) -> int:
        """Wait for its end; a negative code is the signal that ended it."""
        return await self._process.wait()

    def describe_end(self, when: str = "") -> str:
        """How it ended, in words, and where its last words are."""
        code = self._process.returncode
        if code is None:
            return "the agent process still runs"
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        return f"the agent process {how}{' ' if when else ''}{when}, see logs/{self._log.path.name}"

    async def stop(self, grace_s: float = TERM_GRACE_S) -> None:
        """End it and all that it started: first asked, then forced."""
        if self.alive and grace_s > 0:
            self._signal(signal.SIGCONT)  # a stopped process would not see the next one
            self._signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), grace_s)
        self._signal(signal.SIGKILL)
        await self._process.wait()
        self._log_keeper.cancel()
        with contextlib.suppress(asyncio.CancelledError, OSError):
            await self._log_keeper
        with contextlib.suppress(OSError):  # a full disk: the log is as long as it is
            self._log.close()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

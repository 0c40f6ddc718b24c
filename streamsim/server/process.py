"""Agent processes: started with a URL and nothing else, never left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

from streamsim.journal.folder import AgentSpec

TERM_GRACE_S = 2.0


class AgentProcess:
    """One agent process of a lane; what it prints goes to ``log``."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self.log = log

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
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
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
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, "STREAMSIM_LANE": str(lane), "STREAMSIM_LANES": str(lanes)},
            )
        return cls(process, log)

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
        return f"the agent process {how}{' ' if when else ''}{when}, see logs/{self.log.name}"

    async def stop(self, grace_s: float = TERM_GRACE_S) -> None:
        """End it and all that it started: first asked, then forced."""
        if self.alive and grace_s > 0:
            self._signal(signal.SIGCONT)  # a stopped process would not see the next one
            self._signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), grace_s)
        self._signal(signal.SIGKILL)
        await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

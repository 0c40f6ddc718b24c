"""The command line as a user meets it: real processes, told apart from all others by their environment."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamsim.events import AnyEvent, Instant
from streamsim.journal.folder import read_last_attempts
from streamsim.journal.read import JournalFile

GUARD_S = 60.0
"""No test waits longer; one that does has found a stall."""
_MARK = "STREAMSIM_TEST_PROCESS"
_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        """The one JSON object on stdout; fails the test if there is anything else."""
        try:
            value = json.loads(self.out)
        except json.JSONDecodeError as error:
            raise AssertionError(f"{error} in stdout: {self.out[:500]!r}; stderr: {self.err}") from None
        assert isinstance(value, dict)
        return value


class Simulator:
    """Runs commands in ``folder``; every process they start carries this simulator's mark."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mark = f"{_MARK}={uuid.uuid4().hex}"

    def environment(self, python_path: Path | None = None) -> dict[str, str]:
        """Ours with the mark, and the test agents (after ``python_path``) on Python's path."""
        name, _, value = self._mark.partition("=")
        path = [*([str(python_path)] if python_path else []), str(_HERE), os.environ.get("PYTHONPATH", "")]
        return {
            **os.environ,
            name: value,
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "TERM": "dumb",
        }

    def start(self, *arguments: object, python_path: Path | None = None) -> subprocess.Popen[str]:
        """Start ``streamsim ARGUMENTS``; its end is the caller's business."""
        return subprocess.Popen(
            [sys.executable, "-m", "streamsim.cli", *map(str, arguments)],
            cwd=self.folder,
            env=self.environment(python_path),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, process: subprocess.Popen[str]) -> Finished:
        """Wait for the end of what ``start`` gave."""
        try:
            out, err = process.communicate(timeout=GUARD_S)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"stalled; stdout: {out}; stderr: {err}") from None
        return Finished(code=process.returncode, out=out, err=err)

    def call(self, *arguments: object, python_path: Path | None = None) -> Finished:
        """Run ``streamsim ARGUMENTS`` to its end."""
        return self.finish(self.start(*arguments, python_path=python_path))

    def call_together(self, *commands: Sequence[object]) -> list[Finished]:
        """Run several commands at the same time, each to its end."""
        processes = [self.start(*command) for command in commands]
        return [self.finish(process) for process in processes]

    def read_urls(self, process: subprocess.Popen[str], lanes: int) -> list[str]:
        """The addresses that ``streamsim serve`` announces."""
        assert process.stderr is not None
        lines: list[str] = []
        while (listening := sum(line.startswith("listening: ") for line in lines)) < lanes:
            lines.append(process.stderr.readline())
            assert lines[-1], f"only {listening} lanes listen: {''.join(lines)}{self.finish(process)}"
        return [line.split()[1] for line in lines if line.startswith("listening: ")]

    # -------------------------------------------------------------------------------- processes

    def processes(self) -> dict[int, str]:
        """Every living process that carries our mark, with its command line."""
        mark = self._mark.encode()
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue  # another user's, or gone meanwhile
        return {pid: line for pid, line in found.items() if line}  # an ended one has no command line

    def find_process(self, part: str) -> int:
        """The one process whose command line contains ``part``."""
        found = {pid: line for pid, line in self.processes().items() if part in line}
        assert len(found) == 1, f"expected one process with {part!r}, got {found}"
        return next(iter(found))

    def wait_for_processes(self, seconds: float = 10.0) -> dict[int, str]:
        """Wait until no marked process is left; returns those that are."""
        deadline = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < deadline:
            for pid in left:
                try:
                    descriptor = os.pidfd_open(pid)
                except ProcessLookupError:
                    continue
                try:
                    select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
                finally:
                    os.close(descriptor)
        return left

    def kill_processes(self) -> None:
        """End whatever carries our mark."""
        for pid in self.processes():
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue


def read_sessions(run: Path) -> dict[str, JournalFile]:
    """The last attempt of every session of a run by episode; for runs without repeats."""
    journals = read_last_attempts(run)
    sessions = {journal.started.episode: journal for journal in journals}
    assert len(sessions) == len(journals)
    return sessions


def events_of(journal: JournalFile, kind: type[AnyEvent]) -> Iterator[tuple[Instant, Any]]:
    """The events of one kind with their instants."""
    return ((at, event) for at, event in journal.events() if isinstance(event, kind))

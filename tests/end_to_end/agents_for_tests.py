"""Agents that misbehave on purpose, each in one place of one session, and are well behaved elsewhere.

Loaded as ``agents_for_tests:CLASS``, with this folder on Python's path: as a user's own module would be.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from streamsim_agents.agent import Agent, Frame, Query, SessionInfo, Turn
from streamsim_agents.scripted import Random


def seed_of(run_seed: int, episode: int, repeat: int) -> int:
    """The seed that the contract promises: 63 bits of SHA-256 over ``run_seed:episode:repeat``."""
    digest = hashlib.sha256(f"{run_seed}:{episode}:{repeat}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def misbehave(action: str) -> None:
    """Do what a broken agent does; returns for no action but ``none``."""
    match action:
        case "raise":
            raise RuntimeError("broken on purpose")
        case "leave":
            sys.exit("left on purpose")
        case "exit":
            os._exit(9)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(3600)
        case "hang":
            while True:
                time.sleep(3600)
        case "hold":
            # a C library that never gives the interpreter's lock back
            ctypes.PyDLL(None).sleep(3600)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(3600)
        case "none":
            return
        case _:
            raise ValueError(f"no such action: {action!r}")


class Scripted(Agent):
    """Says B, is uncertain where the question says *perhaps*, and names the right causes then."""

    def observe(self, frame: Frame) -> None:
        """Look at the picture: it must be one."""
        assert frame.rgb.shape == (48, 64, 3)

    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        if query.probe == "task":
            yield "B"
        elif query.probe == "status":
            yield "C" if "perhaps" in query.stem else "A"
        else:
            yield "A, C"

    def save(self, folder: Path) -> None:
        (folder / "memory.bin").write_bytes(b"remembered")


class Faulty(Scripted):
    """Misbehaves by the session's place: ``faults`` are ``WHERE-ACTION`` or ``ok``, one per episode.

    WHERE is begin, observe (the second frame), task, status, cause (of ``q2``), end, save.
    """

    def __init__(self, *, faults: str, repeat: int = 1) -> None:
        self._faults = {seed_of(0, episode, repeat): fault for episode, fault in enumerate(faults.split(","))}
        self._where = self._action = ""

    def begin(self, session: SessionInfo) -> None:
        self._where, _, self._action = self._faults.get(session.seed, "ok").partition("-")
        self._session = session
        self._at("begin")

    def observe(self, frame: Frame) -> None:
        super().observe(frame)
        if frame.k == 1:
            self._at("observe")

    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        if query.id != "q2" or query.probe != self._where:
            yield from super().answer(query, turn)
            return
        match self._action:
            case "flood":
                while True:
                    yield "A" * 1000
            case "huge":
                yield "A" * 20_000_000
            case "number":
                yield 5  # type: ignore[misc]
            case "late":
                yield "B"
                misbehave("raise")
            case "slow":
                turn.wait(3600)
                yield "too late"
            case "deaf":
                time.sleep(2.5)
                yield "too late"
            case _:
                misbehave(self._action)

    def end(self) -> None:
        self._at("end")

    def save(self, folder: Path) -> None:
        (folder / "half.bin").write_bytes(b"half")
        self._at("save")

    def _at(self, where: str) -> None:
        while where == self._where and self._action == "flood":
            with self._session.working():
                pass
        if where == self._where:
            misbehave(self._action)


class Starting(Scripted):
    """Misbehaves while it is made: the n-th process of a run does the n-th of ``actions``."""

    def __init__(self, *, actions: str, count: Path) -> None:
        """``count`` is a file that grows by a byte with every process."""
        file = os.open(count, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, b".")
        number = os.lseek(file, 0, os.SEEK_CUR)
        os.close(file)
        misbehave(actions.split(",")[number - 1])


class Slow(Scripted):
    """Takes so many seconds for each frame, and wants only the latest."""

    frames = "latest"

    def __init__(self, *, seconds: float) -> None:
        self._seconds = seconds

    def observe(self, frame: Frame) -> None:
        time.sleep(self._seconds)


class WithChild(Scripted):
    """Starts a process of its own, which outlives it; then dies while it answers ``q2``."""

    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        if query.id == "q2":
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
            misbehave("exit")
        yield from super().answer(query, turn)


def parent_of(pid: int) -> int:
    """The process that started ``pid``."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


class Signalling(Scripted):
    """Sends ``signal`` to the command that started its server, at one place; then goes no further.

    ``where`` is init, begin, observe (the second frame), task (of ``q2``) or save. Of several agents the
    one that makes the file ``mark`` sends it, ``times`` times: a second Ctrl-C means another thing than
    the first.
    """

    def __init__(self, *, where: str, signal: str, mark: Path, times: int = 1) -> None:
        self._times = times
        self._where = where
        self._signal = signal
        self._mark = mark
        self._at("init")

    def begin(self, session: SessionInfo) -> None:
        self._at("begin")

    def observe(self, frame: Frame) -> None:
        super().observe(frame)
        if frame.k == 1:
            self._at("observe")

    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        if query.id == "q2":
            self._at("task")
        yield from super().answer(query, turn)

    def save(self, folder: Path) -> None:
        super().save(folder)
        self._at("save")

    def _at(self, where: str) -> None:
        if where == self._where:
            with contextlib.suppress(FileExistsError):
                self._mark.touch(exist_ok=False)
                command = parent_of(os.getppid())
                for _ in range(self._times):
                    os.kill(command, signal.Signals[self._signal])
                    time.sleep(0.02)  # those that are pending together count as one
            misbehave("hang")


class Assassin(Random):
    """Guesses, and kills its server at the n-th call of a method; each n of ``moments`` is used once.

    ``spent`` is a folder with a file for each moment that is used up.
    """

    def __init__(self, *, moments: str, spent: Path) -> None:
        super().__init__()
        self._moments = [int(moment) for moment in moments.split(",")]
        self._spent = spent
        self._calls = 0

    def begin(self, session: SessionInfo) -> None:
        super().begin(session)
        self._call()

    def observe(self, frame: Frame) -> None:
        self._call()

    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        self._call()
        yield from super().answer(query, turn)
        self._call()

    def save(self, folder: Path) -> None:
        self._call()
        (folder / "memory.bin").write_bytes(b"remembered")

    def _call(self) -> None:
        self._calls += 1
        used = len(list(self._spent.iterdir()))
        if used < len(self._moments) and self._calls == self._moments[used]:
            (self._spent / str(used)).touch(exist_ok=False)
            os.kill(os.getppid(), signal.SIGKILL)
            misbehave("hang")


class Parent(Random):
    """Guesses; has two processes of its own that outlive it, one of them in a session of its own.

    ``kills`` names whom it kills when it is asked: nobody, server or command.
    """

    def __init__(self, *, kills: str = "nobody") -> None:
        super().__init__()
        self._kills = kills
        for new_session in (False, True):
            subprocess.Popen(["sleep", "1000"], start_new_session=new_session)

    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        if self._kills != "nobody":
            server = os.getppid()
            os.kill(server if self._kills == "server" else parent_of(server), signal.SIGKILL)
            misbehave("hang")
        yield from super().answer(query, turn)

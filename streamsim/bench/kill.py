"""``bench.py kill``: a server dies by SIGKILL at random moments; is anything lost, and does it resume?"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from streamsim.bench.live import run_command, run_streamsim
from streamsim.bench.overheard import missing_facts, read_conversations
from streamsim.bench.report import Report
from streamsim.errors import StreamsimError
from streamsim.events import AgentReady, ChainClosed, EndSent, ProbeSent, SessionEnded
from streamsim.journal.compare import canonical_lines
from streamsim.journal.read import JournalFile, read_journal

if TYPE_CHECKING:
    from streamsim.bench.overheard import Conversation

RELAY = Path(__file__).with_name("relay.py")
AGENT = "streamsim_agents.workload:Witness"
MARK = "STREAMSIM_BENCH_KILL"
QUERY_STEP_S = 1.5
EPISODES = 3
SESSIONS = 2
GUARD_S = 60.0
LIVES_REMEMBERED = 5
MAX_FAULTS_SHOWN = 20
PHASES = ("starting", "streaming", "probing", "saving")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How many moments, and which."""
    parser.add_argument("--moments", type=int, default=100, help="at which the server is killed (100)")
    parser.add_argument("--seed", type=int, default=20260817, help="of the moments")
    parser.add_argument("--seconds", type=int, default=24, help="of each of the three episodes (24)")
    parser.add_argument(
        "--references", type=int, default=3, help="undisturbed runs that give the duration (3)"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """What one kill left, and what became of it. Empty ``faults``: all as it should be."""

    moment_s: float
    phases: tuple[str, ...]
    lines: int
    torn: int
    facts: int
    complete: int
    resume_s: float
    faults: tuple[str, ...]


def measure(args: argparse.Namespace) -> Report:
    """SIGKILL of the server at random moments of a lockstep run: nothing lost, the same score after --resume.

    The moments lie evenly (one at random in each of so many equal parts) over the server process's
    life, from its first instruction to its last. A relay between server and agents writes down every
    byte, so that what left the server and what it had dealt with is known from outside. Linux only.
    """
    with tempfile.TemporaryDirectory(prefix="streamsim-bench-") as name:
        bench = _KillBench(Path(name), args.seconds)
        reference = bench.play_undisturbed(args.references)
        rng = random.Random(args.seed)
        parts = list(range(args.moments))
        rng.shuffle(parts)
        kills: list[Killed] = []
        too_late = 0
        while parts:
            part = (parts[-1] + rng.random()) / args.moments
            name = f"kill-{len(kills)}-{too_late}"
            killed = bench.kill_and_resume(name, part * bench.life_s, reference)
            if killed is None:
                too_late += 1  # the server had ended by itself; another moment of the same part
                if too_late > 10 + args.moments:
                    raise StreamsimError("the server ends before most moments: the machine is too uneven")
                continue
            kills.append(killed)
            parts.pop()
        return _report(kills, reference, bench.life_s, too_late)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reference:
    """What comes out of an undisturbed run."""

    scores: dict[str, Any]
    journals: dict[str, JournalFile]
    lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Played:
    """One command: how long its server lived, whether that was killed, and what was said."""

    life_s: float
    killed: bool
    out: str
    words: str


class _KillBench:
    """A dataset, the command that plays it, and what must come of it."""

    def __init__(self, folder: Path, seconds: int) -> None:
        from streamsim.bench.footage import make_footage

        self._folder = folder
        self._dataset = make_footage(
            folder / "dataset",
            seconds=seconds,
            query_seconds=tuple(QUERY_STEP_S * step for step in range(int(seconds / QUERY_STEP_S) + 1)),
            episodes=EPISODES,
            size=(160, 120),
        )
        self._heard = folder / "heard"
        self._heard.mkdir()
        launcher = folder / "relayed-python"
        launcher.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" -IS "{RELAY}" "{self._heard}" "{sys.executable}" "$@"\n'
        )
        launcher.chmod(0o755)
        self._options = (
            *("--clock", "lockstep", "--fps", "2", "--agent", AGENT),
            *("--agent-python", str(launcher)),
        )
        self._lives_s: deque[float] = deque(maxlen=LIVES_REMEMBERED)
        self._mark = uuid.uuid4().hex
        self._environment = {**os.environ, MARK: self._mark}

    @property
    def life_s(self) -> float:
        """How long a server lives that nobody kills: the median of the last few."""
        return median(self._lives_s)

    def play_undisturbed(self, times: int) -> _Reference:
        """The run as it should be; ``StreamsimError`` if undisturbed runs differ."""
        found: _Reference | None = None
        for number in range(times):
            out = self._folder / f"undisturbed-{number}"
            played = self._start_and_kill(out, None)
            journals = [read_journal(path) for path in (out / "sessions").iterdir()]
            reference = _Reference(
                scores=_comparable(json.loads(played.out)["scores"]),
                journals={journal.started.episode: journal for journal in journals},
                lines=sum(len(journal.entries) for journal in journals),
            )
            if found is not None and found.scores != reference.scores:
                raise StreamsimError("two undisturbed lockstep runs differ in their scores")
            found = reference
        assert found is not None
        return found

    def kill_and_resume(self, name: str, moment_s: float, reference: _Reference) -> Killed | None:
        """One kill at ``moment_s`` of the server's life; None if it had ended by itself before."""
        out = self._folder / name
        played = self._start_and_kill(out, moment_s)
        if not played.killed:
            return None
        faults: list[str] = []
        if "--resume" not in played.words:
            faults.append(f"the command did not say how to go on: {played.words[-200:]!r}")
        left = self._processes_left()
        if left:
            faults.append(f"left behind: {left}")
        conversations = read_conversations(self._heard)
        paths = sorted((out / "sessions").iterdir())
        before = {path: path.read_bytes() for path in paths}
        journals = [read_journal(path) for path in paths]
        torn = 0
        for journal in journals:
            if journal.fault is not None:
                torn += 1
                if journal.fault != f"line {len(journal.entries) + 1}: torn":
                    faults.append(f"{journal.path.name}: {journal.fault}")
            faults += _not_as_undisturbed(journal, reference)
        faults += _losses(conversations, journals)
        complete = sum(journal.complete for journal in journals)
        began = time.perf_counter()
        # --sessions is another one on purpose: a resume does not depend on it
        report = run_streamsim(
            self._dataset,
            out,
            *self._options,
            "--resume",
            "--sessions",
            "1",
            environment=self._environment,
        )
        resume_s = time.perf_counter() - began
        if any(path.read_bytes() != data for path, data in before.items()):
            faults.append("the resume touched an older attempt")
        faults += _after_resume(out, report, reference)
        shutil.rmtree(out)
        return Killed(
            moment_s=played.life_s,
            phases=_phases(journals),
            lines=sum(len(journal.entries) for journal in journals),
            torn=torn,
            facts=sum(conversation.facts().total() for conversation in conversations),
            complete=complete,
            resume_s=resume_s,
            faults=tuple(faults),
        )

    def _start_and_kill(self, out: Path, moment_s: float | None) -> _Played:
        """Play into ``out``, the server killed at ``moment_s`` of its life (None: not at all)."""
        for path in self._heard.iterdir():
            path.unlink()
        command = run_command(self._dataset, out, *self._options, "--sessions", str(SESSIONS))
        run = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self._environment
        )
        server = _wait_for_server(run)
        began = time.monotonic()
        try:
            died = select.select([server], [], [], GUARD_S if moment_s is None else moment_s)[0]
            if not died:
                signal.pidfd_send_signal(server, signal.SIGKILL)
                select.select([server], [], [], GUARD_S)
            life_s = time.monotonic() - began
        finally:
            os.close(server)
        said, words = run.communicate(timeout=GUARD_S)
        # it also ends well when the signal met a server that was about to end
        killed = run.returncode != 0
        if not killed:
            self._lives_s.append(life_s)
        if killed and died:
            raise StreamsimError(f"{' '.join(command)}: exit code {run.returncode}: {words[-500:]}")
        return _Played(life_s=life_s, killed=killed, out=said, words=words)

    def _processes_left(self) -> list[str]:
        """Command lines of our processes that are still there after all should have gone."""
        deadline = time.monotonic() + 10.0
        while (found := dict(_marked(self._mark))) and time.monotonic() < deadline:
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    descriptor = os.pidfd_open(pid)
                    select.select([descriptor], [], [], 1.0)
                    os.close(descriptor)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return list(found.values())


def _wait_for_server(run: subprocess.Popen[str]) -> int:
    """A pidfd of the server process, as soon as it is one; ``StreamsimError`` if the command ends first."""
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
    deadline = time.monotonic() + GUARD_S
    while time.monotonic() < deadline and run.poll() is None:
        for pid in children.read_text().split():
            with contextlib.suppress(OSError):
                if b"streamsim.server" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    return os.pidfd_open(int(pid))
        time.sleep(0.001)
    raise StreamsimError(f"the command started no server: {run.communicate()[1][-500:]}")


def _marked(mark: str) -> Iterator[tuple[int, str]]:
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if line:
                    yield int(entry.name), line


def _losses(conversations: Sequence[Conversation], journals: Sequence[JournalFile]) -> list[str]:
    """What was seen outside the server and is in no journal."""
    by_session = {journal.started.session: journal for journal in journals if journal.entries}
    losses = []
    for conversation in conversations:
        journal = by_session.get(conversation.session)
        events = [entry.event for entry in journal.entries] if journal else []
        missing = missing_facts(conversation, events)
        if missing:
            losses.append(f"session {conversation.session}: lost {list(missing)[:3]}")
    return losses


def _not_as_undisturbed(journal: JournalFile, reference: _Reference) -> list[str]:
    """A killed session's journal is a beginning of the undisturbed one's, but for clocks and numbers."""
    if not journal.entries:
        return []
    lines = [line for _, line in canonical_lines(journal.entries)]
    expected = canonical_lines(reference.journals[journal.started.episode].entries)
    return [] if lines == [line for _, line in expected[: len(lines)]] else [f"{journal.path.name} differs"]


def _after_resume(out: Path, report: dict[str, Any], reference: _Reference) -> Iterator[str]:
    """What is not as it would have been without the kill."""
    from streamsim.journal.folder import read_last_attempts
    from streamsim.journal.verify import verify_run

    if _comparable(report["scores"]) != reference.scores:
        yield "another score after --resume"
    proof = verify_run(out)
    if proof.offence is not None or proof.prefix_only:
        yield f"not verified after --resume: {proof.offence or 'a session has no end'}"
    for journal in read_last_attempts(out):
        # the first line names the attempt; all that follows is as in the undisturbed run, the digest
        # of what the agent saved among it
        lines = [line for _, line in canonical_lines(journal.entries[1:])]
        expected = canonical_lines(reference.journals[journal.started.episode].entries[1:])
        if lines != [line for _, line in expected]:
            yield f"{journal.path.name} differs from the undisturbed run"


def _comparable(scores: dict[str, Any]) -> dict[str, Any]:
    """Scores but for the run's own name."""
    return {name: value for name, value in scores.items() if name != "run"}


def _phases(journals: Sequence[JournalFile]) -> tuple[str, ...]:
    """Where each open session was hit; empty if none was open."""
    return tuple(_phase(journal) for journal in journals if journal.ended is None)


def _phase(journal: JournalFile) -> str:
    events = [entry.event for entry in journal.entries]
    kinds = {type(event) for event in events}
    if AgentReady not in kinds:
        return "starting"
    if EndSent in kinds:
        return "saving"
    asked = {event.query for event in events if isinstance(event, ProbeSent)}
    closed = {event.query for event in events if isinstance(event, ChainClosed)}
    assert SessionEnded not in kinds
    return "probing" if asked - closed else "streaming"


def _report(kills: Sequence[Killed], reference: _Reference, life_s: float, too_late: int) -> Report:
    phases = Counter(phase for killed in kills for phase in killed.phases)
    faults = [f"at {killed.moment_s:.3f} s: {fault}" for killed in kills for fault in killed.faults]
    good = sum(not killed.faults for killed in kills)
    quiet = sum(not killed.phases for killed in kills)
    lines = sum(killed.lines for killed in kills)
    torn = sum(killed.torn for killed in kills)
    facts = sum(killed.facts for killed in kills)
    resume_s = median(killed.resume_s for killed in kills)
    where = ", ".join(f"{phase} {phases[phase]}" for phase in PHASES)
    return Report(
        met=not faults,
        lines=[
            f"{len(kills)} kills over a server's life of {life_s:.2f} s: {EPISODES} sessions in "
            f"{SESSIONS} lanes, {reference.lines} journal lines ({too_late} came too late, drawn anew)",
            f"open sessions hit while {where}; no session open: {quiet}",
            f"journals: {lines} lines read, {torn} torn last lines; {facts} facts seen outside the server, "
            f"{'all in the journals' if not faults else 'see below'}",
            f"--resume: scores, prompts, answers, saved memories as undisturbed in {good} of {len(kills)}, "
            f"median {resume_s:.2f} s",
            *faults[:MAX_FAULTS_SHOWN],
        ],
        figures={
            "kills": len(kills),
            "good": good,
            "faults": faults,
            "too_late": too_late,
            "life_s": life_s,
            "phases": {phase: phases[phase] for phase in PHASES},
            "no_session_open": quiet,
            "lines_read": lines,
            "torn_lines": torn,
            "facts_outside": facts,
            "resume_s": resume_s,
        },
    )

"""Proof from journals alone: nothing was released early, every query saw what it may, the chain is whole.

A journal is walked once, line by line; the first line that contradicts what stands before it is the
offence. What this proves is that the journal agrees with the rules and with itself, and, against a
digest kept elsewhere, that it is the one that was written; it doesn't stop an owner from forging a
whole one. This module decodes no video; ``redecode`` compares journals with a dataset.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from streamsim.events import AgentReady, EndReason, SessionEnded, SessionStarted
from streamsim.journal.conversation import ConversationCheck
from streamsim.journal.delivery import DeliveryCheck
from streamsim.journal.folder import (
    RunFile,
    journal_path,
    list_journals,
    read_last_attempts,
    read_run_file,
)
from streamsim.journal.pairs import Contradiction
from streamsim.journal.read import Entry, JournalFile, read_journal
from streamsim.plural import counted
from streamsim.reading import READERS, Reader


class Offence(msgspec.Struct, frozen=True, kw_only=True):
    """The first thing in a run that cannot be: where, what stands there, what should.

    ``line`` is None where it is in no single line.
    """

    file: str
    line: int | None
    found: str
    expected: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: found {self.found}; expected {self.expected}"


class SessionProof(msgspec.Struct, frozen=True, kw_only=True):
    """What was verified of one journal. ``lines`` counts those before the offence, if there is one.

    ``sealed``: it ends with ``SessionEnded``; what is not sealed proves a prefix only. ``ended`` says how
    the session ended, None where it is not sealed. ``newest``: it is the attempt that counts, and in the
    run's digest.
    """

    file: str
    episode: str
    repeat: int
    newest: bool
    ended: EndReason | None
    sealed: bool
    lines: int
    frames: int
    probes: int
    offence: Offence | None


class RunProof(msgspec.Struct, frozen=True, kw_only=True):
    """What was verified of a run. ``digest`` is over the attempts that count of all its sessions.

    ``offence`` is the first of the run; ``missing`` are sessions that the configuration names and the
    folder does not have. ``prefix_only`` says that all is well as far as it goes, but something is
    unsealed or missing; ``incomplete`` are sessions that have an end, but another than to be completed.
    """

    run: str
    digest: str
    sessions: tuple[SessionProof, ...]
    missing: tuple[str, ...]
    offence: Offence | None

    @property
    def prefix_only(self) -> bool:
        """Unsealed or missing sessions keep this from being a proof of the whole."""
        return bool(self.missing) or any(proof.newest and not proof.sealed for proof in self.sessions)

    @property
    def incomplete(self) -> tuple[SessionProof, ...]:
        """Nothing is wrong with these, but their sessions were broken off."""
        return tuple(
            proof for proof in self.sessions if proof.newest and proof.ended not in (None, "completed")
        )


def verify_run(folder: Path, *, digest: str | None = None) -> RunProof:
    """Verify every journal of a run, of all attempts; ``digest`` is the one that was printed at its end.

    Its beginning does, in lower case.

    ``RunError`` if there is no run.
    """
    run_file = read_run_file(folder)
    newest = {journal.path.name: journal for journal in read_last_attempts(folder)}
    proofs = []
    for path in list_journals(folder):
        journal = newest.get(path.name) or read_journal(path)
        proofs.append(verify_journal(journal, run_file, newest=path.name in newest))
    found_digest = run_digest(run_file, newest.values())
    offences = [proof.offence for proof in proofs if proof.offence is not None]
    if digest is not None and not found_digest.startswith(digest):
        compared = f"digest over run.json and {counted(len(newest), 'journal')}"
        offences.append(Offence(file=compared, line=None, found=found_digest, expected=digest))
    return RunProof(
        run=run_file.run,
        digest=found_digest,
        sessions=tuple(proofs),
        missing=tuple(_missing(folder, run_file, newest)),
        offence=offences[0] if offences else None,
    )


def run_digest(run_file: RunFile, journals: Iterable[JournalFile]) -> str:
    """One digest over a run: SHA-256, hex, of ``NAME DIGEST`` lines, ``run.json`` first, then by name.

    ``journals`` are the attempts that count; the digest of ``run.json`` is over all its fields as compact
    JSON. Keep it elsewhere: ``verify --digest`` checks it.
    """
    configuration = hashlib.sha256(msgspec.json.encode(run_file)).hexdigest()
    sessions = sorted(f"{journal.path.name} {journal.digest}\n" for journal in journals)
    lines = [f"run.json {configuration}\n", *sessions]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def verify_journal(journal: JournalFile, run_file: RunFile, *, newest: bool = True) -> SessionProof:
    """Verify one journal under the configuration of its run."""
    name = journal.path.name
    walk = _Walk(run_file, READERS[run_file.config.reader])
    offence: Offence | None = None
    lines = 0
    for entry in journal.entries:
        problem = walk.see(entry, name)
        if problem is not None:
            offence = Offence(file=name, line=entry.n, found=problem.found, expected=problem.expected)
            break
        lines += 1
    if offence is None and journal.fault is not None:
        offence = _fault_offence(name, journal)
    return SessionProof(
        file=name,
        episode=walk.started.episode if walk.started is not None else "",
        repeat=walk.started.repeat if walk.started is not None else 0,
        newest=newest,
        ended=None if journal.ended is None else journal.ended.reason,
        sealed=journal.ended is not None,
        lines=lines,
        frames=walk.frames,
        probes=walk.probes,
        offence=offence,
    )


def _fault_offence(name: str, journal: JournalFile) -> Offence | None:
    """A line that cannot be read on; a torn last line is how a killed server leaves its journal."""
    if not journal.altered:
        return None
    line, found = journal.fault_place
    return Offence(file=name, line=line, found=found, expected="a line that continues the chain")


class _Walk:
    """The checks of one session, and what only its first and last line can tell."""

    def __init__(self, run_file: RunFile, reader: Reader) -> None:
        self.started: SessionStarted | None = None
        self._run_file = run_file
        self._reader = reader
        self._ready = False
        self._ended = False
        self._delivery: DeliveryCheck | None = None
        self._conversation: ConversationCheck | None = None

    @property
    def frames(self) -> int:
        return 0 if self._delivery is None else self._delivery.frames

    @property
    def probes(self) -> int:
        return 0 if self._conversation is None else self._conversation.probes

    def see(self, entry: Entry, name: str) -> Contradiction | None:
        event = entry.event
        if isinstance(event, SessionStarted) == (self.started is not None):
            return Contradiction(type(event).__name__, "SessionStarted in the first line, and there only")
        if self._ended:
            return Contradiction(f"{type(event).__name__} after SessionEnded", "nothing more")
        if isinstance(event, SessionStarted):
            return self._start(event, name)
        assert self._delivery is not None and self._conversation is not None
        if isinstance(event, AgentReady):
            wanted = self._run_file.config.frames
            if self._ready or wanted not in (None, event.frames):
                return Contradiction(f"an agent ready for frames {event.frames!r}", f"once, {wanted!r}")
            self._ready = True
        problem = self._delivery.see(entry.at, event) or self._conversation.see(entry.at, event)
        if problem is None and isinstance(event, SessionEnded):
            self._ended = True
            if event.unsettled_frames != self._delivery.unsettled:
                return Contradiction(
                    f"an end with {event.unsettled_frames} unsettled frames", str(self._delivery.unsettled)
                )
        return problem

    def _start(self, started: SessionStarted, name: str) -> Contradiction | None:
        self.started = started
        config = self._run_file.config
        self._delivery = DeliveryCheck(started, on_grid=config.sampling == "presentation")
        self._conversation = ConversationCheck(started, self._reader)
        stated = {
            "run": (started.run, self._run_file.run),
            "file name": (journal_path(Path(), started.episode, started.repeat, started.attempt).name, name),
            "clock": (started.clock, config.clock),
            "rate": (started.rate, config.rate),
            "history": (started.history, config.history),
            "chain": (started.chain, config.chain),
            "fps": (started.fps, config.fps),
            "credit": (started.credit, config.credit),
            "answer timeout": (started.answer_timeout_ns, round(config.answer_timeout_s * 1e9)),
            "hang timeout": (started.hang_timeout_ns, round(config.hang_timeout_s * 1e9)),
            "drain timeout": (started.drain_timeout_ns, round(config.drain_timeout_s * 1e9)),
        }
        for what, (found, expected) in stated.items():
            if found != expected:
                advice = "; move a stray file out of sessions/" if what in ("run", "file name") else ""
                return Contradiction(f"{what} {found!r}", f"{expected!r}{advice}")
        if started.episode not in config.episodes or not 1 <= started.repeat <= config.repeat:
            session = f"episode {started.episode!r}, repeat {started.repeat}"
            return Contradiction(session, "a session of the run; move a stray file out of sessions/")
        planned = self._run_file.queries.get(started.episode, len(started.queries))
        if len(started.queries) != planned:
            return Contradiction(counted(len(started.queries), "query"), f"{planned}")
        return None


def _missing(folder: Path, run_file: RunFile, present: Iterable[str]) -> Iterator[str]:
    """Sessions of the configuration that have no journal."""
    there = {name.rsplit(".", 2)[0] for name in present}
    for repeat in range(1, run_file.config.repeat + 1):
        for episode in run_file.config.episodes:
            if journal_path(folder, episode, repeat, 1).name.rsplit(".", 2)[0] not in there:
                yield f"{episode} (repeat {repeat})"

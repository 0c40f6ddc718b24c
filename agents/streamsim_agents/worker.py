"""The one thread on which all methods of an agent run.

Between the socket loop and the agent stand an inbox (what to do next) and an outbox (what to send),
both bounded: the inbox by the spool, the outbox by making the agent wait. What the worker reports are
durations, never instants. This module knows no sockets.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from streamsim_agents.agent import Agent, Frame, Query, SessionInfo, Turn
from streamsim_agents.outbox import Outbox
from streamsim_agents.spool import Spool
from streamsim_protocol import messages as wire
from streamsim_protocol.inbox import Choice, Inbox, WaitingFrame, WaitingProbe

MAX_TEXT_CHARS = 8_000
"""A longer piece is sent in several messages: at four bytes a character they stay under the limit."""
MAX_ERROR_CHARS = 12_000
MAX_FIGURES = 64
MAX_NAME_CHARS = 200
"""Marks, figures and libraries: so many, and such short names, that their message stays under the limit."""


class Stop(Exception):
    """The session is over for the worker; not an error."""


class Worker:
    """Runs one agent, session after session, on a thread of its own.

    ``outbox`` takes what is to be sent. All public methods are called from the socket loop's thread.
    """

    def __init__(self, make_agent: Callable[[], Agent], memory_folder: Path | None) -> None:
        self._make_agent = make_agent
        self._memory_folder = memory_folder
        self._agent: Agent | None = None
        self._changed = threading.Condition()
        self._jobs: list[Callable[[], None]] = []
        self._quit = False
        self._thread = threading.Thread(target=self._run, name="agent", daemon=True)
        # of the session in play, all under the condition's lock
        self._inbox: Inbox | None = None
        self._spool = Spool()
        self._turn: Turn | None = None
        self._closed_unstarted: list[int] = []
        self._ending = False
        self._abandoned = False
        self._seen_media_ns: int | None = None
        self._tick: tuple[wire.Tick, int] | None = None

    # -------------------------------------------------------------------------- from the loop's thread

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def quit(self) -> None:
        """Let the thread end once it is idle."""
        with self._changed:
            self._quit = True
            self._changed.notify_all()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread's end; False if it is still busy."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def load(self, done: Callable[[str, wire.FramePolicy, dict[str, str], str | None], None]) -> None:
        """Make the agent; ``done(name, frames, libraries, error)`` is called on the worker's thread."""
        self._submit(lambda: self._load(done))

    def begin(self, welcome: wire.Welcome, outbox: Outbox) -> None:
        """Play a session: ``Ready`` or ``Failed`` follows in the outbox."""
        with self._changed:
            self._inbox = Inbox(welcome.frames, welcome.history)
            self._spool.close()
            self._turn = None
            self._closed_unstarted = []
            self._ending = False
            self._abandoned = False
            self._seen_media_ns = None
            self._tick = None
        self._submit(lambda: self._play(welcome, outbox))

    def put_frame(self, frame: wire.Frame) -> None:
        """A frame arrived."""
        with self._changed:
            assert self._inbox is not None
            handle = self._spool.put(frame.data)
            self._inbox.put(
                WaitingFrame(
                    k=frame.k, media_ns=frame.media_ns, handle=handle, received_ns=time.monotonic_ns()
                )
            )
            self._changed.notify_all()

    def put_probe(self, probe: wire.ProbeMessage) -> None:
        """A probe arrived."""
        with self._changed:
            assert self._inbox is not None
            self._inbox.put(WaitingProbe(message=probe, received_ns=time.monotonic_ns()))
            self._changed.notify_all()

    def tick(self, tick: wire.Tick) -> None:
        """The server's clock was re-taken."""
        self._tick = (tick, time.monotonic_ns())

    def close_turn(self, turn: int, reason: str) -> None:
        """Nothing of ``turn`` counts any more, whether it has begun or not. A late close does no harm."""
        with self._changed:
            if self._inbox is not None and self._inbox.withdraw(turn):
                self._closed_unstarted.append(turn)
            elif self._turn is not None and self._turn.id == turn:
                self._turn.cancel(reason)
            self._changed.notify_all()

    def close_chain(self, query: str) -> None:
        """No further probe of ``query`` will come."""
        with self._changed:
            assert self._inbox is not None
            self._inbox.close_chain(query)
            self._changed.notify_all()

    def end(self) -> None:
        """Nothing more will come: finish what waits, save, say ``bye``."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()

    def abandon(self, reason: str) -> None:
        """The connection is gone: drop what waits, cancel what runs."""
        with self._changed:
            self._abandoned = True
            if self._turn is not None:
                self._turn.cancel(reason)
            self._changed.notify_all()

    # -------------------------------------------------------------------------- on the worker's thread

    def _submit(self, job: Callable[[], None]) -> None:
        with self._changed:
            self._jobs.append(job)
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._jobs and not self._quit:
                    self._changed.wait()
                if not self._jobs:
                    return
                job = self._jobs.pop(0)
            job()

    def _load(self, done: Callable[[str, wire.FramePolicy, dict[str, str], str | None], None]) -> None:
        try:
            agent = self._make_agent()
            described = list(agent.describe().items())[:MAX_FIGURES]
            libraries = {clean(str(name)): clean(str(version)) for name, version in described}
            frames = agent.frames
        except BaseException:  # noqa: BLE001 - the agent's own code, which may also call sys.exit
            done("unknown", "all", {}, _traceback())
            return
        self._agent = agent
        done(type(agent).__name__, frames, libraries, None)

    def _play(self, welcome: wire.Welcome, outbox: Outbox) -> None:
        agent = self._agent
        assert agent is not None
        session = SessionInfo(
            seed=welcome.seed,
            clock=welcome.clock,
            history=welcome.history,
            fps=welcome.fps,
            size=welcome.size,
            declare_working=lambda active: outbox.put(wire.Working(active=active)),
            read_media_ns=self._media_now_ns,
        )
        began_ns = time.monotonic_ns()
        try:
            agent.begin(session)
        except BaseException:  # noqa: BLE001 - reported with its traceback
            outbox.put(wire.Failed(phase="begin", error=_traceback()))
            return
        outbox.put(wire.Ready(begin_ns=time.monotonic_ns() - began_ns))
        try:
            while (choice := self._next_choice(outbox)) is not None:
                self._do(agent, choice, outbox)
        except Stop:
            return
        self._finish(agent, welcome.session, outbox)

    def _next_choice(self, outbox: Outbox) -> Choice | None:
        """Wait for something to do; None once the session has ended. ``Stop`` if it was abandoned."""
        while True:
            with self._changed:
                closed, self._closed_unstarted = self._closed_unstarted, []
                if not closed:
                    if self._abandoned:
                        raise Stop
                    assert self._inbox is not None
                    choice = self._inbox.take()
                    if choice is not None:
                        if isinstance(choice.item, WaitingProbe):
                            self._turn = self._new_turn(choice.item.message)
                        return choice
                    if self._ending:
                        return None
                    self._changed.wait()
            for turn in closed:  # outside the lock: the outbox may make us wait
                outbox.put(wire.TurnEnded(turn=turn, reason="closed"))

    def _new_turn(self, probe: wire.ProbeMessage) -> Turn:
        return Turn(probe.turn, media_ns=probe.media_ns, seen_media_ns=self._seen_media_ns)

    def _do(self, agent: Agent, choice: Choice, outbox: Outbox) -> None:
        now_ns = time.monotonic_ns()
        for frame in choice.skipped:
            with self._changed:
                self._spool.drop(frame.handle)
            outbox.put(wire.Settled(k=frame.k, outcome="skipped", waited_ns=now_ns - frame.received_ns))
        if isinstance(choice.item, WaitingFrame):
            self._observe(agent, choice.item, outbox)
        else:
            self._answer(agent, choice.item, outbox)

    def _observe(self, agent: Agent, waiting: WaitingFrame, outbox: Outbox) -> None:
        started_ns = time.monotonic_ns()
        outcome: wire.Settlement = "processed"
        error: str | None = None
        try:
            with self._changed:
                data = self._spool.take(waiting.handle)
            agent.observe(Frame(k=waiting.k, media_ns=waiting.media_ns, data=data))
        except BaseException:  # noqa: BLE001 - this frame has failed, the session goes on
            outcome, error = "failed", _traceback()
        service_ns = time.monotonic_ns() - started_ns
        self._seen_media_ns = waiting.media_ns
        outbox.put(
            wire.Settled(
                k=waiting.k,
                outcome=outcome,
                waited_ns=started_ns - waiting.received_ns,
                service_ns=service_ns,
                error=error,
            )
        )

    def _answer(self, agent: Agent, waiting: WaitingProbe, outbox: Outbox) -> None:
        probe = waiting.message
        turn = self._turn
        assert turn is not None
        query = Query(
            id=probe.query,
            kind=probe.kind,
            probe=probe.probe,
            text=probe.text,
            stem=probe.stem,
            options=probe.options,
            media_ns=probe.media_ns,
        )
        waited_ns = time.monotonic_ns() - waiting.received_ns
        outbox.put(
            wire.TurnStarted(turn=turn.id, seen_media_ns=self._seen_media_ns, waited_ns=max(0, waited_ns))
        )
        reason: wire.TurnEndReason = "finished"
        error: str | None = None
        first_text_ns: int | None = None
        try:
            pieces = agent.answer(query, turn)
            try:
                for piece in pieces:
                    for text in _split(piece):
                        first_text_ns = turn.elapsed_ns() if first_text_ns is None else first_text_ns
                        outbox.put_text(turn, text)
                    if turn.cancelled:
                        break
            finally:
                close = getattr(pieces, "close", None)
                if close is not None:
                    close()
        except BaseException:  # noqa: BLE001 - this answer has failed, the session goes on
            reason, error = "failed", _traceback()
        service_ns = turn.elapsed_ns()
        with self._changed:
            self._turn = None
        if turn.cancelled:
            reason = "closed"
        marks = {clean(str(name)): elapsed for name, elapsed in list(turn.marks.items())[:MAX_FIGURES]}
        outbox.put_end(
            turn,
            wire.TurnEnded(
                turn=turn.id,
                reason=reason,
                service_ns=service_ns,
                first_text_ns=first_text_ns,
                marks=marks,
                error=error,
            ),
        )
        self._report_stats(agent, outbox)

    def _media_now_ns(self) -> int | None:
        if self._tick is None:
            return None
        tick, received_ns = self._tick
        return tick.media_ns + int((time.monotonic_ns() - received_ns) * tick.rate)

    def _report_stats(self, agent: Agent, outbox: Outbox) -> None:
        try:
            figures = list(agent.stats().items())[:MAX_FIGURES]
            values = {clean(str(name)): float(value) for name, value in figures}
        except BaseException:  # noqa: BLE001 - figures that fail must not cost the session
            values = {"stats_failed": 1.0}
        if values:
            outbox.put(wire.Stats(values=values))

    def _finish(self, agent: Agent, session: str, outbox: Outbox) -> None:
        try:
            agent.end()
        except BaseException:  # noqa: BLE001 - reported with its traceback
            outbox.put(wire.Failed(phase="end", error=_traceback()))
        saved: str | None = None
        saved_bytes = 0
        if self._memory_folder is not None and type(agent).save is not Agent.save:
            try:
                saved, saved_bytes = save_memory(agent, self._memory_folder / session)
            except BaseException:  # noqa: BLE001 - reported with its traceback
                outbox.put(wire.Failed(phase="save", error=_traceback()))
        outbox.put(wire.Bye(saved=saved, saved_bytes=saved_bytes))


def save_memory(agent: Agent, folder: Path) -> tuple[str, int]:
    """Let the agent save into ``folder``, which appears by one rename, whole and on disk.

    Returns the digest over names and contents (SHA-256, hex) and the size in bytes.
    """
    staging = folder.with_name(f".{folder.name}.writing")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
        agent.save(staging)
        digest, size_bytes = folder_digest(staging)
        for path in sorted(staging.rglob("*")):
            if path.is_file():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        shutil.rmtree(folder, ignore_errors=True)
        staging.rename(folder)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return digest, size_bytes


def folder_digest(folder: Path) -> tuple[str, int]:
    """SHA-256 (hex) over every file's relative name, size and bytes in order of names, and their size."""
    digest = hashlib.sha256()
    size_bytes = 0
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        data = path.read_bytes()
        name = path.relative_to(folder).as_posix().encode()
        digest.update(b"%d:%b%d:" % (len(name), name, len(data)))
        digest.update(data)
        size_bytes += len(data)
    return digest.hexdigest(), size_bytes


def _split(piece: str) -> Iterator[str]:
    if not isinstance(piece, str):
        raise TypeError(f"answer must yield str, got {type(piece).__name__}")
    text = clean(piece, limit=len(piece))
    for start in range(0, len(text), MAX_TEXT_CHARS):
        yield text[start : start + MAX_TEXT_CHARS]


def clean(text: str, limit: int = MAX_NAME_CHARS) -> str:
    """``text`` cut to ``limit`` characters; lone surrogates, which UTF-8 cannot carry, become ``?``."""
    return text[:limit].encode("utf-8", "replace").decode("utf-8")


def _traceback() -> str:
    text = clean(traceback.format_exc(), limit=sys.maxsize)
    return text if len(text) <= MAX_ERROR_CHARS else "…" + text[-MAX_ERROR_CHARS:]

"""One session on the worker's thread: what is done next, how the agent is called, what is said of it.

What the socket's loop brings waits here, under one lock; what the agent does is told by the outbox.
What is reported are durations, never instants. This module knows no sockets.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path

from streamsim_agents.agent import Agent, Frame, Query, SessionInfo, Turn
from streamsim_agents.outbox import Outbox
from streamsim_agents.saving import save_memory
from streamsim_agents.spool import Spool
from streamsim_protocol import messages as wire
from streamsim_protocol.inbox import Choice, Inbox, WaitingFrame, WaitingProbe

MAX_TEXT_CHARS = 8_000
"""A longer piece is sent in several messages: at four bytes a character they stay under the limit."""
MAX_ERROR_CHARS = 12_000
_BEGINNING_CHARS = 4_000
MAX_FIGURES = 64
MAX_NAME_CHARS = 100
"""Marks, figures and libraries: so many, and such short names, that their message stays under the limit."""


class _Stop(Exception):
    """The session is over for the worker; not an error."""


class Play:
    """One session of an agent, from ``begin`` to ``bye``."""

    def __init__(self, welcome: wire.Welcome, outbox: Outbox, memory_folder: Path | None) -> None:
        self._welcome = welcome
        self._outbox = outbox
        self._memory_folder = memory_folder
        self._changed = threading.Condition()
        # all that follows is under the condition's lock
        self._inbox = Inbox(welcome.frames, welcome.history)
        self._spool = Spool()
        self._turn: Turn | None = None
        self._closed_unstarted: list[int] = []
        self._ending = False
        self._over = False
        # of the worker's thread alone
        self._seen_media_ns: int | None = None
        self._tick: tuple[wire.Tick, int] | None = None
        self._declaring = threading.Lock()
        self._working = 0

    # -------------------------------------------------------------------------- from the loop's thread

    def put_frame(self, frame: wire.Frame) -> None:
        """A frame arrived."""
        with self._changed:
            if self._over:
                return
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
            self._inbox.put(WaitingProbe(message=probe, received_ns=time.monotonic_ns()))
            self._changed.notify_all()

    def tick(self, tick: wire.Tick) -> None:
        """The server's clock was re-taken."""
        self._tick = (tick, time.monotonic_ns())

    def close_turn(self, turn: int, reason: str) -> None:
        """Nothing of ``turn`` counts any more, whether it has begun or not. A late close does no harm."""
        with self._changed:
            if self._inbox.withdraw(turn):
                self._closed_unstarted.append(turn)
            elif self._turn is not None and self._turn.id == turn:
                self._turn.cancel(reason)
            self._changed.notify_all()

    def close_chain(self, query: str) -> None:
        """No further probe of ``query`` will come."""
        with self._changed:
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
            self._over = True
            if self._turn is not None:
                self._turn.cancel(reason)
            self._changed.notify_all()

    # -------------------------------------------------------------------------- on the worker's thread

    def run(self, agent: Agent) -> None:
        """Play the session with ``agent``; returns when the agent is idle and all is said."""
        try:
            if self._begin(agent):
                while (choice := self._next_choice()) is not None:
                    self._do(agent, choice)
                self._finish(agent)
        except _Stop:
            pass
        finally:
            with self._changed:
                self._over = True
                self._spool.close()

    def _begin(self, agent: Agent) -> bool:
        welcome = self._welcome
        session = SessionInfo(
            seed=welcome.seed,
            clock=welcome.clock,
            history=welcome.history,
            fps=welcome.fps,
            size=welcome.size,
            declare_working=self._declare_working,
            read_media_ns=self._media_now_ns,
        )
        began_ns = time.monotonic_ns()
        try:
            agent.begin(session)
        except BaseException:  # noqa: BLE001 - reported with its traceback
            self._outbox.put(wire.Failed(phase="begin", error=describe_failure()))
            return False
        self._outbox.put(wire.Ready(begin_ns=time.monotonic_ns() - began_ns))
        return True

    def _next_choice(self) -> Choice | None:
        """Wait for something to do; None once the session has ended. ``_Stop`` if it was abandoned."""
        while True:
            with self._changed:
                closed, self._closed_unstarted = self._closed_unstarted, []
                if not closed:
                    if self._over:
                        raise _Stop
                    choice = self._inbox.take()
                    if choice is not None:
                        if isinstance(choice.item, WaitingProbe):
                            self._turn = self._new_turn(choice.item.message)
                        return choice
                    if self._ending:
                        return None
                    self._changed.wait()
            for turn in closed:  # outside the lock: the outbox may make us wait
                self._outbox.put(wire.TurnEnded(turn=turn, reason="closed"))

    def _new_turn(self, probe: wire.ProbeMessage) -> Turn:
        return Turn(probe.turn, media_ns=probe.media_ns, seen_media_ns=self._seen_media_ns)

    def _do(self, agent: Agent, choice: Choice) -> None:
        now_ns = time.monotonic_ns()
        for frame in choice.skipped:
            with self._changed:
                self._spool.drop(frame.handle)
            self._outbox.put(wire.Settled(k=frame.k, outcome="skipped", waited_ns=now_ns - frame.received_ns))
        if isinstance(choice.item, WaitingFrame):
            self._observe(agent, choice.item)
        else:
            self._answer(agent, choice.item)

    def _observe(self, agent: Agent, waiting: WaitingFrame) -> None:
        started_ns = time.monotonic_ns()
        outcome: wire.Settlement = "processed"
        error: str | None = None
        try:
            with self._changed:
                data = self._spool.take(waiting.handle)
            agent.observe(Frame(k=waiting.k, media_ns=waiting.media_ns, data=data))
        except BaseException:  # noqa: BLE001 - this frame has failed, the session goes on
            outcome, error = "failed", describe_failure()
        service_ns = time.monotonic_ns() - started_ns
        self._seen_media_ns = waiting.media_ns
        self._outbox.put(
            wire.Settled(
                k=waiting.k,
                outcome=outcome,
                waited_ns=started_ns - waiting.received_ns,
                service_ns=service_ns,
                error=error,
            )
        )

    def _answer(self, agent: Agent, waiting: WaitingProbe) -> None:
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
        self._outbox.put(
            wire.TurnStarted(turn=turn.id, seen_media_ns=self._seen_media_ns, waited_ns=waited_ns)
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
                        self._outbox.put_text(turn, text)
                    if turn.cancelled:
                        break
            finally:
                close = getattr(pieces, "close", None)
                if close is not None:
                    close()
        except BaseException:  # noqa: BLE001 - this answer has failed, the session goes on
            reason, error = "failed", describe_failure()
        # said while the turn is open: behind its end, a simulated clock may have moved on before
        self._report_stats(agent)
        service_ns = turn.elapsed_ns()
        with self._changed:
            self._turn = None
        self._outbox.put_end(
            turn,
            wire.TurnEnded(
                turn=turn.id,
                reason="closed" if turn.cancelled else reason,
                service_ns=service_ns,
                first_text_ns=first_text_ns,
                marks=_clean_marks(turn.marks),
                error=error,
            ),
        )

    def _report_stats(self, agent: Agent) -> None:
        try:
            values = _read_figures(agent.stats())
        except BaseException:  # noqa: BLE001 - figures that fail must not cost the session
            self._outbox.put(wire.Failed(phase="stats", error=describe_failure()))
            return
        if values:
            self._outbox.put(wire.Stats(values=values))

    def _finish(self, agent: Agent) -> None:
        try:
            agent.end()
        except BaseException:  # noqa: BLE001 - reported with its traceback
            self._outbox.put(wire.Failed(phase="end", error=describe_failure()))
        saved: str | None = None
        saved_bytes = 0
        if self._memory_folder is not None and type(agent).save is not Agent.save:
            try:
                saved, saved_bytes = save_memory(agent, self._memory_folder / self._welcome.session)
            except BaseException:  # noqa: BLE001 - reported with its traceback
                self._outbox.put(wire.Failed(phase="save", error=describe_failure()))
        self._outbox.put(wire.Bye(saved=saved, saved_bytes=saved_bytes))

    # --------------------------------------------------------------------- what the agent may ask, anywhere

    def _declare_working(self, active: bool) -> None:
        """Only the first to begin and the last to end are told, from whichever threads."""
        with self._declaring:
            before = self._working
            self._working = max(0, before + (1 if active else -1))
            if bool(before) != bool(self._working):
                self._outbox.put(wire.Working(active=active))

    def _media_now_ns(self) -> int | None:
        if self._tick is None:
            return None
        tick, received_ns = self._tick
        return tick.media_ns + int((time.monotonic_ns() - received_ns) * tick.rate)


def clean(text: str, limit: int = MAX_NAME_CHARS) -> str:
    """``text`` cut to ``limit`` characters; lone surrogates, which UTF-8 cannot carry, become ``?``."""
    return text[:limit].encode("utf-8", "replace").decode("utf-8")


def describe_failure() -> str:
    """The traceback of the exception in hand, cut to ``MAX_ERROR_CHARS`` where it is long.

    What led to it goes first; if the last exception of a chain alone is too long, its middle goes: where
    it came from and its type stand at the beginning, what to do about it often at the end.
    """
    text = clean(traceback.format_exc(), limit=sys.maxsize)
    if len(text) <= MAX_ERROR_CHARS:
        return text
    last = clean("".join(traceback.format_exception(sys.exception(), chain=False)), limit=sys.maxsize)
    if len(last) <= MAX_ERROR_CHARS:
        return "…" + text[-MAX_ERROR_CHARS:]
    return last[:_BEGINNING_CHARS] + "…" + last[_BEGINNING_CHARS - MAX_ERROR_CHARS :]


def _split(piece: str) -> Iterator[str]:
    if not isinstance(piece, str):
        raise TypeError(f"answer must yield str, got {type(piece).__name__}")
    text = clean(piece, limit=len(piece))
    for start in range(0, len(text), MAX_TEXT_CHARS):
        yield text[start : start + MAX_TEXT_CHARS]


def _read_figures(stats: Mapping[str, float]) -> dict[str, float]:
    """An agent's figures; ``TypeError`` names the first that is no number."""
    if not isinstance(stats, Mapping):
        raise TypeError(f"stats must return a dict of numbers, got {type(stats).__name__}")
    values = {}
    for name, value in list(stats.items())[:MAX_FIGURES]:
        try:
            values[clean(str(name))] = float(value)
        except (TypeError, ValueError, OverflowError):
            kind = type(value).__name__
            raise TypeError(f"stats: expected a number under {name!r}, got {kind}") from None
    return values


def _clean_marks(marks: Mapping[str, int]) -> dict[str, int]:
    """An agent may put anything into its marks: what is no duration is left out."""
    kept = list(marks.items())[:MAX_FIGURES]
    return {
        clean(str(name)): elapsed_ns
        for name, elapsed_ns in kept
        if type(elapsed_ns) is int and 0 <= elapsed_ns < 1 << 63
    }

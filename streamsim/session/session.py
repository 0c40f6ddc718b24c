"""The rules of one live session: what is released when, what an agent may say, how each query ends.

Time is an argument: ``now`` is an ``Instant`` of both clocks, and nothing here reads a clock, waits or
touches a file. Whoever drives a session calls ``advance`` until it returns False before it passes on
what was received, sends ``messages_to_send`` in order and journals ``take_events``. Frames are
released as references: their message carries no picture until the driver attaches sample ``k``'s bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, assert_never

from streamsim.chain import Turn
from streamsim.clock import Course
from streamsim.episodes.episode import EpisodeQuery
from streamsim.events import (
    Acknowledged,
    AgentFailed,
    AnyEvent,
    ClockTaken,
    EndReason,
    EndSent,
    FrameSent,
    FrameSettled,
    GapSent,
    Instant,
    MediaEnded,
    SessionEnded,
    StatsReported,
    WarningRaised,
    WorkingChanged,
)
from streamsim.plural import counted
from streamsim.prompts import Prompts
from streamsim.reading import Reader
from streamsim.session.config import SessionConfig
from streamsim.session.dialogue import Dialogue
from streamsim.session.handshake import Handshake
from streamsim.session.hold import Hold, Holder
from streamsim.session.outgoing import Outgoing
from streamsim.session.patience import Deadline, Patience
from streamsim.session.window import FrameWindow
from streamsim.timeline import DueFrame, DueQuery, Sample, Timeline, wire_name
from streamsim_protocol import messages as wire
from streamsim_protocol.errors import CloseCode, Flood, ProtocolError
from streamsim_protocol.states import State

FLOOD_ALLOWANCE = 1_000
FLOOD_PER_MESSAGE = 50
"""Messages that an agent may send: an allowance, and so many for each of the server's. Text of an open
turn is not among them, late and empty text is."""

_CLOSE_CODES: dict[EndReason, CloseCode] = {
    "completed": CloseCode.NORMAL,
    "interrupted": CloseCode.GOING_AWAY,
    "disconnected": CloseCode.NORMAL,
    "agent_failed": CloseCode.AGENT_FAILED,
    "hung": CloseCode.HUNG,
    "ready_timeout": CloseCode.READY_TIMEOUT,
    "protocol_error": CloseCode.BAD_MESSAGE,
    "media_failed": CloseCode.GOING_AWAY,
}


class Session:
    """One replay of one episode to one agent, sans I/O."""

    def __init__(
        self,
        config: SessionConfig,
        queries: Sequence[EpisodeQuery],
        times_ns: Sequence[int],
        prompts: Prompts,
        reader: Reader,
    ) -> None:
        self.config = config
        self.ended = False
        self.close_code: int = CloseCode.NORMAL
        self.close_reason = ""
        self._outgoing = Outgoing()
        self._handshake = Handshake(config, self._outgoing)
        self._timeline = Timeline(queries, times_ns)
        self._window = FrameWindow(config.credit)
        self._dialogue = Dialogue(
            config, self._timeline.queries, prompts, reader, self._outgoing, self._window.visible_ns
        )
        self._course = Course()
        self._patience = Patience(config, self._course)
        self._hold = Hold()
        self._working = False
        self._drained = False
        self._agent_messages = 0
        self._media_warnings: tuple[str, ...] | None = None
        self._outgoing.record(Instant(0, 0), config.to_event(self._timeline.plan()))

    # --------------------------------------------------------------------------- what a driver reads

    @property
    def playing(self) -> bool:
        """The agent is ready and media time runs."""
        return self.ready and self._course.started and not self.ended

    @property
    def greeted(self) -> bool:
        """The agent has said ``hello``."""
        return self._handshake.greeted

    @property
    def ready(self) -> bool:
        """The agent said ``ready``; the driver starts the clock."""
        return self._handshake.ready

    @property
    def busy(self) -> bool:
        """Something sent is unsettled, a chain is open, or the agent works in the background."""
        return bool(self._window.unsettled or self._dialogue.busy or self._working)

    @property
    def starved(self) -> bool:
        """What is due next is not decoded yet."""
        return not self._timeline.exhausted and self._timeline.next_item() is None

    def next_due_ns(self) -> int | None:
        """Media time of the next release, None when there is none or nothing can be released now."""
        if self.ended or not self._outgoing.playing:
            return None
        return self._timeline.next_due_ns()

    def next_wall_deadline(self) -> int | None:
        """Wall time of the next timeout, None when nothing is timed."""
        deadline = self._next_deadline()
        return None if deadline is None else deadline.wall_ns

    @property
    def has_output(self) -> bool:
        """There is something to journal or to send."""
        return self._outgoing.waiting

    def messages_to_send(self) -> list[wire.ServerMessage]:
        """Numbered messages in order; the caller sends them all."""
        return self._outgoing.take_messages()

    def take_events(self) -> list[tuple[Instant, AnyEvent]]:
        """What happened since the last call, in order."""
        return self._outgoing.take_events()

    # --------------------------------------------------------------------------------- what comes in

    def add_sample(self, sample: Sample) -> None:
        """The decoder has one more sample."""
        self._timeline.add_sample(sample)

    def end_media(self, warnings: Sequence[str]) -> None:
        """The decoder is done; its warnings are journalled when the media is over for the agent too."""
        self._media_warnings = tuple(warnings)

    def clock_taken(self, taken: ClockTaken) -> None:
        """The driver's clock took a new pair; of no interest once the session has ended."""
        if self.ended:
            return
        self._course.add(taken)
        self._outgoing.record(Instant(taken.media_ns, taken.wall_ns), taken)
        if self._handshake.ticks and self._outgoing.playing:
            self._outgoing.send(wire.Tick(media_ns=taken.media_ns, rate=taken.rate, reason=taken.reason))

    def warn(self, now: Instant, code: str, detail: str) -> None:
        """Journal something that a reader of the figures must know; nothing after the end."""
        if not self.ended:
            self._outgoing.record(now, WarningRaised(code=code, detail=detail))

    def advance(self, now: Instant) -> bool:
        """Do one thing that is due at ``now``; False when nothing is. Call until False."""
        deadline = self._next_deadline()
        if deadline is not None and deadline.wall_ns <= now.wall_ns:
            self._lose_patience(deadline, now)
            return True
        return self.playing and self._release_due(now)

    def receive(self, message: wire.AgentMessage, now: Instant) -> None:
        """Take one message from the agent; a breach of the contract ends the session."""
        if self.ended:
            return
        connection = self._outgoing.connection
        try:
            acknowledged = connection.acknowledged
            connection.receive(message)
            self._count(message)
            if not isinstance(message, wire.Ack):
                self._patience.sign_wall_ns = now.wall_ns
            if connection.acknowledged > acknowledged:
                self._acknowledge(now)
            self._handle(message, now)
        except ProtocolError as error:
            self.refuse(error, now)
            return
        self._maybe_end(now)

    def refuse(self, error: ProtocolError, now: Instant) -> None:
        """The agent broke the contract: say so and end. An oversized message is told by the close alone."""
        if self.ended:
            return
        closed = self._outgoing.connection.state is State.CLOSED
        if not closed and error.close_code is not CloseCode.TOO_BIG:
            self._outgoing.send(wire.Error(code=int(error.close_code), detail=str(error)))
        self._end("protocol_error", now, str(error), close_code=error.close_code)

    def disconnect(self, now: Instant, detail: str) -> None:
        """The connection is gone."""
        self._end("disconnected", now, detail)

    def fail(self, reason: EndReason, now: Instant, detail: str) -> None:
        """End for a reason outside the conversation, such as a process that died."""
        self._end(reason, now, detail)

    def interrupt(self, now: Instant) -> None:
        """The run is being stopped: fence what is open and say ``end``."""
        if self.ended:
            return
        self._dialogue.fence_all("cancelled", now)
        if self._outgoing.connection.state in (State.GREETED, State.PLAYING):
            self._send_end("interrupted", now)
        self._end("interrupted", now, "")

    # ------------------------------------------------------------------------------------- releasing

    def _release_due(self, now: Instant) -> bool:
        due_ns = self._timeline.next_due_ns()
        if due_ns is None:
            return self._finish_media(now)
        if due_ns > now.media_ns:
            return False
        item = self._timeline.next_item()
        if item is None:
            self._hold.begin("decoder")
            return False
        if isinstance(item, DueFrame) and item.sample.digest is not None and not self._window.has_credit:
            self._hold.begin("credit")
            if self._patience.credit_wall_ns is None:
                self._patience.credit_wall_ns = now.wall_ns
            return False
        self._timeline.release(item)
        due_wall_ns = self._course.wall_at(item.media_ns)
        held_by = self._hold.end(due_wall_ns, now.wall_ns)
        match item:
            case DueFrame():
                self._release_frame(item, due_wall_ns, held_by, now)
            case DueQuery():
                if self._window.empty:
                    self.warn(now, "no_picture", f"{wire_name(item.index)} is asked before any picture")
                self._give_work(now)
                self._dialogue.ask(item.index, item.media_ns, due_wall_ns, now, held_by)
            case _:
                assert_never(item)
        return True

    def _release_frame(
        self, item: DueFrame, due_wall_ns: int | None, held_by: Holder | None, now: Instant
    ) -> None:
        sample = item.sample
        if sample.digest is None:
            gap = self._outgoing.send(wire.Gap(from_k=sample.k, to_k=sample.k + 1, reason="no_picture"))
            self._outgoing.record(
                now, GapSent(from_k=sample.k, to_k=sample.k + 1, reason="no_picture", seq=gap.seq)
            )
            return
        frame = self._outgoing.send(
            wire.Frame(k=sample.k, media_ns=item.media_ns, encoding=self.config.encoding, data=b"")
        )
        self._give_work(now)
        self._window.note_sent(sample.k, item.media_ns, frame.seq)
        self._outgoing.record(
            now,
            FrameSent(
                k=sample.k,
                media_ns=item.media_ns,
                due_wall_ns=due_wall_ns,
                size_bytes=sample.size_bytes,
                digest=sample.digest,
                seq=frame.seq,
                held_by=held_by,
            ),
        )

    def _give_work(self, now: Instant) -> None:
        """An idle agent's silence counts from the work that it is given."""
        if not self._window.unsettled and not self._dialogue.open_turns:
            self._patience.sign_wall_ns = now.wall_ns

    def _finish_media(self, now: Instant) -> bool:
        if self._patience.media_ended_wall_ns is not None or self._media_warnings is None:
            return False
        self._patience.media_ended_wall_ns = now.wall_ns
        for warning in self._media_warnings:
            self.warn(now, "video", warning)
        self._outgoing.record(now, MediaEnded(samples=self._timeline.frames_total))
        self._maybe_end(now)
        return True

    # ------------------------------------------------------------------------------------- receiving

    def _handle(self, message: wire.AgentMessage, now: Instant) -> None:
        match message:
            case wire.Hello():
                self._handshake.greet(message)
            case wire.Ready():
                self._handshake.take_ready(message, now)
            case wire.Ack():
                pass
            case wire.Settled():
                self._settle(message, now)
            case wire.TurnStarted():
                self._dialogue.start_turn(message, now)
            case wire.Text():
                self._dialogue.hear(message, now)
            case wire.TurnEnded():
                self._dialogue.end_turn(message, now)
            case wire.Working():
                self._working = message.active
                self._outgoing.record(now, WorkingChanged(active=message.active))
            case wire.Stats():
                finite = {name: value for name, value in message.values.items() if math.isfinite(value)}
                if finite:
                    self._outgoing.record(now, StatsReported(values=finite))
            case wire.Failed():
                failed = AgentFailed(phase=message.phase, error=message.error)
                self._outgoing.record(now, failed)
                if failed.phase in ("load", "begin"):
                    self._end("agent_failed", now, f"the agent raised in {failed.method}")
            case wire.Bye():
                self._end("completed", now, "", saved=message.saved, saved_bytes=message.saved_bytes)
            case _:
                assert_never(message)

    def _settle(self, settled: wire.Settled, now: Instant) -> None:
        self._window.settle(settled.k)
        self._outgoing.record(
            now,
            FrameSettled(
                k=settled.k,
                outcome=settled.outcome,
                waited_ns=settled.waited_ns,
                service_ns=settled.service_ns,
                error=settled.error,
            ),
        )

    def _acknowledge(self, now: Instant) -> None:
        seq = self._outgoing.connection.acknowledged
        self._outgoing.record(now, Acknowledged(seq=seq))
        self._window.note_received(seq)
        self._patience.credit_wall_ns = None

    def _count(self, message: wire.AgentMessage) -> None:
        if isinstance(message, wire.Text) and self._dialogue.takes_text(message):
            return  # a turn has its own limit
        self._agent_messages += 1
        allowed = FLOOD_ALLOWANCE + FLOOD_PER_MESSAGE * self._outgoing.connection.sent
        if self._agent_messages > allowed:
            raise Flood(f"expected at most {allowed} messages by now, got {self._agent_messages}")

    # --------------------------------------------------------------------------- timeouts and endings

    def _next_deadline(self) -> Deadline | None:
        if self.ended:
            return None
        return self._patience.next_deadline(
            turns=self._dialogue.open_turns, unsettled=self._window.unsettled > 0, working=self._working
        )

    def _lose_patience(self, deadline: Deadline, now: Instant) -> None:
        match deadline.wait:
            case "answer":
                assert deadline.turn is not None
                self._time_out(deadline.turn, now)
            case "idleness":
                limit = f"{self.config.hang_timeout_ns / 1e9:g} s"
                self._hang(now, f"the agent went on for {limit} after its turn was closed (--hang-timeout)")
            case "sign":
                limit = f"{(self.config.answer_timeout_ns + self.config.hang_timeout_ns) / 1e9:g} s"
                self._hang(
                    now,
                    f"the agent had work and gave no sign for {limit} (--answer-timeout + --hang-timeout)",
                )
            case "credit":
                detail = f"no reception acknowledged for {self.config.credit_timeout_ns / 1e9:g} s"
                self._end("disconnected", now, detail, close_code=CloseCode.CREDIT_TIMEOUT)
            case "drain":
                self._stop_draining(now)
            case "bye":
                self._miss_bye(now)
            case _:
                assert_never(deadline.wait)

    def _time_out(self, turn: Turn, now: Instant) -> None:
        """The answer did not end in time: fence the turn, close its chain."""
        if self.config.clock == "lockstep":
            self.warn(now, "lockstep_timeout", f"turn {turn.id} ran into the wall-time guard")
        self._dialogue.fence(turn, "timed_out", now)

    def _hang(self, now: Instant, detail: str) -> None:
        """The agent is stuck. What the drain timeout has completed stays so, whatever follows."""
        self._end("completed" if self._drained else "hung", now, detail, close_code=CloseCode.HUNG)

    def _stop_draining(self, now: Instant) -> None:
        self._drained = True
        detail = f"{counted(self._window.unsettled, 'frame')} unsettled when the drain timeout fired"
        self.warn(now, "drain_timeout", detail)
        self._dialogue.fence_all("timed_out", now)
        self._send_end("completed", now)

    def _miss_bye(self, now: Instant) -> None:
        stuck = self._window.unsettled or self._dialogue.open_turns
        self.warn(now, "no_bye", "the agent did not say bye in time; nothing that it saved counts")
        self._end("completed" if stuck else "hung", now, "no bye in time", close_code=CloseCode.HUNG)

    def _maybe_end(self, now: Instant) -> None:
        media_over = self._patience.media_ended_wall_ns is not None
        if media_over and self._outgoing.playing and not self.ended and not self.busy:
            self._send_end("completed", now)

    def _send_end(self, reason: Literal["completed", "interrupted"], now: Instant) -> None:
        self._outgoing.send(wire.End(reason=reason))
        self._outgoing.record(now, EndSent(reason=reason))
        self._patience.end_wall_ns = now.wall_ns

    def _end(
        self,
        reason: EndReason,
        now: Instant,
        detail: str,
        *,
        close_code: CloseCode | None = None,
        saved: str | None = None,
        saved_bytes: int = 0,
    ) -> None:
        if self.ended:
            return
        self._dialogue.finish(reason, now)
        self.ended = True
        self.close_code = _CLOSE_CODES[reason] if close_code is None else close_code
        self.close_reason = detail
        self._outgoing.record(
            now,
            SessionEnded(
                reason=reason,
                detail=detail,
                saved=saved,
                saved_bytes=saved_bytes,
                unsettled_frames=self._window.unsettled,
            ),
        )

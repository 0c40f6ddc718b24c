"""The rules of one live session: what is released when, what an agent may say, how each query ends.

Time is an argument: ``now`` is an ``Instant`` of both clocks, and nothing here reads a clock, waits or
touches a file. Whoever drives a session calls ``advance`` until it returns False before it passes on
what was received, sends ``messages_to_send`` in order and journals ``take_events``. Frames are
released as references: their message carries no picture until the driver attaches sample ``k``'s bytes.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, TypeVar, assert_never

import msgspec

from streamsim.chain import QueryChain, Turn, read_probe
from streamsim.episodes.episode import Chain, EpisodeQuery
from streamsim.events import (
    Acknowledged,
    AgentFailed,
    AgentReady,
    AnyEvent,
    ChainClosed,
    ClockTaken,
    EndReason,
    EndSent,
    FrameSent,
    FrameSettled,
    GapSent,
    Instant,
    LateTextReceived,
    MediaEnded,
    ProbeRead,
    ProbeSent,
    SessionEnded,
    SessionStarted,
    StatsReported,
    TextReceived,
    TurnClosed,
    TurnEnded,
    TurnStarted,
    WarningRaised,
    WorkingChanged,
)
from streamsim.prompts import Prompts
from streamsim.reading import Reader
from streamsim.timeline import DueFrame, DueQuery, Sample, Timeline, wire_name
from streamsim_protocol import messages as wire
from streamsim_protocol.errors import CloseCode, ProtocolError, VersionMismatch, WrongOrder
from streamsim_protocol.states import Connection, State

_Sent = TypeVar("_Sent", bound=wire.ServerMessage)
_Fire = Callable[[Instant], None]
_Holder = Literal["credit", "decoder"] | None

CAPABILITIES = ("ticks",)
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


class SessionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that fixes a session but its episode. Times in nanoseconds of wall time."""

    run: str
    session: str
    episode: str
    subset: str
    repeat: int
    attempt: int
    lanes: int
    seed: int
    clock: wire.ClockMode
    rate: float
    history: wire.History
    chain: Chain
    frames: wire.FramePolicy | None
    fps: float
    size: tuple[int, int]
    encoding: Literal["jpeg", "png"]
    credit: int
    credit_timeout_ns: int
    answer_timeout_ns: int
    hang_timeout_ns: int
    drain_timeout_ns: int


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
        self.connection = Connection()
        self.ended = False
        self.close_code: int = CloseCode.NORMAL
        self.close_reason = ""
        self._prompts = prompts
        self._reader = reader
        self._timeline = Timeline(queries, times_ns)
        self._chains = [
            QueryChain(index=index, query=query, chain=config.chain)
            for index, query in enumerate(self._timeline.queries)
        ]
        self._turns: dict[int, Turn] = {}
        self._open_turns: set[int] = set()
        self._next_turn = 1
        self._unsettled: set[int] = set()
        self._settled: set[int] = set()
        self._frame_times_ns: list[int] = []
        self._frames_in_flight: deque[int] = deque()
        self._takes: list[ClockTaken] = []
        self._working = False
        self._held_by: _Holder = None
        self._last_hold: tuple[_Holder, int] = None, 0
        self._credit_wall_ns: int | None = None
        self._media_ended_wall_ns: int | None = None
        self._end_wall_ns: int | None = None
        self._agent_messages = 0
        self._sign_wall_ns = 0
        self._hello: wire.Hello | None = None
        self._ready = False
        self._media_warnings: tuple[str, ...] | None = None
        self._capabilities: tuple[str, ...] = ()
        self._outbox: list[wire.ServerMessage] = []
        self._events: list[tuple[Instant, AnyEvent]] = []
        self._record(
            Instant(0, 0),
            SessionStarted(
                run=config.run,
                session=config.session,
                episode=config.episode,
                subset=config.subset,
                repeat=config.repeat,
                attempt=config.attempt,
                lanes=config.lanes,
                seed=config.seed,
                clock=config.clock,
                rate=config.rate,
                history=config.history,
                chain=config.chain,
                fps=config.fps,
                credit=config.credit,
                answer_timeout_ns=config.answer_timeout_ns,
                hang_timeout_ns=config.hang_timeout_ns,
                drain_timeout_ns=config.drain_timeout_ns,
                queries=self._timeline.plan(),
            ),
        )

    # --------------------------------------------------------------------------- what a driver reads

    @property
    def playing(self) -> bool:
        """The agent is ready and media time runs."""
        return self._ready and bool(self._takes) and not self.ended

    @property
    def greeted(self) -> bool:
        """The agent has said ``hello``."""
        return self._hello is not None

    @property
    def ready(self) -> bool:
        """The agent said ``ready``; the driver starts the clock."""
        return self._ready

    @property
    def busy(self) -> bool:
        """Something sent is unsettled, a chain is open, or the agent works in the background."""
        return bool(
            self._unsettled or self._open_turns or self._working or any(chain.open for chain in self._chains)
        )

    @property
    def starved(self) -> bool:
        """What is due next is not decoded yet."""
        return not self._timeline.exhausted and self._timeline.next_item() is None

    def next_due_ns(self) -> int | None:
        """Media time of the next release, None when there is none or nothing can be released now."""
        if self.ended or self.connection.state is not State.PLAYING:
            return None
        return self._timeline.next_due_ns()

    def next_wall_deadline(self) -> int | None:
        """Wall time of the next timeout, None when nothing is timed."""
        deadlines = [deadline for deadline, _ in self._timeouts()]
        return min(deadlines, default=None)

    def messages_to_send(self) -> list[wire.ServerMessage]:
        """Numbered messages in order; the caller sends them all."""
        messages, self._outbox = self._outbox, []
        return messages

    def take_events(self) -> list[tuple[Instant, AnyEvent]]:
        """What happened since the last call, in order."""
        events, self._events = self._events, []
        return events

    # --------------------------------------------------------------------------------- what comes in

    def add_sample(self, sample: Sample) -> None:
        """The decoder has one more sample."""
        self._timeline.add_sample(sample)

    def end_media(self, warnings: Sequence[str]) -> None:
        """The decoder is done; its warnings are journalled when the media is over for the agent too."""
        self._media_warnings = tuple(warnings)

    def clock_taken(self, taken: ClockTaken) -> None:
        """The driver's clock took a new pair."""
        self._takes.append(taken)
        self._record(Instant(taken.media_ns, taken.wall_ns), taken)
        if "ticks" in self._capabilities and self.connection.state is State.PLAYING:
            self._send(wire.Tick(media_ns=taken.media_ns, rate=taken.rate, reason=taken.reason))

    def warn(self, now: Instant, code: str, detail: str) -> None:
        """Journal something that a reader of the figures must know."""
        self._record(now, WarningRaised(code=code, detail=detail))

    def advance(self, now: Instant) -> bool:
        """Do one thing that is due at ``now``; False when nothing is. Call until False."""
        if self.ended:
            return False
        for deadline, fire in sorted(self._timeouts(), key=lambda timeout: timeout[0]):
            if deadline <= now.wall_ns:
                fire(now)
                return True
        if not self.playing:
            return False
        due_ns = self._timeline.next_due_ns()
        if due_ns is None:
            return self._finish_media(now)
        if due_ns > now.media_ns:
            return False
        item = self._timeline.next_item()
        if item is None:
            self._held_by = "decoder"
            return False
        if isinstance(item, DueFrame) and item.sample.digest is not None and not self._has_credit():
            self._held_by = "credit"
            if self._credit_wall_ns is None:
                self._credit_wall_ns = now.wall_ns
            return False
        self._timeline.release(item)
        self._held_by = self._find_holder(item.media_ns, now)
        match item:
            case DueFrame():
                self._release_frame(item, now)
            case DueQuery():
                self._release_query(item, now)
            case _:
                assert_never(item)
        self._held_by = None
        return True

    def receive(self, message: wire.AgentMessage, now: Instant) -> None:
        """Take one message from the agent; a breach of the contract ends the session."""
        if self.ended:
            return
        try:
            acknowledged = self.connection.acknowledged
            if not isinstance(message, wire.Ack):
                self._sign_wall_ns = now.wall_ns
            self.connection.receive(message)
            self._count(message)
            if self.connection.acknowledged > acknowledged:
                self._acknowledge(now)
            self._handle(message, now)
        except ProtocolError as error:
            self.refuse(error, now)
            return
        self._maybe_end(now)

    def refuse(self, error: ProtocolError, now: Instant) -> None:
        """The agent broke the contract: say so and end."""
        if self.ended:
            return
        if self.connection.state is not State.CLOSED:
            self._send(wire.Error(code=int(error.close_code), detail=str(error)))
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
        for turn_id in sorted(self._open_turns):
            self._fence(self._turns[turn_id], "cancelled", now)
        if self.connection.state in (State.GREETED, State.PLAYING):
            self._send(wire.End(reason="interrupted"))
            self._record(now, EndSent(reason="interrupted"))
        self._end("interrupted", now, "")

    # ------------------------------------------------------------------------------------- releasing

    def _find_holder(self, media_ns: int, now: Instant) -> _Holder:
        """What kept the item that is released now: the hold that ends here, or one in which it fell due."""
        if self._held_by is not None:
            self._last_hold = self._held_by, now.wall_ns
            return self._held_by
        holder, ended_wall_ns = self._last_hold
        due_wall_ns = self._wall_at(media_ns)
        return holder if due_wall_ns is not None and due_wall_ns < ended_wall_ns else None

    def _release_frame(self, item: DueFrame, now: Instant) -> None:
        sample = item.sample
        if sample.digest is None:
            message = self._send(wire.Gap(from_k=sample.k, to_k=sample.k + 1, reason="no_picture"))
            self._record(
                now, GapSent(from_k=sample.k, to_k=sample.k + 1, reason="no_picture", seq=message.seq)
            )
            return
        frame = self._send(
            wire.Frame(k=sample.k, media_ns=item.media_ns, encoding=self.config.encoding, data=b"")
        )
        self._give_work(now)
        self._unsettled.add(sample.k)
        self._frames_in_flight.append(frame.seq)
        self._frame_times_ns.append(item.media_ns)
        self._record(
            now,
            FrameSent(
                k=sample.k,
                media_ns=item.media_ns,
                due_wall_ns=self._wall_at(item.media_ns),
                size_bytes=sample.size_bytes,
                digest=sample.digest,
                seq=frame.seq,
                held_by=self._held_by,
            ),
        )

    def _release_query(self, item: DueQuery, now: Instant) -> None:
        chain = self._chains[item.index]
        if not self._frame_times_ns:
            self.warn(now, "no_picture", f"{wire_name(item.index)} is asked before any picture")
        self._send_probe(chain, "task", item.media_ns, self._wall_at(item.media_ns), now)

    def _send_probe(
        self,
        chain: QueryChain,
        probe: wire.Probe,
        due_media_ns: int,
        due_wall_ns: int | None,
        now: Instant,
    ) -> None:
        query = chain.query
        visible = bisect_right(self._frame_times_ns, query.media_ns + wire.VISIBILITY_TOLERANCE_NS)
        options = query.options if probe == "task" else ()
        text = self._prompts.render(
            probe,
            kind=query.kind,
            stem=query.stem,
            options=options,
            frame_stamps=tuple(self._frame_times_ns[:visible]),
        )
        guard = now.wall_ns if self.config.clock == "lockstep" or due_wall_ns is None else due_wall_ns
        turn = Turn(id=self._next_turn, chain=chain, probe=probe, timeout_from_wall_ns=guard)
        self._next_turn += 1
        self._turns[turn.id] = turn
        self._give_work(now)
        self._open_turns.add(turn.id)
        chain.turn = turn
        message = self._send(
            wire.ProbeMessage(
                turn=turn.id,
                query=wire_name(chain.index),
                order=chain.index,
                kind=query.kind,
                probe=probe,
                media_ns=query.media_ns,
                text=text,
                stem=query.stem,
                options=options,
            )
        )
        self._record(
            now,
            ProbeSent(
                query=wire_name(chain.index),
                probe=probe,
                turn=turn.id,
                media_ns=query.media_ns,
                due_media_ns=due_media_ns,
                due_wall_ns=due_wall_ns,
                text=text,
                seq=message.seq,
                held_by=self._held_by if probe == "task" else None,
            ),
        )

    def _give_work(self, now: Instant) -> None:
        """An idle agent's silence counts from the work that it is given."""
        if not self._unsettled and not self._open_turns:
            self._sign_wall_ns = now.wall_ns

    def _finish_media(self, now: Instant) -> bool:
        if self._media_ended_wall_ns is not None or self._media_warnings is None:
            return False
        self._media_ended_wall_ns = now.wall_ns
        for warning in self._media_warnings:
            self.warn(now, "video", warning)
        self._record(now, MediaEnded(samples=self._timeline.frames_total))
        self._maybe_end(now)
        return True

    def _maybe_end(self, now: Instant) -> None:
        if self._media_ended_wall_ns is None or self.busy or self.connection.state is not State.PLAYING:
            return
        self._send_end(now)

    def _send_end(self, now: Instant) -> None:
        self._send(wire.End(reason="completed"))
        self._record(now, EndSent(reason="completed"))
        self._end_wall_ns = now.wall_ns

    # ------------------------------------------------------------------------------------- receiving

    def _handle(self, message: wire.AgentMessage, now: Instant) -> None:
        match message:
            case wire.Hello():
                self._greet(message, now)
            case wire.Ready():
                self._take_ready(message, now)
            case wire.Ack():
                pass
            case wire.Settled():
                self._settle(message, now)
            case wire.TurnStarted():
                self._start_turn(message, now)
            case wire.Text():
                self._hear(message, now)
            case wire.TurnEnded():
                self._end_turn(message, now)
            case wire.Working():
                self._working = message.active
                self._record(now, WorkingChanged(active=message.active))
            case wire.Stats():
                finite = {name: value for name, value in message.values.items() if math.isfinite(value)}
                if finite:
                    self._record(now, StatsReported(values=finite))
            case wire.Failed():
                self._record(now, AgentFailed(phase=message.phase, error=message.error))
                if message.phase in ("load", "begin"):
                    self._end("agent_failed", now, f"the agent raised in {message.phase}")
            case wire.Bye():
                self._end("completed", now, "", saved=message.saved, saved_bytes=message.saved_bytes)
            case _:
                assert_never(message)

    def _greet(self, hello: wire.Hello, now: Instant) -> None:
        if wire.MAJOR_VERSION not in hello.versions:
            raise VersionMismatch(
                f"expected protocol version {wire.MAJOR_VERSION}, got {list(hello.versions)}"
            )
        self._hello = hello
        self._capabilities = tuple(name for name in CAPABILITIES if name in hello.capabilities)
        self._send(
            wire.Welcome(
                version=wire.VERSION,
                capabilities=self._capabilities,
                session=self.config.session,
                clock=self.config.clock,
                history=self.config.history,
                frames=self.config.frames or hello.frames,
                fps=self.config.fps,
                size=self.config.size,
                seed=self.config.seed,
                credit=self.config.credit,
            )
        )

    def _take_ready(self, ready: wire.Ready, now: Instant) -> None:
        assert self._hello is not None
        self._ready = True
        self._record(
            now,
            AgentReady(
                agent=self._hello.agent,
                capabilities=self._capabilities,
                frames=self.config.frames or self._hello.frames,
                libraries=self._hello.libraries,
                begin_ns=ready.begin_ns,
            ),
        )

    def _settle(self, settled: wire.Settled, now: Instant) -> None:
        if settled.k not in self._unsettled:
            problem = "settled twice" if settled.k in self._settled else "never sent"
            raise WrongOrder(f"frame {settled.k} was {problem}")
        self._unsettled.discard(settled.k)
        self._settled.add(settled.k)
        self._record(
            now,
            FrameSettled(
                k=settled.k,
                outcome=settled.outcome,
                waited_ns=settled.waited_ns,
                service_ns=settled.service_ns,
                error=settled.error,
            ),
        )

    def _start_turn(self, message: wire.TurnStarted, now: Instant) -> None:
        turn = self._turns.get(message.turn)
        if turn is None and message.turn >= wire.FIRST_UNPROMPTED_TURN:
            turn = self._turns[message.turn] = Turn(id=message.turn, chain=None, probe=None)
            self._open_turns.add(turn.id)
        if turn is None:
            raise WrongOrder(f"turn {message.turn} was never given out")
        if turn.started or turn.ended:
            raise WrongOrder(f"turn {message.turn} started twice")
        turn.started = True
        self._record(
            now,
            TurnStarted(turn=turn.id, seen_media_ns=message.seen_media_ns, waited_ns=message.waited_ns),
        )

    def _hear(self, message: wire.Text, now: Instant) -> None:
        turn = self._turns.get(message.turn)
        if turn is None or not turn.started or turn.ended:
            raise WrongOrder(f"text for turn {message.turn}, which is not open")
        if turn.fenced is not None:
            self._record(now, LateTextReceived(turn=turn.id, text=message.text))
        elif turn.hear(message.text):
            self._record(now, TextReceived(turn=turn.id, text=message.text))
        else:
            self._fence(turn, "too_long", now)

    def _end_turn(self, message: wire.TurnEnded, now: Instant) -> None:
        turn = self._turns.get(message.turn)
        if turn is None or turn.ended:
            raise WrongOrder(f"end of turn {message.turn}, which is not open")
        if turn.fenced is None and (not turn.started or message.reason == "closed"):
            raise WrongOrder(f"turn {message.turn} ended as {message.reason!r} without having been closed")
        turn.ended = True
        self._open_turns.discard(turn.id)
        self._record(
            now,
            TurnEnded(
                turn=turn.id,
                reason=message.reason,
                service_ns=message.service_ns,
                first_text_ns=message.first_text_ns,
                marks=message.marks,
                dropped_chars=message.dropped_chars,
                error=message.error,
            ),
        )
        if turn.fenced is not None or turn.chain is None or turn.probe is None:
            return
        if message.reason == "failed":
            self._close_chain(turn.chain, "failed", now)
            return
        self._read(turn, turn.chain, turn.probe, now)

    def _read(self, turn: Turn, chain: QueryChain, probe: wire.Probe, now: Instant) -> None:
        reading = read_probe(self._reader, probe, chain.query, turn.text)
        self._record(
            now,
            ProbeRead(
                query=wire_name(chain.index),
                probe=probe,
                turn=turn.id,
                letters=reading.letters,
                valid=reading.valid,
            ),
        )
        following = chain.next_probe(probe, reading)
        if following is None:
            self._close_chain(chain, "answered", now)
        else:
            self._send_probe(chain, following, now.media_ns, now.wall_ns, now)

    def _acknowledge(self, now: Instant) -> None:
        self._record(now, Acknowledged(seq=self.connection.acknowledged))
        while self._frames_in_flight and self._frames_in_flight[0] <= self.connection.acknowledged:
            self._frames_in_flight.popleft()
        self._credit_wall_ns = None

    def _count(self, message: wire.AgentMessage) -> None:
        if isinstance(message, wire.Text) and message.text:
            turn = self._turns.get(message.turn)
            if turn is not None and turn.fenced is None:
                return  # a turn has its own limit
        self._agent_messages += 1
        allowed = FLOOD_ALLOWANCE + FLOOD_PER_MESSAGE * self.connection.sent
        if self._agent_messages > allowed:
            flood = ProtocolError(f"expected at most {allowed} messages by now, got {self._agent_messages}")
            flood.close_code = CloseCode.FLOOD
            raise flood

    # --------------------------------------------------------------------------- timeouts and endings

    def _timeouts(self) -> list[tuple[int, _Fire]]:
        timeouts: list[tuple[int, _Fire]] = []
        for turn_id in sorted(self._open_turns):
            turn = self._turns[turn_id]
            if turn.fenced is not None:
                timeouts.append((turn.fenced_wall_ns + self.config.hang_timeout_ns, self._hang))
            elif turn.chain is not None:
                deadline = turn.timeout_from_wall_ns + self.config.answer_timeout_ns
                timeouts.append((deadline, partial(self.time_out, turn)))
        held = self._working and self.config.clock == "lockstep"
        if self._unsettled or self._open_turns or held:
            silence_ns = self.config.answer_timeout_ns + self.config.hang_timeout_ns
            timeouts.append((self._sign_wall_ns + silence_ns, self._lose_sign))
        if self._credit_wall_ns is not None:
            timeouts.append((self._credit_wall_ns + self.config.credit_timeout_ns, self._cut_off))
        if self._end_wall_ns is not None:
            stuck = self._unsettled or self._open_turns
            patience_ns = self.config.hang_timeout_ns if stuck else self.config.drain_timeout_ns
            timeouts.append((self._end_wall_ns + patience_ns, self._miss_bye))
        elif self._media_ended_wall_ns is not None:
            timeouts.append((self._media_ended_wall_ns + self.config.drain_timeout_ns, self._stop_draining))
        return timeouts

    def time_out(self, turn: Turn, now: Instant) -> None:
        """The answer did not end in time: fence the turn, close its chain."""
        if self.config.clock == "lockstep":
            self.warn(now, "lockstep_timeout", f"turn {turn.id} ran into the wall-time guard")
        self._fence(turn, "timed_out", now)
        self._maybe_end(now)

    def _fence(self, turn: Turn, reason: wire.TurnCloseReason, now: Instant) -> None:
        if turn.fenced is not None:
            return
        turn.fenced = reason
        turn.fenced_wall_ns = now.wall_ns
        self._send(wire.TurnClosed(turn=turn.id, reason=reason))
        self._record(now, TurnClosed(turn=turn.id, reason=reason))
        if turn.chain is not None:
            self._close_chain(turn.chain, "failed" if reason == "too_long" else reason, now)

    def _hang(self, now: Instant) -> None:
        self._end("hung", now, "the worker was not idle in time after its turn was closed")

    def _lose_sign(self, now: Instant) -> None:
        self._end("hung", now, "the agent had work and gave no sign for answer timeout + hang timeout")

    def _cut_off(self, now: Instant) -> None:
        detail = f"no reception acknowledged for {self.config.credit_timeout_ns / 1e9:g} s"
        self._end("disconnected", now, detail, close_code=CloseCode.CREDIT_TIMEOUT)

    def _stop_draining(self, now: Instant) -> None:
        detail = f"{len(self._unsettled)} frames were unsettled when the drain timeout fired"
        self.warn(now, "drain_timeout", detail)
        for turn_id in sorted(self._open_turns):
            self._fence(self._turns[turn_id], "timed_out", now)
        if self.connection.state is State.PLAYING:
            self._send_end(now)

    def _miss_bye(self, now: Instant) -> None:
        stuck = self._unsettled or self._open_turns
        self.warn(now, "no_bye", "the agent did not say bye in time; nothing that it saved counts")
        self._end("completed" if stuck else "hung", now, "no bye in time", close_code=CloseCode.HUNG)

    def _close_chain(self, chain: QueryChain, outcome: wire.Outcome, now: Instant) -> None:
        if chain.outcome is not None:
            return
        chain.outcome = outcome
        if self.connection.state is State.PLAYING:
            self._send(wire.ChainClosed(query=wire_name(chain.index)))
        self._record(now, ChainClosed(query=wire_name(chain.index), outcome=outcome))

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
        self.ended = True
        for chain in self._chains:
            if chain.outcome is None:
                chain.outcome = _outcome_at_end(reason, chain)
                self._record(now, ChainClosed(query=wire_name(chain.index), outcome=chain.outcome))
        self.close_code = _CLOSE_CODES[reason] if close_code is None else close_code
        self.close_reason = detail
        self._record(
            now,
            SessionEnded(
                reason=reason,
                detail=detail,
                saved=saved,
                saved_bytes=saved_bytes,
                unsettled_frames=len(self._unsettled),
            ),
        )

    # --------------------------------------------------------------------------------------- helpers

    def _send(self, message: _Sent) -> _Sent:
        stamped = self.connection.stamp(message)
        self._outbox.append(stamped)
        return stamped

    def _record(self, now: Instant, event: AnyEvent) -> None:
        self._events.append((now, event))

    def _has_credit(self) -> bool:
        return len(self._frames_in_flight) < self.config.credit

    def _wall_at(self, media_ns: int) -> int | None:
        """When media time reached ``media_ns``, by the pair that was in force then."""
        index = bisect_right(self._takes, media_ns, key=lambda taken: taken.media_ns) - 1
        taken = self._takes[max(index, 0)]
        if media_ns == taken.media_ns or taken.rate == 0.0:
            first = taken
            while index > 0 and self._takes[index - 1].media_ns == taken.media_ns:
                index -= 1
                first = self._takes[index]
            return first.wall_ns
        return taken.wall_ns + round((media_ns - taken.media_ns) / taken.rate)


def _outcome_at_end(reason: EndReason, chain: QueryChain) -> wire.Outcome:
    """The outcome of a query that the session's end found open or untouched."""
    if not chain.open:
        return "not_reached"
    match reason:
        case "disconnected" | "protocol_error":
            return "disconnected"
        case "hung" | "agent_failed":
            return "failed"
        case "completed" | "interrupted" | "ready_timeout" | "media_failed":
            return "cancelled"
        case _:
            assert_never(reason)

"""A session and its agent in simulated time: the real core and the real inbox, no sockets and no waiting.

Every message passes through the codec and both ends number and check what they exchange, as on a wire.
The agent is nothing but its service times and its words. At one instant the server releases what is
due before it handles what it has received, and the worker chooses among what has arrived by then. This
module knows no files and reads no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

import msgspec

from streamsim.clock import Clock
from streamsim.events import AnyEvent, Instant, SessionEnded
from streamsim.session import Session
from streamsim.timeline import Sample
from streamsim_protocol import messages as wire
from streamsim_protocol.codec import decode_agent_message, decode_server_message, encode
from streamsim_protocol.inbox import Inbox, WaitingFrame, WaitingProbe
from streamsim_protocol.states import Connection

Action = Callable[[Session, Instant], None]
ToAgent = Callable[[wire.ServerMessage], int]
ToServer = Callable[[wire.AgentMessage], int]
_Message = TypeVar("_Message", bound=wire.Message)


class Utterance(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent says to one probe, in nanoseconds from the start of the turn.

    ``service_ns`` None: the turn never ends by itself. ``pieces`` are (time, text), ascending. With
    ``error`` the turn ends as failed.
    """

    service_ns: int | None
    pieces: tuple[tuple[int, str], ...] = ()
    error: str | None = None


def say(text: str, service_ns: int) -> Utterance:
    """All of ``text`` at the end of ``service_ns``."""
    return Utterance(service_ns=service_ns, pieces=((service_ns, text),))


@dataclass(slots=True, kw_only=True)
class _Job:
    """What the worker is at: a frame, a turn, or the saving at the end."""

    started_ns: int
    ends_ns: int | None
    frame: WaitingFrame | None = None
    turn: int | None = None
    pieces: deque[tuple[int, str]] = field(default_factory=deque)
    first_text_ns: int | None = None
    error: str | None = None
    cancelled: bool = False
    dropped_chars: int = 0


class SimulatedAgent:
    """An agent's runtime and worker, given how long each piece of work takes.

    ``observe(k)`` is the nanoseconds of work for a frame (None: it never returns), ``answer(probe)``
    what is said to a probe. Frames in ``failing`` raise. ``idle_after_cancel_ns`` is the time from a
    cancel to idleness; with None the agent looks at no cancel and works to its turn's end.
    ``save_ns`` None: it never says ``bye``.
    """

    def __init__(
        self,
        *,
        observe: Callable[[int], int | None],
        answer: Callable[[wire.ProbeMessage], Utterance],
        frames: wire.FramePolicy = "all",
        capabilities: tuple[str, ...] = (),
        failing: Container[int] = (),
        idle_after_cancel_ns: int | None = 0,
        save_ns: int | None = 0,
    ) -> None:
        self._observe = observe
        self._answer = answer
        self._frames = frames
        self._capabilities = capabilities
        self._failing = failing
        self._idle_after_cancel_ns = idle_after_cancel_ns
        self._save_ns = save_ns
        self._connection = Connection()
        self._outgoing: deque[wire.AgentMessage] = deque()
        self._inbox: Inbox | None = None
        self._received_ns: dict[int, int] = {}
        self._job: _Job | None = None
        self._closed_unstarted: deque[int] = deque()
        self._seen_media_ns: int | None = None
        self._ending = False
        self._over = False
        self._outgoing.append(
            wire.Hello(
                versions=(wire.MAJOR_VERSION,), agent="simulated", frames=frames, capabilities=capabilities
            )
        )

    def say(self, message: wire.AgentMessage) -> None:
        """Have something to send beside what follows from the work."""
        self._outgoing.append(message)

    def take_message(self) -> wire.AgentMessage | None:
        """The next message to send, numbered; None when there is none."""
        return self._connection.stamp(self._outgoing.popleft()) if self._outgoing else None

    def next_wall_ns(self) -> int | None:
        """When the worker has something to say next; None while it waits or is stuck."""
        job = self._job
        if job is None or self._over:
            return None
        times = [time for time in (job.ends_ns, job.pieces[0][0] if job.pieces else None) if time is not None]
        return min(times, default=None)

    def receive(self, message: wire.ServerMessage, wall_ns: int) -> None:
        """A message has arrived; ``ProtocolError`` if the server broke the contract."""
        self._connection.receive(message)
        match message:
            case wire.Welcome():
                self._outgoing.append(wire.Ack())
                self._inbox = Inbox(message.frames, message.history)
                self._outgoing.append(wire.Ready())
            case wire.Frame():
                self._outgoing.append(wire.Ack())
                self._put(WaitingFrame(k=message.k, media_ns=message.media_ns, handle=0, received_ns=wall_ns))
            case wire.ProbeMessage():
                self._outgoing.append(wire.Ack())
                self._put(WaitingProbe(message=message, received_ns=wall_ns))
            case wire.TurnClosed():
                self._close_turn(message.turn, wall_ns)
            case wire.ChainClosed():
                assert self._inbox is not None
                self._inbox.close_chain(message.query)
            case wire.End(reason="completed"):
                self._ending = True
            case wire.End() | wire.Error():
                self._over = True
            case wire.Gap() | wire.Tick():
                pass

    def advance(self, wall_ns: int) -> bool:
        """Do one thing that is due; False when nothing is. Call until False."""
        job = self._job
        if self._over or self._inbox is None:
            return False
        if job is None:
            return self._take_up(wall_ns)
        if job.pieces and job.pieces[0][0] <= wall_ns:
            self._utter(job)
            return True
        if job.ends_ns is not None and job.ends_ns <= wall_ns:
            self._job = None
            self._finish(job, wall_ns)
            return True
        return False

    def _put(self, item: WaitingFrame | WaitingProbe) -> None:
        assert self._inbox is not None
        self._inbox.put(item)

    def _close_turn(self, turn: int, wall_ns: int) -> None:
        assert self._inbox is not None
        job = self._job
        if self._inbox.withdraw(turn):
            self._closed_unstarted.append(turn)
        elif job is not None and job.turn == turn and self._idle_after_cancel_ns is not None:
            job.cancelled = True
            idle_ns = wall_ns + self._idle_after_cancel_ns
            job.ends_ns = idle_ns if job.ends_ns is None else min(idle_ns, job.ends_ns)

    def _take_up(self, wall_ns: int) -> bool:
        assert self._inbox is not None
        if self._closed_unstarted:
            self._outgoing.append(wire.TurnEnded(turn=self._closed_unstarted.popleft(), reason="closed"))
            return True
        choice = self._inbox.take()
        if choice is None:
            if self._ending and self._save_ns is not None:
                self._job = _Job(started_ns=wall_ns, ends_ns=wall_ns + self._save_ns)
            return self._job is not None
        for frame in choice.skipped:
            waited_ns = wall_ns - frame.received_ns
            self._outgoing.append(wire.Settled(k=frame.k, outcome="skipped", waited_ns=waited_ns))
        item = choice.item
        if isinstance(item, WaitingFrame):
            self._job = _Job(started_ns=wall_ns, ends_ns=_after(wall_ns, self._observe(item.k)), frame=item)
            return True
        said = self._answer(item.message)
        self._job = _Job(
            started_ns=wall_ns,
            ends_ns=_after(wall_ns, said.service_ns),
            turn=item.message.turn,
            pieces=deque((wall_ns + time_ns, text) for time_ns, text in said.pieces),
            error=said.error,
        )
        self._outgoing.append(
            wire.TurnStarted(
                turn=item.message.turn,
                seen_media_ns=self._seen_media_ns,
                waited_ns=wall_ns - item.received_ns,
            )
        )
        return True

    def _utter(self, job: _Job) -> None:
        time_ns, text = job.pieces.popleft()
        assert job.turn is not None
        if job.cancelled:
            job.dropped_chars += len(text)
            return
        if job.first_text_ns is None:
            job.first_text_ns = time_ns - job.started_ns
        self._outgoing.append(wire.Text(turn=job.turn, text=text))

    def _finish(self, job: _Job, wall_ns: int) -> None:
        service_ns = wall_ns - job.started_ns
        if job.frame is not None:
            failed = job.frame.k in self._failing
            self._seen_media_ns = job.frame.media_ns
            self._outgoing.append(
                wire.Settled(
                    k=job.frame.k,
                    outcome="failed" if failed else "processed",
                    waited_ns=job.started_ns - job.frame.received_ns,
                    service_ns=service_ns,
                    error="Traceback: observe" if failed else None,
                )
            )
        elif job.turn is not None:
            reason: wire.TurnEndReason = "finished" if job.error is None else "failed"
            self._outgoing.append(
                wire.TurnEnded(
                    turn=job.turn,
                    reason="closed" if job.cancelled else reason,
                    service_ns=service_ns,
                    first_text_ns=job.first_text_ns,
                    dropped_chars=job.dropped_chars,
                    error=job.error,
                )
            )
        else:
            self._over = True
            self._outgoing.append(wire.Bye())


def _after(wall_ns: int, duration_ns: int | None) -> int | None:
    return None if duration_ns is None else wall_ns + duration_ns


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One message between them: the server's at its sending, the agent's at its receipt by the server."""

    at: Instant
    sender: Literal["server", "agent"]
    message: wire.ServerMessage | wire.AgentMessage
    data: bytes


class Observer(Protocol):
    """Sees everything in order: what was received, the events and messages that followed, the rest."""

    def exchanged(self, exchange: Exchange) -> None:
        """A message was sent by the server, or received and accepted by it."""

    def happened(self, at: Instant, event: AnyEvent) -> None:
        """The session recorded an event."""

    def rested(self, now: Instant) -> None:
        """A step is over: everything that it caused has been seen."""


class Simulation:
    """Drives one session against one simulated agent until the session ends or nothing can happen.

    ``decoded_ns(k)`` is the wall time at which sample ``k`` is there. ``to_agent_ns`` and ``to_server_ns``
    are how long messages take (each, or by message); none overtakes another. Wall time starts at the
    agent's ``ready``; the clock at ``start_ns``.
    """

    def __init__(
        self,
        session: Session,
        clock: Clock,
        agent: SimulatedAgent,
        samples: Sequence[Sample],
        *,
        decoded_ns: Callable[[int], int] = lambda k: 0,
        to_agent_ns: int | ToAgent = 0,
        to_server_ns: int | ToServer = 0,
        start_ns: int = 0,
        observer: Observer | None = None,
    ) -> None:
        self.session = session
        self.clock = clock
        self.exchanges: list[Exchange] = []
        self.events: list[tuple[Instant, AnyEvent]] = []
        self.wall_ns = 0
        self._agent = agent
        self._samples = deque(samples)
        self._decoded_ns = decoded_ns
        self._to_agent_ns: ToAgent = to_agent_ns if callable(to_agent_ns) else lambda message: to_agent_ns
        self._to_server_ns: ToServer = (
            to_server_ns if callable(to_server_ns) else lambda message: to_server_ns
        )
        self._start_ns = start_ns
        self._started = False
        self._media_over = False
        self._to_agent: deque[tuple[int, bytes]] = deque()
        self._to_server: deque[tuple[int, bytes]] = deque()
        self._actions: list[tuple[int, Action]] = []
        self._agent_stops_ns: tuple[int, int | None] | None = None
        self._observer = observer
        self._collect()

    def schedule(self, wall_ns: int, action: Action) -> None:
        """Call ``action(session, now)`` at ``wall_ns``, before anything else of that instant."""
        self._actions.append((wall_ns, action))
        self._actions.sort(key=lambda planned: planned[0])

    def stop_agent(self, from_ns: int, until_ns: int | None = None) -> None:
        """Let the agent's process stand still, socket included, as SIGSTOP does; None: for good."""
        self._agent_stops_ns = (from_ns, until_ns)

    def run(self, until_ns: int | None = None) -> Simulation:
        """Go on until the session has ended, nothing can happen any more, or ``until_ns`` is over."""
        while True:
            while not self.session.ended and self._step():
                pass
            wall_ns = self._next_wall_ns()
            if wall_ns is None or (until_ns is not None and wall_ns > until_ns):
                return self
            assert wall_ns > self.wall_ns, "the simulation stands still"
            self.wall_ns = wall_ns

    # ------------------------------------------------------------------------------- at one instant

    def _step(self) -> bool:
        """Do one thing at this instant, the server's before the agent's; False when all is done."""
        return (
            self._act()
            or self._feed()
            or self._advance()
            or self._deliver_to_agent()
            or self._deliver_to_server()
            or self._work()
        )

    def _act(self) -> bool:
        if not self._actions or self._actions[0][0] > self.wall_ns:
            return False
        _, action = self._actions.pop(0)
        action(self.session, self._now())
        self._collect()
        return True

    def _feed(self) -> bool:
        if self._samples:
            if self._decoded_ns(self._samples[0].k) > self.wall_ns:
                return False
            self.session.add_sample(self._samples.popleft())
            return True
        if self._media_over:
            return False
        self._media_over = True
        self.session.end_media(())
        return True

    def _advance(self) -> bool:
        if not self.session.ready:
            return False
        if not self._started:
            if self.wall_ns < self._start_ns:
                return False
            self._started = True
            self.session.clock_taken(self.clock.start(self.wall_ns))
        if not self.session.advance(self._now()):
            self._collect()
            return False
        self._collect()
        return True

    def _deliver_to_agent(self) -> bool:
        if not self._to_agent or self._to_agent[0][0] > self.wall_ns or self._stopped:
            return False
        _, data = self._to_agent.popleft()
        self._agent.receive(decode_server_message(data), self.wall_ns)
        self._take_agent_messages()
        return True

    def _deliver_to_server(self) -> bool:
        if not self._to_server and not self.session.greeted:
            self._take_agent_messages()
        if not self._to_server or self._to_server[0][0] > self.wall_ns:
            return False
        _, data = self._to_server.popleft()
        self._receive(data)
        return True

    def speak(self, message: wire.AgentMessage) -> None:
        """Let the agent's runtime say ``message`` now, in its place in the stream."""
        self._agent.say(message)
        self._take_agent_messages()

    def _receive(self, data: bytes) -> None:
        now = self._now()
        message = decode_agent_message(data)
        self.session.receive(message, now)
        self._collect(Exchange(at=now, sender="agent", message=message, data=data))

    def _work(self) -> bool:
        if self._stopped or not self._agent.advance(self.wall_ns):
            return False
        self._take_agent_messages()
        return True

    # --------------------------------------------------------------------------------------- helpers

    @property
    def _stopped(self) -> bool:
        if self._agent_stops_ns is None:
            return False
        from_ns, until_ns = self._agent_stops_ns
        return from_ns <= self.wall_ns and (until_ns is None or self.wall_ns < until_ns)

    def _arrival_ns(self, delay_ns: Callable[[_Message], int], message: _Message) -> int:
        """Before ``ready`` there is no time that a message could take."""
        return self.wall_ns + (delay_ns(message) if self.session.ready else 0)

    def _now(self) -> Instant:
        session = self.session
        if not session.ready:
            return Instant(0, 0)
        if self._started and not session.ended:
            taken = self.clock.update(
                self.wall_ns, busy=session.busy, next_due_ns=session.next_due_ns(), starved=session.starved
            )
            if taken is not None:
                session.clock_taken(taken)
        return self.clock.now(self.wall_ns)

    def _take_agent_messages(self) -> None:
        while (message := self._agent.take_message()) is not None:
            _append_in_order(self._to_server, self._arrival_ns(self._to_server_ns, message), encode(message))

    def _collect(self, received: Exchange | None = None) -> None:
        """Take what the session has to say, journal first, then messages."""
        events = self.session.take_events()
        self.events.extend(events)
        refused = any(
            isinstance(event, SessionEnded) and event.reason == "protocol_error" for _, event in events
        )
        now = self.clock.now(self.wall_ns) if self.session.ready else Instant(0, 0)
        exchanges = [received] if received is not None and not refused else []
        for message in self.session.messages_to_send():
            data = encode(message)
            exchanges.append(Exchange(at=now, sender="server", message=message, data=data))
            _append_in_order(self._to_agent, self._arrival_ns(self._to_agent_ns, message), data)
        self.exchanges.extend(exchanges)
        if self._observer is None:
            return
        for exchange in exchanges:
            if exchange.sender == "agent":
                self._observer.exchanged(exchange)
        for at, event in events:
            self._observer.happened(at, event)
        for exchange in exchanges:
            if exchange.sender == "server":
                self._observer.exchanged(exchange)
        self._observer.rested(now)

    def _next_wall_ns(self) -> int | None:
        session = self.session
        if session.ended:
            return None
        times: list[int | None] = [queue[0][0] for queue in (self._to_server, self._actions) if queue]
        if self._agent_stops_ns is not None and self._stopped:
            times.append(self._agent_stops_ns[1])
        else:
            times.append(self._agent.next_wall_ns())
            if self._to_agent:
                times.append(self._to_agent[0][0])
        if self._samples:
            times.append(self._decoded_ns(self._samples[0].k))
        if session.ready:
            times.append(session.next_wall_deadline())
            if self._started:
                due_ns = session.next_due_ns()
                if due_ns is not None and due_ns > self.clock.now(self.wall_ns).media_ns:
                    times.append(self.clock.wall_deadline(due_ns))
            else:
                times.append(self._start_ns)
        return min((time for time in times if time is not None and time > self.wall_ns), default=None)


def _append_in_order(queue: deque[tuple[int, bytes]], arrival_ns: int, data: bytes) -> None:
    queue.append((max(arrival_ns, queue[-1][0]) if queue else arrival_ns, data))

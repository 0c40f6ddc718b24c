"""Any call at any time with any message: the session keeps its invariants and never breaks."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streamsim.chain import MAX_TURN_CHARS
from streamsim.clock import ScaledClock, make_clock
from streamsim.events import Instant, SessionEnded
from streamsim.testing import Exchange, SessionAudit, seconds, tiny_query, tiny_samples, tiny_session
from streamsim_protocol import messages as wire
from streamsim_protocol.codec import encode

OWN = wire.FIRST_UNPROMPTED_TURN
turns = st.sampled_from([1, 2, 3, 4, OWN, OWN + 1])
texts = st.sampled_from(["A", "C", "D", "", "so", "half"]).map(
    lambda text: "x" * (MAX_TURN_CHARS // 2) if text == "half" else text
)

steps = st.sampled_from([1, 2, 3, 3, 3])
messages = st.one_of(
    st.builds(wire.Settled, k=st.integers(0, 5), outcome=st.sampled_from(["processed", "skipped", "failed"])),
    st.builds(wire.TurnStarted, turn=turns, seen_media_ns=st.none() | st.integers(0, 10**10)),
    st.builds(wire.Text, turn=turns, text=texts),
    st.builds(
        wire.TurnEnded, turn=turns, reason=st.sampled_from(["finished", "finished", "failed", "closed"])
    ),
    st.builds(wire.Working, active=st.booleans()),
    st.builds(wire.Stats, values=st.just({"memory_bytes": 1.0, "nothing": float("nan")})),
    st.builds(
        wire.Failed, phase=st.sampled_from(["load", "begin", "stats", "end", "save"]), error=st.just("trace")
    ),
    st.sampled_from([wire.Hello(versions=(1,), agent="x"), wire.Hello(versions=(2,), agent="x")]),
    st.sampled_from([wire.Ready(), wire.Ack(), wire.Bye()]),
)


class Interleavings(RuleBasedStateMachine):
    """Plays both the driver and a peer that may say anything."""

    @initialize(
        clock=st.sampled_from(["realtime", "lockstep", "skip", "scaled"]),
        times_s=st.lists(st.integers(0, 3), max_size=4),
        frames=st.integers(0, 5),
        credit=st.integers(1, 3),
        ticks=st.booleans(),
        decoded=st.sampled_from([True, True, False]),
        greet=st.sampled_from([True, True, True, False]),
    )
    def begin(
        self,
        clock: wire.ClockMode,
        times_s: list[int],
        frames: int,
        credit: int,
        ticks: bool,
        decoded: bool,
        greet: bool,
    ) -> None:
        queries = [tiny_query(f"id{n}", time) for n, time in enumerate(times_s)]
        self.session = tiny_session(
            queries,
            samples=frames,
            clock=clock,
            credit=credit,
            answer_timeout_ns=seconds(4),
            hang_timeout_ns=seconds(2),
            drain_timeout_ns=seconds(6),
            credit_timeout_ns=seconds(4),
        )
        self.audit = SessionAudit(self.session, [seconds(k) for k in range(frames)], ordered=False)
        self.clock = make_clock(clock, 1.0)
        self.samples = tiny_samples(frames)
        self.media_over = False
        self.wall_ns = 0
        self.started = False
        self.seq = 0
        self.server_seq = 0
        self.acknowledged = 0
        self.begun: set[int] = set()
        self.reasons: list[str] = []
        self.collect()
        while decoded and not self.media_over:
            self.decode_next()
        if greet:
            hello = wire.Hello(versions=(1,), agent="x", capabilities=("ticks",) if ticks else ())
            for message in (hello, wire.Ready()):
                self.receive(message, 0)

    def now(self) -> Instant:
        session = self.session
        if not session.ready:
            return Instant(0, 0)
        if self.started and not session.ended:
            taken = self.clock.update(
                self.wall_ns, busy=session.busy, next_due_ns=session.next_due_ns(), starved=session.starved
            )
            if taken is not None:
                session.clock_taken(taken)
        return self.clock.now(self.wall_ns)

    def collect(self, received: wire.AgentMessage | None = None) -> None:

        events = self.session.take_events()
        self.reasons += [event.reason for _, event in events if isinstance(event, SessionEnded)]
        at = self.clock.now(self.wall_ns) if self.session.ready else Instant(0, 0)
        if received is not None and self.reasons != ["protocol_error"]:
            self.audit.exchanged(Exchange(at=at, sender="agent", message=received, data=b""))
        for instant, event in events:
            self.audit.happened(instant, event)
        for message in self.session.messages_to_send():
            assert len(encode(message)) < wire.MAX_SERVER_MESSAGE_BYTES
            self.server_seq = message.seq
            self.audit.exchanged(Exchange(at=at, sender="server", message=message, data=b""))
        self.audit.rested(at)

    def advance(self) -> None:
        if self.session.ready and not self.started:
            self.started = True
            self.session.clock_taken(self.clock.start(self.wall_ns))
        while self.session.advance(self.now()):
            self.collect()
        self.collect()
        deadline = self.session.next_wall_deadline()
        assert deadline is None or deadline > self.wall_ns

    def receive(self, message: wire.AgentMessage, ack_behind: int) -> None:
        self.acknowledged = max(self.acknowledged, self.server_seq - ack_behind)
        message = msgspec.structs.replace(message, seq=self.seq + 1, ack=self.acknowledged)
        ended = self.session.ended
        self.session.receive(message, self.now())
        self.seq += 1
        self.collect(None if ended else message)
        self.advance()

    @rule(message=messages, ack_behind=st.sampled_from([0, 0, 1, 10]), sure=st.integers(0, 5))
    def babble(self, message: wire.AgentMessage, ack_behind: int, sure: int) -> None:
        if not sure:  # most of it is out of order and ends the session
            self.receive(message, ack_behind)

    @rule(ack_behind=st.sampled_from([0, 0, 1, 3]))
    def acknowledge(self, ack_behind: int) -> None:
        if self.session.ready:
            self.receive(wire.Ack(), ack_behind)

    @precondition(lambda self: self.audit.open_turns)
    @rule(data=st.data(), text=texts, reason=st.sampled_from(["finished"] * 4 + ["failed"]), steps=steps)
    def speak(self, data: Any, text: str, reason: wire.TurnEndReason, steps: int) -> None:
        """Go on with an open turn: start it, say something, end it, or the first steps of that."""
        turn = data.draw(st.sampled_from(sorted(self.audit.open_turns)))
        course: list[wire.AgentMessage] = [
            wire.Text(turn=turn, text=text),
            wire.TurnEnded(turn=turn, reason=reason),
        ]
        if turn not in self.begun:
            course.insert(0, wire.TurnStarted(turn=turn, seen_media_ns=None))
            self.begun.add(turn)
        for message in course[:steps]:
            self.receive(message, 0)

    @precondition(lambda self: self.session.ready)
    @rule(turn=st.sampled_from([OWN, OWN + 1]))
    def speak_unasked(self, turn: int) -> None:
        if turn not in self.begun:
            self.begun.add(turn)
            self.receive(wire.TurnStarted(turn=turn, seen_media_ns=None), 0)

    @precondition(lambda self: self.audit.unsettled)
    @rule()
    def settle(self) -> None:
        self.receive(wire.Settled(k=min(self.audit.unsettled), outcome="processed"), 0)

    @rule(seconds_=st.sampled_from([0.0, 0.3, 1.0, 1.0, 2.5, 7.0]))
    def wait(self, seconds_: float) -> None:
        until_ns = self.wall_ns + seconds(seconds_)
        while True:
            self.advance()
            due_ns = self.session.next_due_ns() if self.started else None
            walls = [self.session.next_wall_deadline()]
            if due_ns is not None and due_ns > self.now().media_ns:
                walls.append(self.clock.wall_deadline(due_ns))
            next_ns = min((wall for wall in walls if wall is not None), default=until_ns)
            if next_ns >= until_ns or self.session.ended:
                break
            self.wall_ns = next_ns
        self.wall_ns = until_ns
        self.advance()

    @rule(seconds_=st.sampled_from([1.0, 5.0]))
    def oversleep(self, seconds_: float) -> None:
        """The driver itself was held up: much falls due at once."""
        self.wall_ns += seconds(seconds_)
        self.advance()

    def decode_next(self) -> None:
        if self.samples:
            self.session.add_sample(self.samples.pop(0))
        else:
            self.media_over = True
            self.session.end_media(["a picture is damaged"])

    @precondition(lambda self: not self.media_over)
    @rule()
    def decode(self) -> None:
        self.decode_next()
        self.advance()

    @precondition(lambda self: isinstance(self.clock, ScaledClock) and self.started)
    @rule(control=st.sampled_from(["pause", "resume", "step"]))
    def control(self, control: str) -> None:
        assert isinstance(self.clock, ScaledClock)
        match control:
            case "pause":
                taken = self.clock.pause(self.wall_ns)
            case "resume":
                taken = self.clock.resume(self.wall_ns)
            case _:
                taken = self.clock.step(self.wall_ns, self.session.next_due_ns())
        if taken is not None:
            self.session.clock_taken(taken)
        self.collect()
        self.advance()

    @rule(how=st.sampled_from(["interrupt", "disconnect", "fail", "seq", "ack"]), sure=st.integers(0, 9))
    def break_off(self, how: str, sure: int) -> None:
        if sure:
            return  # rarely, or no session would live long
        now = self.now()
        match how:
            case "interrupt":
                self.session.interrupt(now)
            case "disconnect":
                self.session.disconnect(now, "gone")
            case "fail":
                self.session.fail("hung", now, "gone")
            case "seq":
                self.session.receive(wire.Ack(seq=self.seq + 2, ack=self.acknowledged), now)
            case _:
                self.session.receive(wire.Ack(seq=self.seq + 1, ack=self.server_seq + 1), now)
        assert self.session.ended
        self.collect()

    @invariant()
    def one_end(self) -> None:
        assert len(self.reasons) == int(self.session.ended)


Interleavings.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, derandomize=True
)
test_arbitrary_interleavings = pytest.mark.slow(Interleavings.TestCase)

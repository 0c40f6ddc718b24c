"""Plays the agent's half of a transcript to the real session core and clock, in literal time.

Bytes go in and bytes come out. The loop here does what the server's driver does, with the transcript's
instants in place of a wall clock: at one instant what is due is released before what was received is
handled, and the clock is updated before every look at it.
"""

from __future__ import annotations

from collections import deque
from typing import Any, assert_never

import msgspec

from streamsim.clock import ScaledClock, exact_rate, make_clock
from streamsim.episodes.episode import EpisodeQuery
from streamsim.events import (
    AnyEvent,
    ChainClosed,
    ClockTaken,
    Instant,
    LateTextReceived,
    SessionEnded,
)
from streamsim.prompts import parse_prompts
from streamsim.reading import READERS
from streamsim.session import Session
from streamsim.testing import tiny_config
from streamsim.timeline import Sample
from streamsim_protocol import messages as wire
from streamsim_protocol.codec import decode_agent_message, encode
from streamsim_protocol.errors import ProtocolError
from tests.protocol.vectors import Act, Step, Transcript, read_twin


class Deviation(AssertionError):
    """One side did something else than the transcript says; the text says what and when."""


def make_session(transcript: Transcript) -> Session:
    """The session that a transcript describes, with nothing decoded yet."""
    table, rules = transcript.table, dict(read_twin(transcript.session))
    rules["size"] = tuple(rules["size"])
    queries = [
        EpisodeQuery(
            id=f"episode-query-{index}",
            kind=query["kind"],
            media_ns=query["media_ns"],
            stem=query["stem"],
            options=tuple(query["options"]),
        )
        for index, query in enumerate(table["queries"])
    ]
    times_ns = [sample["media_ns"] for sample in table["samples"]]
    return Session(
        tiny_config(**rules), queries, times_ns, parse_prompts(table["prompts"]), READERS["strict"]
    )


def make_samples(transcript: Transcript) -> list[tuple[int, Sample, bytes | None]]:
    """(when it is decoded, sample, picture) for each sample."""
    samples = []
    for k, row in enumerate(transcript.table["samples"]):
        picture = read_twin(row["picture"])
        digest = None if picture is None else f"{k:064x}"
        sample = Sample(k=k, size_bytes=0 if picture is None else len(picture), digest=digest)
        samples.append((row["decoded_ns"], sample, picture))
    return samples


def keep(events: list[AnyEvent]) -> dict[str, Any]:
    """What a transcript's ``kept`` says, out of what the session recorded."""
    late: dict[str, str] = {}
    for event in events:
        if isinstance(event, LateTextReceived):
            late[str(event.turn)] = late.get(str(event.turn), "") + event.text
    ended = [event.reason for event in events if isinstance(event, SessionEnded)]
    return {
        "ended": ended[0] if len(ended) == 1 else ended,
        "outcomes": {event.query: event.outcome for event in events if isinstance(event, ChainClosed)},
        "late_text": late,
    }


class ServerSide:
    """The server's half, to be compared with the transcript step by step."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self.session = make_session(transcript)
        config = self.session.config
        self._clock = make_clock(config.clock, config.rate)
        self._undecoded = deque(make_samples(transcript))
        self._pictures = {sample.k: picture for _, sample, picture in self._undecoded}
        self._media_over = False
        self._started = False
        self._wall_ns = 0
        self._said: deque[tuple[int, bytes]] = deque()
        self._ended_ns: int | None = None
        self.events: list[tuple[Instant, AnyEvent]] = []
        self.media_at_sending: list[tuple[int, int]] = []
        """(the frame's media time, the session's) for every frame sent."""

    def play(self) -> None:
        """Play all of it; ``Deviation`` where the server does anything else."""
        for index, step in enumerate(self._transcript.steps):
            if self._transcript.faulty == "server" and self._transcript.is_faulty(index):
                self._expect_other(index, step)
                return
            self._pass_time(step.at_ns)
            if isinstance(step, Step) and step.sender == "server":
                self._expect(index, step)
                continue
            self._expect_nothing(f"before step {index}")
            if isinstance(step, Act):
                self._act(step)
            else:
                self._receive(step.data)
        self._close()

    # ------------------------------------------------------------------------------- comparing

    def _expect(self, index: int, step: Step) -> None:
        where = f"step {index} ({step.tag}) at {step.at_ns}"
        if not self._said:
            raise Deviation(f"{where}: the server said nothing")
        at_ns, data = self._said.popleft()
        if (at_ns, data) != (step.at_ns, step.data):
            raise Deviation(f"{where}: the server said {data[:300]!r} at {at_ns}")

    def _expect_nothing(self, where: str) -> None:
        if self._said:
            at_ns, data = self._said[0]
            raise Deviation(f"{where}: the server said {data[:300]!r} at {at_ns}")

    def _expect_other(self, index: int, offence: Step | Act) -> None:
        assert isinstance(offence, Step)
        if self._said and self._said[0][1] == offence.data:
            raise Deviation(f"step {index} ({offence.tag}): the server broke the contract")

    def _close(self) -> None:
        close, at_ns = self._transcript.close, self._transcript.close["at_ns"]
        if close["by"] == "network":
            self._pass_time(at_ns)
            self.session.disconnect(self._now(), "the connection was lost")
        elif self._never_ready():
            # the driver waits for hello and ready: the core knows no time before them
            self._wall_ns = at_ns
            self.session.fail("ready_timeout", Instant(0, 0), "not ready in time")
        else:
            self._pass_time(at_ns)
        self._collect()
        self._expect_nothing("before the close")
        if self._ended_ns != at_ns:
            raise Deviation(f"close at {at_ns}: the server ended at {self._ended_ns}")
        if close["by"] == "server" and self.session.close_code != close["code"]:
            raise Deviation(f"close {close['code']}: the server closed with {self.session.close_code}")

    def _never_ready(self) -> bool:
        return not self.session.ended and not self.session.ready

    # ----------------------------------------------------------------------------- passing time

    def _pass_time(self, to_ns: int) -> None:
        """Do all that is due up to ``to_ns``, each thing at its own instant."""
        self._settle()
        while (wake_ns := self._next_wake_ns()) is not None and wake_ns <= to_ns:
            self._wall_ns = wake_ns
            self._settle()
        self._wall_ns = max(self._wall_ns, to_ns)
        self._settle()

    def _settle(self) -> None:
        """Do all that is due now."""
        session = self.session
        while self._undecoded and self._undecoded[0][0] <= self._wall_ns:
            session.add_sample(self._undecoded.popleft()[1])
        if not self._undecoded and not self._media_over:
            self._media_over = True
            session.end_media(())
        if session.ready and not self._started:
            self._started = True
            session.clock_taken(self._clock.start(self._wall_ns))
        while not session.ended and session.ready and session.advance(self._now()):
            self._collect()
        self._collect()

    def _next_wake_ns(self) -> int | None:
        session = self.session
        if session.ended or not session.ready:
            return None
        due_ns = session.next_due_ns()
        wakes = [session.next_wall_deadline()]
        if due_ns is not None and due_ns > self._now().media_ns:
            wakes.append(self._clock.wall_deadline(due_ns))
        if self._undecoded:
            wakes.append(self._undecoded[0][0])
        return min((wake for wake in wakes if wake is not None and wake > self._wall_ns), default=None)

    def _now(self) -> Instant:
        session = self.session
        if not session.ready:
            return Instant(0, 0)
        if self._started and not session.ended:
            taken = self._clock.update(
                self._wall_ns, busy=session.busy, next_due_ns=session.next_due_ns(), starved=session.starved
            )
            if taken is not None:
                session.clock_taken(taken)
        return self._clock.now(self._wall_ns)

    # ------------------------------------------------------------------------------- what comes

    def _receive(self, data: bytes | str) -> None:
        now = self._now()
        try:
            message = decode_agent_message(data)
        except ProtocolError as error:
            self.session.refuse(error, now)
        else:
            self.session.receive(message, now)
        self._settle()

    def _act(self, act: Act) -> None:
        now = self._now()
        if act.act == "interrupt":
            self.session.interrupt(now)
        else:
            taken = self._control(act, now.wall_ns)
            if taken is not None:
                self.session.clock_taken(taken)
        self._settle()

    def _control(self, act: Act, wall_ns: int) -> ClockTaken | None:
        clock = self._clock
        assert isinstance(clock, ScaledClock)
        match act.act:
            case "pause":
                return clock.pause(wall_ns)
            case "resume":
                return clock.resume(wall_ns)
            case "step":
                return clock.step(wall_ns, self.session.next_due_ns())
            case "rate":
                assert act.rate is not None
                return clock.set_rate(wall_ns, exact_rate(act.rate))
            case "interrupt":
                raise AssertionError("no control of the clock")
            case _:
                assert_never(act.act)

    def _collect(self) -> None:
        self.events += self.session.take_events()
        for message in self.session.messages_to_send():
            if isinstance(message, wire.Frame):
                self.media_at_sending.append((message.media_ns, self._clock.now(self._wall_ns).media_ns))
                picture = self._pictures[message.k]
                assert picture is not None
                message = msgspec.structs.replace(message, data=picture)
            self._said.append((self._wall_ns, encode(message)))
        if self.session.ended and self._ended_ns is None:
            self._ended_ns = self._wall_ns

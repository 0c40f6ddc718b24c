"""One session as scoring of time sees it: stamps of every frame and probe, and what held them up.

Stamps are instants of both clocks of the server; durations are the agent's own and need no clock in
common with it. Parts of an interval add up exactly, whatever the two clocks say to each other: what
neither side accounts for is ``transport``. This module knows no figures and no thresholds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from streamsim.events import (
    Acknowledged,
    AnyEvent,
    ChainClosed,
    ClockTaken,
    FrameSent,
    FrameSettled,
    HarnessReported,
    Instant,
    ProbeSent,
    SessionEnded,
    SessionStarted,
    TextReceived,
    TurnClosed,
    TurnEnded,
    TurnStarted,
    WarningRaised,
)
from streamsim.journal.pairs import ClockPairs
from streamsim_protocol.messages import ClockMode, Outcome, Probe, Settlement

Holder = Literal["credit", "decoder"] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """An interval from due to final (or to first text), split twice; nanoseconds, each split exact.

    On the server's clock: ``dispatch + delivery + queue + service == total``, where delivery ends with
    the acknowledgement and queue with the turn's start, as the server received them. With the agent's
    own durations: ``dispatch + transport + waited + agent_service - held == total``, where transport
    is all that the agent does not account for, to it and back, and ``held`` is wall time in which a
    simulated clock stood (0 in realtime).
    """

    total_ns: int
    dispatch_ns: int
    delivery_ns: int
    queue_ns: int
    service_ns: int
    transport_ns: int
    waited_ns: int
    agent_service_ns: int
    held_ns: int


@dataclass(slots=True, kw_only=True)
class ProbeTiming:
    """The stamps of one probe; None for what never happened.

    ``waited_ns``, ``service_ns``, ``first_text_ns`` and ``marks`` are the agent's own durations.
    ``backlog`` counts frames that were sent and unsettled when the turn was taken up. ``held_by`` says
    what kept a task probe from going out when it was due.
    """

    episode: str
    repeat: int
    query: str
    probe: Probe
    clock: ClockMode
    due: Instant
    sent: Instant
    held_by: Holder = None
    delivered: Instant | None = None
    started: Instant | None = None
    texts: list[Instant] = field(default_factory=list)
    final: Instant | None = None
    closed: Instant | None = None
    seen_media_ns: int | None = None
    backlog: int | None = None
    waited_ns: int | None = None
    service_ns: int | None = None
    first_text_ns: int | None = None
    marks: dict[str, int] = field(default_factory=dict)
    failed: bool = False
    outcome: Outcome | None = None

    @property
    def timed_out(self) -> bool:
        """The server closed the turn before it ended, because of its time."""
        return self.closed is not None and not self.failed

    @property
    def first(self) -> Instant | None:
        """The first text; for a turn that ended without any, its end."""
        return self.texts[0] if self.texts else self.final

    def read(self, instant: Instant) -> int:
        """The clock that latency is told on: media time in ``skip``, which stands for wall time there."""
        return instant.media_ns if self.clock == "skip" else instant.wall_ns

    def parts(self) -> Parts | None:
        """Due to final; None unless the turn ended in time."""
        return self._split(self.final, self.service_ns)

    def first_parts(self) -> Parts | None:
        """Due to first text; None unless there was any."""
        return self._split(self.texts[0] if self.texts else None, self.first_text_ns)

    def _split(self, end: Instant | None, agent_service_ns: int | None) -> Parts | None:
        if end is None or self.delivered is None or self.started is None:
            return None
        if self.waited_ns is None or agent_service_ns is None:
            return None
        interval_ns = end.wall_ns - self.sent.wall_ns
        return Parts(
            total_ns=self.read(end) - self.read(self.due),
            dispatch_ns=self.read(self.sent) - self.read(self.due),
            delivery_ns=self.read(self.delivered) - self.read(self.sent),
            queue_ns=self.read(self.started) - self.read(self.delivered),
            service_ns=self.read(end) - self.read(self.started),
            transport_ns=interval_ns - self.waited_ns - agent_service_ns,
            waited_ns=self.waited_ns,
            agent_service_ns=agent_service_ns,
            held_ns=interval_ns - (self.read(end) - self.read(self.sent)),
        )


@dataclass(slots=True, kw_only=True)
class FrameTiming:
    """The stamps of one frame, and the agent's own durations once it is settled."""

    k: int
    media_ns: int
    due_wall_ns: int
    sent: Instant
    held_by: Holder
    settled: Instant | None = None
    outcome: Settlement | None = None
    waited_ns: int = 0
    service_ns: int = 0

    @property
    def transport_ns(self) -> int | None:
        """To the agent and back; None for a frame that is not settled."""
        if self.settled is None:
            return None
        return self.settled.wall_ns - self.sent.wall_ns - self.waited_ns - self.service_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Something that was due at a time: how late it was, and what held it, if not us.

    ``late_ns`` is wall time, in ``skip`` media time: there the clock stands while our decoder is behind.
    """

    kind: Literal["frame", "query"]
    late_ns: int
    held_by: Holder


@dataclass(slots=True, kw_only=True)
class SessionRecord:
    """All that scoring of time needs of one session.

    ``early`` counts releases before their due media time; ``disagreements`` are instants that do not
    follow from the journal's own clock pairs; ``decoder_hold_ns`` is wall time for which a simulated
    clock stood because a picture was not decoded.
    """

    started: SessionStarted
    probes: list[ProbeTiming] = field(default_factory=list)
    frames: list[FrameTiming] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)
    early: int = 0
    disagreements: list[str] = field(default_factory=list)
    decoder_hold_ns: int = 0
    warnings: list[WarningRaised] = field(default_factory=list)
    harness: HarnessReported | None = None
    ended: SessionEnded | None = None

    @property
    def media_ns(self) -> int:
        """Media time that was played: to the end of the newest frame's interval."""
        newest_ns = max((frame.media_ns for frame in self.frames), default=0)
        return newest_ns + round(1e9 / self.started.fps) if self.frames else 0

    @property
    def busy_ns(self) -> int:
        """The agent's own work on frames and turns."""
        frames_ns = sum(frame.service_ns for frame in self.frames)
        return frames_ns + sum(probe.service_ns or 0 for probe in self.probes)


def read_record(events: Iterable[tuple[Instant, AnyEvent]]) -> SessionRecord | None:
    """The record of one session; None if its journal has no first line."""
    reader: _Reader | None = None
    for at, event in events:
        if isinstance(event, SessionStarted):
            reader = _Reader(event)
        elif reader is not None:
            reader.see(at, event)
    return None if reader is None else reader.record


class _Reader:
    def __init__(self, started: SessionStarted) -> None:
        self.record = SessionRecord(started=started)
        self._pairs = ClockPairs(started.clock, started.rate)
        self._turns: dict[int, ProbeTiming] = {}
        self._frames: dict[int, FrameTiming] = {}
        self._undelivered: list[tuple[int, ProbeTiming]] = []
        self._unsettled = 0
        self._hold: tuple[Holder, int] = (None, -1)
        self._standing_since_ns: int | None = None

    def see(self, at: Instant, event: AnyEvent) -> None:
        if isinstance(event, ClockTaken):
            self._take_clock(at, event)
            return
        problem = self._pairs.check_instant(at)
        if problem is not None:
            self.record.disagreements.append(f"{problem.found}, expected {problem.expected}")
        match event:
            case FrameSent():
                self._send_frame(at, event)
            case FrameSettled():
                self._settle(at, event)
            case ProbeSent():
                self._send_probe(at, event)
            case Acknowledged():
                for seq, timing in self._undelivered:
                    if seq <= event.seq:
                        timing.delivered = at
                self._undelivered = [item for item in self._undelivered if item[0] > event.seq]
            case TurnStarted(turn=turn) if turn in self._turns:
                timing = self._turns[turn]
                timing.started, timing.waited_ns = at, event.waited_ns
                timing.seen_media_ns, timing.backlog = event.seen_media_ns, self._unsettled
            case TextReceived(turn=turn) if turn in self._turns:
                self._turns[turn].texts.append(at)
            case TurnClosed(turn=turn) if turn in self._turns:
                self._turns[turn].closed = at
                self._turns[turn].failed = event.reason != "timed_out"
            case TurnEnded(turn=turn) if turn in self._turns:
                _end_turn(self._turns[turn], event, at)
            case ChainClosed():
                for timing in self.record.probes:
                    if timing.query == event.query:
                        timing.outcome = event.outcome
            case WarningRaised():
                self.record.warnings.append(event)
            case HarnessReported():
                self.record.harness = event
            case SessionEnded():
                self.record.ended = event
            case _:
                pass

    def _take_clock(self, at: Instant, taken: ClockTaken) -> None:
        problem = self._pairs.take(at, taken, busy=False)
        if problem is not None:
            self.record.disagreements.append(f"{problem.found}, expected {problem.expected}")
        if taken.reason == "hold":
            self._standing_since_ns = taken.wall_ns
        elif self._standing_since_ns is not None:
            self.record.decoder_hold_ns += taken.wall_ns - self._standing_since_ns
            self._standing_since_ns = None

    def _send_frame(self, at: Instant, event: FrameSent) -> None:
        due_wall_ns = at.wall_ns if event.due_wall_ns is None else event.due_wall_ns
        frame = FrameTiming(
            k=event.k, media_ns=event.media_ns, due_wall_ns=due_wall_ns, sent=at, held_by=event.held_by
        )
        self._frames[event.k] = frame
        self.record.frames.append(frame)
        self._unsettled += 1
        self._release("frame", at, event.media_ns, due_wall_ns, event.held_by)

    def _settle(self, at: Instant, event: FrameSettled) -> None:
        frame = self._frames[event.k]
        frame.settled, frame.outcome = at, event.outcome
        frame.waited_ns, frame.service_ns = event.waited_ns, event.service_ns
        self._unsettled -= 1

    def _send_probe(self, at: Instant, event: ProbeSent) -> None:
        due_wall_ns = at.wall_ns if event.due_wall_ns is None else event.due_wall_ns
        timing = ProbeTiming(
            episode=self.record.started.episode,
            repeat=self.record.started.repeat,
            query=event.query,
            probe=event.probe,
            clock=self.record.started.clock,
            due=Instant(event.due_media_ns, due_wall_ns),
            sent=at,
            held_by=event.held_by,
        )
        self._turns[event.turn] = timing
        self.record.probes.append(timing)
        self._undelivered.append((event.seq, timing))
        if event.probe == "task":
            self._release("query", at, event.due_media_ns, due_wall_ns, event.held_by)

    def _release(
        self, kind: Literal["frame", "query"], at: Instant, due_ns: int, due_wall_ns: int, held_by: Holder
    ) -> None:
        """Note a release; what fell due while something else was held is late for the same reason."""
        if held_by is not None:
            self._hold = (held_by, at.wall_ns)
        elif due_wall_ns <= self._hold[1]:
            held_by = self._hold[0]
        self.record.early += at.media_ns < due_ns
        # in skip the clock stands for a late decoder: only media time tells what the agent sees
        skip = self.record.started.clock == "skip"
        late_ns = at.media_ns - due_ns if skip else at.wall_ns - due_wall_ns
        self.record.releases.append(Release(kind=kind, late_ns=late_ns, held_by=held_by))


def _end_turn(timing: ProbeTiming, event: TurnEnded, at: Instant) -> None:
    timing.service_ns = event.service_ns
    timing.first_text_ns = event.first_text_ns
    timing.marks = event.marks
    if timing.closed is not None:
        return
    if event.reason == "finished":
        timing.final = at
    else:
        timing.failed = True

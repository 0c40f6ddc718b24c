"""A recorded session played again in simulated time: another compute factor, deadline or frame policy.

The recorded service times go through the same session core and the same inbox; what the harness took
(dispatch, transport) is kept as it was recorded, only service times scale. Latency only, never
accuracy: what an agent would have said is not known, so its recorded readings steer the chains. A
frame that the recorded agent skipped has no service time: one is drawn from the run's own, and counted;
so is a probe that was never asked. A turn that was closed before it ended is known only as "longer than
that": it enters with that lower bound, and counts as censored. After sAP's simulated runs
(Li, Wang and Ramanan, ECCV 2020), with measured times in place of a drawn distribution.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random
from typing import TypeVar

import msgspec

from streamsim.clock import RealtimeClock
from streamsim.episodes.episode import EpisodeQuery, frame_media_ns
from streamsim.events import (
    Acknowledged,
    AgentReady,
    AnyEvent,
    ChainClosed,
    FrameSent,
    FrameSettled,
    GapSent,
    Instant,
    ProbeRead,
    ProbeSent,
    SessionEnded,
    SessionStarted,
    TextReceived,
    TurnEnded,
    TurnStarted,
)
from streamsim.prompts import Prompts
from streamsim.reading import READERS
from streamsim.session import Session, SessionConfig
from streamsim.simulation import SimulatedAgent, Simulation, Utterance
from streamsim.timeline import Sample
from streamsim_protocol import messages as wire

OPTIONS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_ProbeName = tuple[str, wire.Probe]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceProfile:
    """Service times in place of recorded ones, in nanoseconds, so that runs compare at one stated speed.

    ``answer_ns`` is by probe; the first text comes with the last. ``name`` says whose speed it is.
    """

    name: str
    frame_ns: int
    answer_ns: dict[wire.Probe, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is different from the recorded run. None leaves a thing as it was."""

    factor: Fraction = Fraction(1)
    deadline_ns: int | None = None
    frames: wire.FramePolicy | None = None
    profile: ServiceProfile | None = None


@dataclass(slots=True, kw_only=True)
class RecordedTurn:
    """One probe's recorded turn; ``service_ns`` None while it never started.

    ``pieces`` are times of texts from the turn's start. What the harness took: ``lateness_ns`` of the
    sending, ``to_agent_ns``, ``gap_ns``
    until a free worker took the turn up, and the ways back of start, text and end.
    """

    service_ns: int | None = None
    pieces: list[int] = field(default_factory=list)
    letters: str = ""
    censored: bool = False
    lateness_ns: int = 0
    to_agent_ns: int = 0
    gap_ns: int = 0
    started_back_ns: int = 0
    text_back_ns: int = 0
    ended_back_ns: int = 0


@dataclass(slots=True, kw_only=True)
class RecordedSession:
    """What a journal says of how long things took."""

    started: SessionStarted
    policy: wire.FramePolicy
    times_ns: list[int] = field(default_factory=list)
    without_picture: set[int] = field(default_factory=set)
    lateness_ns: dict[int, int] = field(default_factory=dict)
    frame_to_agent_ns: dict[int, int] = field(default_factory=dict)
    frame_back_ns: dict[int, int] = field(default_factory=dict)
    frame_gap_ns: dict[int, int] = field(default_factory=dict)
    frame_service_ns: dict[int, int] = field(default_factory=dict)
    turns: dict[_ProbeName, RecordedTurn] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescored:
    """A session in simulated time: its events, and how much of it was not recorded as such."""

    recorded: RecordedSession
    events: list[tuple[Instant, AnyEvent]]
    drawn_frames: int
    drawn_probes: int
    censored: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The service times of a whole run, to draw from: frames, and finished turns by probe."""

    frames_ns: tuple[int, ...]
    turns: dict[wire.Probe, tuple[RecordedTurn, ...]]


def read_recorded(events: Iterable[tuple[Instant, AnyEvent]]) -> RecordedSession | None:
    """The recorded times of one session; None unless it ran to its end."""
    recorder: _Recorder | None = None
    for at, event in events:
        if isinstance(event, SessionStarted):
            recorder = _Recorder(event)
        elif recorder is not None:
            recorder.take(at, event)
    return recorder.session if recorder is not None and recorder.completed else None


class _Recorder:
    """Reads one session's events into durations; all stamps here are on the server's clock."""

    def __init__(self, started: SessionStarted) -> None:
        self.session = RecordedSession(started=started, policy="all")
        self.completed = False
        self._frames_sent: dict[int, tuple[int, int]] = {}
        self._probes_sent: dict[int, tuple[_ProbeName, int, int]] = {}
        self._acknowledged: dict[int, int] = {}
        self._acknowledged_seq = 0
        self._begun: dict[int, tuple[int, int]] = {}
        self._free_ns = 0
        self._chain_closed_ns = 0

    def take(self, at: Instant, event: AnyEvent) -> None:
        """One event, in order."""
        session = self.session
        match event:
            case AgentReady():
                session.policy = event.frames
            case FrameSent():
                self._frames_sent[event.k] = (at.wall_ns, event.seq)
                session.times_ns.append(event.media_ns)
                due_ns = at.wall_ns if event.due_wall_ns is None else event.due_wall_ns
                session.lateness_ns[event.k] = at.wall_ns - due_ns
            case GapSent():
                for k in range(event.from_k, event.to_k):
                    session.times_ns.append(frame_media_ns(k, session.started.fps))
                    session.without_picture.add(k)
            case FrameSettled():
                self._settle(event, at.wall_ns)
            case ProbeSent():
                name = (event.query, event.probe)
                due_ns = at.wall_ns if event.due_wall_ns is None else event.due_wall_ns
                session.turns[name] = RecordedTurn(lateness_ns=at.wall_ns - due_ns)
                self._probes_sent[event.turn] = (name, at.wall_ns, event.seq)
            case Acknowledged():
                for seq in range(self._acknowledged_seq + 1, event.seq + 1):
                    self._acknowledged[seq] = at.wall_ns
                self._acknowledged_seq = event.seq
            case TurnStarted() if event.turn in self._probes_sent:
                self._begin_turn(event, at.wall_ns)
            case TextReceived() if event.turn in self._begun:
                started_at_ns, _ = self._begun[event.turn]
                self._turn(event.turn).pieces.append(at.wall_ns - started_at_ns)
            case TurnEnded() if event.turn in self._begun:
                self._end_turn(event, at.wall_ns)
            case ChainClosed():
                self._chain_closed_ns = at.wall_ns
            case ProbeRead() if event.turn in self._probes_sent:
                self._turn(event.turn).letters = event.letters
            case SessionEnded():
                self.completed = event.reason == "completed"
            case _:
                pass

    def _turn(self, turn: int) -> RecordedTurn:
        return self.session.turns[self._probes_sent[turn][0]]

    def _settle(self, event: FrameSettled, at_ns: int) -> None:
        sent_ns, seq = self._frames_sent[event.k]
        transport_ns = max(0, at_ns - sent_ns - event.waited_ns - event.service_ns)
        to_agent_ns = self._way_there_ns(sent_ns, seq, transport_ns)
        arrived_ns = sent_ns + to_agent_ns
        self.session.frame_to_agent_ns[event.k] = to_agent_ns
        self.session.frame_back_ns[event.k] = transport_ns - to_agent_ns
        if event.outcome == "skipped":
            return
        self.session.frame_service_ns[event.k] = event.service_ns
        self.session.frame_gap_ns[event.k] = self._gap_ns(arrived_ns, event.waited_ns)
        self._free_ns = arrived_ns + event.waited_ns + event.service_ns

    def _begin_turn(self, event: TurnStarted, at_ns: int) -> None:
        _, sent_ns, seq = self._probes_sent[event.turn]
        turn = self._turn(event.turn)
        both_ns = max(0, at_ns - sent_ns - event.waited_ns)
        turn.to_agent_ns = self._way_there_ns(sent_ns, seq, both_ns)
        turn.started_back_ns = both_ns - turn.to_agent_ns
        arrived_ns = sent_ns + turn.to_agent_ns
        turn.gap_ns = self._gap_ns(arrived_ns, event.waited_ns)
        self._begun[event.turn] = (at_ns, arrived_ns + event.waited_ns)

    def _end_turn(self, event: TurnEnded, at_ns: int) -> None:
        turn = self._turn(event.turn)
        at_start_ns, started_ns = self._begun[event.turn]
        turn.service_ns = event.service_ns
        turn.censored = event.reason != "finished"
        turn.ended_back_ns = max(0, at_ns - started_ns - event.service_ns)
        if turn.pieces and event.first_text_ns is not None:
            back_ns = turn.pieces[0] + at_start_ns - started_ns - event.first_text_ns
            turn.text_back_ns = max(0, back_ns)
            shift_ns = event.first_text_ns - turn.pieces[0]
            turn.pieces = [min(max(0, piece + shift_ns), event.service_ns) for piece in turn.pieces]
        self._free_ns = started_ns + event.service_ns

    def _way_there_ns(self, sent_ns: int, seq: int, both_ns: int) -> int:
        """The part of a way there and back that was the way there: half of what its reception took."""
        acknowledged_ns = self._acknowledged.get(seq)
        if acknowledged_ns is None:
            return both_ns // 2
        return min(both_ns, (acknowledged_ns - sent_ns) // 2)

    def _gap_ns(self, arrived_ns: int, waited_ns: int) -> int:
        """How long the worker, though free to, took to take something up.

        Under frozen history it is free once the chain before has been closed.
        """
        started_ns = arrived_ns + waited_ns
        free_ns = max(arrived_ns, self._free_ns)
        if self._chain_closed_ns <= started_ns:
            free_ns = max(free_ns, self._chain_closed_ns)
        return max(0, started_ns - free_ns)


def make_pool(sessions: Sequence[RecordedSession]) -> Pool:
    """All service times of a run, in order."""
    frames = [time for session in sessions for _, time in sorted(session.frame_service_ns.items())]
    turns: dict[wire.Probe, list[RecordedTurn]] = {"task": [], "status": [], "cause": []}
    for session in sessions:
        for (_, probe), turn in session.turns.items():
            if turn.service_ns is not None and not turn.censored:
                turns[probe].append(turn)
    return Pool(frames_ns=tuple(frames), turns={probe: tuple(found) for probe, found in turns.items()})


def rescore_session(
    recorded: RecordedSession, pool: Pool, change: Change, prompts: Prompts, *, credit_timeout_ns: int
) -> Rescored:
    """Play one recorded session again. Drawing depends on the session's seed alone."""
    times = _Times(recorded, pool, change)
    started = recorded.started
    policy = change.frames or recorded.policy
    config = SessionConfig(
        run=started.run,
        session=started.session,
        episode=started.episode,
        subset=started.subset,
        repeat=started.repeat,
        attempt=started.attempt,
        lanes=1,
        seed=started.seed,
        clock="realtime",
        rate=1.0,
        history=started.history,
        chain=started.chain,
        frames=policy,
        fps=started.fps,
        size=(0, 0),
        encoding="jpeg",
        credit=started.credit,
        credit_timeout_ns=credit_timeout_ns,
        answer_timeout_ns=started.answer_timeout_ns if change.deadline_ns is None else change.deadline_ns,
        hang_timeout_ns=started.hang_timeout_ns,
        drain_timeout_ns=started.drain_timeout_ns,
    )
    queries = [
        EpisodeQuery(
            id=plan.id,
            kind=plan.kind,
            media_ns=plan.media_ns,
            stem="",
            options=OPTIONS if plan.kind == "choice" else (),
        )
        for plan in started.queries
    ]
    samples = [
        Sample(k=k, size_bytes=0, digest=None if k in recorded.without_picture else "")
        for k in range(len(recorded.times_ns))
    ]
    simulation = Simulation(
        Session(config, queries, recorded.times_ns, prompts, READERS["strict"]),
        RealtimeClock(),
        SimulatedAgent(observe=times.observe, answer=times.answer, frames=policy),
        samples,
        decoded_ns=times.released_ns,
        to_agent_ns=times.to_agent_ns,
        to_server_ns=times.to_server_ns,
    ).run()
    return Rescored(
        recorded=recorded,
        events=[times.book(at, event) for at, event in simulation.events],
        drawn_frames=times.drawn_frames,
        drawn_probes=times.drawn_probes,
        censored=times.censored,
    )


class _Times:
    """How long everything takes in the session that is played again."""

    def __init__(self, recorded: RecordedSession, pool: Pool, change: Change) -> None:
        self._recorded = recorded
        self._pool = pool
        self._change = change
        self._names: dict[int, _ProbeName] = {}
        self._drawn_turns: dict[_ProbeName, RecordedTurn] = {}
        self.drawn_frames = 0
        self.drawn_probes = 0
        self.censored = 0

    def released_ns(self, k: int) -> int:
        """When a frame leaves the server: its due time plus the dispatch that was recorded."""
        return self._recorded.times_ns[k] + self._recorded.lateness_ns.get(k, 0)

    def observe(self, k: int) -> int:
        """The work for a frame, and the gap before it."""
        return self._recorded.frame_gap_ns.get(k, 0) + self._frame_service_ns(k)

    def answer(self, probe: wire.ProbeMessage) -> Utterance:
        """The work for a probe, and what is said: the letters that were read, so that chains go on alike."""
        turn = self._turn((probe.query, probe.probe))
        self.censored += turn.censored
        profile = self._change.profile
        if profile is not None:
            service_ns = self._scaled(profile.answer_ns[probe.probe])
            pieces = [service_ns]
        else:
            service_ns = self._scaled(turn.service_ns or 0)
            pieces = [self._scaled(piece) for piece in turn.pieces] or [service_ns]
        text = ", ".join(turn.letters) or "?"
        said = [(turn.gap_ns + pieces[0], text), *((turn.gap_ns + piece, " ") for piece in pieces[1:])]
        return Utterance(service_ns=turn.gap_ns + service_ns, pieces=tuple(said))

    def to_agent_ns(self, message: wire.ServerMessage) -> int:
        """How long a message took on its way to the agent."""
        if isinstance(message, wire.Frame):
            return self._recorded.frame_to_agent_ns.get(message.k, 0)
        if isinstance(message, wire.ProbeMessage):
            self._names[message.turn] = (message.query, message.probe)
            turn = self._turn(self._names[message.turn])
            return turn.lateness_ns + turn.to_agent_ns
        return 0

    def to_server_ns(self, message: wire.AgentMessage) -> int:
        """How long a message took on its way back; a turn begins after the gap that its work includes."""
        if isinstance(message, wire.Settled):
            return self._recorded.frame_back_ns.get(message.k, 0)
        if not isinstance(message, wire.TurnStarted | wire.Text | wire.TurnEnded):
            return 0
        if message.turn not in self._names:
            return 0
        turn = self._turn(self._names[message.turn])
        match message:
            case wire.TurnStarted():
                return turn.gap_ns + turn.started_back_ns
            case wire.Text():
                return turn.text_back_ns
            case wire.TurnEnded():
                return turn.ended_back_ns

    def book(self, at: Instant, event: AnyEvent) -> tuple[Instant, AnyEvent]:
        """Put what the harness took where it was recorded: the simulation plays it where it has room for it.

        A probe's lateness was played as a part of its way to the agent, a worker's hesitation as work: they
        become the lateness of its sending, and waiting.
        """
        match event:
            case ProbeSent():
                late_ns = self._turn((event.query, event.probe)).lateness_ns
                return Instant(at.media_ns + late_ns, at.wall_ns + late_ns), event
            case TurnStarted() if event.turn in self._names:
                gap_ns = self._turn(self._names[event.turn]).gap_ns
                return at, msgspec.structs.replace(event, waited_ns=event.waited_ns + gap_ns)
            case TurnEnded() if event.turn in self._names:
                gap_ns = self._turn(self._names[event.turn]).gap_ns
                first_text_ns = event.first_text_ns
                if first_text_ns is not None:
                    first_text_ns -= gap_ns
                service_ns = max(0, event.service_ns - gap_ns)  # it may have been closed while it hesitated
                return at, msgspec.structs.replace(event, service_ns=service_ns, first_text_ns=first_text_ns)
            case FrameSettled() if event.outcome != "skipped":
                gap_ns = self._recorded.frame_gap_ns.get(event.k, 0)
                return at, msgspec.structs.replace(
                    event, waited_ns=event.waited_ns + gap_ns, service_ns=event.service_ns - gap_ns
                )
            case _:
                return at, event

    def _frame_service_ns(self, k: int) -> int:
        profile = self._change.profile
        if profile is not None:
            return self._scaled(profile.frame_ns)
        service_ns = self._recorded.frame_service_ns.get(k)
        if service_ns is None:
            self.drawn_frames += 1
            service_ns = self._draw(self._pool.frames_ns, f"frame:{k}") or 0
        return self._scaled(service_ns)

    def _turn(self, name: _ProbeName) -> RecordedTurn:
        turn = self._recorded.turns.get(name)
        if turn is not None and turn.service_ns is not None:
            return turn
        if name not in self._drawn_turns:
            self.drawn_probes += 1
            drawn = self._draw(self._pool.turns[name[1]], f"{name[0]}:{name[1]}")
            self._drawn_turns[name] = drawn or RecordedTurn(service_ns=0)
        return self._drawn_turns[name]

    def _scaled(self, duration_ns: int) -> int:
        return round(duration_ns * self._change.factor)

    def _draw(self, pool: Sequence[_T], what: str) -> _T | None:
        if not pool:
            return None
        return Random(f"{self._recorded.started.seed}:{what}").choice(pool)

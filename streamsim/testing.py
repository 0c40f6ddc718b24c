"""For tests of anything that meets a session: tiny episodes, simulated conversations, and an audit.

``tiny_session`` and ``tiny_simulation`` make the real core with literal times; ``SessionAudit`` checks,
message by message, what must hold in every session. It derives all it knows from the messages and
events that pass, never from the core.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from streamsim.clock import make_clock
from streamsim.episodes.episode import EpisodeQuery
from streamsim.events import (
    AnyEvent,
    ChainClosed,
    ClockTaken,
    FrameSent,
    GapSent,
    Instant,
    ProbeRead,
    ProbeSent,
    SessionEnded,
    SessionStarted,
)
from streamsim.prompts import Prompts, load_prompts
from streamsim.reading import READERS, status_of
from streamsim.session import Session, SessionConfig
from streamsim.simulation import Exchange, SimulatedAgent, Simulation, Utterance, say
from streamsim.timeline import Sample
from streamsim_protocol import messages as wire

__all__ = [
    "SECOND_NS",
    "Exchange",
    "SessionAudit",
    "SimulatedAgent",
    "Simulation",
    "Utterance",
    "say",
    "seconds",
    "tiny_config",
    "tiny_query",
    "tiny_samples",
    "tiny_session",
    "tiny_simulation",
]

SECOND_NS = 1_000_000_000

_CONFIG = SessionConfig(
    run="tiny",
    session="0123456789abcdef",
    episode="episode",
    subset="subset",
    repeat=1,
    attempt=1,
    lanes=1,
    seed=7,
    clock="realtime",
    rate=1.0,
    history="frozen",
    chain="full",
    frames=None,
    fps=1.0,
    size=(64, 48),
    encoding="jpeg",
    credit=32,
    credit_timeout_ns=60 * SECOND_NS,
    answer_timeout_ns=30 * SECOND_NS,
    hang_timeout_ns=60 * SECOND_NS,
    drain_timeout_ns=600 * SECOND_NS,
)
_prompts: list[Prompts] = []


def seconds(value: float) -> int:
    """Seconds as nanoseconds, to the nearest."""
    return round(value * SECOND_NS)


def tiny_config(**changes: Any) -> SessionConfig:
    """The defaults of a run for a session of nothing in particular, with fields changed."""
    return msgspec.structs.replace(_CONFIG, **changes)


def tiny_query(
    id: str, at_s: float, *, kind: wire.QueryKind = "choice", options: Sequence[str] = ("crimson", "indigo")
) -> EpisodeQuery:
    """A query due at ``at_s`` seconds; only choices have options."""
    return EpisodeQuery(
        id=id,
        kind=kind,
        media_ns=seconds(at_s),
        stem=f"What about {id}?",
        options=tuple(options) if kind == "choice" else (),
    )


def tiny_samples(count: int, *, without_picture: Sequence[int] = ()) -> list[Sample]:
    """References to ``count`` decoded pictures that nobody needs to read."""
    return [
        Sample(k=k, size_bytes=1000 + k, digest=None if k in without_picture else f"{k:064x}")
        for k in range(count)
    ]


def tiny_session(
    queries: Sequence[EpisodeQuery], samples: int = 10, *, prompts: Prompts | None = None, **changes: Any
) -> Session:
    """A session over so many ``samples``, one a second (``times_ns`` in ``changes`` says otherwise).

    Our own prompts unless there are others, the strict reader; further ``changes`` are fields of
    ``SessionConfig``.
    """
    times_ns = changes.pop("times_ns", None)
    if times_ns is None:
        times_ns = [k * SECOND_NS for k in range(samples)]
    if prompts is None:
        if not _prompts:
            _prompts.append(load_prompts())
        prompts = _prompts[0]
    return Session(tiny_config(**changes), queries, times_ns, prompts, READERS["strict"])


def tiny_simulation(
    queries: Sequence[EpisodeQuery],
    agent: SimulatedAgent,
    *,
    samples: int = 10,
    without_picture: Sequence[int] = (),
    times_ns: Sequence[int] | None = None,
    decoded_ns: Callable[[int], int] = lambda k: 0,
    to_agent_ns: int = 0,
    to_server_ns: int = 0,
    audited: bool = True,
    **changes: Any,
) -> Simulation:
    """A conversation that can be ``run``; audited unless told otherwise."""
    times = [k * SECOND_NS for k in range(samples)] if times_ns is None else list(times_ns)
    session = tiny_session(queries, times_ns=times, **changes)
    decoded = tiny_samples(len(times), without_picture=without_picture)
    audit = None
    if audited:
        seen = [time for time, sample in zip(times, decoded, strict=True) if sample.digest is not None]
        audit = SessionAudit(session, seen)
    return Simulation(
        session,
        make_clock(session.config.clock, session.config.rate),
        agent,
        decoded,
        decoded_ns=decoded_ns,
        to_agent_ns=to_agent_ns,
        to_server_ns=to_server_ns,
        observer=audit,
    )


class SessionAudit:
    """What must hold in every session, checked as it happens; ``AssertionError`` names the offence.

    No message with media later than now; every visible frame before its query; no options in status
    and cause probes, a cause only after an uncertain status; one outcome for every query, ``answered``
    exactly when all its probes ended in time; numbers and acknowledgements right; ``busy`` right;
    journal and wire tell the same; nothing after the end. Under frozen history (``ordered``: the agent
    keeps the contract) each turn has seen the newest visible frame and no newer one is observed before
    the chain closes.
    """

    def __init__(self, session: Session, frame_times_ns: Sequence[int], *, ordered: bool = True) -> None:
        """``frame_times_ns``: media times of all samples that have a picture, ascending."""
        self._session = session
        self._frame_times_ns = tuple(frame_times_ns)
        self._ordered = ordered
        self._sent = 0
        self._received = 0
        self._acknowledged = 0
        self._journalled: dict[int, AnyEvent] = {}
        self._queries: dict[str, int] = {}
        self._frames: dict[int, int] = {}
        self.unsettled: set[int] = set()
        """Frames that were sent and not settled."""
        self._probes: dict[str, list[int]] = {}
        self.open_turns: dict[int, str | None] = {}
        """Turns that have not ended, with the query that they answer."""
        self._ended_in_time: set[int] = set()
        self._fenced: set[int] = set()
        self._uncertain: set[str] = set()
        self._outcomes: dict[str, str] = {}
        self._open_chains: set[str] = set()
        self._playing_chain: str | None = None
        self._working = False
        self._ended = False
        self._last: Instant = Instant(0, 0)

    def exchanged(self, exchange: Exchange) -> None:
        """A message was sent by the server, or received and accepted by it."""
        message = exchange.message
        if exchange.sender == "server":
            self._sent += 1
            assert message.seq == self._sent, f"expected seq {self._sent}, got {message.seq}"
            refused = int(isinstance(message, wire.Error))  # what is refused may have been numbered well
            assert self._received <= message.ack <= self._received + refused, f"wrong ack {message.ack}"
            self._check_sent(message, exchange.at)
        else:
            self._received += 1
            assert message.seq == self._received
            assert self._acknowledged <= message.ack <= self._sent
            self._acknowledged = message.ack
            self._note_received(message)

    def happened(self, at: Instant, event: AnyEvent) -> None:
        """The session recorded an event."""
        assert not self._ended, f"{event} after the end"
        assert at.wall_ns >= self._last.wall_ns and at.media_ns >= self._last.media_ns, "time went back"
        self._last = at
        match event:
            case SessionStarted():
                self._queries = {plan.query: plan.media_ns for plan in event.queries}
            case FrameSent() | ProbeSent() | GapSent():
                self._journalled[event.seq] = event
                if isinstance(event, FrameSent):
                    assert event.due_wall_ns is not None and event.due_wall_ns <= at.wall_ns, f"{event} early"
                    assert event.media_ns <= at.media_ns, f"{event} early"
                elif isinstance(event, ProbeSent):
                    assert event.due_media_ns <= at.media_ns, f"{event} early"
                    assert event.due_wall_ns is not None and event.due_wall_ns <= at.wall_ns, f"{event} early"
            case ProbeRead():
                if event.probe == "status" and event.valid and status_of(event.letters) == "uncertain":
                    self._uncertain.add(event.query)
            case ChainClosed():
                assert event.query not in self._outcomes, f"{event.query} has two outcomes"
                self._check_outcome(event)
                self._outcomes[event.query] = event.outcome
                self._open_chains.discard(event.query)
            case SessionEnded():
                self._ended = True
                assert self._outcomes.keys() == self._queries.keys(), "every query has one outcome"
                assert event.unsettled_frames == len(self.unsettled)
            case ClockTaken():
                assert event.media_ns == at.media_ns and event.wall_ns == at.wall_ns
            case _:
                pass

    def rested(self, now: Instant) -> None:
        """A step is over: everything that it caused has been seen."""
        if self._ended:
            assert self._session.ended
            return
        busy = bool(self.unsettled or self.open_turns or self._open_chains or self._working)
        assert self._session.busy == busy, f"expected busy {busy} at {now}"

    # ------------------------------------------------------------------------------------ the wire

    def _check_sent(self, message: wire.ServerMessage | wire.AgentMessage, now: Instant) -> None:
        match message:
            case wire.Frame():
                assert message.media_ns <= now.media_ns, f"frame {message.k} came early"
                assert self._is_journalled(message.seq, FrameSent, k=message.k, media_ns=message.media_ns)
                self._frames[message.k] = message.media_ns
                self.unsettled.add(message.k)
            case wire.Gap():
                assert self._is_journalled(message.seq, GapSent, from_k=message.from_k, to_k=message.to_k)
            case wire.ProbeMessage():
                self._check_probe(message, now)
            case wire.TurnClosed():
                assert message.turn in self.open_turns and message.turn not in self._fenced
                self._fenced.add(message.turn)
            case wire.ChainClosed():
                assert message.query in self._outcomes
                if self._playing_chain == message.query:
                    self._playing_chain = None
            case wire.Tick():
                assert message.media_ns <= now.media_ns
            case _:
                pass

    def _check_probe(self, probe: wire.ProbeMessage, now: Instant) -> None:
        assert probe.media_ns <= now.media_ns, f"{probe.query} came early"
        assert probe.media_ns == self._queries[probe.query]
        assert self._is_journalled(
            probe.seq, ProbeSent, query=probe.query, probe=probe.probe, turn=probe.turn, text=probe.text
        )
        limit_ns = probe.media_ns + wire.VISIBILITY_TOLERANCE_NS
        sent = sorted(time for time in self._frames.values() if time <= limit_ns)
        assert sent == [time for time in self._frame_times_ns if time <= limit_ns], (
            "a visible frame is missing"
        )
        turns = self._probes.setdefault(probe.query, [])
        if probe.probe == "task":
            assert not turns, f"{probe.query} was asked twice"
            late = [time for time in self._frames.values() if time > limit_ns]
            assert not late, "a newer frame went before the query"
            self._open_chains.add(probe.query)
        else:
            assert probe.options == (), f"a {probe.probe} probe carries options"
            assert len(turns) == (1 if probe.probe == "status" else 2)
            assert probe.probe == "status" or probe.query in self._uncertain, "cause without uncertainty"
            assert turns[-1] in self._ended_in_time
        assert probe.turn not in self.open_turns and probe.turn not in self._ended_in_time
        turns.append(probe.turn)
        self.open_turns[probe.turn] = probe.query

    def _note_received(self, message: wire.ServerMessage | wire.AgentMessage) -> None:
        match message:
            case wire.Settled():
                self.unsettled.discard(message.k)
                if self._ordered and message.outcome != "skipped":
                    assert self._playing_chain is None, "a frame was observed in the middle of a chain"
            case wire.TurnStarted():
                query = self.open_turns.setdefault(message.turn, None)
                if query is not None and message.turn not in self._fenced:
                    self._check_seen(query, message.seen_media_ns)
            case wire.TurnEnded():
                self.open_turns.pop(message.turn)
                if message.turn not in self._fenced and message.reason == "finished":
                    self._ended_in_time.add(message.turn)
            case wire.Working():
                self._working = message.active
            case _:
                pass

    def _check_seen(self, query: str, seen_media_ns: int | None) -> None:
        limit_ns = self._queries[query] + wire.VISIBILITY_TOLERANCE_NS
        newest_ns = max((time for time in self._frames.values() if time <= limit_ns), default=None)
        if not self._ordered:
            return
        if self._session.config.history == "frozen":
            assert seen_media_ns == newest_ns, (
                f"expected {newest_ns} to be the newest seen, got {seen_media_ns}"
            )
            assert self._playing_chain in (None, query), "two chains at a time"
            self._playing_chain = query
        elif newest_ns is not None:
            assert seen_media_ns is not None and seen_media_ns >= newest_ns

    # --------------------------------------------------------------------------------- the journal

    def _is_journalled(self, seq: int, kind: type[AnyEvent], **fields: object) -> bool:
        event = self._journalled.get(seq)
        return isinstance(event, kind) and all(getattr(event, name) == fields[name] for name in fields)

    def _check_outcome(self, event: ChainClosed) -> None:
        turns = self._probes.get(event.query, [])
        all_ended = bool(turns) and self._ended_in_time.issuperset(turns)
        assert (event.outcome == "answered") == all_ended, f"{event} with probes {turns}"
        assert (event.outcome == "not_reached") == (not turns)

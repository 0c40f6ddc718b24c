"""What was said, re-derived from a journal: turns, readings, chains and outcomes follow from each other.

Texts are read again with the run's reader, so an answer that was changed after its reading shows. This
module knows no clock but for timeouts, and neither frames nor files.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from streamsim.chain import Reading, read_probe
from streamsim.episodes.episode import EpisodeQuery
from streamsim.events import (
    AnyEvent,
    ChainClosed,
    EndReason,
    EndSent,
    Instant,
    LateTextReceived,
    MediaEnded,
    ProbeRead,
    ProbeSent,
    QueryPlan,
    SessionEnded,
    SessionStarted,
    TextReceived,
    TurnClosed,
    TurnEnded,
    TurnStarted,
    WarningRaised,
)
from streamsim.journal.pairs import Contradiction
from streamsim.reading import Reader, status_of
from streamsim_protocol.messages import FIRST_UNPROMPTED_TURN, Outcome, Probe, TurnCloseReason, TurnEndReason

_BEFORE: dict[Probe, Probe | None] = {"task": None, "status": "task", "cause": "status"}
_OUTCOMES_AT_END: dict[EndReason, Outcome] = {
    "completed": "cancelled",
    "interrupted": "cancelled",
    "ready_timeout": "cancelled",
    "media_failed": "cancelled",
    "disconnected": "disconnected",
    "protocol_error": "disconnected",
    "hung": "failed",
    "agent_failed": "failed",
}
"""What becomes of a query that the session's end finds open."""
_OUTCOMES_OF_CLOSE: dict[TurnCloseReason, Outcome] = {
    "timed_out": "timed_out",
    "cancelled": "cancelled",
    "too_long": "failed",
}


@dataclass(slots=True)
class _Turn:
    query: str | None
    probe: Probe | None
    timeout_wall_ns: int = 0
    started: bool = False
    ended: TurnEndReason | None = None
    closed: TurnCloseReason | None = None
    texts: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Chain:
    plan: QueryPlan
    turn: _Turn | None = None
    reading: Reading | None = None
    outcome: Outcome | None = None


class ConversationCheck:
    """Takes a session's events in order; each call returns a contradiction or None."""

    def __init__(self, started: SessionStarted, reader: Reader) -> None:
        self._started = started
        self._reader = reader
        self._chains = {plan.query: _Chain(plan) for plan in started.queries}
        self._turns: dict[int, _Turn] = {}
        self._probes = 0
        self._draining = False
        self._media_ended = False
        self._end_sent: str | None = None
        self._unexplained: dict[str, Outcome] = {}

    @property
    def probes(self) -> int:
        """How many probes were sent."""
        return self._probes

    def see(self, at: Instant, event: AnyEvent) -> Contradiction | None:
        """Check one event."""
        match event:
            case ProbeSent():
                return self._send_probe(at, event)
            case TurnStarted():
                return self._start(event)
            case TextReceived() | LateTextReceived():
                return self._hear(event)
            case TurnClosed():
                return self._close_turn(at, event)
            case TurnEnded():
                return self._end_turn(event)
            case ProbeRead():
                return self._read(event)
            case ChainClosed():
                return self._close_chain(event)
            case WarningRaised(code="drain_timeout"):
                self._draining = True
            case MediaEnded():
                self._media_ended = True
            case EndSent():
                return self._send_end(event)
            case SessionEnded():
                return self._end(event)
            case _:
                pass
        return None

    # ------------------------------------------------------------------------------------------ turns

    def _send_probe(self, at: Instant, probe: ProbeSent) -> Contradiction | None:
        what = f"{probe.probe} of {probe.query}"
        chain = self._chains.get(probe.query)
        if chain is None:
            return Contradiction(what, "a query of the plan")
        if chain.outcome is not None:
            return Contradiction(f"{what} after its chain was closed", "no further probe")
        problem = self._check_step(what, probe.probe, chain)
        if problem is not None:
            return problem
        if probe.turn != self._probes + 1:
            return Contradiction(f"{what} in turn {probe.turn}", f"turn {self._probes + 1}")
        self._probes += 1
        count_from_due = self._started.clock != "lockstep" and probe.due_wall_ns is not None
        due_wall_ns = probe.due_wall_ns if count_from_due and probe.due_wall_ns is not None else at.wall_ns
        chain.turn = self._turns[probe.turn] = _Turn(
            probe.query, probe.probe, due_wall_ns + self._started.answer_timeout_ns
        )
        chain.reading = None
        return None

    def _check_step(self, what: str, probe: Probe, chain: _Chain) -> Contradiction | None:
        """task, then status, then cause only after an uncertain reading."""
        before = chain.turn.probe if chain.turn is not None else None
        if before != _BEFORE[probe]:
            return Contradiction(
                f"{what} after {before or 'nothing'}", f"{_BEFORE[probe] or 'nothing'} before it"
            )
        if before is None:
            return None
        if chain.reading is None:
            return Contradiction(f"{what} before {before} was read", "the end of the probe before it")
        following = self._following(chain)
        if following != probe:
            return Contradiction(
                f"{what} after {before} was read as {chain.reading.letters!r}", _step(following)
            )
        return None

    def _following(self, chain: _Chain) -> Probe | None:
        """What follows the newest reading of a chain; None: it closes."""
        assert chain.turn is not None and chain.reading is not None
        if self._started.chain == "task" or chain.plan.kind != "choice":
            return None
        if chain.turn.probe == "task":
            return "status"
        if chain.turn.probe == "status" and chain.reading.valid:
            return "cause" if status_of(chain.reading.letters) == "uncertain" else None
        return None

    def _start(self, started: TurnStarted) -> Contradiction | None:
        turn = self._turns.get(started.turn)
        if turn is None and started.turn >= FIRST_UNPROMPTED_TURN:
            turn = self._turns[started.turn] = _Turn(None, None)
        if turn is None or turn.started or turn.ended is not None:
            return Contradiction(f"turn {started.turn} started", "a turn given out and not begun")
        turn.started = True
        return None

    def _hear(self, text: TextReceived | LateTextReceived) -> Contradiction | None:
        turn = self._turns.get(text.turn)
        late = isinstance(text, LateTextReceived)
        if turn is None or not turn.started or turn.ended is not None or late != (turn.closed is not None):
            return Contradiction(
                f"{'late text' if late else 'text'} of turn {text.turn}",
                "text of a turn that is open, late text of one that is fenced",
            )
        if not late:
            turn.texts.append(text.text)
        return None

    def _close_turn(self, at: Instant, closed: TurnClosed) -> Contradiction | None:
        turn = self._turns.get(closed.turn)
        if turn is None or turn.ended is not None or turn.closed is not None:
            return Contradiction(f"turn {closed.turn} fenced", "a turn that is open")
        early = at.wall_ns < turn.timeout_wall_ns and not self._draining and turn.query is not None
        if closed.reason == "timed_out" and early:
            return Contradiction(
                f"turn {closed.turn} timed out at wall time {at.wall_ns} ns",
                f"{turn.timeout_wall_ns} ns or later",
            )
        turn.closed = closed.reason
        return None

    def _end_turn(self, ended: TurnEnded) -> Contradiction | None:
        turn = self._turns.get(ended.turn)
        if turn is None or turn.ended is not None:
            return Contradiction(f"turn {ended.turn} ended", "a turn that is open")
        if turn.closed is None and (not turn.started or ended.reason == "closed"):
            return Contradiction(f"turn {ended.turn} ended as {ended.reason!r}", "a start or a fence before")
        turn.ended = ended.reason
        return None

    # ----------------------------------------------------------------------------- readings and chains

    def _read(self, read: ProbeRead) -> Contradiction | None:
        chain = self._chains.get(read.query)
        turn = self._turns.get(read.turn)
        what = f"{read.probe} of {read.query} read"
        if chain is None or turn is None or chain.turn is not turn or turn.probe != read.probe:
            return Contradiction(f"{what} from turn {read.turn}", "the turn of that probe")
        if turn.ended != "finished" or turn.closed is not None or chain.reading is not None:
            return Contradiction(what, "a turn that has finished, once")
        query = EpisodeQuery(
            id=chain.plan.id,
            kind=chain.plan.kind,
            media_ns=chain.plan.media_ns,
            stem="",
            options=("",) * chain.plan.option_count,
        )
        reading = read_probe(self._reader, read.probe, query, "".join(turn.texts))
        if (read.letters, read.valid) != (reading.letters, reading.valid):
            return Contradiction(
                f"{what} as {read.letters!r}", f"{reading.letters!r}, as {self._reader.name} reads its text"
            )
        chain.reading = reading
        return None

    def _close_chain(self, closed: ChainClosed) -> Contradiction | None:
        chain = self._chains.get(closed.query)
        if chain is None or chain.outcome is not None:
            return Contradiction(f"{closed.query} closed", "a query of the plan, closed once")
        chain.outcome = closed.outcome
        what = f"{closed.query} closed as {closed.outcome!r}"
        turn = chain.turn
        if turn is None:
            return (
                None
                if closed.outcome == "not_reached"
                else Contradiction(what, "'not_reached': it was not asked")
            )
        if closed.outcome == "answered":
            if chain.reading is None:
                return Contradiction(what, "the end of its last probe before")
            following = self._following(chain)
            return None if following is None else Contradiction(what, f"the {following} probe before")
        explained = self._explain(turn)
        if explained is None:
            self._unexplained[closed.query] = closed.outcome  # the session's end must say why
            return None
        return None if closed.outcome == explained else Contradiction(what, repr(explained))

    def _explain(self, turn: _Turn) -> Outcome | None:
        """The outcome that follows from what became of the chain's last turn; None if it is open."""
        if turn.closed is not None:
            return _OUTCOMES_OF_CLOSE[turn.closed]
        return "failed" if turn.ended == "failed" else None

    def _send_end(self, end: EndSent) -> Contradiction | None:
        if end.reason == "completed":
            if not self._media_ended:
                return Contradiction("the session ended by the server", "the end of media before")
            still_open = [name for name, chain in self._chains.items() if chain.outcome is None]
            if still_open:
                return Contradiction(
                    f"the session ended by the server while {still_open[0]} was open", "its outcome before"
                )
        self._end_sent = end.reason
        return None

    def _end(self, ended: SessionEnded) -> Contradiction | None:
        what = f"the session ended as {ended.reason!r}"
        missing = [name for name, chain in self._chains.items() if chain.outcome is None]
        if missing:
            return Contradiction(f"{what} without an outcome of {missing[0]}", "one outcome for every query")
        for name, outcome in self._unexplained.items():
            expected = _OUTCOMES_AT_END[ended.reason]
            if outcome != expected:
                return Contradiction(f"{what} with {name} as {outcome!r}", repr(expected))
        if ended.reason == "completed" and self._end_sent != "completed":
            return Contradiction(what, "the server's end before")
        return None


def _step(probe: Probe | None) -> str:
    return "the end of the chain" if probe is None else f"{probe} next"

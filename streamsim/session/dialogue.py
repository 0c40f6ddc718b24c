"""Turns and chains: what the agent is asked, what it may say when, and how each query ends.

Probes go out here, the agent's turns come in, and every query gets its one outcome. When something is
due, and how long to wait for it, others know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

from streamsim.chain import QueryChain, Turn, read_probe
from streamsim.episodes.episode import EpisodeQuery
from streamsim.events import (
    ChainClosed,
    EndReason,
    Instant,
    LateTextReceived,
    ProbeRead,
    ProbeSent,
    TextReceived,
    TurnClosed,
    TurnEnded,
    TurnStarted,
)
from streamsim.prompts import Prompts
from streamsim.reading import Reader
from streamsim.session.config import SessionConfig
from streamsim.session.hold import Holder
from streamsim.session.outgoing import Outgoing
from streamsim.timeline import wire_name
from streamsim_protocol import messages as wire
from streamsim_protocol.errors import WrongOrder


class Dialogue:
    """All turns of a session and the chains that they belong to.

    ``visible_ns(query_media_ns)`` gives the media times of the frames sent that a query may see.
    """

    def __init__(
        self,
        config: SessionConfig,
        queries: Sequence[EpisodeQuery],
        prompts: Prompts,
        reader: Reader,
        outgoing: Outgoing,
        visible_ns: Callable[[int], tuple[int, ...]],
    ) -> None:
        self._config = config
        self._prompts = prompts
        self._reader = reader
        self._outgoing = outgoing
        self._visible_ns = visible_ns
        self._chains = [
            QueryChain(index=index, query=query, chain=config.chain) for index, query in enumerate(queries)
        ]
        self._turns: dict[int, Turn] = {}
        self._open: dict[int, Turn] = {}
        self._next_turn = 1

    @property
    def open_turns(self) -> list[Turn]:
        """Turns that were asked for or begun and have not ended, fenced ones included, the oldest first."""
        return list(self._open.values())

    @property
    def busy(self) -> bool:
        """A turn or a chain is open."""
        return bool(self._open) or any(chain.open for chain in self._chains)

    # ---------------------------------------------------------------------------------------- asking

    def ask(
        self, index: int, due_media_ns: int, due_wall_ns: int | None, now: Instant, held_by: Holder | None
    ) -> None:
        """The task probe of query ``index`` goes out."""
        self._send_probe(self._chains[index], "task", due_media_ns, due_wall_ns, now, held_by)

    def _send_probe(
        self,
        chain: QueryChain,
        probe: wire.Probe,
        due_media_ns: int,
        due_wall_ns: int | None,
        now: Instant,
        held_by: Holder | None = None,
    ) -> None:
        query = chain.query
        options = query.options if probe == "task" else ()
        text = self._prompts.render(
            probe,
            kind=query.kind,
            stem=query.stem,
            options=options,
            frame_stamps=self._visible_ns(query.media_ns),
        )
        # in lockstep the timeout only guards against an agent that never comes to an end
        from_wall_ns = due_wall_ns
        if self._config.clock == "lockstep" or from_wall_ns is None:
            from_wall_ns = now.wall_ns
        turn = Turn(
            id=self._next_turn,
            chain=chain,
            probe=probe,
            timeout_from_wall_ns=from_wall_ns,
        )
        self._next_turn += 1
        self._turns[turn.id] = self._open[turn.id] = chain.turn = turn
        message = self._outgoing.send(
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
        self._outgoing.record(
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
                held_by=held_by,
            ),
        )

    # ------------------------------------------------------------------------------------- listening

    def takes_text(self, message: wire.Text) -> bool:
        """Whether ``message`` says something in an open turn, which has a limit of its own."""
        turn = self._open.get(message.turn)
        return bool(message.text) and turn is not None and turn.fenced is None

    def start_turn(self, message: wire.TurnStarted, now: Instant) -> None:
        """The worker took a turn up; an id of the agent's own range opens one that nobody asked for."""
        turn = self._turns.get(message.turn)
        if turn is None and message.turn >= wire.FIRST_UNPROMPTED_TURN:
            turn = self._turns[message.turn] = Turn(id=message.turn, chain=None, probe=None)
            self._open[turn.id] = turn
        if turn is None:
            raise WrongOrder(f"turn {message.turn} was never given out")
        if turn.started or turn.ended:
            raise WrongOrder(f"turn {message.turn} started twice")
        turn.started = True
        self._outgoing.record(
            now,
            TurnStarted(turn=turn.id, seen_media_ns=message.seen_media_ns, waited_ns=message.waited_ns),
        )

    def hear(self, message: wire.Text, now: Instant) -> None:
        """A piece of text: part of the answer, or late. A turn that says too much is closed."""
        turn = self._open.get(message.turn)
        if turn is None or not turn.started:
            raise WrongOrder(f"text for turn {message.turn}, which is not open")
        if turn.fenced is None and not turn.hear(message.text):
            self.fence(turn, "too_long", now)
        late = turn.fenced is not None
        event = LateTextReceived if late else TextReceived
        self._outgoing.record(now, event(turn=turn.id, text=message.text))

    def end_turn(self, message: wire.TurnEnded, now: Instant) -> None:
        """The worker is idle again: read what was said in time, and go on with the chain."""
        turn = self._open.get(message.turn)
        if turn is None:
            raise WrongOrder(f"end of turn {message.turn}, which is not open")
        if turn.fenced is None and (not turn.started or message.reason == "closed"):
            raise WrongOrder(f"turn {message.turn} ended as {message.reason!r} without having been closed")
        turn.ended = True
        del self._open[turn.id]
        self._outgoing.record(
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
        text = turn.take_text()
        if turn.fenced is not None or turn.chain is None or turn.probe is None:
            return
        if message.reason == "failed":
            self._close_chain(turn.chain, "failed", now)
        else:
            self._read(turn, turn.chain, turn.probe, text, now)

    def _read(self, turn: Turn, chain: QueryChain, probe: wire.Probe, text: str, now: Instant) -> None:
        reading = read_probe(self._reader, probe, chain.query, text)
        self._outgoing.record(
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

    # --------------------------------------------------------------------------------------- closing

    def fence(self, turn: Turn, reason: wire.TurnCloseReason, now: Instant) -> None:
        """Nothing of ``turn`` counts from here on; its chain closes."""
        if turn.fenced is not None:
            return
        turn.fenced = reason
        turn.fenced_wall_ns = now.wall_ns
        turn.take_text()
        if self._outgoing.playing:
            self._outgoing.send(wire.TurnClosed(turn=turn.id, reason=reason))
        self._outgoing.record(now, TurnClosed(turn=turn.id, reason=reason))
        if turn.chain is not None:
            self._close_chain(turn.chain, "failed" if reason == "too_long" else reason, now)

    def fence_all(self, reason: wire.TurnCloseReason, now: Instant) -> None:
        """Close every open turn."""
        for turn in self.open_turns:
            self.fence(turn, reason, now)

    def finish(self, reason: EndReason, now: Instant) -> None:
        """The session ends: every query that has no outcome yet gets one."""
        for chain in self._chains:
            if chain.outcome is None:
                chain.outcome = _outcome_at_end(reason, chain)
                self._outgoing.record(now, ChainClosed(query=wire_name(chain.index), outcome=chain.outcome))

    def _close_chain(self, chain: QueryChain, outcome: wire.Outcome, now: Instant) -> None:
        assert chain.outcome is None, "a query has one outcome"
        chain.outcome = outcome
        if self._outgoing.playing:
            self._outgoing.send(wire.ChainClosed(query=wire_name(chain.index)))
        self._outgoing.record(now, ChainClosed(query=wire_name(chain.index), outcome=outcome))


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

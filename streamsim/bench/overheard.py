"""What a ``relay`` wrote down, read as conversations, and what a journal must then hold.

Two kinds of proof, both from the outside. Whatever the server sent must be in the journal, since it
is recorded first. And each of the server's messages says by its ``ack`` which of the agent's it had
dealt with by then: what those told must be in the journal too.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from streamsim.events import (
    Acknowledged,
    AgentFailed,
    AgentReady,
    AnyEvent,
    ChainClosed,
    EndSent,
    FrameSent,
    FrameSettled,
    GapSent,
    LateTextReceived,
    ProbeSent,
    TextReceived,
    TurnClosed,
    TurnEnded,
    TurnStarted,
    WorkingChanged,
)
from streamsim_protocol import messages as wire
from streamsim_protocol.codec import decode_agent_message, decode_server_message

if TYPE_CHECKING:
    from websockets.protocol import Side

Fact = tuple[object, ...]
"""Something that both a message and a journal line can tell: a name and what identifies it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One connection: whole messages of both sides, in order."""

    session: str
    sent: tuple[wire.ServerMessage, ...]
    said: tuple[wire.AgentMessage, ...]

    def facts(self) -> Counter[Fact]:
        """What the server's journal must hold, given what came out of the server."""
        dealt_with = self.sent[-1].ack if self.sent else 0
        known = [_sent_fact(message) for message in self.sent]
        known += [_said_fact(message) for message in self.said if message.seq <= dealt_with]
        return Counter(fact for fact in known if fact is not None)

    def acknowledged(self) -> int:
        """The newest of the server's messages whose reception the server had noted."""
        dealt_with = self.sent[-1].ack if self.sent else 0
        return max((message.ack for message in self.said if message.seq <= dealt_with), default=0)


def read_conversations(folder: Path) -> list[Conversation]:
    """All connections that got as far as a ``welcome``."""
    from websockets.protocol import CLIENT, SERVER

    found = []
    for path in sorted(folder.glob("*.server")):
        sent = [decode_server_message(data) for data in _messages(path, CLIENT)]
        said = [decode_agent_message(data) for data in _messages(path.with_suffix(".agent"), SERVER)]
        if sent and isinstance(sent[0], wire.Welcome):
            found.append(Conversation(session=sent[0].session, sent=tuple(sent), said=tuple(said)))
    return found


def missing_facts(conversation: Conversation, events: Sequence[AnyEvent]) -> Counter[Fact]:
    """What was seen from outside and is not among a journal's events: empty if nothing was lost."""
    recorded = Counter(fact for event in events if (fact := _event_fact(event)) is not None)
    missing = conversation.facts() - recorded
    noted = max((event.seq for event in events if isinstance(event, Acknowledged)), default=0)
    if noted < conversation.acknowledged():
        missing["acknowledged", conversation.acknowledged()] += 1
    return missing


def _messages(path: Path, side: Side) -> Iterator[bytes]:
    """Whole binary messages in the bytes that ``side`` received, after its HTTP head."""
    from websockets.frames import Frame, Opcode
    from websockets.protocol import Protocol

    data = path.read_bytes() if path.exists() else b""
    _, _, rest = data.partition(b"\r\n\r\n")
    protocol = Protocol(side, max_size=None)
    protocol.receive_data(rest)
    for event in protocol.events_received():
        assert isinstance(event, Frame)
        if event.opcode is Opcode.BINARY:
            assert event.fin, "neither side fragments its messages"
            yield bytes(event.data)


def _sent_fact(message: wire.ServerMessage) -> Fact | None:
    match message:
        case wire.Frame():
            digest = hashlib.sha256(message.data).hexdigest()
            return ("frame", message.seq, message.k, message.media_ns, len(message.data), digest)
        case wire.Gap():
            return ("gap", message.seq, message.from_k, message.to_k)
        case wire.ProbeMessage():
            return ("probe", message.seq, message.query, message.probe, message.turn, message.text)
        case wire.TurnClosed():
            return ("turn closed", message.turn, message.reason)
        case wire.ChainClosed():
            return ("chain closed", message.query)
        case wire.End():
            return ("end", message.reason)
        case wire.Welcome() | wire.Tick() | wire.Error():
            return None


def _said_fact(message: wire.AgentMessage) -> Fact | None:
    match message:
        case wire.Ready():
            return ("ready", message.begin_ns)
        case wire.Settled():
            return ("settled", message.k, message.outcome, message.service_ns)
        case wire.TurnStarted():
            return ("turn started", message.turn, message.seen_media_ns)
        case wire.Text():
            return ("text", message.turn, message.text)
        case wire.TurnEnded():
            return ("turn ended", message.turn, message.reason, message.service_ns)
        case wire.Working():
            return ("working", message.active)
        case wire.Failed():
            return ("failed", message.phase, message.error)
        case wire.Hello() | wire.Ack() | wire.Stats() | wire.Bye():
            return None  # not journalled as they are, or never dealt with before the last message


def _event_fact(event: AnyEvent) -> Fact | None:
    match event:
        case FrameSent():
            return ("frame", event.seq, event.k, event.media_ns, event.size_bytes, event.digest)
        case GapSent():
            return ("gap", event.seq, event.from_k, event.to_k)
        case ProbeSent():
            return ("probe", event.seq, event.query, event.probe, event.turn, event.text)
        case TurnClosed():
            return ("turn closed", event.turn, event.reason)
        case ChainClosed():
            return ("chain closed", event.query)
        case EndSent():
            return ("end", event.reason)
        case AgentReady():
            return ("ready", event.begin_ns)
        case FrameSettled():
            return ("settled", event.k, event.outcome, event.service_ns)
        case TurnStarted():
            return ("turn started", event.turn, event.seen_media_ns)
        case TextReceived() | LateTextReceived():
            return ("text", event.turn, event.text)
        case TurnEnded():
            return ("turn ended", event.turn, event.reason, event.service_ns)
        case WorkingChanged():
            return ("working", event.active)
        case AgentFailed():
            return ("failed", event.phase, event.error)
        case _:
            return None

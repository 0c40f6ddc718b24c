"""That a loss is seen: a conversation as a relay wrote it down, against journals that lack one line each."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from websockets.frames import Frame, Opcode

from streamsim.bench.overheard import missing_facts, read_conversations
from streamsim.events import (
    Acknowledged,
    AgentReady,
    AnyEvent,
    ChainClosed,
    EndSent,
    FrameSent,
    FrameSettled,
    ProbeSent,
    TextReceived,
    TurnEnded,
    TurnStarted,
)
from streamsim_protocol import messages as wire
from streamsim_protocol.codec import encode

PICTURE = b"\xff\xd8 a picture \xff\xd9"
HTTP_HEAD = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"

SENT: tuple[wire.ServerMessage, ...] = (
    wire.Welcome(
        seq=1,
        ack=1,
        version="1.0",
        capabilities=(),
        session="s",
        clock="lockstep",
        history="frozen",
        frames="all",
        fps=1.0,
        size=(64, 48),
        seed=7,
        credit=32,
    ),
    wire.Frame(seq=2, ack=3, k=0, media_ns=0, encoding="jpeg", data=PICTURE),
    wire.ProbeMessage(
        seq=3,
        ack=5,
        turn=1,
        query="q1",
        order=0,
        kind="open",
        probe="task",
        media_ns=0,
        text="What?",
        stem="What?",
        options=(),
    ),
    wire.ChainClosed(seq=4, ack=9, query="q1"),
    wire.End(seq=5, ack=9, reason="completed"),
)
SAID: tuple[wire.AgentMessage, ...] = (
    wire.Hello(seq=1, versions=(1,), agent="a"),
    wire.Ack(seq=2, ack=1),
    wire.Ready(seq=3, ack=1, begin_ns=5),
    wire.Ack(seq=4, ack=2),
    wire.Settled(seq=5, ack=2, k=0, outcome="processed", service_ns=9),
    wire.Ack(seq=6, ack=3),
    wire.TurnStarted(seq=7, ack=3, turn=1, seen_media_ns=0),
    wire.Text(seq=8, ack=3, turn=1, text="this"),
    wire.TurnEnded(seq=9, ack=3, turn=1, reason="finished", service_ns=11),
    wire.Ack(seq=10, ack=5),
    wire.Bye(seq=11, ack=5),
)
"""The server's last message acknowledges 9: what was said after that it need not have dealt with."""

EVENTS: tuple[AnyEvent, ...] = (
    AgentReady(agent="a", capabilities=(), frames="all", libraries={}, begin_ns=5),
    FrameSent(
        k=0,
        media_ns=0,
        due_wall_ns=0,
        size_bytes=len(PICTURE),
        digest=hashlib.sha256(PICTURE).hexdigest(),
        seq=2,
    ),
    FrameSettled(k=0, outcome="processed", waited_ns=0, service_ns=9),
    ProbeSent(
        query="q1",
        probe="task",
        turn=1,
        media_ns=0,
        due_media_ns=0,
        due_wall_ns=0,
        text="What?",
        seq=3,
    ),
    Acknowledged(seq=3),
    TurnStarted(turn=1, seen_media_ns=0, waited_ns=0),
    TextReceived(turn=1, text="this"),
    TurnEnded(turn=1, reason="finished", service_ns=11, first_text_ns=1, marks={}),
    ChainClosed(query="q1", outcome="answered"),
    EndSent(reason="completed"),
)


def frame(message: wire.Message, *, mask: bool) -> bytes:
    return Frame(Opcode.BINARY, encode(message)).serialize(mask=mask)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A relay's notes; the server was killed in the middle of one more message."""
    torn = frame(wire.ChainClosed(seq=6, ack=10, query="q2"), mask=False)[:-3]
    sent = b"".join(frame(message, mask=False) for message in SENT)
    (tmp_path / "1-1.server").write_bytes(HTTP_HEAD + sent + torn)
    said = b"".join(frame(message, mask=True) for message in SAID)
    (tmp_path / "1-1.agent").write_bytes(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + said)
    (tmp_path / "1-2.server").write_bytes(HTTP_HEAD[:20])  # the next connection got no further
    return tmp_path


def test_whole_conversation(folder: Path) -> None:
    (conversation,) = read_conversations(folder)
    assert conversation.session == "s"
    assert conversation.sent == SENT
    assert conversation.said == SAID
    assert conversation.acknowledged() == 3
    assert conversation.facts().total() == len(EVENTS) - 1  # all but the acknowledgement
    assert not missing_facts(conversation, EVENTS)


@pytest.mark.parametrize("lost", EVENTS, ids=lambda event: type(event).__name__)
def test_each_lost_line_is_missed(folder: Path, lost: AnyEvent) -> None:
    (conversation,) = read_conversations(folder)
    missing = missing_facts(conversation, [event for event in EVENTS if event is not lost])
    assert missing.total() == 1


def test_what_was_said_last_may_be_unknown(folder: Path) -> None:
    """The acknowledgement of the end and the farewell: no message of the server says that it had them."""
    (conversation,) = read_conversations(folder)
    assert not [fact for fact in conversation.facts() if fact[0] == "bye"]
    assert max(message.seq for message in conversation.said) == 11 > conversation.sent[-1].ack

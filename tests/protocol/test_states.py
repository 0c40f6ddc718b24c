"""The table of states and the numbering, against the contract written out by hand."""

from __future__ import annotations

from collections import deque
from itertools import product

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamsim_protocol import messages as wire
from streamsim_protocol.errors import WrongOrder
from streamsim_protocol.states import AGENT_MESSAGES, SERVER_MESSAGES, Connection, State

EXAMPLES: dict[str, wire.Message] = {
    message.__struct_config__.tag: message  # type: ignore[misc]
    for message in (
        wire.Hello(versions=(1,), agent="x"),
        wire.Ready(),
        wire.Ack(),
        wire.Settled(k=0, outcome="processed"),
        wire.TurnStarted(turn=1, seen_media_ns=None),
        wire.Text(turn=1, text="A"),
        wire.TurnEnded(turn=1, reason="finished"),
        wire.Working(active=True),
        wire.Stats(values={}),
        wire.Failed(phase="begin", error=""),
        wire.Bye(),
        wire.Welcome(
            version="1.0",
            capabilities=(),
            session="s",
            clock="realtime",
            history="frozen",
            frames="all",
            fps=1.0,
            size=(1, 1),
            seed=0,
            credit=32,
        ),
        wire.Frame(k=0, media_ns=0, encoding="png", data=b""),
        wire.Gap(from_k=0, to_k=1, reason="no_picture"),
        wire.ProbeMessage(
            turn=1,
            query="q1",
            order=0,
            kind="choice",
            probe="task",
            media_ns=0,
            text="",
            stem="",
            options=(),
        ),
        wire.TurnClosed(turn=1, reason="timed_out"),
        wire.ChainClosed(query="q1"),
        wire.Tick(media_ns=0, rate=1.0, reason="start"),
        wire.End(reason="completed"),
        wire.Error(code=4001, detail=""),
    )
}

WORK = ["ack", "settled", "turn_started", "text", "turn_ended", "working", "stats", "failed"]
LEGAL: dict[str, dict[str, str]] = {
    "opening": {"hello": "greeting"},
    "greeting": {"welcome": "greeted"},
    "greeted": {
        **dict.fromkeys(["ack", "stats", "working", "failed"], "greeted"),
        "ready": "playing",
        "end": "ending",
    },
    "playing": {
        **dict.fromkeys(WORK, "playing"),
        **dict.fromkeys(["frame", "gap", "probe", "turn_closed", "chain_closed", "tick"], "playing"),
        "end": "ending",
    },
    "ending": {**dict.fromkeys([*WORK, "ready"], "ending"), "bye": "closed"},
    "closed": {},
}
"""state -> message -> next state, from the contract's text; ``error`` closes in every state."""


def connection_in(state: str) -> Connection:
    connection = Connection()
    connection.state = State(state)
    return connection


def following(state: str, tag: str) -> str | None:
    return "closed" if tag == "error" else LEGAL[state].get(tag)


def test_examples_cover_every_type() -> None:
    assert {type(message) for message in EXAMPLES.values()} == {*AGENT_MESSAGES, *SERVER_MESSAGES}
    assert set(LEGAL) == {state.value for state in State}


@pytest.mark.parametrize(("state", "tag"), list(product(LEGAL, EXAMPLES)))
def test_every_pair_of_state_and_message(state: str, tag: str) -> None:
    expected = following(state, tag)
    sender, receiver = connection_in(state), connection_in(state)
    numbered = msgspec.structs.replace(EXAMPLES[tag], seq=1)
    if expected is None:
        for refused in (lambda: sender.stamp(EXAMPLES[tag]), lambda: receiver.receive(numbered)):
            with pytest.raises(WrongOrder) as caught:
                refused()
            assert str(caught.value) == f"unexpected {tag!r} while {state}"
        assert (sender.state, sender.sent) == (State(state), 0)
        assert (receiver.state, receiver.received) == (State(state), 0)
        return
    assert sender.stamp(EXAMPLES[tag]) == numbered
    receiver.receive(numbered)
    assert sender.state is receiver.state is State(expected)


def test_numbers_count_from_one_in_each_direction_and_acknowledge_what_came() -> None:
    agent, server = Connection(), Connection()
    hello = agent.stamp(EXAMPLES["hello"])
    server.receive(hello)
    welcome = server.stamp(EXAMPLES["welcome"])
    agent.receive(welcome)
    ready = agent.stamp(EXAMPLES["ready"])
    ack = agent.stamp(EXAMPLES["ack"])
    assert [(message.seq, message.ack) for message in (hello, welcome, ready, ack)] == [
        (1, 0),
        (1, 1),
        (2, 1),
        (3, 1),
    ]
    assert (server.acknowledged, server.received, server.sent) == (0, 1, 1)
    server.receive(ready)
    assert (server.acknowledged, server.received) == (1, 2)


@pytest.mark.parametrize(
    ("seq", "ack", "fault"),
    [
        (5, 7, "expected seq 4, got 5"),
        (3, 7, "expected seq 4, got 3"),
        (0, 7, "expected seq 4, got 0"),
        (4, 9, "expected ack from 6 to 8, got 9"),
        (4, 5, "expected ack from 6 to 8, got 5"),
        (5, 9, "expected seq 4, got 5"),
    ],
)
def test_a_broken_number_is_refused_and_changes_nothing(seq: int, ack: int, fault: str) -> None:
    connection = connection_in("playing")
    connection.received, connection.sent, connection.acknowledged = 3, 8, 6
    with pytest.raises(WrongOrder) as caught:
        connection.receive(wire.Ack(seq=seq, ack=ack))
    assert str(caught.value) == fault
    assert (connection.received, connection.sent, connection.acknowledged) == (3, 8, 6)
    for ack in (6, 7, 8):
        connection.receive(wire.Ack(seq=connection.received + 1, ack=ack))
        assert connection.acknowledged == ack


Place = tuple[str, str, tuple[str, ...], tuple[str, ...]]
"""The agent's state, the server's, and the types on the way to the server and to the agent."""


class Conversation(RuleBasedStateMachine):
    """Two ends, each sending whatever its own state lets it, and two wires with any delay."""

    def __init__(self) -> None:
        super().__init__()
        self.agent, self.server = Connection(), Connection()
        self.to_server: deque[wire.Message] = deque()
        self.to_agent: deque[wire.Message] = deque()
        self.broken_off = False
        """The server has said ``error``: it reads no more."""

    def sendable(self, end: Connection, kinds: tuple[type[wire.Message], ...]) -> list[str]:
        return [
            tag
            for tag, message in EXAMPLES.items()
            if isinstance(message, kinds) and following(end.state.value, tag) is not None
        ]

    @precondition(lambda self: self.sendable(self.agent, AGENT_MESSAGES))
    @rule(data=st.data())
    def agent_sends(self, data: st.DataObject) -> None:
        tag = data.draw(st.sampled_from(self.sendable(self.agent, AGENT_MESSAGES)))
        self.to_server.append(self.agent.stamp(EXAMPLES[tag]))

    @precondition(lambda self: not self.broken_off)
    @rule(data=st.data(), patience=st.integers(0, 19))
    def server_sends(self, data: st.DataObject, patience: int) -> None:
        tags = [tag for tag in self.sendable(self.server, SERVER_MESSAGES) if tag != "error"]
        tag = data.draw(st.sampled_from(tags)) if tags and patience else "error"
        self.broken_off = tag == "error"
        self.to_agent.append(self.server.stamp(EXAMPLES[tag]))

    @precondition(lambda self: self.to_server)
    @rule(messages=st.integers(1, 5))
    def server_receives(self, messages: int) -> None:
        for _ in range(min(messages, len(self.to_server))):
            message = self.to_server.popleft()
            if not self.broken_off:
                self.server.receive(message)

    @precondition(lambda self: self.to_agent)
    @rule(messages=st.integers(1, 5))
    def agent_receives(self, messages: int) -> None:
        for _ in range(min(messages, len(self.to_agent))):
            self.agent.receive(self.to_agent.popleft())

    @precondition(lambda self: self.broken_off)
    @rule()
    def nothing_more_happens(self) -> None:
        """A conversation that was broken off may stay so."""

    @invariant()
    def nobody_claims_more_than_was_sent(self) -> None:
        assert self.server.acknowledged <= self.agent.received <= self.server.sent
        assert self.agent.acknowledged <= self.server.received <= self.agent.sent

    @invariant()
    def both_agree_when_nothing_is_on_the_way(self) -> None:
        if not self.to_server and not self.to_agent and not self.broken_off:
            assert self.agent.state is self.server.state
            assert self.agent.received == self.server.sent
            assert self.server.received == self.agent.sent


Conversation.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestConversation = pytest.mark.slow(Conversation.TestCase)


def test_no_interleaving_of_one_conversation_surprises_an_end() -> None:
    """Every state that two ends and their wires can be in, with one message of each effect on each wire."""
    kinds = [EXAMPLES[tag] for tag in ("hello", "ready", "settled", "bye", "welcome", "frame", "end")]
    seen: set[Place] = set()
    waiting: list[Place] = [("opening", "opening", (), ())]
    while waiting:
        place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        agent, server, to_server, to_agent = place
        for message in kinds:
            tag = str(message.__struct_config__.tag)
            if isinstance(message, AGENT_MESSAGES) and len(to_server) < 3:
                moved = following(agent, tag)
                if moved is not None:
                    waiting.append((moved, server, (*to_server, tag), to_agent))
            if isinstance(message, SERVER_MESSAGES) and len(to_agent) < 3:
                moved = following(server, tag)
                if moved is not None:
                    waiting.append((agent, moved, to_server, (*to_agent, tag)))
        if to_server:
            moved = following(server, to_server[0])
            assert moved is not None, f"the server is surprised: {place}"
            waiting.append((agent, moved, to_server[1:], to_agent))
        if to_agent:
            moved = following(agent, to_agent[0])
            assert moved is not None, f"the agent is surprised: {place}"
            waiting.append((moved, server, to_server, to_agent[1:]))
    assert ("closed", "closed", (), ()) in seen

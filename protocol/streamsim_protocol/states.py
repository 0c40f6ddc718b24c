"""The order of messages: one table for both directions, and the numbering of one connection.

    OPENING --hello--> GREETING --welcome--> GREETED --ready--> PLAYING --end--> ENDING --bye--> CLOSED
                       any state --error--> CLOSED           GREETED --end--> ENDING

The agent says hello, ready and bye; the server welcome, end and error. Both peers keep one
``Connection``: it moves by what is sent as well as by what is received, and the table lets through
what crosses on the way, so both ends agree. This module knows no sockets and no time.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

import msgspec

from streamsim_protocol.errors import WrongOrder
from streamsim_protocol.messages import (
    Ack,
    Bye,
    ChainClosed,
    End,
    Error,
    Failed,
    Frame,
    Gap,
    Hello,
    Message,
    ProbeMessage,
    Ready,
    Settled,
    Stats,
    Text,
    Tick,
    TurnClosed,
    TurnEnded,
    TurnStarted,
    Welcome,
    Working,
)


class State(Enum):
    """Where a connection stands."""

    OPENING = "opening"
    GREETING = "greeting"
    GREETED = "greeted"
    PLAYING = "playing"
    ENDING = "ending"
    CLOSED = "closed"


_PLAYING_AGENT = (Ack, Settled, TurnStarted, Text, TurnEnded, Working, Stats, Failed)
_PLAYING_SERVER = (Frame, Gap, ProbeMessage, TurnClosed, ChainClosed, Tick)

TRANSITIONS: dict[tuple[State, type[Message]], State] = {
    (State.OPENING, Hello): State.GREETING,
    (State.GREETING, Welcome): State.GREETED,
    (State.GREETED, Ack): State.GREETED,
    (State.GREETED, Stats): State.GREETED,
    (State.GREETED, Working): State.GREETED,
    (State.GREETED, Failed): State.GREETED,
    (State.GREETED, Ready): State.PLAYING,
    (State.GREETED, End): State.ENDING,
    **{(State.PLAYING, kind): State.PLAYING for kind in (*_PLAYING_AGENT, *_PLAYING_SERVER)},
    (State.PLAYING, End): State.ENDING,
    **{(State.ENDING, kind): State.ENDING for kind in (*_PLAYING_AGENT, Ready)},
    (State.ENDING, Bye): State.CLOSED,
    **{(state, Error): State.CLOSED for state in State},
}
"""(state, message) -> next state; what is not here is out of order."""

AGENT_MESSAGES: tuple[type[Message], ...] = (Hello, Ready, Bye, *_PLAYING_AGENT)
SERVER_MESSAGES: tuple[type[Message], ...] = (Welcome, End, Error, *_PLAYING_SERVER)

_M = TypeVar("_M", bound=Message)


class Connection:
    """Order and numbering of one connection, the same class on both ends."""

    def __init__(self) -> None:
        self.state = State.OPENING
        self.sent = 0
        """``seq`` of the last message that was stamped for sending."""
        self.received = 0
        """``seq`` of the last message received; what our ``ack`` says."""
        self.acknowledged = 0
        """The peer's newest ``ack``: everything up to it has arrived there."""

    def stamp(self, message: _M) -> _M:
        """Number ``message`` for sending. ``WrongOrder`` here is our own bug."""
        self._move(message)
        self.sent += 1
        return msgspec.structs.replace(message, seq=self.sent, ack=self.received)

    def receive(self, message: Message) -> None:
        """Take note of a message from the peer; ``WrongOrder`` if it cannot come here."""
        if message.seq != self.received + 1:
            raise WrongOrder(f"expected seq {self.received + 1}, got {message.seq}")
        if not self.acknowledged <= message.ack <= self.sent:
            raise WrongOrder(f"expected ack from {self.acknowledged} to {self.sent}, got {message.ack}")
        self._move(message)
        self.received = message.seq
        self.acknowledged = message.ack

    def _move(self, message: Message) -> None:
        following = TRANSITIONS.get((self.state, type(message)))
        if following is None:
            name = type(message).__struct_config__.tag
            raise WrongOrder(f"unexpected {name!r} while {self.state.value}")
        self.state = following

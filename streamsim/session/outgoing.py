"""What a session has to say: numbered messages for the agent, events for the journal."""

from __future__ import annotations

from typing import TypeVar

from streamsim.events import AnyEvent, Instant
from streamsim_protocol.messages import ServerMessage
from streamsim_protocol.states import Connection, State

_Sent = TypeVar("_Sent", bound=ServerMessage)


class Outgoing:
    """Keeps both in order until the driver takes them. ``connection`` numbers what is sent."""

    def __init__(self) -> None:
        self.connection = Connection()
        self._messages: list[ServerMessage] = []
        self._events: list[tuple[Instant, AnyEvent]] = []

    @property
    def playing(self) -> bool:
        """The agent is ready and was not told of an end."""
        return self.connection.state is State.PLAYING

    @property
    def waiting(self) -> bool:
        """There are messages or events to be taken."""
        return bool(self._events or self._messages)

    def send(self, message: _Sent) -> _Sent:
        """Number ``message`` and keep it; what comes back is as it will be sent."""
        stamped = self.connection.stamp(message)
        self._messages.append(stamped)
        return stamped

    def record(self, now: Instant, event: AnyEvent) -> None:
        """Keep an event for the journal."""
        self._events.append((now, event))

    def take_messages(self) -> list[ServerMessage]:
        """All messages since the last call."""
        messages, self._messages = self._messages, []
        return messages

    def take_events(self) -> list[tuple[Instant, AnyEvent]]:
        """All events since the last call."""
        events, self._events = self._events, []
        return events

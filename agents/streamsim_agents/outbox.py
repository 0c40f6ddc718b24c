"""What the worker wants to say, on its way to the socket: bounded, and cut at a fence.

The worker waits when the outbox is full, so an agent that floods is slowed by its own socket. Text of
a cancelled turn is dropped wherever it is on its way, and counted.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import msgspec

from streamsim_agents.agent import Turn
from streamsim_protocol import messages as wire

CAPACITY = 256


class Outbox:
    """Messages in order. ``on_put`` wakes the sender; it is called on the worker's thread."""

    def __init__(self, on_put: Callable[[], None], capacity: int = CAPACITY) -> None:
        self._on_put = on_put
        self._capacity = capacity
        self._items: deque[tuple[wire.AgentMessage, Turn | None]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._dropped: dict[int, int] = {}

    def put(self, message: wire.AgentMessage, turn: Turn | None = None) -> None:
        """Say ``message``; waits while the outbox is full. After ``close`` it is dropped."""
        with self._changed:
            while len(self._items) >= self._capacity and not self._closed:
                self._changed.wait()
            if self._closed:
                return
            self._items.append((message, turn))
        self._on_put()

    def put_now(self, message: wire.AgentMessage) -> None:
        """Say ``message`` without waiting: for the socket loop itself, which empties the outbox."""
        with self._changed:
            if not self._closed:
                self._items.append((message, None))

    def put_text(self, turn: Turn, text: str) -> None:
        """Say a piece of ``turn``."""
        self.put(wire.Text(turn=turn.id, text=text), turn)

    def put_end(self, turn: Turn, message: wire.TurnEnded) -> None:
        """Say that ``turn`` has ended; what was dropped of it is filled in on the way out."""
        self.put(message, turn)

    def take(self) -> wire.AgentMessage | None:
        """The next message to send, None when there is none now. Called on the loop's thread."""
        with self._changed:
            while self._items:
                message, turn = self._items.popleft()
                self._changed.notify_all()
                if isinstance(message, wire.Text) and turn is not None and turn.cancelled:
                    self._dropped[turn.id] = self._dropped.get(turn.id, 0) + len(message.text)
                    continue
                if isinstance(message, wire.TurnEnded) and turn is not None:
                    reason = "closed" if turn.cancelled else message.reason
                    dropped = self._dropped.pop(turn.id, 0)
                    return msgspec.structs.replace(message, reason=reason, dropped_chars=dropped)
                return message
            return None

    def close(self) -> None:
        """Nothing more is sent; a waiting worker goes on."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()

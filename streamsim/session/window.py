"""Frames between their sending and their settlement, and how many more may be on their way."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

from streamsim_protocol.errors import WrongOrder
from streamsim_protocol.messages import VISIBILITY_TOLERANCE_NS


class FrameWindow:
    """``credit`` frames may be sent beyond what the agent acknowledged to have received."""

    def __init__(self, credit: int) -> None:
        self._credit = credit
        self._in_flight: deque[int] = deque()
        self._times_ns: list[int] = []
        self._unsettled: set[int] = set()
        self._settled: set[int] = set()

    @property
    def has_credit(self) -> bool:
        """One more frame may be sent now."""
        return len(self._in_flight) < self._credit

    @property
    def unsettled(self) -> int:
        """How many frames were sent and neither observed, passed over nor failed."""
        return len(self._unsettled)

    @property
    def empty(self) -> bool:
        """No frame was ever sent."""
        return not self._times_ns

    def note_sent(self, k: int, media_ns: int, seq: int) -> None:
        """Frame ``k`` goes out as message ``seq``."""
        self._unsettled.add(k)
        self._in_flight.append(seq)
        self._times_ns.append(media_ns)

    def note_received(self, seq: int) -> None:
        """The agent has received everything up to ``seq``."""
        while self._in_flight and self._in_flight[0] <= seq:
            self._in_flight.popleft()

    def settle(self, k: int) -> None:
        """The agent is done with frame ``k``; ``WrongOrder`` if it cannot be."""
        if k not in self._unsettled:
            problem = "settled twice" if k in self._settled else "never sent"
            raise WrongOrder(f"frame {k} was {problem}")
        self._unsettled.discard(k)
        self._settled.add(k)

    def visible_ns(self, query_media_ns: int) -> tuple[int, ...]:
        """Media times of the frames sent that a query may see."""
        count = bisect_right(self._times_ns, query_media_ns + VISIBILITY_TOLERANCE_NS)
        return tuple(self._times_ns[:count])

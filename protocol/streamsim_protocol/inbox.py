"""What the worker does next: the order in which frames are observed and probes answered.

Under ``frozen`` history everything goes by (media time, frame before query, query order), one chain at
a time, so that all probes of a chain see the history up to their query. Under ``live`` it goes by
arrival. A ``latest`` agent takes the newest frame that has arrived and skips the older ones, but never
past a query: the newest frame visible to it is always observed first. This module knows no threads, no
sockets and no clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from streamsim_protocol.messages import VISIBILITY_TOLERANCE_NS, FramePolicy, History, ProbeMessage

_Order = tuple[int, int, int, int]
_STEPS = {"task": 0, "status": 1, "cause": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingFrame:
    """A frame that has arrived. ``handle`` finds its bytes again; ``received_ns`` is monotonic."""

    k: int
    media_ns: int
    handle: int
    received_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingProbe:
    """A probe that has arrived."""

    message: ProbeMessage
    received_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What comes next, and which frames are passed over for it."""

    item: WaitingFrame | WaitingProbe
    skipped: tuple[WaitingFrame, ...] = ()


class Inbox:
    """Waiting frames and probes; ``take`` decides. Frames arrive in the order of their time."""

    def __init__(self, frames: FramePolicy, history: History) -> None:
        self._policy = frames
        self._order = _frozen_order if history == "frozen" else _arrival_order
        self._frozen = history == "frozen"
        self._frames: deque[tuple[int, WaitingFrame]] = deque()
        self._probes: list[tuple[int, WaitingProbe]] = []
        self._arrivals = 0
        self._chain: str | None = None

    @property
    def frames_waiting(self) -> int:
        """How many frames have arrived and were neither taken nor passed over."""
        return len(self._frames)

    def put(self, item: WaitingFrame | WaitingProbe) -> None:
        """Something arrived."""
        self._arrivals += 1
        if isinstance(item, WaitingFrame):
            self._frames.append((self._arrivals, item))
        else:
            self._probes.append((self._arrivals, item))

    def close_chain(self, query: str) -> None:
        """No further probe of ``query`` will come: under frozen history, time may go on."""
        if self._chain == query:
            self._chain = None

    def withdraw(self, turn: int) -> bool:
        """Take a probe out that was closed before it began; False if it is not here."""
        before = len(self._probes)
        self._probes = [(arrival, probe) for arrival, probe in self._probes if probe.message.turn != turn]
        return len(self._probes) < before

    def take(self) -> Choice | None:
        """What the worker, being free, does next; None when it has to wait."""
        probes = self._probes
        if self._chain is not None:
            probes = [(arrival, probe) for arrival, probe in probes if probe.message.query == self._chain]
            return self._take_probe(min(probes, key=self._order)) if probes else None
        probe = min(probes, key=self._order, default=None)
        if probe is None:
            return self._take_frame(None) if self._frames else None
        if self._frames and self._order(self._frames[0]) < self._order(probe):
            return self._take_frame(self._order(probe))
        return self._take_probe(probe)

    def _take_probe(self, probe: tuple[int, WaitingProbe]) -> Choice:
        self._probes.remove(probe)
        if self._frozen:
            self._chain = probe[1].message.query
        return Choice(item=probe[1])

    def _take_frame(self, limit: _Order | None) -> Choice:
        _, frame = self._frames.popleft()
        skipped = []
        while (
            self._policy == "latest"
            and self._frames
            and (limit is None or self._order(self._frames[0]) < limit)
        ):
            skipped.append(frame)
            _, frame = self._frames.popleft()
        return Choice(item=frame, skipped=tuple(skipped))


def _arrival_order(arrived: tuple[int, WaitingFrame | WaitingProbe]) -> _Order:
    return (arrived[0], 0, 0, 0)


def _frozen_order(arrived: tuple[int, WaitingFrame | WaitingProbe]) -> _Order:
    item = arrived[1]
    if isinstance(item, WaitingFrame):
        return (item.media_ns, 0, item.k, 0)
    message = item.message
    return (message.media_ns + VISIBILITY_TOLERANCE_NS, 1, message.order, _STEPS[message.probe])

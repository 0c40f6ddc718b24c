"""The messages of ``streamsim.v1``: one record per type, the same on both sides.

``protocol/README.md`` is the normative text. Instants on the wire are media time, nanoseconds since
the episode began; agents report durations, never instants, so that no clocks need synchronising. This
module knows no sockets and no encoding.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

VERSION = "1.0"
MAJOR_VERSION = 1
SUBPROTOCOL = "streamsim.v1"
MAX_SERVER_MESSAGE_BYTES = 1 << 20
MAX_AGENT_MESSAGE_BYTES = 64 << 10
VISIBILITY_TOLERANCE_NS = 1_000
"""A frame is visible to a query iff ``frame.media_ns <= query.media_ns + 1_000`` (STORM-Bench's rule)."""
FIRST_UNPROMPTED_TURN = 1 << 31
"""Turn ids below this are given by the server to probes; ids from here on are the agent's own."""

RUNTIME_STATS = "runtime."
"""Figures of ``stats`` under this prefix are the runtime's own, never the agent's."""
LOOP_LAG_P99 = "runtime.loop_lag_p99_ns"
LOOP_LAG_MAX = "runtime.loop_lag_max_ns"
"""How late the runtime's socket loop was to beats that were due, as durations; sent once before ``bye``."""

Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""An integer that cannot be negative and fits 63 bits: times, durations, sizes, numbers."""

Probe = Literal["task", "status", "cause"]
QueryKind = Literal["choice", "open", "heartbeat", "standing"]
History = Literal["frozen", "live"]
ClockMode = Literal["realtime", "skip", "scaled", "lockstep"]
FramePolicy = Literal["all", "latest"]
Settlement = Literal["processed", "skipped", "failed"]
TurnEndReason = Literal["finished", "closed", "failed"]
TurnCloseReason = Literal["timed_out", "cancelled", "too_long"]
Outcome = Literal["answered", "timed_out", "cancelled", "failed", "disconnected", "not_reached"]
Phase = Literal["load", "begin", "stats", "end", "save"]


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """What every message carries: its own number and the highest number received in order.

    ``seq`` counts from 1 in each direction; ``ack`` is cumulative, 0 while nothing was received.
    """

    seq: Count = 0
    ack: Count = 0


# ------------------------------------------------------------------------------- server to agent


class Welcome(Message, frozen=True, kw_only=True, tag="welcome"):
    """The server's answer to ``hello``: the rules of this session, nothing of its content.

    ``size`` is (width, height) of the pictures as sent. ``seed`` is the digest of run seed, the
    episode's index and the repeat: the same for every agent, the only source of randomness.
    """

    version: str
    capabilities: tuple[str, ...]
    session: str
    clock: ClockMode
    history: History
    frames: FramePolicy
    fps: float
    size: tuple[Count, Count]
    seed: Count
    credit: Count


class Frame(Message, frozen=True, kw_only=True, tag="frame"):
    """Sample ``k``, what a viewer sees at ``media_ns``; ``data`` is a JPEG or PNG file."""

    k: Count
    media_ns: Count
    encoding: Literal["jpeg", "png"]
    data: bytes


class Gap(Message, frozen=True, kw_only=True, tag="gap"):
    """Samples ``from_k <= k < to_k`` will not come, and why."""

    from_k: Count
    to_k: Count
    reason: str


class ProbeMessage(Message, frozen=True, kw_only=True, tag="probe"):
    """One step of a query's chain, to be answered in ``turn``.

    ``text`` is the prompt as the server rendered it; ``stem`` and ``options`` are its parts.
    Status and cause probes carry no options. ``order`` is the query's place, from 0, among all of the
    session in the order of their time: it settles ties of ``media_ns``.
    """

    turn: Count
    query: str
    order: Count
    kind: QueryKind
    probe: Probe
    media_ns: Count
    text: str
    stem: str
    options: tuple[str, ...]


class TurnClosed(Message, frozen=True, kw_only=True, tag="turn_closed"):
    """The server fences a turn, begun or not: nothing of it counts from here on."""

    turn: Count
    reason: TurnCloseReason


class ChainClosed(Message, frozen=True, kw_only=True, tag="chain_closed"):
    """No further probe of this query will come."""

    query: str


class Tick(Message, frozen=True, kw_only=True, tag="tick"):
    """The clock was re-taken (capability ``ticks``): media time is ``media_ns`` and moves at ``rate``.

    ``rate`` is media seconds per wall second, 0 while the clock is held or paused.
    """

    media_ns: Count
    rate: float
    reason: Literal["start", "hold", "release", "jump", "pause", "resume", "rate", "step"]


class End(Message, frozen=True, kw_only=True, tag="end"):
    """Nothing more will come: finish, save, say ``bye``."""

    reason: Literal["completed", "interrupted"]


class Error(Message, frozen=True, kw_only=True, tag="error"):
    """The reason for the close that follows."""

    code: int
    detail: str


# ------------------------------------------------------------------------------- agent to server


class Hello(Message, frozen=True, kw_only=True, tag="hello"):
    """The agent's first message. ``versions`` are the major versions that it speaks."""

    versions: tuple[int, ...]
    capabilities: tuple[str, ...] = ()
    agent: str
    frames: FramePolicy = "all"
    libraries: dict[str, str] = {}


class Ready(Message, frozen=True, kw_only=True, tag="ready"):
    """``begin`` has returned: wall time starts here. ``begin_ns`` is how long it took."""

    begin_ns: Count = 0


class Ack(Message, frozen=True, kw_only=True, tag="ack"):
    """Reception of everything up to ``ack``, and nothing else."""


class Settled(Message, frozen=True, kw_only=True, tag="settled"):
    """Frame ``k`` needs nothing more: observed, passed over, or its ``observe`` raised.

    ``waited_ns`` from reception to the start of ``observe``, ``service_ns`` inside it.
    """

    k: Count
    outcome: Settlement
    waited_ns: Count = 0
    service_ns: Count = 0
    error: str | None = None


class TurnStarted(Message, frozen=True, kw_only=True, tag="turn_started"):
    """The worker took the turn up. ``seen_media_ns`` is the newest frame observed (None: none yet).

    ``waited_ns`` from the probe's reception to here; 0 for an unprompted turn.
    """

    turn: Count
    seen_media_ns: Count | None
    waited_ns: Count = 0


class Text(Message, frozen=True, kw_only=True, tag="text"):
    """A piece of the turn's utterance, in order."""

    turn: Count
    text: str


class TurnEnded(Message, frozen=True, kw_only=True, tag="turn_ended"):
    """The worker is idle again. All durations count from the turn's start.

    ``first_text_ns`` is None when nothing was said; ``marks`` are the agent's own stage ends;
    ``dropped_chars`` counts text that the runtime threw away after a fence.
    """

    turn: Count
    reason: TurnEndReason
    service_ns: Count = 0
    first_text_ns: Count | None = None
    marks: dict[str, Count] = {}
    dropped_chars: Count = 0
    error: str | None = None


class Working(Message, frozen=True, kw_only=True, tag="working"):
    """The agent declares work in the background: the session stays busy until it says False."""

    active: bool


class Stats(Message, frozen=True, kw_only=True, tag="stats"):
    """What ``Agent.stats`` returned; names under ``runtime.`` are the runtime's own figures."""

    values: dict[str, float]


class Failed(Message, frozen=True, kw_only=True, tag="failed"):
    """A method other than ``observe`` and ``answer`` raised. ``error`` is the traceback."""

    phase: Phase
    error: str


class Bye(Message, frozen=True, kw_only=True, tag="bye"):
    """The agent's last message. ``saved`` is the digest of what ``save`` wrote, None if nothing."""

    saved: str | None = None
    saved_bytes: Count = 0


ServerMessage = Welcome | Frame | Gap | ProbeMessage | TurnClosed | ChainClosed | Tick | End | Error
AgentMessage = Hello | Ready | Ack | Settled | TurnStarted | Text | TurnEnded | Working | Stats | Failed | Bye

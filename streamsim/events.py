"""What happened in a session: journal, live view and scoring consume the same events.

Every event is journalled with both clocks of the server at that moment (``Instant``); fields ending
in ``wall_ns`` are instants counted from the agent's ``ready``, other ``_ns`` fields that the agent
reports are durations. This module knows no files and no clocks.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from streamsim_protocol.messages import (
    ClockMode,
    FramePolicy,
    History,
    Outcome,
    Phase,
    Probe,
    QueryKind,
    Settlement,
    TurnCloseReason,
    TurnEndReason,
)

EndReason = Literal[
    "completed", "interrupted", "disconnected", "agent_failed", "hung", "ready_timeout", "protocol_error",
    "media_failed",
]  # fmt: skip


LATE_NS = 50_000_000
"""A release later than this counts as late: a twentieth of the interval at one frame a second."""


class Instant(msgspec.Struct, frozen=True):
    """One moment on both clocks, in nanoseconds: since the episode began, and since ``ready``."""

    media_ns: int
    wall_ns: int


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """Something that happened; the tag is the class's name."""


class QueryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The journal's mapping from a query's name on the wire to its id in the dataset.

    ``due_media_ns`` is the later of the query's own time and its newest visible frame's;
    ``option_count`` lets answers be read anew from the journal alone (0: an open question).
    """

    query: str
    id: str
    kind: QueryKind
    media_ns: int
    due_media_ns: int
    option_count: int = 0


class SessionStarted(Event, frozen=True, kw_only=True, tag="SessionStarted"):
    """The first line: which episode, under which rules. ``lanes`` sessions may run at the same time."""

    run: str
    session: str
    episode: str
    subset: str
    repeat: int
    attempt: int
    lanes: int
    seed: int
    clock: ClockMode
    rate: float
    history: History
    chain: Literal["full", "task"]
    fps: float
    credit: int
    answer_timeout_ns: int
    hang_timeout_ns: int
    drain_timeout_ns: int
    queries: tuple[QueryPlan, ...]


class AgentReady(Event, frozen=True, kw_only=True, tag="AgentReady"):
    """The agent said ``ready``; the clock starts at the next ClockTaken."""

    agent: str
    capabilities: tuple[str, ...]
    frames: FramePolicy
    libraries: dict[str, str]
    begin_ns: int


class ClockTaken(Event, frozen=True, kw_only=True, tag="ClockTaken"):
    """The pair (media, wall) was taken anew: from here media time moves at ``rate`` (0: it stands)."""

    media_ns: int
    wall_ns: int
    rate: float
    reason: Literal["start", "hold", "release", "jump", "pause", "resume", "rate", "step"]


class FrameSent(Event, frozen=True, kw_only=True, tag="FrameSent"):
    """A frame left the server. ``digest`` is the SHA-256 of the bytes of the picture file.

    In the journal it is called ``picture_digest``: ``digest`` is there the line's own. ``held_by`` says
    what kept a late frame: the client's exhausted credit, or our own decoder.
    """

    k: int
    media_ns: int
    due_wall_ns: int | None
    size_bytes: int
    digest: str = msgspec.field(name="picture_digest")
    seq: int
    held_by: Literal["credit", "decoder"] | None = None


class GapSent(Event, frozen=True, kw_only=True, tag="GapSent"):
    """Samples ``from_k <= k < to_k`` have no picture."""

    from_k: int
    to_k: int
    reason: str
    seq: int


class FrameSettled(Event, frozen=True, kw_only=True, tag="FrameSettled"):
    """The agent is done with a frame."""

    k: int
    outcome: Settlement
    waited_ns: int
    service_ns: int
    error: str | None = None


class ProbeSent(Event, frozen=True, kw_only=True, tag="ProbeSent"):
    """A probe left the server. Due of status and cause is the receipt of the previous probe's end."""

    query: str
    probe: Probe
    turn: int
    media_ns: int
    due_media_ns: int
    due_wall_ns: int | None
    text: str
    seq: int
    held_by: Literal["credit", "decoder"] | None = None


class Acknowledged(Event, frozen=True, kw_only=True, tag="Acknowledged"):
    """The agent's runtime has received everything up to the server's ``seq``."""

    seq: int


class TurnStarted(Event, frozen=True, kw_only=True, tag="TurnStarted"):
    """The worker took the turn up; ``seen_media_ns`` is what it declares to have seen."""

    turn: int
    seen_media_ns: int | None
    waited_ns: int


class TextReceived(Event, frozen=True, kw_only=True, tag="TextReceived"):
    """A piece of a turn that is open."""

    turn: int
    text: str


class LateTextReceived(Event, frozen=True, kw_only=True, tag="LateTextReceived"):
    """Text of a fenced turn: kept, never scored."""

    turn: int
    text: str


class TurnEnded(Event, frozen=True, kw_only=True, tag="TurnEnded"):
    """The worker is idle again; durations as the agent measured them."""

    turn: int
    reason: TurnEndReason
    service_ns: int
    first_text_ns: int | None
    marks: dict[str, int]
    dropped_chars: int = 0
    error: str | None = None


class ProbeRead(Event, frozen=True, kw_only=True, tag="ProbeRead"):
    """How the text of a finished probe was read. Letters; empty where the text is invalid."""

    query: str
    probe: Probe
    turn: int
    letters: str
    valid: bool


class TurnClosed(Event, frozen=True, kw_only=True, tag="TurnClosed"):
    """The server fenced a turn."""

    turn: int
    reason: TurnCloseReason


class ChainClosed(Event, frozen=True, kw_only=True, tag="ChainClosed"):
    """A query reached its one outcome."""

    query: str
    outcome: Outcome


class WorkingChanged(Event, frozen=True, kw_only=True, tag="WorkingChanged"):
    """The agent declared work in the background, or its end."""

    active: bool


class StatsReported(Event, frozen=True, kw_only=True, tag="StatsReported"):
    """The agent's own figures."""

    values: dict[str, float]


class AgentFailed(Event, frozen=True, kw_only=True, tag="AgentFailed"):
    """A method of the agent other than ``observe`` and ``answer`` raised; ``error`` is the traceback."""

    phase: Phase
    error: str

    @property
    def method(self) -> str:
        """The phase by the name that an agent's author gave it."""
        return "__init__" if self.phase == "load" else self.phase


class WarningRaised(Event, frozen=True, kw_only=True, tag="WarningRaised"):
    """Something a reader of the figures must know. ``code`` is stable, ``detail`` is for people."""

    code: str
    detail: str


class MediaEnded(Event, frozen=True, kw_only=True, tag="MediaEnded"):
    """All that was planned has been released. ``samples`` counts frames and gaps together."""

    samples: int


class EndSent(Event, frozen=True, kw_only=True, tag="EndSent"):
    """The server said ``end``."""

    reason: Literal["completed", "interrupted"]


class HarnessReported(Event, frozen=True, kw_only=True, tag="HarnessReported"):
    """What our own machinery did to the session, said right before its end; durations only.

    Loop lag is how late an event loop was to a beat that was due, over ``watched_ns`` of wall time:
    the server's own, and the agent runtime's as that measured it (None where it did not say).
    ``damaged_pictures`` counts pictures that could not be decoded or are flagged corrupt. Of the frames
    ``frames_sent`` went out and ``frames_settled`` came to an end, ``frames_skipped`` and
    ``frames_failed`` among them; ``frames_late`` left more than 50 ms after due by our own doing.
    """

    watched_ns: int
    server_lag_p99_ns: int
    server_lag_max_ns: int
    agent_lag_p99_ns: int | None = None
    agent_lag_max_ns: int | None = None
    damaged_pictures: int = 0
    frames_sent: int = 0
    frames_settled: int = 0
    frames_skipped: int = 0
    frames_failed: int = 0
    frames_late: int = 0


class SessionEnded(Event, frozen=True, kw_only=True, tag="SessionEnded"):
    """The last line; a session is complete only with ``completed``."""

    reason: EndReason
    detail: str = ""
    saved: str | None = None
    saved_bytes: int = 0
    unsettled_frames: int = 0


AnyEvent = (
    SessionStarted
    | AgentReady
    | ClockTaken
    | FrameSent
    | GapSent
    | FrameSettled
    | ProbeSent
    | Acknowledged
    | TurnStarted
    | TextReceived
    | LateTextReceived
    | TurnEnded
    | ProbeRead
    | TurnClosed
    | ChainClosed
    | WorkingChanged
    | StatsReported
    | AgentFailed
    | WarningRaised
    | MediaEnded
    | EndSent
    | HarnessReported
    | SessionEnded
)

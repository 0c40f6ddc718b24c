"""What was released, re-derived from a journal: nothing early, nothing out of order, nothing unseen.

Released is what the server proves by its own clock; seen is what the agent declares. Both are checked,
and a complaint says which of them it is about. This module knows no text and no answers.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass

from streamsim.episodes.episode import frame_media_ns
from streamsim.events import (
    Acknowledged,
    AnyEvent,
    ChainClosed,
    ClockTaken,
    FrameSent,
    FrameSettled,
    GapSent,
    Instant,
    MediaEnded,
    ProbeSent,
    QueryPlan,
    SessionStarted,
    TurnEnded,
    TurnStarted,
    WorkingChanged,
)
from streamsim.journal.pairs import ClockPairs, Contradiction
from streamsim.plural import counted
from streamsim_protocol.messages import FIRST_UNPROMPTED_TURN, VISIBILITY_TOLERANCE_NS

SCALED_TOLERANCE_NS = 1_000
"""Due wall times of a scaled clock come from a division; they are good to a microsecond."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(slots=True)
class _OpenQuery:
    plan: QueryPlan
    limit_ns: int
    """No frame later than this is visible to it."""


class DeliveryCheck:
    """Takes a session's events in order; each call returns a contradiction or None."""

    def __init__(self, started: SessionStarted, *, on_grid: bool) -> None:
        """``on_grid``: sample k stands for second k / fps (not so under STORM-Bench's own sampling)."""
        self._started = started
        self._on_grid = on_grid
        self._pairs = ClockPairs(started.clock, started.rate)
        self._plans = {plan.query: plan for plan in started.queries}
        self._asked = 0
        self._next_k = 0
        self._sample_times_ns: list[int] = []
        self._frame_times_ns: list[int] = []
        self._frame_times_set: set[int] = set()
        self._unsettled: dict[int, int] = {}
        self._in_flight: deque[int] = deque()
        self._seq = 0
        self._acknowledged = 0
        self._query_of_turn: dict[int, str] = {}
        self._open_turns: set[int] = set()
        self._turn_ends: dict[str, Instant] = {}
        self._open_queries: dict[str, _OpenQuery] = {}
        self._working = False
        self._jumped_to_ns: int | None = None

    @property
    def frames(self) -> int:
        """How many frames were sent."""
        return len(self._frame_times_ns)

    @property
    def unsettled(self) -> int:
        """How many of them are not settled."""
        return len(self._unsettled)

    def see(self, at: Instant, event: AnyEvent) -> Contradiction | None:
        """Check one event."""
        if isinstance(event, ClockTaken):
            return self._take_clock(at, event)
        problem = self._pairs.check_instant(at)
        if problem is not None:
            return problem
        match event:
            case FrameSent():
                return self._send_frame(at, event)
            case GapSent():
                return self._send_gap(at, event)
            case ProbeSent():
                return self._send_probe(at, event)
            case FrameSettled():
                return self._settle(event)
            case Acknowledged():
                return self._acknowledge(event)
            case TurnStarted():
                return self._start_turn(event)
            case TurnEnded():
                self._open_turns.discard(event.turn)
                self._turn_ends[self._query_of_turn.get(event.turn, "")] = at
            case ChainClosed():
                self._open_queries.pop(event.query, None)
            case WorkingChanged():
                self._working = event.active
            case MediaEnded():
                return self._end_media(event)
            case _:
                pass
        return None

    # ------------------------------------------------------------------------------------- the clock

    def _take_clock(self, at: Instant, taken: ClockTaken) -> Contradiction | None:
        busy = bool(self._unsettled or self._open_turns or self._open_queries or self._working)
        problem = self._pairs.take(at, taken, busy=busy)
        if problem is None and taken.reason == "jump":
            self._jumped_to_ns = taken.media_ns
        return problem

    def _check_release(self, what: str, at: Instant, due_ns: int, seq: int) -> Contradiction | None:
        """A release at or after its due time, in the order of sending."""
        if not self._pairs.started:
            return Contradiction(f"{what} before the clock was started", "a start first")
        if at.media_ns < due_ns:
            early_ns = due_ns - at.media_ns
            return Contradiction(
                f"{what} released at media time {at.media_ns} ns, {early_ns} ns early",
                f"{due_ns} ns or later",
            )
        if seq <= self._seq:
            return Contradiction(f"{what} with seq {seq}", f"a seq above {self._seq}")
        self._seq = seq
        jumped_to_ns, self._jumped_to_ns = self._jumped_to_ns, None
        if jumped_to_ns not in (None, due_ns):
            return Contradiction(
                f"{what} due at {due_ns} ns after a jump to {jumped_to_ns} ns",
                "a jump to what is due next, and no further",
            )
        return None

    def _check_due_wall(self, what: str, due_ns: int, due_wall_ns: int | None) -> Contradiction | None:
        """The due wall time is when media time reached ``due_ns``."""
        reached_ns = self._pairs.wall_at(due_ns)
        tolerance_ns = SCALED_TOLERANCE_NS if self._started.clock == "scaled" else 0
        if due_wall_ns is None or reached_ns is None or abs(due_wall_ns - reached_ns) > tolerance_ns:
            return Contradiction(
                f"{what} with due wall time {due_wall_ns} ns", f"{reached_ns} ns by the clock"
            )
        return None

    # ------------------------------------------------------------------------------ frames and gaps

    def _send_frame(self, at: Instant, frame: FrameSent) -> Contradiction | None:
        what = f"frame {frame.k}"
        problem = (
            self._check_sample(what, frame.k, frame.media_ns)
            or self._check_release(what, at, frame.media_ns, frame.seq)
            or self._check_due_wall(what, frame.media_ns, frame.due_wall_ns)
        )
        if problem is not None:
            return problem
        problem = self._check_passed_over(what, frame.media_ns)
        if problem is not None:
            return problem
        asked = self._started.queries[self._asked - 1] if self._asked else None
        if asked is not None and frame.media_ns <= asked.media_ns + VISIBILITY_TOLERANCE_NS:
            return Contradiction(
                f"{what} of media time {frame.media_ns} ns sent after query {asked.query}, "
                f"which may see it (asked at {asked.media_ns} ns)",
                "every frame that a query may see before the query",
            )
        if not _DIGEST.fullmatch(frame.digest):
            return Contradiction(f"{what} with digest {frame.digest!r}", "64 hex digits")
        if len(self._in_flight) >= self._started.credit:
            return Contradiction(
                f"{what} with {counted(len(self._in_flight), 'frame')} unacknowledged",
                f"fewer than {self._started.credit}",
            )
        self._in_flight.append(frame.seq)
        self._take_sample(frame.media_ns)
        self._frame_times_ns.append(frame.media_ns)
        self._frame_times_set.add(frame.media_ns)
        self._unsettled[frame.k] = frame.media_ns
        return None

    def _send_gap(self, at: Instant, gap: GapSent) -> Contradiction | None:
        what = f"gap {gap.from_k} to {gap.to_k}"
        if gap.from_k != self._next_k or gap.to_k <= gap.from_k:
            return Contradiction(what, f"samples from {self._next_k} on")
        for k in range(gap.from_k, gap.to_k):
            self._take_sample(frame_media_ns(k, self._started.fps) if self._on_grid else at.media_ns)
        newest_ns = self._sample_times_ns[-1]
        problem = self._check_release(what, at, newest_ns, gap.seq)
        return problem or (self._check_passed_over(what, newest_ns) if self._on_grid else None)

    def _check_passed_over(self, what: str, media_ns: int) -> Contradiction | None:
        """No sample goes out before a query that was due earlier, however the session ends."""
        following = self._started.queries[self._asked] if self._asked < len(self._plans) else None
        if following is None or media_ns <= following.due_media_ns:
            return None
        return Contradiction(
            f"{what} of media time {media_ns} ns sent, {following.query} not asked",
            f"{following.query}, due at {following.due_media_ns} ns, before it",
        )

    def _check_sample(self, what: str, k: int, media_ns: int) -> Contradiction | None:
        if k != self._next_k:
            return Contradiction(what, f"sample {self._next_k}: every sample once, in order")
        if self._on_grid and media_ns != frame_media_ns(k, self._started.fps):
            return Contradiction(
                f"{what} with media time {media_ns} ns", f"{frame_media_ns(k, self._started.fps)} ns"
            )
        if self._sample_times_ns and media_ns <= self._sample_times_ns[-1]:
            return Contradiction(
                f"{what} with media time {media_ns} ns", f"later than {self._sample_times_ns[-1]} ns"
            )
        return None

    def _take_sample(self, media_ns: int) -> None:
        self._next_k += 1
        self._sample_times_ns.append(media_ns)

    def _settle(self, settled: FrameSettled) -> Contradiction | None:
        media_ns = self._unsettled.pop(settled.k, None)
        if media_ns is None:
            return Contradiction(f"frame {settled.k} settled", "a frame that was sent and is not settled yet")
        if settled.outcome == "skipped" or self._started.history == "live":
            return None
        for query in self._open_queries.values():
            if media_ns > query.limit_ns:
                return Contradiction(
                    f"frame {settled.k} (media time {media_ns} ns) observed, as the agent declares, while "
                    f"{query.plan.query} of {query.plan.media_ns} ns was open",
                    "under frozen history none newer than an open query",
                )
        return None

    def _acknowledge(self, acknowledged: Acknowledged) -> Contradiction | None:
        if acknowledged.seq < self._acknowledged:
            return Contradiction(
                f"reception of {acknowledged.seq} acknowledged", f"{self._acknowledged} or more"
            )
        self._acknowledged = acknowledged.seq
        while self._in_flight and self._in_flight[0] <= acknowledged.seq:
            self._in_flight.popleft()
        return None

    def _end_media(self, ended: MediaEnded) -> Contradiction | None:
        if ended.samples != self._next_k:
            return Contradiction(
                f"the end of media after {counted(ended.samples, 'sample')}", f"{self._next_k}"
            )
        if self._asked != len(self._plans):
            return Contradiction(
                f"the end of media after {counted(self._asked, 'query')}",
                f"all {len(self._plans)} asked before",
            )
        return None

    # ---------------------------------------------------------------------------------------- probes

    def _send_probe(self, at: Instant, probe: ProbeSent) -> Contradiction | None:
        what = f"{probe.probe} of {probe.query}"
        plan = self._plans.get(probe.query)
        if plan is None or probe.media_ns != plan.media_ns:
            expected = "a query of the plan" if plan is None else f"{plan.media_ns} ns"
            return Contradiction(f"{what} asked at {probe.media_ns} ns", expected)
        problem = self._check_release(what, at, probe.due_media_ns, probe.seq)
        if problem is None:
            check = self._check_task if probe.probe == "task" else self._check_follower
            problem = check(what, probe, plan)
        if problem is None:
            self._query_of_turn[probe.turn] = probe.query
            self._open_turns.add(probe.turn)
        return problem

    def _check_task(self, what: str, probe: ProbeSent, plan: QueryPlan) -> Contradiction | None:
        limit_ns = plan.media_ns + VISIBILITY_TOLERANCE_NS
        visible = bisect_right(self._sample_times_ns, limit_ns)
        if visible < len(self._sample_times_ns):
            return Contradiction(
                f"{what} sent after sample {visible}, which it may not see",
                f"no sample later than {limit_ns} ns before it",
            )
        due_ns = max(plan.media_ns, self._sample_times_ns[-1]) if visible else plan.media_ns
        if (probe.due_media_ns, plan.due_media_ns) != (due_ns, due_ns):
            return Contradiction(f"{what} due at media time {probe.due_media_ns} ns", f"{due_ns} ns")
        following = self._started.queries[self._asked].query if self._asked < len(self._plans) else "none"
        if probe.query != following:
            return Contradiction(what, f"{following}: every query once, in the order of the plan")
        problem = self._check_due_wall(what, due_ns, probe.due_wall_ns)
        if problem is not None:
            return problem
        self._asked += 1
        self._open_queries[probe.query] = _OpenQuery(plan, limit_ns)
        return None

    def _check_follower(self, what: str, probe: ProbeSent, plan: QueryPlan) -> Contradiction | None:
        """Status and cause fall due when the server received the end of the probe before."""
        ended = self._turn_ends.get(plan.query)
        if ended is None:
            return Contradiction(f"{what} before any turn of {plan.query} had ended", "the task probe first")
        if (probe.due_media_ns, probe.due_wall_ns) != (ended.media_ns, ended.wall_ns):
            return Contradiction(
                f"{what} due at ({probe.due_media_ns}, {probe.due_wall_ns}) ns",
                f"({ended.media_ns}, {ended.wall_ns}) ns, when the probe before it ended",
            )
        return None

    def _start_turn(self, turn: TurnStarted) -> Contradiction | None:
        seen_ns = turn.seen_media_ns
        if seen_ns is not None and seen_ns not in self._frame_times_set:
            return Contradiction(
                f"turn {turn.turn} declares to have seen {seen_ns} ns", "a frame that was sent"
            )
        if turn.turn >= FIRST_UNPROMPTED_TURN:
            self._open_turns.add(turn.turn)
            return None
        query = self._open_queries.get(self._query_of_turn.get(turn.turn, ""))
        if query is None or self._started.history == "live":
            return None
        visible = bisect_right(self._frame_times_ns, query.limit_ns)
        newest_ns = self._frame_times_ns[visible - 1] if visible else None
        if seen_ns != newest_ns:
            return Contradiction(
                f"turn {turn.turn} declares to have seen {_ns(seen_ns)}",
                f"{_ns(newest_ns)}, the newest frame visible to {query.plan.query}",
            )
        waiting = [k for k, media_ns in self._unsettled.items() if media_ns <= query.limit_ns]
        if waiting:
            return Contradiction(
                f"turn {turn.turn} of {query.plan.query} begun while frame {waiting[0]} was unsettled",
                "every frame that it may see settled before",
            )
        return None


def _ns(media_ns: int | None) -> str:
    return "no frame" if media_ns is None else f"media time {media_ns} ns"

"""One session between a socket, a clock, a decoder and a journal: all the waiting, none of the rules.

After every sleep the time is taken anew before anything is released, since event loops wake early. At
one instant what is due is released before what was received is handled.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from fractions import Fraction

import msgspec

from streamsim.clock import Clock, ScaledClock
from streamsim.errors import JournalError, VideoError
from streamsim.events import (
    LATE_NS,
    AnyEvent,
    EndReason,
    FrameSent,
    FrameSettled,
    HarnessReported,
    Instant,
    SessionEnded,
)
from streamsim.journal.write import JournalWriter
from streamsim.server.agent_socket import AgentSocket, ConnectionLost, Received
from streamsim.server.loop_lag import LagWindow, LoopLag
from streamsim.server.media import Media
from streamsim.server.plan import Control
from streamsim.session import Session
from streamsim.timeline import Sample
from streamsim.writing import describe, is_full
from streamsim_protocol import messages as wire
from streamsim_protocol.codec import decode_agent_message
from streamsim_protocol.errors import ProtocolError

HANDLED_AT_ONCE = 16
"""After so many messages the loop is left to others: a flood starves nobody."""
MAX_PICTURE_BYTES = wire.MAX_SERVER_MESSAGE_BYTES - 1024
"""What a frame's message has room for, its other keys left out."""
HELLO_TIMEOUT_S = 30.0
_MOVED_BY_SESSION: tuple[wire.ClockMode, ...] = ("skip", "lockstep")
"""Clocks that jump or stand as the session's state says; the others need not be told of it."""

Observer = Callable[[Instant, AnyEvent], None]
ExplainLoss = Callable[[], Awaitable[str]]


class SessionDriver:
    """Plays one session over one connection."""

    def __init__(
        self,
        session: Session,
        clock: Clock,
        media: Media,
        journal: JournalWriter,
        *,
        phase: float,
        loop_lag: LoopLag,
        observer: Observer,
        explain_loss: ExplainLoss,
    ) -> None:
        """``phase`` (0 to 1, in frame intervals) spreads the frames of concurrent realtime sessions.

        ``explain_loss`` is asked once when the connection is lost, and may take a moment to find out.
        """
        self.session = session
        self._clock = clock
        self._media = media
        self._journal = journal
        self._phase = phase
        self._loop_lag = loop_lag
        self._lag_window: LagWindow | None = None
        self._runtime_stats: dict[str, float] = {}
        self._observer = observer
        self._frames: Counter[str] = Counter()
        self._explain_loss = explain_loss
        self.ended_as: EndReason | None = None
        self._origin_ns: int | None = None
        self._start_wall_ns = 0
        self._started = False
        self._looked_at = Instant(0, 0)
        self._quiet_until_ns = 0
        self._fed = 0
        self._media_over = False
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._stop_requested = False
        self.flush_events()

    # ------------------------------------------------------------------------- called by the lane

    def stop(self) -> None:
        """End the session as interrupted, at the next step."""
        self._stop_requested = True
        self._wake.set()

    def control(self, control: Control) -> None:
        """Pause, resume, step or change the rate of a scaled clock; others heed no one."""
        clock = self._clock
        self._quiet_until_ns = 0
        if not isinstance(clock, ScaledClock) or not self._started or self.session.ended:
            return
        wall_ns = self._wall_ns()
        match control.do:
            case "pause":
                taken = clock.pause(wall_ns)
            case "resume":
                taken = clock.resume(wall_ns)
            case "step":
                taken = clock.step(wall_ns, self.session.next_due_ns())
            case "rate":
                taken = clock.set_rate(wall_ns, Fraction(str(control.rate)))
        if taken is not None:
            self.session.clock_taken(taken)
            self._wake.set()

    def fail(self, reason: EndReason, detail: str) -> None:
        """End the session for a reason outside the conversation."""
        self.session.fail(reason, self._now(), detail)
        self.flush_events()
        self._wake.set()

    async def play(self, socket: AgentSocket, ready_deadline: float) -> None:
        """Play from ``hello`` to the end; ``ready_deadline`` is on the event loop's clock."""
        unsubscribe = self._media.subscribe(self._wake.set)
        socket.listen(self._wake.set)
        try:
            await self._run(socket, ready_deadline)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            unsubscribe()
            self.flush_events()

    def flush_events(self) -> None:
        """Journal what happened; before the last line, what our own machinery did to the session."""
        for at, event in self.session.take_events():
            if isinstance(event, SessionEnded) and self._lag_window is not None:
                self._record(at, self._report_harness(self._lag_window))
            self._record(at, event)
            if isinstance(event, SessionEnded):
                self.ended_as = event.reason

    def _record(self, at: Instant, event: AnyEvent) -> None:
        match event:
            case FrameSent():
                self._frames["sent"] += 1
                late_ns = 0 if event.due_wall_ns is None else at.wall_ns - event.due_wall_ns
                self._frames["late"] += late_ns > LATE_NS and event.held_by != "credit"
            case FrameSettled():
                self._frames["settled"] += 1
                self._frames[event.outcome] += 1
            case _:
                pass
        try:
            self._journal.write(at, event)
        except OSError as error:
            raise JournalError(describe_journal_fault(error)) from error
        self._observer(at, event)

    def _report_harness(self, window: LagWindow) -> HarnessReported:
        lag = window.figures()
        window.close()
        self._lag_window = None
        return HarnessReported(
            watched_ns=lag.watched_ns,
            server_lag_p99_ns=lag.p99_ns,
            server_lag_max_ns=lag.max_ns,
            agent_lag_p99_ns=_duration(self._runtime_stats.get(wire.LOOP_LAG_P99)),
            agent_lag_max_ns=_duration(self._runtime_stats.get(wire.LOOP_LAG_MAX)),
            damaged_pictures=self._media.damaged,
            frames_sent=self._frames["sent"],
            frames_settled=self._frames["settled"],
            frames_skipped=self._frames["skipped"],
            frames_failed=self._frames["failed"],
            frames_late=self._frames["late"],
        )

    # ------------------------------------------------------------------------------------ the loop

    async def _run(self, socket: AgentSocket, ready_deadline: float) -> None:
        loop = asyncio.get_running_loop()
        hello_deadline = min(ready_deadline, loop.time() + HELLO_TIMEOUT_S)
        handled = 0
        while not self.session.ended:
            if not self._nothing_due():
                progressed = self._step()
                await self._flush(socket)
                if self.session.ended:
                    return
                if progressed:
                    continue
            if socket.waiting:
                await self._handle(socket.take())
                await self._flush(socket)
                handled += 1
                if handled % HANDLED_AT_ONCE == 0:
                    await asyncio.sleep(0)
                continue
            deadline = self._deadline()
            if not self.session.ready:
                limit = ready_deadline if self.session.greeted else hello_deadline
                if loop.time() >= limit:
                    waited = "ready" if self.session.greeted else "hello"
                    self.session.fail("ready_timeout", self._now(), f"the agent did not say {waited} in time")
                    continue
                deadline = limit
            await self._wait(socket, deadline)

    def _nothing_due(self) -> bool:
        """Nothing has happened since the next deadline was found, and it has not been reached."""
        return (
            self._quiet_until_ns > 0
            and not self._stop_requested
            and not self._has_news()
            and self._wall_ns() < self._quiet_until_ns
        )

    def _step(self) -> bool:
        """Take the time, do one thing that is due; False when nothing is."""
        session = self.session
        self._quiet_until_ns = 0
        if self._stop_requested:
            session.interrupt(self._now())
            return True
        if self._has_news():
            self._feed_media()
        if session.ended or not session.ready or self._origin_ns is None:
            return False
        if not self._started:
            wall_ns = self._wall_ns()
            if wall_ns < self._start_wall_ns:
                return False
            self._started = True
            session.clock_taken(self._clock.start(wall_ns))
        self._looked_at = self._now()
        return session.advance(self._looked_at)

    def _samples_ready(self) -> int:
        """How many samples the session may know of.

        In lockstep the last one waits until the decoder has ended: whether ``MediaEnded`` comes before or
        after what the agent says to it would be a race, and two runs would not tell the same story.
        """
        media = self._media
        ready = len(media.samples)
        if self._clock.mode == "lockstep" and ready == len(media.times_ns) and not media.stopped:
            return ready - 1
        return ready

    def _has_news(self) -> bool:
        """The decoder has something that the session does not know of."""
        media = self._media
        if media.stopped != self._media_over:
            return True
        return self._fed < len(media.samples) and self._fed < self._samples_ready()

    def _feed_media(self) -> None:
        media = self._media
        while self._fed < self._samples_ready():
            sample = media.samples[self._fed]
            if sample.size is not None and sample.size > MAX_PICTURE_BYTES:
                self.session.fail(
                    "media_failed",
                    self._now(),
                    f"sample {sample.k} takes {sample.size} bytes, a message holds {MAX_PICTURE_BYTES}: "
                    "lower --pixel-budget or --quality, or choose --encoding jpeg",
                )
                return
            self.session.add_sample(Sample(k=sample.k, size_bytes=sample.size or 0, digest=sample.digest))
            self._fed += 1
        if media.error is not None and self._fed < len(media.times_ns):
            self.session.fail("media_failed", self._now(), media.error)
        if media.stopped and not self._media_over:
            self._media_over = True
            self.session.end_media(media.warnings)

    async def _handle(self, received: Received) -> None:
        """One thing that was received; what has fallen due meanwhile goes before the next."""
        self._quiet_until_ns = 0
        if isinstance(received, ConnectionLost):
            explanation = await self._explain_loss()
            self.session.disconnect(self._now(), explanation or str(received))
            return
        if isinstance(received, ProtocolError):
            self.session.refuse(received, self._now())
            return
        try:
            message = decode_agent_message(received)
        except ProtocolError as error:
            self.session.refuse(error, self._now())
            return
        if isinstance(message, wire.Ready) and self._origin_ns is None:
            self._begin_time()
        if isinstance(message, wire.Stats):
            message = self._keep_runtime_stats(message)
        self.session.receive(message, self._now())

    def _keep_runtime_stats(self, stats: wire.Stats) -> wire.Stats:
        """Take the runtime's own figures out of what the agent reports: they are the harness's."""
        own = {}
        for name, value in stats.values.items():
            if not name.startswith(wire.RUNTIME_STATS):
                own[name] = value
            elif name in (wire.LOOP_LAG_P99, wire.LOOP_LAG_MAX):
                self._runtime_stats[name] = value
        return msgspec.structs.replace(stats, values=own)

    def _begin_time(self) -> None:
        """Wall time counts from here; the clock starts at this lane's phase of the frame interval."""
        self._origin_ns = time.monotonic_ns()
        self._lag_window = self._loop_lag.open_window()
        if self._clock.mode == "realtime" and self._phase > 0:
            interval_ns = round(1e9 / self.session.config.fps)
            wanted_ns = round(self._phase * interval_ns)
            self._start_wall_ns = (wanted_ns - self._origin_ns) % interval_ns

    def _deadline(self) -> float | None:
        """When to look again, on the event loop's clock; None: only when something comes."""
        if self._origin_ns is None:
            return None
        walls = []
        if not self._started:
            walls.append(self._start_wall_ns)
        else:
            due_ns = self.session.next_due_ns()
            # what was due when last looked and is still there is held, and its release wakes us; what has
            # fallen due since then must not be taken for that
            if due_ns is not None and due_ns > self._looked_at.media_ns:
                wall_ns = self._clock.wall_deadline(due_ns)
                if wall_ns is not None:
                    walls.append(wall_ns)
        timeout_ns = self.session.next_wall_deadline()
        if timeout_ns is not None:
            walls.append(timeout_ns)
        if not walls:
            return None
        self._quiet_until_ns = min(walls)
        return (self._origin_ns + self._quiet_until_ns) / 1e9

    async def _wait(self, socket: AgentSocket, deadline: float | None) -> None:
        self._wake.clear()
        if socket.waiting or self._stop_requested or self._has_news():
            return
        self._set_timer(deadline)
        await self._wake.wait()

    def _set_timer(self, deadline: float | None) -> None:
        """Wake at ``deadline`` or before: a timer that is set for an earlier moment stays."""
        if deadline is None or (self._timer is not None and self._timer.when() <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(deadline, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._wake.set()

    async def _flush(self, socket: AgentSocket) -> None:
        """Journal first, then send: nothing leaves unrecorded."""
        if not self.session.has_output:
            return
        self.flush_events()
        for message in self.session.messages_to_send():
            if isinstance(message, wire.Frame):
                try:
                    picture = self._media.read(self._media.samples[message.k])
                except VideoError as error:
                    self.fail("media_failed", str(error))
                    return
                message = msgspec.structs.replace(message, data=picture)
            try:
                await socket.send(message)
            except ConnectionError:
                return  # whoever reads the socket learns it too, and says why

    def _now(self) -> Instant:
        """Take the time, after letting the session's state move the clock."""
        if self._origin_ns is None:
            return Instant(0, 0)
        wall_ns = self._wall_ns()
        session = self.session
        if self._started and not session.ended and self._clock.mode in _MOVED_BY_SESSION:
            taken = self._clock.update(
                wall_ns, busy=session.busy, next_due_ns=session.next_due_ns(), starved=session.starved
            )
            if taken is not None:
                session.clock_taken(taken)
        return self._clock.now(wall_ns)

    def _wall_ns(self) -> int:
        assert self._origin_ns is not None
        return time.monotonic_ns() - self._origin_ns


def describe_journal_fault(error: OSError) -> str:
    """Why a journal cannot be written, and what to do."""
    advice = "make room, then continue" if is_full(error) else "continue, once it can be,"
    return f"cannot write a journal: {describe(error)}; {advice} with --resume"


def _duration(nanoseconds: float | None) -> int | None:
    """What a runtime says of itself, if it is a duration at all."""
    if nanoseconds is None or not 0 <= nanoseconds < 1 << 62:
        return None
    return int(nanoseconds)

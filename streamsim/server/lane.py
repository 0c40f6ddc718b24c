"""Lanes: one agent process each, and the sessions that it plays in turn."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from streamsim.clock import make_clock
from streamsim.episodes.dataset import Dataset
from streamsim.episodes.episode import Episode
from streamsim.episodes.sampling import Sampling, fit_size
from streamsim.errors import JournalError, VideoError
from streamsim.events import AnyEvent, EndReason, Instant
from streamsim.journal.folder import journal_path
from streamsim.journal.write import JournalSync, JournalWriter
from streamsim.prompts import Prompts
from streamsim.reading import Reader
from streamsim.server.agent_socket import AgentSocket
from streamsim.server.driver import SessionDriver, describe_journal_fault
from streamsim.server.loop_lag import LoopLag
from streamsim.server.media import Media, MediaStore
from streamsim.server.plan import Control, Job, ServerPlan, session_name, session_seed
from streamsim.server.process import TERM_GRACE_S, AgentProcess
from streamsim.session import Session, SessionConfig
from streamsim_protocol.errors import CloseCode

READ_AHEAD = 10
"""So many samples are decoded before a session may begin."""
UNRESPONSIVE: frozenset[EndReason] = frozenset({"hung", "ready_timeout", "disconnected"})
UNRESPONSIVE_GRACE_S = 0.25
"""Who has not answered for a whole timeout is not waited for once more."""
FAREWELL_S = 2.0
"""An agent whose session is over connects again at once; so long it is waited for at the end of a run."""
LOSS_GRACE_S = 0.5
"""A lost connection and the end of the process behind it are seen one after the other."""

Observer = Callable[[int, Job, Instant, AnyEvent], None]


@dataclass(kw_only=True)
class Shared:
    """What all lanes of a server share."""

    plan: ServerPlan
    dataset: Dataset
    prompts: Prompts
    reader: Reader
    store: MediaStore
    sync: JournalSync
    loop_lag: LoopLag
    jobs: deque[Job]
    observer: Observer
    stopping: bool = False
    exhausted: asyncio.Event = field(default_factory=asyncio.Event)

    def take_job(self) -> Job:
        """The next session to play."""
        job = self.jobs.popleft()
        if not self.jobs:
            self.exhausted.set()
        return job


class Lane:
    """One place for an agent. ``number`` counts from 1."""

    def __init__(self, number: int, shared: Shared) -> None:
        self.number = number
        self.url = ""
        self._shared = shared
        self._process: AgentProcess | None = None
        self._driver: SessionDriver | None = None
        self._socket: AgentSocket | None = None
        self._arrived = asyncio.Event()
        self._released = asyncio.Event()
        self._finished = False
        self._comes_back = False

    # ------------------------------------------------------------------------- the handler's side

    async def attach(self, socket: AgentSocket) -> None:
        """Let a connection play what this lane offers next; returns when it is closed."""
        if self._finished:
            await socket.close(CloseCode.FINISHED, "no more sessions")
            return
        if self._socket is not None and self._driver is None and not self._socket.open:
            await self._detach(CloseCode.NORMAL, "")  # it went away while it waited for a session
        if self._socket is not None:
            await socket.close(CloseCode.LANE_BUSY, f"lane {self.number} has an agent already")
            return
        self._socket = socket
        self._released = released = asyncio.Event()
        self._arrived.set()
        await released.wait()

    # ---------------------------------------------------------------------------- the lane's side

    async def run(self) -> None:
        """Play jobs until there are none, then tell the agent so."""
        try:
            while self._shared.jobs and not self._shared.stopping:
                if self._shared.plan.agent is None:
                    # a lane that nobody has joined keeps no session from the others
                    await self._wait_for_any(
                        self._arrived.wait(),
                        self._shared.exhausted.wait(),
                        timeout_s=self._shared.plan.config.ready_timeout_s,
                    )
                if self._shared.jobs and not self._shared.stopping:
                    await self._play(self._shared.take_job())
            if self._comes_back and not self._shared.stopping:
                await self._say_farewell()
        finally:
            self._finished = True
            await self._detach(CloseCode.FINISHED, "no more sessions")
            await self._stop_process()

    def control(self, control: Control) -> None:
        """Pass a command on to the session in play."""
        if self._driver is not None:
            self._driver.control(control)

    def stop(self) -> None:
        """End the session in play as interrupted; no further one begins."""
        if self._driver is not None:
            self._driver.stop()
        self._arrived.set()

    async def _say_farewell(self) -> None:
        """Let the agent that played last come back once more, hear that it may go, and go."""
        died = () if self._process is None else (self._process.wait(),)
        await self._wait_for_any(self._arrived.wait(), *died, timeout_s=FAREWELL_S)
        await self._detach(CloseCode.FINISHED, "no more sessions")
        if self._process is not None:
            await self._wait_for_any(self._process.wait(), timeout_s=FAREWELL_S)

    async def _play(self, job: Job) -> None:
        shared = self._shared
        episode = shared.dataset.episodes[job.episode]
        with self._journal(job, episode) as journal:
            try:
                async with shared.store.lease(shared.dataset.video_path(episode), self._sampling()) as media:
                    await media.wait_for(READ_AHEAD)
                    await self._play_with(job, episode, media, journal)
            except VideoError as error:
                self._record_refusal(job, episode, journal, str(error))
            except JournalError:
                raise
            except Exception:  # noqa: BLE001 - a session's edge: the other lanes go on, whatever this one met
                traceback.print_exc()

    def _record_refusal(self, job: Job, episode: Episode, journal: JournalWriter, detail: str) -> None:
        """A video that cannot be opened: the session ends before it began, and the journal says so."""
        config = self._session_config(job, episode, size=(0, 0))
        session = Session(config, episode.queries, (), self._shared.prompts, self._shared.reader)
        session.fail("media_failed", Instant(0, 0), detail)
        for at, event in session.take_events():
            journal.write(at, event)
            self._shared.observer(self.number, job, at, event)

    async def _play_with(self, job: Job, episode: Episode, media: Media, journal: JournalWriter) -> None:
        shared = self._shared
        size = fit_size(media.info.width, media.info.height, shared.plan.config.pixel_budget)
        config = self._session_config(job, episode, size=size)
        session = Session(config, episode.queries, media.times_ns, shared.prompts, shared.reader)
        self._driver = driver = SessionDriver(
            session,
            make_clock(config.clock, config.rate),
            media,
            journal,
            phase=(self.number - 1) / shared.plan.lanes,
            loop_lag=shared.loop_lag,
            observer=lambda at, event: shared.observer(self.number, job, at, event),
            explain_loss=self._explain_loss,
        )
        try:
            nobody_came = shared.plan.agent is None and self._socket is None
            patience_s = 0.0 if nobody_came else shared.plan.config.ready_timeout_s
            deadline = asyncio.get_running_loop().time() + patience_s
            socket = await self._connection(deadline)
            if socket is None:
                if shared.stopping:
                    driver.fail("interrupted", "before an agent connected")
                elif self._process is not None and not self._process.alive:
                    driver.fail("agent_failed", self._process.describe_end("before it connected"))
                else:
                    driver.fail("ready_timeout", "no agent connected in time")
            else:
                await driver.play(socket, deadline)
        finally:
            self._driver = None
            if not session.ended:
                fault = sys.exc_info()[1]
                driver.fail("interrupted", "the server stopped" if fault is None else _describe(fault))
            driver.flush_events()
            grace_s = UNRESPONSIVE_GRACE_S if driver.ended_as in UNRESPONSIVE else TERM_GRACE_S
            await self._detach(session.close_code, session.close_reason, grace_s)
            self._comes_back = driver.ended_as == "completed" and session.close_code == CloseCode.NORMAL
            if not self._comes_back:
                # whatever state it is in, the next session gets a process that knows nothing of it
                await self._stop_process(grace_s)

    async def _connection(self, deadline: float) -> AgentSocket | None:
        """The agent's connection, its process started if need be; None if none came."""
        if self._socket is not None and not self._socket.open:
            await self._detach(CloseCode.NORMAL, "")
        while not self._shared.stopping:
            reused = self._process is not None and self._process.alive
            if self._shared.plan.agent is not None and not reused:
                await self._stop_process()  # it has ended; what it started has not
                await self._start_process()
            died = () if self._process is None else (self._process.wait(),)
            timeout_s = max(0.0, deadline - asyncio.get_running_loop().time())
            await self._wait_for_any(self._arrived.wait(), *died, timeout_s=timeout_s)
            if self._socket is None and reused and self._process is not None and not self._process.alive:
                continue  # it ended after its last session, which is no fault of this one
            break
        return self._socket

    async def _wait_for_any(self, *waits: Coroutine[None, None, object], timeout_s: float) -> None:
        """Return when the first of ``waits`` does, or when time is up."""
        tasks = {asyncio.create_task(wait) for wait in waits}
        try:
            await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    async def _explain_loss(self) -> str:
        """Why the agent's connection is gone, if its process can tell; empty if not."""
        if self._process is None:
            return ""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), LOSS_GRACE_S)
        return "" if self._process.alive else self._process.describe_end()

    async def _detach(self, code: int, reason: str, grace_s: float = TERM_GRACE_S) -> None:
        """Close the connection and be free for the next."""
        socket, self._socket = self._socket, None
        released = self._released
        self._arrived.clear()
        if socket is not None:
            await socket.close(code, reason, grace_s)
            released.set()

    async def _start_process(self) -> None:
        agent = self._shared.plan.agent
        assert agent is not None
        folder = Path(self._shared.plan.folder)
        self._process = await AgentProcess.start(
            agent,
            self.url,
            lane=self.number,
            lanes=self._shared.plan.lanes,
            memory=folder / "memory",
            log=folder / "logs" / f"lane-{self.number}.log",
        )

    async def _stop_process(self, grace_s: float = TERM_GRACE_S) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.stop(grace_s)
            # it may have come back meanwhile: the next process must not find its place taken
            await self._detach(CloseCode.NORMAL, "", UNRESPONSIVE_GRACE_S)

    @contextlib.contextmanager
    def _journal(self, job: Job, episode: Episode) -> Iterator[JournalWriter]:
        path = journal_path(Path(self._shared.plan.folder), episode.id, job.repeat, job.attempt)
        try:
            writer = JournalWriter(path, self._shared.sync)
            try:
                yield writer
            finally:
                writer.close()
        except OSError as error:
            raise JournalError(describe_journal_fault(error)) from error

    def _sampling(self) -> Sampling:
        config = self._shared.plan.config
        return Sampling(
            fps=config.fps,
            pixel_budget=config.pixel_budget,
            encoding=config.encoding,
            quality=config.quality,
            rule=config.sampling,
        )

    def _session_config(self, job: Job, episode: Episode, *, size: tuple[int, int]) -> SessionConfig:
        plan, config = self._shared.plan, self._shared.plan.config
        return SessionConfig(
            run=plan.run,
            session=session_name(config.seed, job),
            episode=episode.id,
            subset=episode.subset,
            repeat=job.repeat,
            attempt=job.attempt,
            lanes=plan.lanes,
            seed=session_seed(config.seed, job.episode, job.repeat),
            clock=config.clock,
            rate=config.rate,
            history=config.history,
            chain=config.chain,
            frames=config.frames,
            fps=config.fps,
            size=size,
            encoding=config.encoding,
            credit=config.credit,
            credit_timeout_ns=_ns(config.credit_timeout_s),
            answer_timeout_ns=_ns(config.answer_timeout_s),
            hang_timeout_ns=_ns(config.hang_timeout_s),
            drain_timeout_ns=_ns(config.drain_timeout_s),
        )


def _describe(fault: BaseException) -> str:
    """An error of ours in one line, the first of several."""
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    return f"the server failed: {type(fault).__name__}: {fault}"


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)

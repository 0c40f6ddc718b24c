"""The one thread on which all methods of an agent run, session after session.

Between the socket loop and the agent stand an inbox (what to do next) and an outbox (what to send),
both bounded: the inbox by the spool, the outbox by making the agent wait. This module knows no sockets.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import get_args

from streamsim_agents.agent import Agent
from streamsim_agents.outbox import Outbox
from streamsim_agents.play import MAX_FIGURES, Play, clean, describe_failure
from streamsim_protocol import messages as wire

POLICIES: tuple[wire.FramePolicy, ...] = get_args(wire.FramePolicy)
Loaded = Callable[[str, wire.FramePolicy, dict[str, str], str | None], None]


class Worker:
    """Runs one agent on a thread of its own. All public methods are called from the socket loop's thread."""

    def __init__(self, make_agent: Callable[[], Agent], memory_folder: Path | None) -> None:
        self._make_agent = make_agent
        self._memory_folder = memory_folder
        self._agent: Agent | None = None
        self._play: Play | None = None
        self._changed = threading.Condition()
        self._jobs: list[Callable[[], None]] = []
        self._quit = False
        self._thread = threading.Thread(target=self._run, name="agent", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def quit(self) -> None:
        """Let the thread end once it is idle."""
        with self._changed:
            self._quit = True
            self._changed.notify_all()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread's end; False if it is still busy."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def load(self, done: Loaded) -> None:
        """Make the agent; ``done(name, frames, libraries, error)`` is called on the worker's thread."""
        self._submit(lambda: self._load(done))

    def begin(self, welcome: wire.Welcome, outbox: Outbox) -> None:
        """Play a session: ``Ready`` or ``Failed`` follows in the outbox."""
        play = self._play = Play(welcome, outbox, self._memory_folder)
        self._submit(lambda: self._run_play(play))

    @property
    def play(self) -> Play:
        """The session that was begun last, to be told what arrives."""
        assert self._play is not None, "no session has begun"
        return self._play

    def put_frame(self, frame: wire.Frame) -> None:
        """A frame arrived."""
        self.play.put_frame(frame)

    def put_probe(self, probe: wire.ProbeMessage) -> None:
        """A probe arrived."""
        self.play.put_probe(probe)

    def tick(self, tick: wire.Tick) -> None:
        """The server's clock was re-taken."""
        self.play.tick(tick)

    def close_turn(self, turn: int, reason: str) -> None:
        """Nothing of ``turn`` counts any more, whether it has begun or not. A late close does no harm."""
        self.play.close_turn(turn, reason)

    def close_chain(self, query: str) -> None:
        """No further probe of ``query`` will come."""
        self.play.close_chain(query)

    def end(self) -> None:
        """Nothing more will come: finish what waits, save, say ``bye``."""
        self.play.end()

    def abandon(self, reason: str) -> None:
        """The connection is gone: drop what waits, cancel what runs. Nothing happens before a session."""
        if self._play is not None:
            self._play.abandon(reason)

    # -------------------------------------------------------------------------- on the worker's thread

    def _submit(self, job: Callable[[], None]) -> None:
        with self._changed:
            self._jobs.append(job)
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._jobs and not self._quit:
                    self._changed.wait()
                if not self._jobs:
                    return
                job = self._jobs.pop(0)
            job()

    def _load(self, done: Loaded) -> None:
        try:
            agent = self._make_agent()
            described = list(agent.describe().items())[:MAX_FIGURES]
            libraries = {clean(str(name)): clean(str(version)) for name, version in described}
            frames = agent.frames
            if frames not in POLICIES:
                raise ValueError(f"expected frames = {' or '.join(map(repr, POLICIES))}, got {frames!r}")
        except BaseException:  # noqa: BLE001 - the agent's own code, which may also call sys.exit
            done("unknown", "all", {}, describe_failure())
            return
        self._agent = agent
        done(type(agent).__name__, frames, libraries, None)

    def _run_play(self, play: Play) -> None:
        assert self._agent is not None
        play.run(self._agent)

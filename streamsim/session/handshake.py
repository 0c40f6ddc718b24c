"""How a session begins: who the agent is, what it is told, when it is ready."""

from __future__ import annotations

from streamsim.events import AgentReady, Instant
from streamsim.session.config import SessionConfig
from streamsim.session.outgoing import Outgoing
from streamsim_protocol import messages as wire
from streamsim_protocol.errors import VersionMismatch, WrongOrder

CAPABILITIES = ("ticks",)


class Handshake:
    """From ``hello`` over ``welcome`` to ``ready``; what was agreed holds for the whole session."""

    def __init__(self, config: SessionConfig, outgoing: Outgoing) -> None:
        self._config = config
        self._outgoing = outgoing
        self._hello: wire.Hello | None = None
        self._capabilities: tuple[str, ...] = ()
        self.ready = False

    @property
    def greeted(self) -> bool:
        """The agent has said ``hello``."""
        return self._hello is not None

    @property
    def ticks(self) -> bool:
        """The agent wants to know of every pair that the clock takes."""
        return "ticks" in self._capabilities

    def greet(self, hello: wire.Hello) -> None:
        """Answer ``hello``; ``VersionMismatch`` if there is no common version."""
        if wire.MAJOR_VERSION not in hello.versions:
            raise VersionMismatch(
                f"expected protocol version {wire.MAJOR_VERSION}, got {list(hello.versions[:8])}"
            )
        self._hello = hello
        self._capabilities = tuple(name for name in CAPABILITIES if name in hello.capabilities)
        self._outgoing.send(
            wire.Welcome(
                version=wire.VERSION,
                capabilities=self._capabilities,
                session=self._config.session,
                clock=self._config.clock,
                history=self._config.history,
                frames=self._config.frames or hello.frames,
                fps=self._config.fps,
                size=self._config.size,
                seed=self._config.seed,
                credit=self._config.credit,
            )
        )

    def take_ready(self, ready: wire.Ready, now: Instant) -> None:
        """The agent may be shown something now."""
        assert self._hello is not None
        if self.ready:
            raise WrongOrder("ready was said twice")
        self.ready = True
        self._outgoing.record(
            now,
            AgentReady(
                agent=self._hello.agent,
                capabilities=self._capabilities,
                frames=self._config.frames or self._hello.frames,
                libraries=self._hello.libraries,
                begin_ns=ready.begin_ns,
            ),
        )

"""The interface of an agent: ordinary blocking Python, written by you, driven by the runtime.

All methods of an agent run on one dedicated thread, one at a time, so an agent needs no locks and a
long GPU step never stalls the socket. The runtime guarantees the order: every frame that a query may
see is observed before it is answered; under frozen history none newer is, until the query's chain is
closed. This module knows no sockets and no messages.
"""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamsim_protocol.messages import ClockMode, FramePolicy, History, Probe, QueryKind

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One picture of the stream: sample ``k``, what a viewer sees at ``media_ns``.

    ``data`` is the file as it was sent (JPEG, or PNG where the run asked for lossless pictures).
    """

    k: int
    media_ns: int
    data: bytes = field(repr=False)

    @cached_property
    def rgb(self) -> NDArray[np.uint8]:
        """The picture, (H, W, 3) uint8 RGB, decoded on first use; read-only."""
        import numpy as np
        from PIL import Image

        with Image.open(io.BytesIO(self.data)) as picture:
            pixels = np.asarray(picture.convert("RGB"), dtype=np.uint8)
        pixels.flags.writeable = False
        return pixels

    @property
    def jpeg(self) -> bytes:
        """The picture as a JPEG file: ``data`` as it came, encoded anew only from a lossless PNG."""
        if self.data.startswith(b"\xff\xd8"):
            return self.data
        from PIL import Image

        file = io.BytesIO()
        Image.fromarray(self.rgb).save(file, "JPEG", quality=95)
        return file.getvalue()

    @property
    def seconds(self) -> float:
        """``media_ns`` in seconds."""
        return self.media_ns / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One probe of a query.

    ``text`` is the prompt as the server rendered it; most agents pass it on as it is. ``stem`` and
    ``options`` are its parts: ``options`` is empty for status and cause probes and for open queries.
    ``id`` is the same for the probes of one chain and says nothing else.
    """

    id: str
    kind: QueryKind
    probe: Probe
    text: str
    stem: str
    options: tuple[str, ...]
    media_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """The rules of the session that begins.

    ``seed`` is the only randomness an agent should use: the same run gives the same seeds.
    ``size`` is (width, height) of the pictures. ``working`` declares work in the background: while
    its block runs (on any thread) the session counts as busy and a simulated clock does not jump.
    """

    seed: int
    clock: ClockMode
    history: History
    fps: float
    size: tuple[int, int]
    declare_working: Callable[[bool], None] = field(default=lambda active: None, repr=False)
    read_media_ns: Callable[[], int | None] = field(default=lambda: None, repr=False)

    @property
    def media_now_ns(self) -> int | None:
        """Media time at this moment, by the server's newest tick (rate, hold or jump); None before the first.

        An estimate: the tick's way to us is not known. Frames and queries carry their exact times.
        """
        return self.read_media_ns()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Hold the session busy while the block runs."""
        self.declare_working(True)
        try:
            yield
        finally:
            self.declare_working(False)


class Turn:
    """One utterance in the making. Thread-safe: the runtime cancels it from another thread."""

    def __init__(self, turn: int, *, media_ns: int, seen_media_ns: int | None) -> None:
        self.id = turn
        self.media_ns = media_ns
        """Media time of what is answered."""
        self.seen_media_ns = seen_media_ns
        """Media time of the newest frame observed; None before the first."""
        self.marks: dict[str, int] = {}
        self.reason: str | None = None
        """Why the turn was cancelled; None while it was not."""
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []
        self._started_ns = time.monotonic_ns()

    @property
    def cancelled(self) -> bool:
        """True once nothing of this turn counts any more: stop as soon as you can."""
        return self._cancelled.is_set()

    def cancel(self, reason: str) -> None:
        """Called by the runtime, from any thread; the first reason stays."""
        with self._lock:
            if self.reason is None:
                self.reason = reason
            self._cancelled.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def wait(self, seconds: float) -> bool:
        """Sleep for ``seconds``, or until the turn is cancelled; True if it is."""
        return self._cancelled.wait(seconds)

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Have ``callback`` called once when the turn is cancelled; at once if it is already.

        It runs on the thread that cancels, so it must be quick, must not wait and must not raise:
        good for closing a request or setting a flag.
        """
        with self._lock:
            if not self._cancelled.is_set():
                self._callbacks.append(callback)
                return
        callback()

    def mark(self, name: str) -> None:
        """Note that the stage ``name`` ends now; the latency report shows the time since the turn began."""
        self.marks[name] = self.elapsed_ns()

    def elapsed_ns(self) -> int:
        """Nanoseconds since the turn began."""
        return time.monotonic_ns() - self._started_ns

    def stopping_criteria(self) -> Callable[..., Any]:
        """A stopping criterion for ``transformers``' ``generate``: stops within one token of a cancel.

        Returns a callable ``(input_ids, scores) -> (batch,) bool tensor``; wrap it in a
        ``StoppingCriteriaList``.
        """

        def stop(input_ids: Any, scores: Any, **_: Any) -> Any:
            return input_ids.new_full((input_ids.shape[0],), self.cancelled, dtype=_bool_of(input_ids))

        return stop


def _bool_of(tensor: Any) -> Any:
    """``torch.bool`` without importing torch here: the dtype of a comparison."""
    return (tensor[:0] == 0).dtype


class Agent:
    """Write ``observe`` and ``answer``; the rest is optional.

    ``frames`` is "all" (every frame, a slow agent falls behind) or "latest" (a slow agent skips to
    the newest frame, but never past a query). Arguments from ``--agent-arg key=value`` reach
    ``__init__`` as keywords, converted by its annotations (int, float, bool, str, Path, Literal, and
    any of these or None). What they mean stands in the docstring, in a section ``Arguments:`` of lines
    ``name: meaning``, which ``streamsim doctor --agents`` shows.
    """

    frames: FramePolicy = "all"

    @classmethod
    def check_arguments(cls, **arguments: Any) -> None:
        """Raise ``ValueError`` for arguments that cannot work, before a run starts; load nothing here."""

    def begin(self, session: SessionInfo) -> None:
        """A session begins: forget everything of the one before. Heavy loading belongs here or earlier."""

    def observe(self, frame: Frame) -> None:
        """Look at one frame and update the memory."""
        raise NotImplementedError

    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        """Yield the answer's text in pieces. It must leave no trace for the next probe."""
        raise NotImplementedError

    def end(self) -> None:
        """The session is over: nothing more will be asked."""

    def save(self, folder: Path) -> None:
        """Write the memory into ``folder`` (it exists and is empty)."""

    def load(self, folder: Path) -> None:
        """Read what ``save`` wrote. Called after ``begin``, before the first frame."""

    def stats(self) -> dict[str, float]:
        """Figures to show and record after each turn, such as ``memory_bytes``."""
        return {}

    def describe(self) -> dict[str, str]:
        """Versions of what the agent stands on, recorded with the session."""
        return {}

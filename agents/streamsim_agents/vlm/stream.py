"""What happens to frames as they come, and how a question is answered: one class per kind of memory.

A stream belongs to one agent and lives through its sessions. It never decides what to remember (the
memory does) nor what to say (the model does); it sees to it that as much as possible is done before
the question comes.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from streamsim_agents.memory.entry import Cue, Entry, Part
from streamsim_agents.memory.memory import Memory
from streamsim_agents.vlm.engine import Engine
from streamsim_agents.vlm.family import Family
from streamsim_agents.vlm.plain import PlainUtterance
from streamsim_agents.vlm.prompt import History, Piece, Prompter
from streamsim_agents.vlm.speech import Utterance
from streamsim_agents.vlm.view import View


class Stream(ABC):
    """Frames in, utterances out."""

    def __init__(self, memory: Memory, view: View, prompter: Prompter, max_frames: int) -> None:
        self.memory, self.view, self.prompter = memory, view, prompter
        self._max_frames = max_frames
        self.session = 0
        self.fps = 1.0

    def begin(self, fps: float) -> None:
        """The first session begins, with an empty memory; ``fps`` is the stream's rate."""
        self.session, self.fps = 0, fps
        self.view.clear()

    def resume(self, session: int, waiting: Sequence[Entry]) -> None:
        """Go on where ``session`` was when the memory was saved, with the frames that waited then."""
        self.session = session

    def next_session(self) -> None:
        """What comes now belongs to a new session."""
        self.finish()
        self.session += 1

    def observe(self, entry: Entry) -> None:
        """Take in the next frame."""
        self.memory.write(entry)

    @abstractmethod
    @contextmanager
    def utterance(self, question: str, media_ns: int, cancelled: Callable[[], bool]) -> Iterator[Utterance]:
        """The answer to ``question``; leaves no trace. May raise engine.Cancelled."""

    def waiting(self) -> Sequence[Entry]:
        """Frames that are seen but not yet written to the memory."""
        return ()

    def finish(self) -> None:  # noqa: B027 - most streams have nothing that waits
        """The session is over: write what waits to the memory."""

    def stats(self) -> dict[str, float]:
        """Figures of the stream's own."""
        return {"encoded_bytes": float(self.view.bytes), "encodings": float(self.view.encodings)}

    def parts(self, cue: Cue) -> list[Part]:
        """What the memory shows, cut to the latest ``max_frames`` frames."""
        return latest(self.memory.read(cue), self._max_frames)


class PlainStream(Stream):
    """Keeps frames as they are; a question costs everything anew."""

    def __init__(
        self, memory: Memory, view: View, prompter: Prompter, max_frames: int, family: Family
    ) -> None:
        super().__init__(memory, view, prompter, max_frames)
        self._model = family.model

    @contextmanager
    def utterance(self, question: str, media_ns: int, cancelled: Callable[[], bool]) -> Iterator[Utterance]:
        parts = self.parts(Cue(text=question, media_ns=media_ns))
        videos = self.view.videos(parts, session=self.session, fps=self.fps)
        yield PlainUtterance(self._model, self.prompter.offline_inputs(videos, question))


class FrameStream(Stream):
    """Prefills what the memory shows, as far as it only grows at its end; the rest waits for a question.

    ``again_tokens`` and ``again_ms`` are what the latest question had to prefill first, because the
    memory now shows something else than before.
    """

    def __init__(
        self, memory: Memory, view: View, prompter: Prompter, max_frames: int, engine: Engine
    ) -> None:
        super().__init__(memory, view, prompter, max_frames)
        self.engine = engine
        self._shown: tuple[object, ...] = ()
        self._history: History | None = None
        self.again_tokens = 0
        self.again_ms = 0.0

    def begin(self, fps: float) -> None:
        super().begin(fps)
        self.engine.reset()
        self._history = None
        self._prepare()

    def resume(self, session: int, waiting: Sequence[Entry]) -> None:
        # most likely a new session follows: do its work now, before anything is asked
        super().resume(session + 1, waiting)
        self._prepare()
        self.session = session

    def observe(self, entry: Entry) -> None:
        super().observe(entry)
        self._prepare()

    @contextmanager
    def utterance(self, question: str, media_ns: int, cancelled: Callable[[], bool]) -> Iterator[Utterance]:
        started = time.perf_counter()
        if self.engine.family.causal:
            history = self._look(Cue(text=question, media_ns=media_ns))
            tail: list[Piece] = [self.prompter.tail(history, question)]
            self.again_tokens = self.engine.sync(history.pieces, cancelled)
        else:
            parts = self.parts(Cue(text=question, media_ns=media_ns))
            tail = self.prompter.pieces(self.view.videos(parts, session=self.session, fps=self.fps), question)
        self.again_ms = (time.perf_counter() - started) * 1e3
        with self.engine.branch() as branch:
            branch.feed(tail)
            yield branch

    def stats(self) -> dict[str, float]:
        return super().stats() | {
            "cache_bytes": float(self.engine.bytes),
            "cache_tokens": float(self.engine.length),
            "again_tokens": float(self.again_tokens),
            "again_ms": self.again_ms,
        }

    def _prepare(self) -> None:
        """Encode the newest step; prefill it too if nothing that is prefilled goes out of sight."""
        history = self._look(Cue())
        if not history.pieces:
            return
        newest = history.videos[-1].steps[-1]
        newest.features()
        # the newest step may replace the one that stood for a single frame of its pair
        if self.engine.extends(history.pieces, replacing=2):
            self.engine.sync(history.pieces)

    def _look(self, cue: Cue) -> History:
        parts = self.parts(cue)
        # entries are compared by identity: quick, however many there are
        shown = (self.session, *((part.label, part.fps, part.entries) for part in parts))
        if self._history is None or shown != self._shown:
            videos = self.view.videos(parts, session=self.session, fps=self.fps)
            self._shown, self._history = shown, self.prompter.history(videos)
        return self._history


class TokenStream(FrameStream):
    """As FrameStream, with a memory of encoded steps: frames wait until their step is complete.

    Until then the memory's newest part is shown with the waiting frame, repeated.
    """

    def __init__(
        self, memory: Memory, view: View, prompter: Prompter, max_frames: int, engine: Engine
    ) -> None:
        super().__init__(memory, view, prompter, max_frames, engine)
        self._waiting: list[Entry] = []

    def begin(self, fps: float) -> None:
        self._waiting = []
        super().begin(fps)

    def resume(self, session: int, waiting: Sequence[Entry]) -> None:
        self._waiting = list(waiting)
        super().resume(session, waiting)

    def observe(self, entry: Entry) -> None:
        self._waiting.append(entry)
        if len(self._waiting) == self.engine.family.step_frames:
            self.finish()
        self._prepare()

    def waiting(self) -> Sequence[Entry]:
        return tuple(self._waiting)

    def finish(self) -> None:
        if self._waiting:
            self.memory.write(self._encoded(self._waiting))
            self._waiting = []

    def parts(self, cue: Cue) -> list[Part]:
        parts = self.memory.read(cue)
        if not self._waiting:
            return parts
        newest = self._encoded(self._waiting)
        if parts and parts[-1].entries[-1].session == newest.session:
            last = parts[-1]
            return [
                *parts[:-1],
                Part(entries=(*last.entries, newest), label=last.label, fps=last.fps),
            ]
        return [*parts, Part(entries=(newest,))]

    def _encoded(self, frames: Sequence[Entry]) -> Entry:
        missing = self.engine.family.step_frames - len(frames)
        features = self.view.encode([*frames, *[frames[-1]] * missing])
        return Entry(
            session=frames[0].session,
            first_ns=frames[0].first_ns,
            last_ns=frames[-1].last_ns,
            frames=len(frames),
            grid=features.grid,
            value=np.ascontiguousarray(features.tokens.float().cpu().numpy()),
        )


def latest(parts: Sequence[Part], frames: int) -> list[Part]:
    """``parts`` without the earliest entries that are too many."""
    kept: list[Part] = []
    room = frames
    for part in reversed(parts):
        entries = part.entries[-room:] if room else ()
        room -= len(entries)
        if entries:
            kept.append(Part(entries=entries, label=part.label, fps=part.fps))
    return kept[::-1]

"""A contract kit: ``check_agent`` runs any agent through a small scripted session and says what it breaks.

No server and no socket: the agent's methods are called as the runtime calls them, all on one thread of
their own, with small pictures drawn here. It cannot know whether an answer is right.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import io
import math
import queue
import tempfile
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, get_args

from streamsim_agents.agent import Agent, Frame, Query, SessionInfo, Turn
from streamsim_protocol.messages import FramePolicy, Probe

T = TypeVar("T")

SIZE = (64, 48)
FRAMES = 6
SEED = 20260817
PATIENCE_S = 30.0
MAX_SHOWN_CHARS = 80


class CheckFailure(AssertionError):
    """The agent breaks the contract; the text says which rule and what happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What was checked, and what could not be, each in a few words."""

    checked: tuple[str, ...]
    skipped: tuple[str, ...]

    def __str__(self) -> str:
        """A line for each thing."""
        lines = [f"checked: {what}" for what in self.checked] + [f"skipped: {what}" for what in self.skipped]
        return "\n".join(["the agent keeps the contract", *lines])


def check_agent(
    agent: Agent | Callable[[], Agent], *, deterministic: bool = True, patience_s: float = PATIENCE_S
) -> CheckReport:
    """Run an agent, or what a class or function makes, through a scripted session.

    A class that takes arguments needs a function: ``check_agent(lambda: Mine(model="x"))``.
    With ``deterministic=False`` texts are not compared (an agent that draws at random should draw from
    ``SessionInfo.seed`` instead). ``patience_s`` bounds each call: also an answer that was cancelled
    must have ended by then. ``CheckFailure`` at the first rule that is broken.
    """
    stage = _Stage(patience_s)
    try:
        return _Check(stage, agent, deterministic=deterministic).run()
    finally:
        stage.close()


def draw_frame(
    k: int,
    *,
    colour: tuple[int, int, int] = (200, 40, 40),
    background: tuple[int, int, int] = (96, 96, 96),
    size: tuple[int, int] = SIZE,
) -> Frame:
    """Sample ``k`` of a made-up stream at one frame a second: a square that moves. JPEG."""
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", size, background)
    left = 4 + (7 * k) % (size[0] - 20)
    ImageDraw.Draw(picture).rectangle((left, 12, left + 12, 24), fill=colour)
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=90)
    return Frame(k=k, media_ns=k * 1_000_000_000, data=file.getvalue())


def make_session(seed: int = SEED) -> SessionInfo:
    """The rules of the kit's sessions: lockstep, frozen history, one frame a second."""
    return SessionInfo(seed=seed, clock="lockstep", history="frozen", fps=1.0, size=SIZE)


def make_chain(name: str, media_ns: int) -> tuple[Query, ...]:
    """A choice's three probes, and an open query, all of one instant."""
    stem, options = "Where is the red square?", ("On the left", "On the right", "It cannot be told", "Gone")
    lines = "\n".join(f"({letter}) {option}" for letter, option in zip("ABCD", options, strict=True))
    reply = "Reply with one letter."

    def probe(step: Probe, text: str) -> Query:
        shown = options if step == "task" else ()
        return Query(
            id=name, kind="choice", probe=step, text=text, stem=stem, options=shown, media_ns=media_ns
        )

    return (
        probe("task", f"{stem}\n\n{lines}\n\n{reply}"),
        probe("status", f"{stem}\n\nIs it (A) seen, (B) inferred, (C) not seen or (D) ambiguous? {reply}"),
        probe("cause", f"{stem}\n\nWhy can it not be told? Reply with letters A to F."),
        Query(
            id=f"{name}-open", kind="open", probe="task", text=stem, stem=stem, options=(), media_ns=media_ns
        ),
    )


class _Stage:
    """The agent's thread: calls run on it one after the other, each within the patience."""

    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s
        self._jobs: queue.SimpleQueue[tuple[Callable[[], object], Future[object]] | None] = (
            queue.SimpleQueue()
        )
        threading.Thread(target=self._run, name="agent", daemon=True).start()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            call, future = job
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - handed to the checking thread
                future.set_exception(error)

    def start(self, call: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        self._jobs.put((call, future))  # type: ignore[arg-type]
        return future

    def finish(self, what: str, future: Future[T]) -> T:
        """The call's result; failures in the words of the contract."""
        try:
            return future.result(self.patience_s)
        except CheckFailure:
            raise
        except TimeoutError as error:
            if future.done():
                raise CheckFailure(f"{what} raised TimeoutError: {error}") from error
            raise CheckFailure(f"{what} had not returned after {self.patience_s:g} s") from None
        except NotImplementedError as error:
            raise CheckFailure(f"{what} is not written: an agent needs observe and answer") from error
        except Exception as error:
            raise CheckFailure(f"{what} raised {type(error).__name__}: {error}") from error

    def close(self) -> None:
        self._jobs.put(None)


class _Check:
    """One run of the kit over one agent."""

    def __init__(self, stage: _Stage, agent: Agent | Callable[[], Agent], *, deterministic: bool) -> None:
        self._stage = stage
        self._given = agent
        self._deterministic = deterministic
        self._checked: list[str] = []
        self._skipped: list[str] = []
        self._turns = 0

    def run(self) -> CheckReport:
        agent = self._make()
        self._look_at(agent)
        before, after = make_chain("q1", 0), make_chain("q2", (FRAMES - 1) * 1_000_000_000)
        unseen, seen = self._play(agent, before, after)
        self._checked.append("frames and probes in order, also probes before any frame")
        self._check_no_trace(agent, after, seen)
        self._check_stats(agent)
        self._check_cancel(agent, after, seen)
        self._check_save(agent, after, seen)
        self._call("end", agent.end)
        self._check_forgets(agent, before, after, unseen, seen)
        self._call("end", agent.end)
        return CheckReport(checked=tuple(self._checked), skipped=tuple(self._skipped))

    # ---------------------------------------------------------------------------------- the rules

    def _look_at(self, agent: Agent) -> None:
        if agent.frames not in get_args(FramePolicy):
            raise CheckFailure(f"frames: expected {' or '.join(get_args(FramePolicy))}, got {agent.frames!r}")
        described = self._call("describe", agent.describe)
        wrong = {name: value for name, value in described.items() if not isinstance(value, str)}
        if wrong:
            raise CheckFailure(f"describe: expected texts, got {wrong!r}")
        self._checked.append("frames and describe")

    def _play(
        self, agent: Agent, before: tuple[Query, ...], after: tuple[Query, ...]
    ) -> tuple[list[str], list[str]]:
        """A session with probes before the first frame and after the last; returns both sets of texts."""
        self._call("begin", lambda: agent.begin(make_session()))
        unseen = [self._ask(agent, query) for query in before]
        self._observe(agent, (200, 40, 40))
        seen = [self._ask(agent, query) for query in after]
        return unseen, seen

    def _check_no_trace(self, agent: Agent, queries: tuple[Query, ...], seen: list[str]) -> None:
        if not self._deterministic:
            self._skipped.append("answers leave no trace: texts are not compared")
            return
        saved = self._save_digest(agent)
        for query, text in reversed(list(zip(queries, seen, strict=True))):
            self._compare(
                "answer left a trace", query, text, self._ask(agent, query),
                "asked again without a new frame (draw random numbers from SessionInfo.seed and the query)",
            )  # fmt: skip
        if saved != self._save_digest(agent):
            raise CheckFailure("answer left a trace: save wrote other bytes after probes than before them")
        self._checked.append("answers leave no trace")

    def _check_stats(self, agent: Agent) -> None:
        for name, value in self._call("stats", agent.stats).items():
            good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
            if not isinstance(name, str) or not good:
                raise CheckFailure(f"stats: expected finite numbers by name, got {name!r}: {value!r}")
        self._checked.append("stats are numbers")

    def _check_cancel(self, agent: Agent, queries: tuple[Query, ...], seen: list[str]) -> None:
        """Cancelled before it began, while its first and its second piece are made, and dropped."""
        query, text = queries[0], seen[0]
        turn = self._turn(query)
        turn.cancel("cancelled")
        self._call("an answer that was cancelled before it began", lambda: _say(agent, query, turn))
        for held in (False, True):
            self._cancel_under_way(agent, query, held=held)
        self._call("an answer that was dropped", lambda: _drop(agent, query, self._turn(query)))
        again = self._ask(agent, query)
        self._compare("a cancelled answer left a trace", query, text, again, "after it")
        self._checked.append("a cancelled answer ends")

    def _cancel_under_way(self, agent: Agent, query: Query, *, held: bool) -> None:
        turn, begun = self._turn(query), threading.Event()
        future = self._stage.start(lambda: _say_until_cancelled(agent, query, turn, begun, held=held))
        begun.wait(self._stage.patience_s)
        turn.cancel("cancelled")
        self._stage.finish("an answer that was cancelled under way", future)

    def _check_save(self, agent: Agent, queries: tuple[Query, ...], seen: list[str]) -> None:
        if type(agent).save is Agent.save:
            self._skipped.append("save and load: the agent keeps nothing")
            return
        saved = self._save_digest(agent)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            self._call("save", lambda: agent.save(path))
            fresh = self._make() if callable(self._given) else agent
            self._call("begin", lambda: fresh.begin(make_session()))
            self._call("load", lambda: fresh.load(path))
        for query, text in zip(queries, seen, strict=True):
            again = self._ask(fresh, query)
            self._compare("load did not restore what save kept", query, text, again, "after loading")
        if self._deterministic and self._save_digest(fresh) != saved:
            raise CheckFailure("load did not restore what save kept: saved again, it is other bytes")
        if fresh is not agent:
            self._call("end", fresh.end)
        self._checked.append("save and load")

    def _check_forgets(
        self,
        agent: Agent,
        before: tuple[Query, ...],
        after: tuple[Query, ...],
        unseen: list[str],
        seen: list[str],
    ) -> None:
        """A session of other pictures, then the first one again: nothing may be different."""
        self._call("begin", lambda: agent.begin(make_session(seed=1)))
        self._observe(agent, (40, 40, 200))
        self._ask(agent, after[0])
        self._call("end", agent.end)
        again = self._play(agent, before, after)
        if not self._deterministic:
            self._skipped.append("begin forgets: texts are not compared")
            return
        for query, text, now in zip(before + after, unseen + seen, again[0] + again[1], strict=True):
            self._compare("begin did not forget", query, text, now, "when the session was played again later")
        self._checked.append("begin forgets")

    # ---------------------------------------------------------------------------------- its means

    def _make(self) -> Agent:
        given = self._given
        if isinstance(given, type):
            _check_needs_nothing(given)
        made = given if isinstance(given, Agent) else self._call("making the agent", given)
        if not isinstance(made, Agent):
            raise CheckFailure(f"expected an agent derived from streamsim_agents.Agent, got {made!r}")
        return made

    def _call(self, what: str, call: Callable[[], T]) -> T:
        return self._stage.finish(what, self._stage.start(call))

    def _compare(self, rule: str, query: Query, first: str, later: str, when: str) -> None:
        if self._deterministic and first != later:
            raise CheckFailure(
                f"{rule}: {_name(query)} gave {_shown(first)} first, and {_shown(later)} {when}"
            )

    def _observe(self, agent: Agent, colour: tuple[int, int, int]) -> None:
        for k in range(FRAMES):
            frame = draw_frame(k, colour=colour)
            self._call(f"observe of frame {k}", lambda frame=frame: agent.observe(frame))  # type: ignore[misc]

    def _ask(self, agent: Agent, query: Query) -> str:
        turn = self._turn(query)
        return self._call(f"answer to {_name(query)}", lambda: _say(agent, query, turn))

    def _turn(self, query: Query) -> Turn:
        self._turns += 1
        return Turn(self._turns, media_ns=query.media_ns, seen_media_ns=query.media_ns)

    def _save_digest(self, agent: Agent) -> str:
        """A digest of what ``save`` writes, names included."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            self._call("save", lambda: agent.save(path))
            digest = hashlib.sha256()
            for file in sorted(file for file in path.rglob("*") if file.is_file()):
                digest.update(
                    f"{file.relative_to(path)}\n".encode() + hashlib.sha256(file.read_bytes()).digest()
                )
            return digest.hexdigest()


def _check_needs_nothing(agent_class: type[Agent]) -> None:
    """``CheckFailure`` for a class that cannot be called without arguments."""
    try:
        parameters = inspect.signature(agent_class).parameters.values()
    except ValueError:  # a class without a signature: calling it will tell
        return
    needed = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if needed:
        name = agent_class.__name__
        call = ", ".join(f"{argument}=…" for argument in needed)
        raise CheckFailure(
            f"{name} needs {', '.join(needed)}: give a function that makes it, "
            f"check_agent(lambda: {name}({call}))"
        )


def _pieces(agent: Agent, query: Query, turn: Turn) -> Generator[str, None, None]:
    """What ``answer`` gives, looked over piece by piece; closing this closes it."""
    given: object = agent.answer(query, turn)
    if isinstance(given, str):
        raise CheckFailure(f"answer returned the text {_shown(given)}: yield it instead of returning it")
    if not isinstance(given, Iterable):
        raise CheckFailure(f"answer returned {given!r}: expected an iterator of texts, write it with `yield`")
    pieces = iter(given)
    try:
        for piece in pieces:
            if not isinstance(piece, str):
                raise CheckFailure(f"answer yielded {piece!r}: expected str, got {type(piece).__name__}")
            yield piece
    finally:
        close = getattr(pieces, "close", None)
        if close is not None:
            close()


def _say(agent: Agent, query: Query, turn: Turn) -> str:
    """The text up to its end, or to the first piece after a cancel."""
    said: list[str] = []
    with contextlib.closing(_pieces(agent, query, turn)) as pieces:
        for piece in pieces:
            said.append(piece)
            if turn.cancelled:
                break
    return "".join(said)


def _say_until_cancelled(
    agent: Agent, query: Query, turn: Turn, begun: threading.Event, *, held: bool
) -> None:
    """Set ``begun`` and say it; ``held``: only after the first piece, which is followed by the cancel."""
    try:
        with contextlib.closing(_pieces(agent, query, turn)) as pieces:
            if held:
                next(pieces, None)
            begun.set()
            if held:
                turn.wait(PATIENCE_S)
            for _ in pieces:
                if turn.cancelled:
                    break
    finally:
        begun.set()


def _drop(agent: Agent, query: Query, turn: Turn) -> None:
    """Take the first piece and close the iterator, as the runtime does with a turn that is fenced."""
    with contextlib.closing(_pieces(agent, query, turn)) as pieces:
        next(pieces, None)
        turn.cancel("timed_out")


def _name(query: Query) -> str:
    return (
        f"the {query.probe} probe of {query.id}"
        if query.kind == "choice"
        else f"the {query.kind} query {query.id}"
    )


def _shown(text: str) -> str:
    return repr(text if len(text) <= MAX_SHOWN_CHARS else text[:MAX_SHOWN_CHARS] + "…")

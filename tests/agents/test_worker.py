"""The worker on its real thread: order, failures, cancels, backpressure and saving."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamsim_agents.agent import Agent, Frame, Query, SessionInfo, Turn
from streamsim_agents.outbox import Outbox
from streamsim_agents.play import MAX_ERROR_CHARS, MAX_FIGURES, MAX_TEXT_CHARS
from streamsim_agents.saving import folder_digest, save_memory
from streamsim_agents.worker import Worker
from streamsim_protocol import messages as wire
from streamsim_protocol.codec import encode

PATIENCE_S = 30.0


class Diary(Agent):
    """Writes down what it is called for, and does as the test says."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.answers: Callable[[Query, Turn], Any] = lambda query, turn: iter(("A",))
        self.on_observe: Callable[[Frame], None] = lambda frame: None
        self.session: SessionInfo | None = None

    def begin(self, session: SessionInfo) -> None:
        self.session = session
        self.calls.append("begin")

    def observe(self, frame: Frame) -> None:
        self.calls.append(f"F{frame.k} {frame.data.decode()}")
        self.on_observe(frame)

    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        self.calls.append(f"{query.probe} {query.id}")
        result: Iterator[str] = self.answers(query, turn)
        return result

    def end(self) -> None:
        self.calls.append("end")


class Stage:
    """A worker with its agent, and the loop's side of both."""

    def __init__(
        self,
        agent: Agent,
        *,
        memory_folder: Path | None = None,
        frames: wire.FramePolicy = "all",
        history: wire.History = "frozen",
        capacity: int = 256,
    ) -> None:
        self.news = threading.Semaphore(0)
        self.outbox = Outbox(self.news.release, capacity=capacity)
        self.worker = Worker(lambda: agent, memory_folder)
        self.worker.start()
        self.welcome = wire.Welcome(
            version="1.0",
            capabilities=(),
            session="s1",
            clock="realtime",
            history=history,
            frames=frames,
            fps=1.0,
            size=(64, 48),
            seed=1,
            credit=32,
        )
        loaded = threading.Event()
        self.loaded: tuple[str, wire.FramePolicy, dict[str, str], str | None] | None = None

        def done(*result: Any) -> None:
            self.loaded = result
            loaded.set()

        self.worker.load(done)
        assert loaded.wait(PATIENCE_S)

    def begin(self) -> wire.AgentMessage:
        self.worker.begin(self.welcome, self.outbox)
        return self.hear()

    def hear(self) -> wire.AgentMessage:
        """The next message, which must fit the wire."""
        while (message := self.outbox.take()) is None:
            assert self.news.acquire(timeout=PATIENCE_S), "the worker has nothing to say"
        assert len(encode(message)) <= wire.MAX_AGENT_MESSAGE_BYTES
        return message

    def hear_until(self, kind: type[wire.Message]) -> list[wire.AgentMessage]:
        heard = [self.hear()]
        while not isinstance(heard[-1], kind):
            heard.append(self.hear())
        return heard

    def show(self, k: int) -> None:
        self.worker.put_frame(
            wire.Frame(k=k, media_ns=k * 10**9, encoding="jpeg", data=f"picture {k}".encode())
        )

    def ask(self, turn: int, at_s: int, query: str = "q1", probe: wire.Probe = "task") -> None:
        self.worker.put_probe(
            wire.ProbeMessage(
                turn=turn,
                query=query,
                order=int(query[1:]) - 1,
                kind="choice",
                probe=probe,
                media_ns=at_s * 10**9,
                text="?",
                stem="?",
                options=(),
            )
        )

    def close(self) -> None:
        self.worker.abandon("the test is over")
        self.outbox.close()
        self.worker.quit()
        assert self.worker.join(PATIENCE_S), "the worker did not come to an end"


@pytest.fixture
def stage() -> Iterator[Callable[..., Stage]]:
    stages: list[Stage] = []

    def make(agent: Agent, **options: Any) -> Stage:
        stages.append(Stage(agent, **options))
        return stages[-1]

    yield make
    for one in stages:
        one.close()


MakeStage = Callable[..., Stage]


def backlog_bytes() -> list[int]:
    """The sizes of all spool files that this process holds."""
    sizes = []
    for descriptor in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):
            if "streamsim-backlog" in str(descriptor.readlink()):
                sizes.append(descriptor.stat().st_size)
    return sizes


def hold_frames(agent: Diary) -> tuple[threading.Event, threading.Event]:
    """The agent waits in ``observe``: the first event says that it is there, the second lets it go on."""
    entered, go_on = threading.Event(), threading.Event()

    def wait(frame: Frame) -> None:
        entered.set()
        assert go_on.wait(PATIENCE_S)

    agent.on_observe = wait
    return entered, go_on


def ended(message: wire.AgentMessage) -> wire.TurnEnded:
    assert isinstance(message, wire.TurnEnded)
    return message


class TestOrder:
    def test_a_session_from_begin_to_bye(self, stage: MakeStage) -> None:
        agent = Diary()
        scene = stage(agent)
        assert isinstance(scene.begin(), wire.Ready)
        scene.show(0)
        settled = scene.hear()
        assert isinstance(settled, wire.Settled) and (settled.k, settled.outcome) == (0, "processed")
        scene.ask(1, 0)
        started, text, end = scene.hear(), scene.hear(), ended(scene.hear())
        assert isinstance(started, wire.TurnStarted) and (started.turn, started.seen_media_ns) == (1, 0)
        assert text == wire.Text(turn=1, text="A")
        assert (end.reason, end.error, end.dropped_chars) == ("finished", None, 0)
        assert end.first_text_ns is not None and 0 <= end.first_text_ns <= end.service_ns
        scene.worker.close_chain("q1")
        scene.worker.end()
        assert scene.hear() == wire.Bye()
        assert agent.calls == ["begin", "F0 picture 0", "task q1", "end"]

    def test_frozen_history_holds_newer_frames_back(self, stage: MakeStage) -> None:
        agent = Diary()
        scene = stage(agent)
        entered, go_on = hold_frames(agent)
        scene.begin()
        scene.show(0)
        assert entered.wait(PATIENCE_S)
        for k in (1, 2):
            scene.show(k)
        scene.ask(1, 1)
        go_on.set()
        heard = scene.hear_until(wire.TurnEnded)
        assert [type(message).__name__ for message in heard[:2]] == ["Settled", "Settled"]
        scene.ask(2, 1, probe="status")
        scene.hear_until(wire.TurnEnded)
        scene.worker.close_chain("q1")
        scene.hear_until(wire.Settled)
        assert agent.calls[1:] == ["F0 picture 0", "F1 picture 1", "task q1", "status q1", "F2 picture 2"]

    def test_a_latest_agent_settles_what_it_passes_over(self, stage: MakeStage) -> None:
        agent = Diary()
        scene = stage(agent, frames="latest")
        entered, go_on = hold_frames(agent)
        scene.begin()
        scene.show(0)
        assert entered.wait(PATIENCE_S)
        for k in range(1, 100):  # beyond what the spool keeps in memory
            scene.show(k)
        go_on.set()
        outcomes: dict[int, wire.Settlement] = {}
        while len(outcomes) < 100:
            message = scene.hear()
            assert isinstance(message, wire.Settled)
            outcomes[message.k] = message.outcome
        assert backlog_bytes() == [0], "what is passed over is forgotten"
        assert outcomes == {0: "processed", **dict.fromkeys(range(1, 99), "skipped"), 99: "processed"}
        assert agent.calls[1:] == ["F0 picture 0", "F99 picture 99"]

    def test_session_after_session(self, stage: MakeStage) -> None:
        agent = Diary()
        scene = stage(agent)
        for _ in range(2):
            assert isinstance(scene.begin(), wire.Ready)
            scene.show(0)
            scene.worker.end()
            assert [type(message) for message in (scene.hear(), scene.hear())] == [wire.Settled, wire.Bye]
        assert agent.calls == ["begin", "F0 picture 0", "end"] * 2


class TestCancel:
    def test_a_running_turn_is_told_and_nothing_more_of_it_is_said(self, stage: MakeStage) -> None:
        agent, closed = Diary(), threading.Event()

        def speak(query: Query, turn: Turn) -> Iterator[str]:
            try:
                yield "before "
                assert turn.wait(PATIENCE_S)
                yield "after"
                raise AssertionError("nobody asks for more")
            finally:
                closed.set()

        agent.answers = speak
        scene = stage(agent)
        scene.begin()
        scene.ask(1, 0)
        assert isinstance(scene.hear(), wire.TurnStarted)
        assert scene.hear() == wire.Text(turn=1, text="before ")
        scene.worker.close_turn(1, "timed_out")
        end = ended(scene.hear())
        assert (end.reason, end.dropped_chars, end.error) == ("closed", 5, None)
        assert closed.is_set(), "the generator was closed on the worker's thread"

    def test_the_answer_is_closed_before_its_end_is_told(self, stage: MakeStage) -> None:
        """Whatever kind of iterator it is: its GPU work must be over when the worker says so."""

        class Pieces:
            def __iter__(self) -> Pieces:
                return self

            def __next__(self) -> str:
                return "more "

            def close(self) -> None:
                agent.calls.append("closed" if scene.outbox.take() is None else "told too early")

        agent, kept = Diary(), Pieces()
        agent.answers = lambda query, turn: kept
        scene = stage(agent)
        scene.begin()
        scene.ask(1, 0)
        scene.hear_until(wire.Text)
        scene.worker.close_turn(1, "cancelled")
        assert ended(scene.hear_until(wire.TurnEnded)[-1]).reason == "closed"
        assert agent.calls[-1] == "closed"

    def test_what_was_not_begun_is_settled_when_the_worker_is_idle(self, stage: MakeStage) -> None:
        agent = Diary()
        scene = stage(agent)
        entered, go_on = hold_frames(agent)
        scene.begin()
        scene.show(0)
        assert entered.wait(PATIENCE_S)
        scene.ask(1, 0)
        scene.worker.close_turn(1, "timed_out")
        scene.worker.close_chain("q1")
        assert scene.outbox.take() is None, "the worker is not idle"
        go_on.set()
        assert isinstance(scene.hear(), wire.Settled)
        assert scene.hear() == wire.TurnEnded(turn=1, reason="closed")
        assert agent.calls[1:] == ["F0 picture 0"]

    def test_late_and_unknown_closes_do_no_harm(self, stage: MakeStage) -> None:
        scene = stage(Diary())
        scene.begin()
        scene.ask(1, 0)
        assert ended(scene.hear_until(wire.TurnEnded)[-1]).reason == "finished"
        for turn in (1, 77):
            scene.worker.close_turn(turn, "timed_out")
        scene.worker.close_chain("q1")
        scene.ask(2, 0, query="q2")
        assert ended(scene.hear_until(wire.TurnEnded)[-1]).reason == "finished"

    def test_a_lost_connection_cancels_and_drops_everything(self, stage: MakeStage) -> None:
        agent, entered = Diary(), threading.Event()
        reasons: list[str | None] = []

        def speak(query: Query, turn: Turn) -> Iterator[str]:
            entered.set()
            turn.wait(PATIENCE_S)
            reasons.append(turn.reason)
            yield "too late"

        agent.answers = speak
        scene = stage(agent)
        scene.begin()
        scene.ask(1, 0)
        assert entered.wait(PATIENCE_S)
        scene.show(1)
        scene.worker.abandon("disconnected")
        scene.outbox.close()
        scene.worker.quit()
        assert scene.worker.join(PATIENCE_S)
        assert reasons == ["disconnected"]
        assert agent.calls == ["begin", "task q1"], "neither frames nor end"
        for k in range(200):  # they were on their way: nobody keeps them
            scene.show(k)
        assert backlog_bytes() == []

    def test_a_new_session_owes_nothing_to_one_that_is_still_in_the_agent(self, stage: MakeStage) -> None:
        """The agent is stuck when its connection is lost; the next session finds nothing of it."""
        agent = Diary()
        entered, go_on = hold_frames(agent)
        scene = stage(agent)
        scene.begin()
        scene.show(7)
        scene.show(8)
        assert entered.wait(PATIENCE_S)
        scene.worker.abandon("disconnected")
        scene.outbox.close()
        scene.outbox = Outbox(scene.news.release)
        scene.worker.begin(scene.welcome, scene.outbox)
        scene.show(0)
        go_on.set()
        assert isinstance(scene.hear(), wire.Ready)
        settled = scene.hear()
        assert isinstance(settled, wire.Settled) and settled.k == 0
        assert agent.calls == ["begin", "F7 picture 7", "begin", "F0 picture 0"]


class TestFailures:
    @pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), MemoryError()])
    def test_a_frame_that_fails_costs_that_frame(self, stage: MakeStage, error: BaseException) -> None:
        agent = Diary()

        def fail(frame: Frame) -> None:
            if frame.k == 0:
                raise error

        agent.on_observe = fail
        scene = stage(agent)
        scene.begin()
        scene.show(0)
        scene.show(1)
        first, second = scene.hear(), scene.hear()
        assert isinstance(first, wire.Settled) and isinstance(second, wire.Settled)
        assert (first.outcome, second.outcome) == ("failed", "processed")
        assert first.error is not None and type(error).__name__ in first.error and "in fail" in first.error

    def test_an_answer_that_fails_in_the_middle(self, stage: MakeStage) -> None:
        agent = Diary()

        def speak(query: Query, turn: Turn) -> Iterator[str]:
            yield "half an ans"
            raise RuntimeError("out of memory")

        agent.answers = speak
        scene = stage(agent)
        scene.begin()
        scene.ask(1, 0)
        heard = scene.hear_until(wire.TurnEnded)
        assert heard[1] == wire.Text(turn=1, text="half an ans")
        end = ended(heard[-1])
        assert end.reason == "failed" and end.error is not None and "RuntimeError: out of memory" in end.error

    @pytest.mark.parametrize("said", [b"bytes", None, 3, ["A"]])
    def test_only_texts_can_be_said(self, stage: MakeStage, said: object) -> None:
        agent = Diary()
        agent.answers = lambda query, turn: iter([said])
        scene = stage(agent)
        scene.begin()
        scene.ask(1, 0)
        end = ended(scene.hear_until(wire.TurnEnded)[-1])
        assert end.reason == "failed" and end.error is not None
        assert f"answer must yield str, got {type(said).__name__}" in end.error

    def test_an_answer_that_is_no_iterator(self, stage: MakeStage) -> None:
        agent = Diary()
        agent.answers = lambda query, turn: None
        scene = stage(agent)
        scene.begin()
        scene.ask(1, 0)
        assert ended(scene.hear_until(wire.TurnEnded)[-1]).reason == "failed"

    def test_a_long_traceback_keeps_its_end_and_fits_the_wire(self, stage: MakeStage) -> None:
        agent = Diary()

        def fail(frame: Frame) -> None:
            raise ValueError("\ud800" + "漢" * 100_000 + " the reason")

        agent.on_observe = fail
        scene = stage(agent)
        scene.begin()
        scene.show(0)
        settled = scene.hear()
        assert isinstance(settled, wire.Settled) and settled.error is not None
        assert len(settled.error) == MAX_ERROR_CHARS + 1 and settled.error.rstrip().endswith("the reason")
        assert settled.error.startswith("Traceback (most recent call last):\n")
        assert "\nValueError: ?漢" in settled.error, "its type stands where it began"

    def test_long_causes_leave_the_last_exception_whole(self, stage: MakeStage) -> None:
        agent = Diary()

        def fail(frame: Frame) -> None:
            try:
                raise ValueError("a long cause " * 2_000)
            except ValueError as error:
                raise OSError("at last") from error

        agent.on_observe = fail
        scene = stage(agent)
        scene.begin()
        scene.show(0)
        settled = scene.hear()
        assert isinstance(settled, wire.Settled) and settled.error is not None
        assert len(settled.error) == MAX_ERROR_CHARS + 1 and settled.error.startswith("…")
        last = settled.error.rpartition("\nTraceback (most recent call last):\n")[2]
        assert last.splitlines()[-1] == "OSError: at last" and "in fail" in last

    def test_begin(self, stage: MakeStage) -> None:
        class Unready(Diary):
            def begin(self, session: SessionInfo) -> None:
                raise OSError("no weights")

        failed = stage(Unready()).begin()
        assert isinstance(failed, wire.Failed)
        assert failed.phase == "begin" and "OSError: no weights" in failed.error

    def test_load(self) -> None:
        def unmakeable() -> Agent:
            sys.exit("bad arguments")

        worker, told, done = Worker(unmakeable, None), [], threading.Event()

        def tell(*result: object) -> None:
            told.append(result)
            done.set()

        worker.start()
        worker.load(tell)
        assert done.wait(PATIENCE_S)
        worker.abandon("nothing has begun")
        worker.quit()
        assert worker.join(PATIENCE_S)
        ((name, frames, libraries, error),) = told
        assert (name, frames, libraries) == ("unknown", "all", {})
        assert isinstance(error, str) and "SystemExit: bad arguments" in error

    def test_a_policy_that_does_not_exist(self, stage: MakeStage) -> None:
        agent = Diary()
        agent.frames = "newest"  # type: ignore[assignment]
        loaded = stage(agent).loaded
        assert loaded is not None and loaded[3] is not None
        assert "expected frames = 'all' or 'latest', got 'newest'" in loaded[3]

    def test_end_and_save_are_reported_and_bye_follows(self, stage: MakeStage, tmp_path: Path) -> None:
        class Sloppy(Diary):
            def end(self) -> None:
                raise RuntimeError("cannot end")

            def save(self, folder: Path) -> None:
                (folder / "half").write_text("half")
                raise RuntimeError("disk full")

        scene = stage(Sloppy(), memory_folder=tmp_path)
        scene.begin()
        scene.worker.end()
        heard = scene.hear_until(wire.Bye)
        assert [(message.phase, message.error.splitlines()[-1]) for message in heard[:2]] == [  # type: ignore[union-attr]
            ("end", "RuntimeError: cannot end"),
            ("save", "RuntimeError: disk full"),
        ]
        assert heard[2] == wire.Bye()
        assert list(tmp_path.iterdir()) == [], "nothing half-written is left"


class TestWords:
    def test_long_texts_are_cut_and_come_whole(self, stage: MakeStage) -> None:
        text = "🎬" * (2 * MAX_TEXT_CHARS + 1)
        agent = Diary()
        agent.answers = lambda query, turn: iter([text, ""])
        scene = stage(agent)
        scene.begin()
        scene.ask(1, 0)
        pieces = [
            message.text for message in scene.hear_until(wire.TurnEnded) if isinstance(message, wire.Text)
        ]
        assert [len(piece) for piece in pieces] == [MAX_TEXT_CHARS, MAX_TEXT_CHARS, 1]
        assert "".join(pieces) == text

    def test_lone_surrogates_cannot_break_the_wire(self, stage: MakeStage) -> None:
        """Half an emoji at the end of a token, as byte-level tokenizers say it."""
        agent = Diary()
        agent.answers = lambda query, turn: iter(["a\ud83c", "\udfacb"])
        scene = stage(agent)
        scene.begin()
        scene.ask(1, 0)
        heard = scene.hear_until(wire.TurnEnded)
        assert heard[1:3] == [wire.Text(turn=1, text="a?"), wire.Text(turn=1, text="?b")]

    def test_silence_has_no_first_text(self, stage: MakeStage) -> None:
        agent = Diary()
        agent.answers = lambda query, turn: iter(())
        scene = stage(agent)
        scene.begin()
        scene.ask(1, 0)
        heard = scene.hear_until(wire.TurnEnded)
        assert len(heard) == 2 and ended(heard[1]).first_text_ns is None

    def test_marks_that_are_no_durations_are_left_out(self, stage: MakeStage) -> None:
        agent = Diary()

        def speak(query: Query, turn: Turn) -> Iterator[str]:
            turn.mark("prefill")
            turn.marks.update({"float": 1.5, "negative": -1, "huge": 1 << 63, "flag": True})  # type: ignore[dict-item]
            turn.marks["\ud800" + "x" * 1000] = 5
            yield "A"

        agent.answers = speak
        scene = stage(agent)
        scene.begin()
        scene.ask(1, 0)
        marks = dict(ended(scene.hear_until(wire.TurnEnded)[-1]).marks)
        assert marks.pop("prefill") >= 0
        assert marks == {"?" + "x" * 99: 5}

    def test_figures_of_any_size_fit_the_wire(self, stage: MakeStage) -> None:
        class Chatty(Diary):
            def stats(self) -> dict[str, float]:
                return {f"{n}" + "漢" * 1000: float(n) for n in range(1000)}

            def describe(self) -> dict[str, str]:
                return {f"{n}" + "漢" * 1000: "版" * 1000 for n in range(1000)}

        scene = stage(Chatty())
        assert scene.loaded is not None and scene.loaded[3] is None
        hello = wire.Hello(versions=(1,), agent="x", libraries=scene.loaded[2])
        assert len(encode(hello)) <= wire.MAX_AGENT_MESSAGE_BYTES
        scene.begin()
        scene.ask(1, 0)
        stats = scene.hear_until(wire.Stats)[-1]
        assert isinstance(stats, wire.Stats) and len(stats.values) == MAX_FIGURES

    def test_figures_come_before_the_end_of_their_turn(self, stage: MakeStage) -> None:
        """Behind it, lockstep may have gone on: where they stand in the journal would be chance."""

        class Counting(Diary):
            def stats(self) -> dict[str, float]:
                return {"memory_bytes": 7.0}

        scene = stage(Counting())
        scene.begin()
        scene.ask(1, 0)
        heard = scene.hear_until(wire.TurnEnded)
        assert heard[-2] == wire.Stats(values={"memory_bytes": 7.0})

    @pytest.mark.parametrize(
        ("figures", "said"),
        [
            (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
            (lambda: sys.exit(3), "SystemExit: 3"),
            (lambda: {"a": 1, "b": None}, "TypeError: stats: expected a number under 'b', got NoneType"),
            (lambda: {"a": "many"}, "TypeError: stats: expected a number under 'a', got str"),
            (lambda: {"a": 10**400}, "TypeError: stats: expected a number under 'a', got int"),
            (lambda: [1, 2], "TypeError: stats must return a dict of numbers, got list"),
            (lambda: None, "TypeError: stats must return a dict of numbers, got NoneType"),
        ],
    )
    def test_figures_that_fail_are_told_and_cost_nothing(
        self, stage: MakeStage, figures: Callable[[], Any], said: str
    ) -> None:
        class Broken(Diary):
            def stats(self) -> dict[str, float]:
                return figures()  # type: ignore[no-any-return]

        scene = stage(Broken())
        scene.begin()
        scene.ask(1, 0)
        *_, failed, ended = scene.hear_until(wire.TurnEnded)
        assert isinstance(failed, wire.Failed) and failed.phase == "stats"
        assert failed.error.startswith("Traceback") and failed.error.splitlines()[-1] == said
        assert isinstance(ended, wire.TurnEnded) and (ended.reason, ended.error) == ("finished", None)
        scene.ask(2, 0)
        assert isinstance(scene.hear_until(wire.TurnEnded)[-1], wire.TurnEnded)


class TestPressure:
    def test_a_full_outbox_never_stops_the_loop(self, stage: MakeStage) -> None:
        """The agent floods and waits; the loop still takes frames, closes the turn and goes on."""
        agent, flooding = Diary(), threading.Event()

        def flood(query: Query, turn: Turn) -> Iterator[str]:
            n = 0
            while True:
                n += 1
                if n == 8:
                    flooding.set()
                yield "spam"

        agent.answers = flood
        scene = stage(agent, capacity=10)
        scene.begin()
        scene.ask(1, 0)
        assert flooding.wait(PATIENCE_S)
        for k in range(1, 300):
            scene.show(k)
            scene.outbox.put_now(wire.Ack())
        scene.worker.close_turn(1, "too_long")
        scene.worker.close_chain("q1")
        heard = scene.hear_until(wire.TurnEnded)
        end = ended(heard[-1])
        assert end.reason == "closed" and end.dropped_chars >= 4 * 8
        assert sum(isinstance(message, wire.Ack) for message in heard) == 299
        settled = [scene.hear() for _ in range(299)]
        assert [message.k for message in settled if isinstance(message, wire.Settled)] == list(range(1, 300))
        assert agent.calls[2] == "F1 picture 1" and agent.calls[-1] == "F299 picture 299"


class TestWorking:
    def test_overlapping_background_work_is_told_once(self, stage: MakeStage) -> None:
        agent = Diary()
        scene = stage(agent)
        scene.begin()
        assert agent.session is not None
        inner, release = threading.Event(), threading.Event()
        session = agent.session

        def work() -> None:
            with session.working():
                inner.set()
                release.wait(PATIENCE_S)

        thread = threading.Thread(target=work)
        with session.working():
            assert scene.hear() == wire.Working(active=True)
            thread.start()
            assert inner.wait(PATIENCE_S)
        assert scene.outbox.take() is None, "the thread still works"
        release.set()
        thread.join(PATIENCE_S)
        assert scene.hear() == wire.Working(active=False)
        with session.working():
            pass
        assert [scene.hear(), scene.hear()] == [wire.Working(active=True), wire.Working(active=False)]

    def test_media_time_by_the_newest_tick(self, stage: MakeStage) -> None:
        agent = Diary()
        scene = stage(agent)
        scene.begin()
        assert agent.session is not None and agent.session.media_now_ns is None
        scene.worker.tick(wire.Tick(media_ns=5 * 10**9, rate=0.0, reason="hold"))
        assert agent.session.media_now_ns == 5 * 10**9


class TestSaving:
    class Keeper(Diary):
        files: dict[str, bytes]

        def save(self, folder: Path) -> None:
            for name, data in self.files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(data)

    def keeper(self, **files: bytes) -> Keeper:
        agent = self.Keeper()
        agent.files = files
        return agent

    def test_bye_carries_the_digest_of_what_lies_there(self, stage: MakeStage, tmp_path: Path) -> None:
        agent = self.keeper(memory=b"12345", empty=b"")
        agent.files["deep/er"] = b"678"
        scene = stage(agent, memory_folder=tmp_path / "memory")
        scene.begin()
        scene.worker.end()
        bye = scene.hear()
        # names in order of their bytes, each with its length and that of its content
        expected = hashlib.sha256(b"7:deep/er3:678" + b"5:empty0:" + b"6:memory5:12345").hexdigest()
        assert bye == wire.Bye(saved=expected, saved_bytes=8)
        assert folder_digest(tmp_path / "memory" / "s1") == (expected, 8)
        assert [path.name for path in (tmp_path / "memory").iterdir()] == ["s1"]

    def test_an_agent_without_memory_leaves_no_folder(self, stage: MakeStage, tmp_path: Path) -> None:
        scene = stage(Diary(), memory_folder=tmp_path / "memory")
        scene.begin()
        scene.worker.end()
        assert scene.hear() == wire.Bye()
        assert not (tmp_path / "memory").exists()

    def test_a_second_save_replaces_the_first(self, tmp_path: Path) -> None:
        save_memory(self.keeper(a=b"old", b=b"old"), tmp_path / "s1")
        digest, _ = save_memory(self.keeper(a=b"new"), tmp_path / "s1")
        assert [path.read_bytes() for path in (tmp_path / "s1").iterdir()] == [b"new"]
        assert digest == folder_digest(tmp_path / "s1")[0]
        assert [path.name for path in tmp_path.iterdir()] == ["s1"]

    def test_a_failed_save_leaves_the_one_before(self, tmp_path: Path) -> None:
        save_memory(self.keeper(a=b"old"), tmp_path / "s1")

        class Failing(Diary):
            def save(self, folder: Path) -> None:
                (folder / "a").write_bytes(b"ha")
                raise OSError("disk full")

        with pytest.raises(OSError, match="disk full"):
            save_memory(Failing(), tmp_path / "s1")
        assert (tmp_path / "s1" / "a").read_bytes() == b"old"
        assert [path.name for path in tmp_path.iterdir()] == ["s1"]

    def test_a_rename_that_fails_gives_the_one_before_back(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        save_memory(self.keeper(a=b"old"), tmp_path / "s1")
        real = Path.rename

        def rename(path: Path, target: Path) -> Path:
            if path.name.endswith(".writing"):
                raise OSError("no room for a name")
            return real(path, target)

        monkeypatch.setattr(Path, "rename", rename)
        with pytest.raises(OSError, match="no room for a name"):
            save_memory(self.keeper(a=b"new"), tmp_path / "s1")
        assert (tmp_path / "s1" / "a").read_bytes() == b"old"
        assert [path.name for path in tmp_path.iterdir()] == ["s1"]

    def test_what_a_kill_left_behind_is_cleared_away(self, tmp_path: Path) -> None:
        (tmp_path / ".s1.writing").mkdir()
        (tmp_path / ".s1.writing" / "stale").write_bytes(b"stale")
        save_memory(self.keeper(a=b"new"), tmp_path / "s1")
        assert [path.name for path in tmp_path.rglob("*")] == ["s1", "a"]

    def test_nothing_can_be_read_under_its_name_before_it_is_whole(self, tmp_path: Path) -> None:
        seen: list[bool] = []

        class Watching(Diary):
            def save(self, folder: Path) -> None:
                (folder / "a").write_bytes(b"a")
                seen.append((tmp_path / "s1").exists())

        save_memory(Watching(), tmp_path / "s1")
        assert seen == [False] and (tmp_path / "s1" / "a").exists()

    def test_the_digest_sees_names_contents_and_their_borders(self, tmp_path: Path) -> None:
        digests = set()
        for n, files in enumerate(({"ab": b"c"}, {"a": b"bc"}, {"ab": b"c", "d": b""}, {"abc": b""}, {})):
            folder = tmp_path / str(n)
            folder.mkdir()
            for name, data in files.items():
                (folder / name).write_bytes(data)
            digests.add(folder_digest(folder)[0])
        assert len(digests) == 5

    def test_any_file_name_has_a_digest(self, tmp_path: Path) -> None:
        (tmp_path / os.fsdecode(b"caf\xe9")).write_bytes(b"x")
        expected = hashlib.sha256(b"4:caf\xe91:x").hexdigest()
        assert folder_digest(tmp_path) == (expected, 1)

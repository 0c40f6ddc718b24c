"""The kit itself: it passes what keeps the contract, and names the rule that a broken agent breaks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamsim_agents.agent import Agent, Frame, Query, SessionInfo, Turn
from streamsim_agents.testing import SIZE, CheckFailure, check_agent, draw_frame


class Counter(Agent):
    """Counts frames, says so in two pieces, and keeps the number."""

    def __init__(self) -> None:
        self.count = 0

    def begin(self, session: SessionInfo) -> None:
        self.count = 0

    def observe(self, frame: Frame) -> None:
        self.count += 1

    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        yield f"{query.probe} "
        yield str(self.count)

    def save(self, folder: Path) -> None:
        (folder / "count").write_text(str(self.count))

    def load(self, folder: Path) -> None:
        self.count = int((folder / "count").read_text())

    def stats(self) -> dict[str, float]:
        return {"memory_items": self.count}


def test_an_agent_that_keeps_the_contract_passes() -> None:
    for given in (Counter, Counter()):
        report = check_agent(given)
        assert report.skipped == ()
        assert "save and load" in report.checked
        assert "answers leave no trace" in report.checked


def test_the_report_reads_as_lines() -> None:
    lines = str(check_agent(Counter, deterministic=False)).splitlines()
    assert lines[0] == "the agent keeps the contract"
    assert "checked: save and load" in lines
    assert "skipped: begin forgets: texts are not compared" in lines
    assert all(line.startswith(("checked: ", "skipped: ")) for line in lines[1:])


def test_a_class_that_takes_arguments_needs_a_function() -> None:
    class Mine(Counter):
        def __init__(self, model: str, *, size: int, word: str = "x", **others: int) -> None:
            super().__init__()
            self.model = model

    with pytest.raises(CheckFailure) as caught:
        check_agent(Mine)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "Mine needs model, size: give a function that makes it, check_agent(lambda: Mine(model=…, size=…))"
    )
    assert "save and load" in check_agent(lambda: Mine(model="x", size=3)).checked


def test_methods_run_on_one_thread_that_is_not_the_callers() -> None:
    threads: set[int] = set()

    class Watcher(Counter):
        def begin(self, session: SessionInfo) -> None:
            threads.add(threading.get_ident())
            super().begin(session)

        def observe(self, frame: Frame) -> None:
            threads.add(threading.get_ident())
            super().observe(frame)

        def answer(self, query: Query, turn: Turn) -> Iterator[str]:
            threads.add(threading.get_ident())
            yield from super().answer(query, turn)

    check_agent(Watcher)
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_frames_are_real_pictures_that_differ() -> None:
    first, second = draw_frame(0), draw_frame(1)
    assert first.rgb.shape == (SIZE[1], SIZE[0], 3)
    assert (first.rgb != second.rgb).any()
    assert (draw_frame(0).rgb == first.rgb).all()
    left = first.rgb[18, 8].astype(int)
    assert left[0] > 150 > left[1]


class NoObserve(Agent):
    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        yield "A"


class Raises(Counter):
    def observe(self, frame: Frame) -> None:
        raise ValueError("no picture")


class ReturnsText(Counter):
    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        return "A"  # type: ignore[return-value]


class ReturnsNothing(Counter):
    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        return None  # type: ignore[return-value]


class YieldsBytes(Counter):
    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        yield b"A"  # type: ignore[misc]


class CountsAnswers(Counter):
    asked = 0

    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        self.asked += 1
        yield str(self.asked)


class RemembersProbes(Counter):
    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        self.notes = [*getattr(self, "notes", []), query.id]
        yield "A"

    def save(self, folder: Path) -> None:
        (folder / "notes").write_text(",".join(getattr(self, "notes", [])))


class NeverForgets(Counter):
    def begin(self, session: SessionInfo) -> None:
        pass


class LoadsNothing(Counter):
    def load(self, folder: Path) -> None:
        pass


class LoadsHalf(Counter):
    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        yield "A"

    def load(self, folder: Path) -> None:
        self.count = 1


class TellsWords(Counter):
    def stats(self) -> dict[str, float]:
        return {"mood": "good"}  # type: ignore[dict-item]


class TellsNan(Counter):
    def stats(self) -> dict[str, float]:
        return {"mood": float("nan")}


class SometimesSkips(Counter):
    frames = "sometimes"  # type: ignore[assignment]


class DropsBadly(Counter):
    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        try:
            yield "A"
            yield "B"
        except GeneratorExit:
            raise KeyError("cleaning up") from None


class LeavesTraceOfCancel(Counter):
    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        yield str(self.count)
        if turn.cancelled:
            self.count += 100
        yield "."


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        (NoObserve, "observe of frame 0 is not written: an agent needs observe and answer"),
        (Raises, "observe of frame 0 raised ValueError: no picture"),
        (ReturnsText, "answer returned the text 'A': yield it instead of returning it"),
        (ReturnsNothing, "answer returned None: expected an iterator of texts"),
        (YieldsBytes, "answer yielded b'A': expected str, got bytes"),
        (CountsAnswers, "answer left a trace: the open query q2-open gave '8' first, and '9' asked again"),
        (RemembersProbes, "answer left a trace: save wrote other bytes after probes than before them"),
        (NeverForgets, "begin did not forget: the task probe of q1 gave 'task 0' first, and 'task 12'"),
        (
            LoadsNothing,
            "load did not restore what save kept: the task probe of q2 gave 'task 6' first, and 'task 0'",
        ),
        (LoadsHalf, "load did not restore what save kept: saved again, it is other bytes"),
        (TellsWords, "stats: expected finite numbers by name, got 'mood': 'good'"),
        (TellsNan, "stats: expected finite numbers by name, got 'mood': nan"),
        (SometimesSkips, "frames: expected all or latest, got 'sometimes'"),
        (DropsBadly, "raised KeyError: 'cleaning up'"),
        (LeavesTraceOfCancel, "a cancelled answer left a trace: the task probe of q2 gave '6.' first"),
        (lambda: 3, "expected an agent derived from streamsim_agents.Agent, got 3"),
        (lambda: int("x"), "making the agent raised ValueError"),
    ],
)
def test_a_broken_agent_is_told_which_rule_it_breaks(agent: type[Agent], message: str) -> None:
    with pytest.raises(CheckFailure) as caught:
        check_agent(agent)
    assert message in str(caught.value)


def test_an_answer_that_does_not_heed_a_cancel_is_found() -> None:
    release = threading.Event()

    class Deaf(Counter):
        def answer(self, query: Query, turn: Turn) -> Iterator[str]:
            yield "A"
            if turn.cancelled:
                release.wait()
                yield "B"

    try:
        with pytest.raises(CheckFailure, match=r"cancelled .* had not returned after 0\.05 s"):
            check_agent(Deaf, patience_s=0.05)
    finally:
        release.set()


def test_texts_that_may_differ_are_not_compared() -> None:
    report = check_agent(CountsAnswers, deterministic=False)
    assert any("no trace" in text for text in report.skipped)
    assert any("begin forgets" in text for text in report.skipped)

"""Whatever fails in a run is explained once: by what was raised, or by what the agent did."""

from __future__ import annotations

import io
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from streamsim.chain import MAX_TURN_CHARS
from streamsim.journal.folder import write_run_file
from streamsim.journal.verify import verify_run
from streamsim.report.run_report import print_summary, report_run
from streamsim.report.run_summary import summarise_run
from streamsim.session import Session
from streamsim.simulation import SimulatedAgent, Utterance, say
from streamsim.testing import seconds, tiny_config, tiny_query, tiny_simulation
from streamsim_protocol import messages as wire
from tests.streamsim.journal.simulated_run import Lines, make_run_file, rewrite_journal, write_run

MS = 1_000_000
LONG = "A" * (MAX_TURN_CHARS // 8)


def play(folder: Path, said: dict[str, Utterance], *, failing: Sequence[int] = (), **options: Any) -> Path:
    """Three queries, ``A`` to each unless ``said`` has something else; returns the journal's path."""
    agent = SimulatedAgent(
        observe=lambda k: 10 * MS,
        answer=lambda probe: said.get(probe.query, say("A", 100 * MS)),
        failing=failing,
    )
    queries = [tiny_query(f"id-{number}", number) for number in range(3)]
    options = {"samples": 4, "chain": "task", **options}
    return write_run(folder, tiny_simulation(queries, agent, **options).run(), len(queries))


def talkative() -> Utterance:
    """A character more than a turn may have, in pieces that a message carries."""
    pieces = tuple((place * MS, LONG) for place in range(8))
    return Utterance(service_ns=100 * MS, pieces=(*pieces, (50 * MS, "!")))


def test_answers_that_are_too_long(tmp_path: Path) -> None:
    play(tmp_path / "run", {"q1": talkative(), "q3": talkative()})
    summary = summarise_run(tmp_path / "run")
    assert summary.outcomes["failed"] == 2
    assert summary.warnings == [
        "2 answers were too long (over 262144 characters) and count as failed: episode q1, episode q3"
    ]
    play(tmp_path / "one", {"q2": talkative()})
    assert summarise_run(tmp_path / "one").warnings == [
        "1 answer was too long (over 262144 characters) and counts as failed: episode q2"
    ]


def test_a_turn_that_just_fits_is_an_answer(tmp_path: Path) -> None:
    fits = Utterance(service_ns=100 * MS, pieces=tuple((place * MS, LONG) for place in range(8)))
    play(tmp_path / "run", {"q1": fits})
    summary = summarise_run(tmp_path / "run")
    assert (summary.outcomes["answered"], summary.warnings) == (3, [])


def test_failures_without_a_reason(tmp_path: Path) -> None:
    """An agent in another language may say that it failed, and no more."""

    def forget_errors(lines: Lines) -> None:
        for line in lines:
            if line["event"] in ("TurnEnded", "FrameSettled"):
                line["error"] = None

    failed = Utterance(service_ns=1, error="Traceback: this goes")
    journal = play(tmp_path / "run", {"q2": failed}, failing=(0, 3))
    assert len(summarise_run(tmp_path / "run").warnings) == 2
    rewrite_journal(journal, forget_errors)
    assert verify_run(tmp_path / "run").offence is None
    assert summarise_run(tmp_path / "run").warnings == [
        "the agent gave up 1 answer without a reason: episode q2",
        "the agent failed on 2 frames without a reason: episode frame 0, episode frame 3",
    ]


def test_many_are_counted_and_some_named(tmp_path: Path) -> None:
    def forget_errors(lines: Lines) -> None:
        for line in lines:
            line.update({"error": None} if line["event"] == "FrameSettled" else {})

    rewrite_journal(play(tmp_path / "run", {}, samples=12, failing=range(12)), forget_errors)
    (warning,) = summarise_run(tmp_path / "run").warnings
    assert warning.startswith("the agent failed on 12 frames without a reason: episode frame 0, ")
    assert warning.endswith("episode frame 7, and 4 more")


def test_what_was_raised_is_counted_by_its_kind(tmp_path: Path) -> None:
    """By method, type, message and place; the traceback's other lines do not matter."""
    stack = 'Traceback (most recent call last):\n  File "/a/m.py", line 4, in f\n    x\n'
    trace = f"{stack}RuntimeError: CUDA\nhint\n"
    other = trace.replace("hint", "another hint")
    elsewhere = trace.replace("line 4", "line 5")
    said = {
        name: Utterance(service_ns=MS, error=error)
        for name, error in zip(("q1", "q2", "q3"), (trace, other, elsewhere), strict=True)
    }
    play(tmp_path / "run", said)
    place = "traceback in sessions/episode.1.1.jsonl"
    assert summarise_run(tmp_path / "run").warnings == [
        f"the agent raised in answer, 2 times: RuntimeError: CUDA (m.py:4); {place}",
        f"the agent raised in answer, 1 time: RuntimeError: CUDA (m.py:5); {place}",
    ]


@pytest.mark.parametrize(
    ("phase", "method"), [("load", "__init__"), ("begin", "begin"), ("stats", "stats"), ("save", "save")]
)
def test_a_method_is_called_as_its_author_calls_it(tmp_path: Path, phase: wire.Phase, method: str) -> None:
    def fail(lines: Lines) -> None:
        at = next(number for number, line in enumerate(lines) if line["event"] == "ClockTaken")
        clocks = {"at_media_ns": 0, "at_wall_ns": 0, "digest": ""}
        lines[at:at] = [{**clocks, "event": "AgentFailed", "phase": phase, "error": "OSError: gone\n"}] * 2

    journal = play(tmp_path / "run", {})
    rewrite_journal(journal, fail)
    (warning,) = summarise_run(tmp_path / "run").warnings
    assert warning.startswith(f"the agent raised in {method}, 2 times: OSError: gone; traceback in ")


class TestNothingShown:
    """A hint sends a reader only to where something stands."""

    def hints(self, run: Path) -> tuple[list[str], bool]:
        summary = summarise_run(run)
        assert summary.verdict.grade == "INVALID" and len(summary.verdict.hints) == 1
        told = any("the session ended as" in warning for warning in summary.warnings)
        return list(summary.verdict.hints), told

    def test_nobody_joined(self, tmp_path: Path) -> None:
        write_run_file(tmp_path / "run", make_run_file(tiny_config(), 3))
        assert self.hints(tmp_path / "run") == (["continue with --resume"], False)
        assert (
            "no session was played: there is nothing to judge"
            in summarise_run(tmp_path / "run").verdict.reasons
        )

    def test_a_session_that_ended_before_its_first_frame(self, tmp_path: Path) -> None:
        agent = SimulatedAgent(observe=lambda k: 0, answer=lambda probe: say("A", 0))
        simulation = tiny_simulation([], agent, samples=2, decoded_ns=lambda k: seconds(9), audited=False)

        def leave(session: Session, now: Any) -> None:
            session.disconnect(now, "gone")

        simulation.schedule(seconds(1), leave)
        write_run(tmp_path / "run", simulation.run(), 0)
        hints, told = self.hints(tmp_path / "run")
        assert hints == ["see the warnings for why, then continue with --resume"] and told

    def test_videos_without_a_picture(self, tmp_path: Path) -> None:
        agent = SimulatedAgent(observe=lambda k: 0, answer=lambda probe: say("A", 0))
        simulation = tiny_simulation([], agent, samples=2, without_picture=(0, 1)).run()
        write_run(tmp_path / "run", simulation, 0)
        assert self.hints(tmp_path / "run") == (["look at the videos with `streamsim frames`"], False)


class TestToldOnce:
    """What the verdict says is not said again."""

    def report(self, run: Path, capsys: pytest.CaptureFixture[str]) -> str:
        report_run(run, as_json=False)
        return capsys.readouterr().out

    def test_a_run_that_was_interrupted(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        agent = SimulatedAgent(observe=lambda k: MS, answer=lambda probe: say("A", MS))
        simulation = tiny_simulation([tiny_query("q", 3)], agent, samples=4, audited=False)

        def stop(session: Session, now: Any) -> None:
            session.interrupt(now)

        simulation.schedule(seconds(1.5), stop)
        write_run(tmp_path / "run", simulation.run(), 1)
        out = self.report(tmp_path / "run", capsys)
        assert out.count("interrupted") == 1 and out.count("--resume") == 1
        assert "  1 of 1 session not played to the end: episode (interrupted)\n" in out
        assert "warning" not in out
        assert summarise_run(tmp_path / "run").verdict.hints == ("continue with --resume",)

    def test_answers_that_ran_into_the_guard(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        play(tmp_path / "run", {"q1": say("A", seconds(9))}, clock="lockstep", answer_timeout_ns=seconds(1))
        out = self.report(tmp_path / "run", capsys)
        assert out.count("guard") == 2  # the reason and its hint
        assert "  1 answer ran into lockstep's wall-time guard\n" in out

    def test_the_agents_own_end_is_told(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        agent = SimulatedAgent(
            observe=lambda k: MS, answer=lambda probe: Utterance(service_ns=None), idle_after_cancel_ns=None
        )
        limits: dict[str, Any] = {"answer_timeout_ns": seconds(2), "hang_timeout_ns": seconds(1.5)}
        simulation = tiny_simulation([tiny_query("q", 1)], agent, samples=9, **limits).run()
        write_run(tmp_path / "run", simulation, 1)
        assert (
            "warning: episode: the session ended as hung (the agent went on for 1.5 s after its turn was "
            "closed (--hang-timeout))\n"
        ) in self.report(tmp_path / "run", capsys)


@pytest.mark.parametrize("complete", [True, False])
def test_commands_of_a_report_can_be_pasted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], complete: bool
) -> None:
    run = tmp_path / "x" / "ö ü [b]'s"
    journal = play(run, {})
    if not complete:
        journal.unlink()
    report_run(run, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    (digest,) = (line for line in lines if line.startswith("digest: "))
    (following,) = (line for line in lines if line.startswith("next: "))
    command = digest.partition("(keep it: ")[2].removesuffix(")")
    assert shlex.split(command) == ["streamsim", "verify", str(run), "--digest", "…"]
    words = shlex.split(following.removeprefix("next: ").partition("   (")[0])
    assert words == (
        ["streamsim", "verify", str(run)]
        if complete
        else ["streamsim", "serve", "--resume", "--out", str(run)]  # no agent was started
    )


def test_what_an_agent_says_cannot_repaint_the_screen(tmp_path: Path) -> None:
    error = (
        'Traceback (most recent call last):\n  File "m.py", line 4, in f\nOSError: \x1b[2J[red]gone\u202e\n'
    )
    play(tmp_path / "run", {"q1": Utterance(service_ns=MS, error=error)})
    output = io.StringIO()
    print_summary(summarise_run(tmp_path / "run"), Console(file=output, width=200))
    assert r"1 time: OSError: \x1b[2J[red]gone\u202e (m.py:4);" in output.getvalue()

"""``streamsim verify``: what is proved is said as it is, and so is what it is not a proof of."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamsim.cli import main
from streamsim.events import Instant
from streamsim.journal.folder import read_run_file, write_run_file
from streamsim.journal.verify import verify_run
from streamsim.session import Session
from streamsim.simulation import Simulation, say
from streamsim.testing import SimulatedAgent, seconds, tiny_query, tiny_simulation
from tests.streamsim.journal.simulated_run import Lines, make_run_file, rewrite_journal, write_journal


def simulate(*, interrupted: bool = False, **options: Any) -> Simulation:
    """Three frames and a query at 1 s, in lockstep; or what there is of it when it is stopped at 0.5 s."""
    agent = SimulatedAgent(observe=lambda k: seconds(0.1), answer=lambda probe: say("A", seconds(0.2)))
    options = {"clock": "lockstep", "chain": "task", **options}
    simulation = tiny_simulation([tiny_query("q", 1.0)], agent, samples=3, audited=False, **options)

    def stop(session: Session, now: Instant) -> None:
        session.interrupt(now)

    if interrupted:
        simulation.schedule(seconds(0.05), stop)
    return simulation.run()


def make_run(folder: Path, *simulations: Simulation, episodes: tuple[str, ...] = ("episode",)) -> Path:
    run_file = make_run_file(simulations[0].session.config, 1)
    config = msgspec.structs.replace(run_file.config, episodes=episodes)
    queries = dict.fromkeys(episodes, 1)
    write_run_file(folder, msgspec.structs.replace(run_file, config=config, queries=queries))
    for simulation in simulations:
        write_journal(folder, simulation)
    return folder


def verify(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    code = main(["verify", *map(str, arguments)])
    printed = capsys.readouterr()
    return code, printed.out or printed.err


def test_a_session_that_was_broken_off_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(
        tmp_path / "run", simulate(), simulate(interrupted=True, episode="b"), episodes=("episode", "b")
    )
    code, out = verify(capsys, run)
    first, second, last = out.splitlines()
    assert code == 0  # nothing in it is bad
    assert first.startswith("verified, but the run is not complete: 2 journals, ")
    assert second == "  not complete: b (interrupted)"
    assert last == f"digest: {verify_run(run).digest}"
    report = json.loads(verify(capsys, run, "--json")[1])
    assert (report["verified"], report["complete"]) == (True, False)
    assert report["incomplete"] == [{"file": "b.1.1.jsonl", "episode": "b", "ended": "interrupted"}]


def test_it_is_listed_beside_what_was_never_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", simulate(interrupted=True), episodes=("episode", "b"))
    code, out = verify(capsys, run)
    assert code == 1
    assert out.splitlines()[0].startswith("prefix verified: 1 journal, ")
    assert out.splitlines()[1:3] == ["  no journal: b (repeat 1)", "  not complete: episode (interrupted)"]


def test_a_whole_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", simulate())
    code, out = verify(capsys, run)
    assert code == 0 and out.startswith("verified: 1 journal, ") and len(out.splitlines()) == 2
    report = json.loads(verify(capsys, run, "--json")[1])
    assert (report["complete"], report["incomplete"]) == (True, [])


def test_attempts_that_do_not_count_are_not_among_the_journals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = make_run(tmp_path / "alone", simulate(attempt=2))
    both = make_run(tmp_path / "both", simulate(interrupted=True), simulate(attempt=2))
    only, digest = verify(capsys, alone)[1].splitlines()
    code, out = verify(capsys, both)
    assert code == 0
    assert out.splitlines() == [
        only,
        "beside them: 1 other attempt, verified too, not in the digest",
        digest,
    ]


class TestDigest:
    """The run's digest, as it was printed, or enough of its beginning."""

    @pytest.fixture
    def run(self, tmp_path: Path) -> Path:
        return make_run(tmp_path / "run", simulate())

    @pytest.mark.parametrize("digits", [16, 40, 64])
    def test_a_beginning_will_do(self, run: Path, digits: int, capsys: pytest.CaptureFixture[str]) -> None:
        digest = verify_run(run).digest
        code, out = verify(capsys, run, "--digest", digest[:digits].upper())
        assert code == 0 and out.endswith(f"digest: {digest}   (as --digest says)\n")

    def test_another_is_told_by_what_it_is_over(self, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
        digest = verify_run(run).digest
        code, out = verify(capsys, run, "--digest", "0" * 64)
        assert code == 1
        assert out == (
            f"not verified: digest over run.json and 1 journal: found {digest}; expected {'0' * 64}\n"
        )
        assert json.loads(verify(capsys, run, "--digest", "0" * 64, "--json")[1])["offence"]["line"] is None

    @pytest.mark.parametrize("text", ["", "5f0c", "0" * 15, "0" * 65, "5f0c5f0c5f0c5f0c…", "g" * 64])
    def test_what_is_none(self, run: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
        code, err = verify(capsys, run, "--digest", text)
        assert code == 2 and err.endswith(f"or the first 16 or more of them, got {text!r}\n")


class TestSame:
    """Two lockstep runs tell the same story, or where they part."""

    @pytest.fixture
    def run(self, tmp_path: Path) -> Path:
        return make_run(tmp_path / "run", simulate())

    @pytest.fixture
    def other(self, run: Path, tmp_path: Path) -> Path:
        return Path(shutil.copytree(run, tmp_path / "other"))

    def test_on_another_clock_nothing_can_be_the_same(
        self, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        timed = make_run(tmp_path / "timed", simulate(clock="realtime"))
        assert read_run_file(timed).config.clock == "realtime"
        for pair in ((run, timed), (timed, run)):
            code, err = verify(capsys, pair[0], "--same", pair[1])
            assert code == 2
            assert f"run {str(timed)!r} is a realtime run: --same compares lockstep runs" in err

    @pytest.mark.parametrize(
        ("event", "change", "found"),
        [
            (
                "SessionStarted",
                {"answer_timeout_ns": 1},
                "SessionStarted with answer_timeout_ns 30000000000; expected answer_timeout_ns 1 "
                "(line 1 there)",
            ),
            (
                "SessionStarted",
                {"queries": "deep"},
                "SessionStarted with queries[0].due_media_ns 1000000000; expected "
                "queries[0].due_media_ns 7 (line 1 there)",
            ),
            ("FrameSent", {"at_media_ns": 9}, "FrameSent with at_media_ns 0; expected at_media_ns 9 (line "),
            (
                "TextReceived",
                {"text": "x" * 1_000},
                f'TextReceived with text "A"; expected text "{"x" * 79}… (line ',
            ),
        ],
        ids=["field", "nested", "instant", "long"],
    )
    def test_the_first_field_that_differs_is_named(
        self,
        run: Path,
        other: Path,
        event: str,
        change: dict[str, Any],
        found: str,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        def edit(lines: Lines) -> None:
            line = next(line for line in lines if line["event"] == event)
            if change == {"queries": "deep"}:
                line["queries"][0]["due_media_ns"] = 7
            else:
                line.update(change)

        rewrite_journal(other / "sessions" / "episode.1.1.jsonl", edit)
        code, out = verify(capsys, run, "--same", other)
        assert code == 1 and f": found {found}" in out

    def test_what_happened_in_another_order(
        self, run: Path, other: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def drop(lines: Lines) -> None:
            del lines[next(number for number, line in enumerate(lines) if line["event"] == "FrameSettled")]

        rewrite_journal(other / "sessions" / "episode.1.1.jsonl", drop)
        code, out = verify(capsys, run, "--same", other)
        assert code == 1 and len(out) < 200
        assert (
            ": found FrameSettled at media time 0 ns; expected ClockTaken at media time 1000000000 ns" in out
        )

    def test_what_ends_sooner(self, run: Path, other: Path, capsys: pytest.CaptureFixture[str]) -> None:
        def cut(lines: Lines) -> None:
            del lines[-1]

        rewrite_journal(other / "sessions" / "episode.1.1.jsonl", cut)
        code, out = verify(capsys, run, "--same", other)
        assert code == 1 and ": found SessionEnded at media time " in out
        assert out.endswith(" ns; expected no more lines\n")

    def test_where_long_texts_part_is_shown(
        self, run: Path, other: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def hint(lines: Lines) -> None:
            next(line for line in lines if line["event"] == "ProbeSent")["text"] += " (it is A)"

        rewrite_journal(other / "sessions" / "episode.1.1.jsonl", hint)
        out = verify(capsys, run, "--same", other)[1]
        assert 'ProbeSent with text "' in out or "ProbeSent with text …" in out
        assert "(it is A)" in out and len(out) < 400

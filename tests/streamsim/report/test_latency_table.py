"""Time for people, from runs whose durations are known."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from streamsim.episodes.episode import Chain
from streamsim.events import HarnessReported, Instant, ProbeSent
from streamsim.report.latency_table import print_latency, print_time
from streamsim.report.run_summary import summarise_run
from streamsim.scoring.latency import latency_figures
from streamsim.scoring.record import SessionRecord, read_record
from streamsim.simulation import SimulatedAgent, Simulation, Utterance, say
from streamsim.testing import seconds, tiny_query, tiny_simulation
from streamsim_protocol import messages as wire
from tests.streamsim.journal.simulated_run import Lines, rewrite_journal, write_run

MS = 1_000_000
JOURNAL = Path("sessions", "episode.1.1.jsonl")


def simulate(queries: int = 12, *, uncertain: int = 0, answer_ms: int = 200, **options: Any) -> Simulation:
    """A session of queries, one a second from 0.5 s, a frame each second before them.

    With ``chain="full"`` the first so many statuses are uncertain.
    """

    def answer(probe: wire.ProbeMessage) -> Utterance:
        doubted = probe.probe == "status" and probe.order < uncertain
        return say("C" if doubted else "A", answer_ms * MS)

    agent = SimulatedAgent(observe=lambda k: 10 * MS, answer=answer)
    asked = [tiny_query(f"q{number}", number + 0.5) for number in range(queries)]
    options = {"samples": queries + 1, "chain": "task", **options}
    return tiny_simulation(asked, agent, to_agent_ns=MS, to_server_ns=2 * MS, **options).run()


def show(
    folder: Path,
    *,
    queries: int = 12,
    deadlines_s: tuple[float, ...] = (1.0,),
    width: int = 100,
    **options: Any,
) -> str:
    """What is printed for a run of such a session."""
    write_run(folder / "run", simulate(queries, **options), queries)
    return show_time(folder / "run", deadlines_s, width)


def show_time(run: Path, deadlines_s: tuple[float, ...] = (1.0,), width: int = 100) -> str:
    """What is printed about a run folder's time."""
    output = io.StringIO()
    print_time(summarise_run(run, deadlines_s=deadlines_s), Console(file=output, width=width))
    return output.getvalue()


def lines_of(text: str, begin: str) -> list[str]:
    """The lines that begin so, without that."""
    return [line.removeprefix(begin) for line in text.splitlines() if line.startswith(begin)]


def row(text: str, *begin: str) -> list[str]:
    """The cells behind ``begin``."""
    cells = next(line.split() for line in text.splitlines() if tuple(line.split()[: len(begin)]) == begin)
    return cells[len(begin) :]


def test_harness_first_then_due_then_parts(tmp_path: Path) -> None:
    text = show(tmp_path)
    lines = text.splitlines()
    assert lines[0] == "verdict: VALID"
    assert lines[1].startswith(
        "harness: 25 releases, 0 late; lateness p50 0.0 ms, max 0.0 ms; way to the agent"
    )
    assert "p50 3.0 ms, max 3.0 ms" in lines[1]
    assert lines[2] == "harness: its share of an answer's time: 1.5% (median)"  # 3 of 203 ms
    assert lines[4].startswith("agent: real-time factor 0.195")  # 13 × 0.01 + 12 × 0.2 of 13 s
    assert row(text, "task", "due", "→", "final") == ["12", "0", "0.203", "0.203"]
    assert "first = final; sent = due (to the digit shown)" in lines
    n, dispatch, transport, waited, service, stale, backlog, missed = lines[-2].split()[1:]
    assert (n, dispatch, transport, waited, service) == ("12", "0.000", "0.003", "0.000", "0.200")
    assert (stale, backlog, missed) == ("0.703", "0", "0")
    assert lines[-1] == "n too small for p90, p95, p99 (need 64, 130, 662)"


def rows_of(*records: SessionRecord | None) -> tuple[list[str], str]:
    """The intervals in the table of such sessions, ``PROBE FROM TO`` each, and what it says of others."""
    output = io.StringIO()
    print_latency(
        latency_figures([record for record in records if record is not None]),
        Console(file=output, width=100),
    )
    rows = [line.split() for line in output.getvalue().splitlines() if " → " in line]
    (same,) = [line for line in output.getvalue().splitlines() if "to the digit shown" in line] or [""]
    return [f"{row[0]} {row[1]} {row[3]}" for row in rows if row[0] in ("task", "status", "cause")], same


def talk(*, chain: Chain, late_ms: int = 0, pieces_ms: tuple[int, ...] = (200,)) -> SessionRecord | None:
    """A session of three queries, its task probes sent so late, its answers in pieces."""

    def answer(probe: wire.ProbeMessage) -> Utterance:
        said = tuple((place * MS, "A" if n == 0 else " ") for n, place in enumerate(pieces_ms))
        return Utterance(service_ns=pieces_ms[-1] * MS, pieces=said)

    agent = SimulatedAgent(observe=lambda k: 10 * MS, answer=answer)
    asked = [tiny_query(f"q{number}", number + 0.5) for number in range(3)]
    played = tiny_simulation(asked, agent, samples=4, chain=chain, to_agent_ns=MS, audited=False).run()
    late = Instant(late_ms * MS, late_ms * MS)
    return read_record(
        (Instant(at.media_ns + late.media_ns, at.wall_ns + late.wall_ns), event)
        if isinstance(event, ProbeSent) and event.probe == "task"
        else (at, event)
        for at, event in played.events
    )


class TestRowsThatReadLikeOthers:
    """They are left out, and what is equal is said once."""

    def test_none(self) -> None:
        record = talk(chain="task", late_ms=20, pieces_ms=(50, 200))
        assert rows_of(record) == (
            ["task due first", "task due final", "task sent first", "task sent final"],
            "",
        )

    def test_an_answer_that_comes_at_once(self) -> None:
        rows, same = rows_of(talk(chain="task", late_ms=20))
        assert (rows, same) == (["task due final", "task sent final"], "first = final (to the digit shown)")

    def test_a_probe_that_is_sent_when_it_is_due(self) -> None:
        rows, same = rows_of(talk(chain="task", pieces_ms=(50, 200)))
        assert (rows, same) == (["task due first", "task due final"], "sent = due (to the digit shown)")

    def test_some_kinds_of_probe(self) -> None:
        rows, same = rows_of(talk(chain="full", late_ms=20, pieces_ms=(50, 200)))
        assert rows == [
            *("task due first", "task due final", "task sent first", "task sent final"),
            *("status due first", "status due final"),
        ]
        assert same == "sent = due for status (to the digit shown)"


def test_probes_of_one_run_only() -> None:
    """With a deadline that nothing met, no status was asked: there is nothing before, not the same."""
    recorded, rescored = (
        latency_figures([record]) for chain in ("task", "full") if (record := talk(chain=chain))
    )

    def shown(latency: dict[str, object], before: dict[str, object]) -> str:
        output = io.StringIO()
        print_latency(latency, Console(file=output, width=160), recorded=before)
        return output.getvalue()

    after = shown(rescored, recorded)
    assert row(after, "task", "due", "→", "final") == ["3", "0", "0.201", "0.201"]
    assert row(after, "status", "due", "→", "final")[:6] == ["–", "→", "3", "–", "→", "0"]
    assert row(shown(recorded, rescored), "status", "due", "→", "final")[:6] == ["3", "→", "–", "0", "→", "–"]
    assert row(shown({}, recorded), "task", "due", "→", "final")[:3] == ["3", "→", "–"]
    assert row(shown(recorded, {}), "task", "due", "→", "final")[:3] == ["–", "→", "3"]
    assert shown({}, {}).startswith("latency: no figures: no probe was asked")


def test_percentiles_that_n_does_not_carry_are_told_once(tmp_path: Path) -> None:
    text = show(tmp_path, queries=64, uncertain=3, chain="full", answer_ms=20)
    assert [line for line in text.splitlines() if "too small" in line] == [
        "n too small for p50, p90 of cause (need 11, 64), for p95, p99 (need 130, 662); "
        "a p50 is shown all the same"
    ]
    assert row(text, "status", "due", "→", "final") == ["64", "0", "0.023", "0.023", "0.023"]
    assert row(text, "cause", "due", "→", "final") == ["3", "0", "0.023", "–", "0.023"]


def test_one_percentile_of_one_kind_of_probe(tmp_path: Path) -> None:
    text = show(tmp_path, queries=12, uncertain=10, chain="full", answer_ms=20)
    assert lines_of(text, "n too small ") == [
        "for p50 of cause (needs 11), for p90, p95, p99 (need 64, 130, 662); a p50 is shown all the same"
    ]


def test_the_tables_fit_a_terminal_of_80_columns(tmp_path: Path) -> None:
    """Three digits of n, three deadlines, all percentiles up to p90."""
    text = show(
        tmp_path,
        queries=101,
        uncertain=3,
        chain="full",
        answer_ms=20,
        deadlines_s=(1.0, 2.0, 5.0),
        width=80,
        audited=False,
    )
    table = text[text.index("latency in seconds") : text.index("n too small")]
    assert len(table.splitlines()) == 1 + (1 + 3) + 1 + 1 + (1 + 3)


def test_repeats_of_all_kinds_of_probe_are_one_line() -> None:
    """The second repeat took 50 ms longer for each probe."""
    sessions = [
        simulate(2, chain="full", answer_ms=100),
        simulate(2, chain="full", answer_ms=150, repeat=2),
    ]
    records = [read_record(session.events) for session in sessions]
    output = io.StringIO()
    figures = latency_figures([record for record in records if record is not None])
    print_latency(figures, Console(file=output, width=100))
    assert lines_of(output.getvalue(), "medians of the repeats") == [
        ", due → final: task 0.103, 0.153 s (0.050 s apart); status 0.103, 0.153 s (0.050 s apart)"
    ]


def test_what_was_not_measured_is_told_once_with_its_reason(tmp_path: Path) -> None:
    """A server that was killed before the first query: nobody reported, and no probe was asked."""
    show(tmp_path)

    def cut(lines: Lines) -> None:
        first = next(number for number, line in enumerate(lines) if line["event"] == "ProbeSent")
        del lines[first:]

    rewrite_journal(tmp_path / "run" / JOURNAL, cut)
    text = show_time(tmp_path / "run")
    assert "unknown" not in text
    assert lines_of(text, "harness: ") == [
        "1 release, 0 late; lateness p50 0.0 ms, max 0.0 ms",
        "not measured: way to the agent and share of an answer's time (no probe was answered); "
        "loop lag (told at a session's end: none came to it)",
    ]
    assert text.splitlines()[-1].startswith("latency: no figures: no probe was asked")


def test_a_session_without_the_agents_farewell(tmp_path: Path) -> None:
    """Our own side of the loop lag is told, and what is missing of the other."""
    show(tmp_path)
    report = HarnessReported(watched_ns=1, server_lag_p99_ns=2 * MS, server_lag_max_ns=3 * MS)

    def add(lines: Lines) -> None:
        stamps = {name: lines[-1][name] for name in ("at_media_ns", "at_wall_ns", "digest")}
        lines.insert(-1, {"n": 0, **stamps, **msgspec.to_builtins(report)})

    rewrite_journal(tmp_path / "run" / JOURNAL, add)
    assert lines_of(show_time(tmp_path / "run"), "harness: ")[1:] == [
        "loop lag p99 2.0 ms in the server; its share of an answer's time: 1.5% (median)",
        "not measured: loop lag in the agent's runtime (the agent's farewell tells it: none did)",
    ]


def test_timeouts_are_lower_bounds(tmp_path: Path) -> None:
    text = show(tmp_path, answer_ms=1_500, answer_timeout_ns=seconds(1), deadlines_s=(0.5, 2.0))
    assert row(text, "task", "due", "→", "final") == ["12", "12", "≥1.000", "≥1.000"]
    assert "over 0.5/2 s" in text
    assert "12/12" in text


def test_latency_is_withheld_with_its_reason(tmp_path: Path) -> None:
    text = show(tmp_path, clock="lockstep")
    assert text.splitlines()[-1].startswith("latency withheld: in lockstep media time stands")


def test_reasons_and_hints_are_lines(tmp_path: Path) -> None:
    text = show(tmp_path, decoded_ns=lambda k: 0 if k < 5 else seconds(k + 0.3))
    lines = text.splitlines()
    assert lines[0] == "verdict: INVALID"
    assert any(line.startswith("  8 of 25 releases more than 50 ms late (32.0%)") for line in lines)
    assert any(line.startswith("  hint: ") for line in lines)


@pytest.mark.parametrize("clock", ["realtime", "skip"])
def test_the_summary_has_the_fixed_keys(tmp_path: Path, clock: str) -> None:
    show(tmp_path, clock=clock)
    summary = summarise_run(tmp_path / "run")
    assert summary.outcomes["answered"] == 12 and summary.early_releases == 0
    assert summary.frames == {"sent": 13, "settled": 13, "skipped": 0, "failed": 0, "late": 0}
    task = summary.latency["task"]
    assert isinstance(task, dict)
    for key in ("due_to_first", "due_to_final", "sent_to_first", "sent_to_final"):
        assert {"p50", "max"} <= set(task[key])
    assert task["n"] == 12 and task["timed_out"] == 0
    assert len(summary.digest) == 64 and list(summary.digests) == ["episode.1.1.jsonl"]

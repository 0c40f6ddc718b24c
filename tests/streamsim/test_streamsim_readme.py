"""What streamsim/README.md says of reports and journals: its tables are the code's, its examples run."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import pytest

from streamsim import events
from streamsim.journal.folder import RUN_FORMAT, RunConfig, RunFile
from streamsim.report import latency_table, score_table
from streamsim.report.run_report import report_run
from streamsim.scoring import latency, spread, statistics, storm, verdict
from streamsim.server import loop_lag
from streamsim_protocol.messages import FIRST_UNPROMPTED_TURN
from tests.end_to_end.dataset_for_tests import write_tiny
from tests.end_to_end.harness import Simulator

ROOT = Path(__file__).parents[2]
README = (ROOT / "streamsim" / "README.md").read_text(encoding="utf-8")
EVENTS = {event.__name__: event for event in get_args(events.AnyEvent)}
SPECIMEN = README.partition("```text\n")[2].partition("```")[0]
PYTHON = re.findall(r"```python\n(.*?)```", README, re.S)


def rows(heading: str) -> list[list[str]]:
    """The cells of all tables under a heading, up to the next of its level; heads are left out."""
    level = len(heading.split()[0])
    after = README.partition(f"\n{heading}\n")[2]
    section = re.split(rf"^#{{2,{level}}} ", after, maxsplit=1, flags=re.M)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    heads = {number for number, line in enumerate(lines) if line.startswith("|---")}
    kept = [line for number, line in enumerate(lines) if not {number, number + 1} & heads]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in kept]


def names(cell: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", cell)


def event_table() -> dict[str, dict[str, str]]:
    """Per event, the text beside each field, of all its rows."""
    table: dict[str, dict[str, str]] = {}
    fields: list[str] = []
    for event, field, text in rows("### The events"):
        if event:
            table[names(event)[0]] = {}
            continue
        fields = names(field) or fields
        written = table[list(table)[-1]]
        for name in fields:
            written[name] = written.get(name, "") + " " + text
    return table


def literals(annotation: Any) -> Iterator[str]:
    """The values of every Literal in a type, also inside of structs."""
    if get_origin(annotation) is Literal:
        yield from (value for value in get_args(annotation))
    elif isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        for hint in get_type_hints(annotation).values():
            yield from literals(hint)
    else:
        for part in get_args(annotation):
            yield from literals(part)


def test_every_event_with_every_field_is_in_the_table_and_no_other() -> None:
    written = {event: list(fields) for event, fields in event_table().items()}
    expected = {
        name: {field.encode_name for field in msgspec.structs.fields(event)} for name, event in EVENTS.items()
    }
    assert {event: set(fields) for event, fields in written.items()} == expected
    assert list(written) == list(EVENTS)


@pytest.mark.parametrize("name", EVENTS)
def test_what_a_field_can_be_is_said(name: str) -> None:
    hints = get_type_hints(EVENTS[name])
    for field in msgspec.structs.fields(EVENTS[name]):
        text = event_table()[name][field.encode_name]
        hint = hints[field.name]
        if re.search(r"as in `\w+Sent`", text):
            continue
        missing = set(literals(hint)) - set(names(text))
        assert not missing, (name, field.name, missing)
        if type(None) in get_args(hint):
            assert "null" in text, (name, field.name)


def test_the_plan_of_a_query_is_told_whole() -> None:
    text = event_table()["SessionStarted"]["queries"]
    assert {field.name for field in msgspec.structs.fields(events.QueryPlan)} <= set(names(text))


def test_every_code_of_a_warning_is_named() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "streamsim").rglob("*.py")]
    calls = [call for source in sources for call in re.findall(r"\b(?:self|session)\.warn\(([^)]*)", source)]
    codes = [re.match(r"\s*now, \"(\w+)\"", call) for call in calls]
    assert {code and code[1] for code in codes} == set(names(event_table()["WarningRaised"]["code"]))


def test_run_json_is_described_key_by_key() -> None:
    table = rows("## 5. `run.json` and `scores.json`")
    beginning = next(number for number, row in enumerate(table) if "README" in row[1])
    written = {name for row in table[:beginning] for name in names(row[0])}
    for kind in (RunFile, RunConfig):
        assert {field.name for field in msgspec.structs.fields(kind)} <= written
    assert f"`{RUN_FORMAT}`" in README


def test_thresholds_of_the_verdict_are_those_of_the_code() -> None:
    table = {row[0]: (row[2], row[3]) for row in rows("## 3. The verdict")}

    def ms(nanoseconds: int) -> str:
        return f"more than {nanoseconds / 1e6:g} ms"

    assert table["late releases, of all"] == (
        f"more than {verdict.LATE_DEGRADED_SHARE * 100:g} %, "
        f"or one by more than {verdict.LATE_DEGRADED_NS / 1e9:g} s",
        f"more than {verdict.LATE_INVALID_SHARE * 100:g} %",
    )
    assert table["loop lag of the server, p99, worst session"] == (
        ms(verdict.SERVER_LAG_DEGRADED_NS),
        ms(verdict.SERVER_LAG_INVALID_NS),
    )
    runtime = table["loop lag of the agent's runtime, p99, worst session"]
    assert runtime == (ms(verdict.AGENT_LAG_DEGRADED_NS), "")
    assert table["transport of answered probes, median"] == (ms(verdict.TRANSPORT_DEGRADED_NS), "")
    assert table["agent's durations beyond the server's interval around them"][1] == (
        f"any, by {ms(verdict.CLOCK_TOLERANCE_NS)} + {verdict.CLOCK_TOLERANCE_SHARE * 100:g} % of it"
    )
    assert f"a release {ms(events.LATE_NS)} after due" in README
    assert {"realtime", "skip"} == verdict.TIMED_CLOCKS
    assert "*Timed* are `realtime` and `skip`" in README


def test_numbers_of_percentiles_and_intervals_are_those_of_the_code() -> None:
    text = " ".join(README.partition("\n## 2. ")[2].partition("\n## 3. ")[0].split())
    needs = ", ".join(f"p{percent} {needed}" for percent, needed in spread.PERCENTILE_NEEDS.items())
    assert needs.replace("p50 11", "p50 needs 11 values") in text
    assert f"median of 80 is the {spread.nearest_rank(80, 50)}th" in text
    assert f"{statistics.REPLICATES} times" in text and f"(seed {statistics.SEED})" in text
    assert f"{latency.MIN_SLOPE_POINTS} probes or more" in text
    assert f"they span {latency.MIN_SLOPE_SPAN_S:g} s" in text
    assert "beats, ten a second" in README and loop_lag.BEAT_NS == 100_000_000
    assert f"begin at {FIRST_UNPROMPTED_TURN} " in README
    assert latency.DEADLINES_S == (1.0, 2.0, 5.0)
    assert "| over 1/2/5 s |" in README


def test_lines_are_no_longer_than_those_of_code() -> None:
    prose = re.sub(r"```.*?```", "", README, flags=re.S)
    assert [line for line in prose.splitlines() if len(line) > 110] == []


# ------------------------------------------------------------------------------------- a real run


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What ``run --json`` prints of a run whose folder is its ``folder``; its agent loses one answer."""
    place = tmp_path_factory.mktemp("documented")
    agent = ("fixed-delay", "--agent-arg", "answer=0.01", "--agent-arg", "stall=0.4", "--agent-arg")
    episodes = ("--episode", "tiny-2", "--episode", "tiny-3")
    done = Simulator(place).call(
        *("run", write_tiny(place / "dataset"), "--clock", "skip", "--out", "run", *episodes, "--json"),
        *("--agent", *agent, "stall_every=2", "--answer-timeout", 0.3),
    )
    assert done.code == 0, done.err
    return {**done.report, "folder": place / "run"}


def run_example(number: int, run: Path) -> list[str]:
    """What the README's Python block prints when it is given a run."""
    done = subprocess.run(
        [sys.executable, "-c", PYTHON[number], str(run)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_the_ten_lines_follow_the_chain_and_find_what_was_changed(
    played: dict[str, Any], tmp_path: Path
) -> None:
    assert len(PYTHON[0].splitlines()) <= 10
    assert dict(line.split() for line in run_example(0, played["folder"])) == played["digests"]
    (tmp_path / "sessions").mkdir()
    for name in played["digests"]:
        data = (played["folder"] / "sessions" / name).read_bytes()
        (tmp_path / "sessions" / name).write_bytes(data.replace(b'"letters":"A"', b'"letters":"B"', 1))
    done = subprocess.run(
        [sys.executable, "-c", PYTHON[0], str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "was changed" in done.stderr


@pytest.mark.slow
def test_the_digest_of_a_run_is_made_as_it_is_told(played: dict[str, Any]) -> None:
    content = json.loads((played["folder"] / "run.json").read_bytes())
    compact = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    sessions = sorted(f"{name} {digest}\n" for name, digest in played["digests"].items())
    lines = [f"run.json {hashlib.sha256(compact).hexdigest()}\n", *sessions]
    assert hashlib.sha256("".join(lines).encode()).hexdigest() == played["digest"]


@pytest.mark.slow
def test_both_examples_print_the_latencies_of_the_report(played: dict[str, Any]) -> None:
    ours, plain = run_example(1, played["folder"]), run_example(2, played["folder"])
    answered = [line for line in ours if not line.endswith(" -")]
    figures = played["latency"]
    assert len(answered) < len(ours), "a probe that timed out has no latency"
    assert len(ours) == sum(figures[probe]["n"] for probe in figures)
    assert sorted(plain) == sorted(answered)
    status = sorted(float(line.split()[-1]) for line in plain if line.split()[1] == "status")
    assert len(status) == figures["status"]["n"]
    assert status[0] >= 0.01
    assert status[-1] == pytest.approx(figures["status"]["due_to_final"]["max"], abs=1e-9)
    assert status[(len(status) + 1) // 2 - 1] == pytest.approx(figures["status"]["due_to_final"]["p50"])


def key_cells() -> set[str]:
    """Every key that section 1 names."""
    section = re.sub(r"```.*?```", "", README.partition("\n## 1. ")[2].partition("\n## 2. ")[0], flags=re.S)
    return {part for name in names(section) for part in (name, *name.split("."))}


@pytest.mark.slow
def test_every_key_of_the_report_is_told(played: dict[str, Any]) -> None:
    told = key_cells()
    figures = played["latency"]["task"]
    for part in (played, played["harness"], played["agent"], figures, figures["parts"]):
        assert set(part) - told - {"latency", "harness", "agent"} == set()


@pytest.mark.slow
def test_no_key_is_told_that_the_report_does_not_have(played: dict[str, Any]) -> None:
    figures = played["latency"]["task"]
    places: dict[str, tuple[Any, ...]] = {
        "### Outcomes and releases": (played,),
        "### The harness's own share, and the agent's load": (played["harness"], played["agent"]),
        "### Latency": (figures,),
        "### Scores": (played["scores"],),
    }
    for heading, parts in places.items():
        keys = [name for row in rows(heading) if len(row) == 3 for name in names(row[1])]
        assert keys
        for key in keys:
            found = None
            for part in parts:
                for step in key.split("."):
                    part = part.get(step) if isinstance(part, dict) else None
                found = found if part is None else part
            assert found is not None or key in ("scores.notices", *_UNDEFINED), key


_UNDEFINED = ("high_intensity", "known_drop", "frame_service_slope_s_per_hour", "worst_cell_name")
"""Figures that may be undefined in so small a run."""


@pytest.mark.slow
def test_scores_json_is_described_key_by_key(played: dict[str, Any]) -> None:
    table = rows("## 5. `run.json` and `scores.json`")
    beginning = next(number for number, row in enumerate(table) if names(row[0])[:2] == ["run", "reader"])
    written = {name for row in table[beginning:] for name in names(row[0])}
    scores = json.loads((played["folder"] / "scores.json").read_bytes())
    several = {"repeats", "by_repeat", "spread", "subsets", "macro"}
    assert written == set(scores) | several
    assert set(storm.FIGURES) <= written


@pytest.mark.slow
def test_the_specimen_has_the_lines_that_a_report_has(
    played: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    def labels(text: str) -> set[str]:
        """What each line begins with, up to its first figure."""
        found = (re.split(r"[\d—–≥∞]", line, maxsplit=1)[0] for line in text.splitlines())
        return {" ".join(label.split()) for label in found} - {""}

    report_run(played["folder"], as_json=False)
    printed = labels(capsys.readouterr().out)
    own = (
        *("warning:", "notice:", "verdict:", "hint:", "tiny:", "next:", "worst cell", "journals:", "digest:"),
        *("first = final", "sent = due"),
    )
    shown = labels(SPECIMEN)
    common = {label for label in printed if not label.startswith(own)} - {
        label for label in printed if label.startswith(("harness: the clock stood", "n too small"))
    }
    assert len(common) > 20
    missing = {label for label in common if not any(_alike(label, other) for other in shown)}
    assert missing == set()
    for label in (*latency_table.SPANS.values(), *latency_table.PARTS.values()):
        assert label in README, label
    for label in score_table._NAMES.values():
        assert label in SPECIMEN, label


def _alike(label: str, other: str) -> bool:
    return label == other or label.split()[:3] == other.split()[:3]

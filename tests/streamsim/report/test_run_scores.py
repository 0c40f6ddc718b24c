"""Scores of run folders that the journal's own writer has made."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from streamsim.cli import main
from streamsim.episodes.dataset import DatasetInfo, key_digest, load_dataset, write_dataset
from streamsim.episodes.episode import Episode, EpisodeQuery, KeyEntry
from streamsim.errors import DatasetError, RunError
from streamsim.events import AnyEvent, Instant, SessionEnded
from streamsim.journal.folder import journal_path, read_run_file, write_run_file
from streamsim.journal.write import FIRST_DIGEST, encode_line
from streamsim.reading import READERS
from streamsim.report.rescoring import rescore_run
from streamsim.report.run_report import report_run
from streamsim.report.run_scores import score_run, write_scores
from streamsim.report.run_summary import summarise_run
from streamsim.scoring.rescore import Change
from streamsim.testing import tiny_config
from streamsim_protocol.messages import Outcome
from tests.streamsim.journal.conversation_for_tests import chain, started
from tests.streamsim.journal.simulated_run import make_run_file

SECOND = 1_000_000_000
EPISODES = ("e1", "e2")
Said = Sequence[tuple[Sequence[str | tuple[str, str]], Outcome]]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Two episodes of two choice queries: the first known, the second uncertain; gold is always B."""
    folder = tmp_path / "dataset"
    episodes, key = [], []
    for id in EPISODES:
        queries = []
        for number in (1, 2):
            query = EpisodeQuery(
                id=f"{id}-{number}",
                kind="choice",
                media_ns=number * SECOND,
                stem="?",
                options=("w", "x", "y", "z"),
            )
            queries.append(query)
            key.append(
                KeyEntry(
                    id=query.id,
                    episode_id=id,
                    subset="storm_x",
                    media_ns=query.media_ns,
                    answer_index=1,
                    permutation=(0, 1, 2, 3),
                    status="known" if number == 1 else "uncertain",
                    causes=() if number == 1 else ("partial_observation",),
                    intensity=number,
                )
            )
        episodes.append(Episode(id=id, subset="storm_x", video=f"{id}.mp4", queries=tuple(queries)))
    write_dataset(folder, DatasetInfo(name="d", chain="full", source="test"), episodes, key)
    return folder


def make_run(dataset: Path, folder: Path, **changes: object) -> Path:
    loaded = load_dataset(dataset)
    run_file = make_run_file(tiny_config(run="r", clock="lockstep"), 0)
    config = msgspec.structs.replace(
        run_file.config,
        **{
            "dataset": str(loaded.public),
            "dataset_digest": loaded.digest,
            "episodes": EPISODES,
            **changes,
        },
    )
    queries = dict.fromkeys(EPISODES, 2)
    write_run_file(folder, msgspec.structs.replace(run_file, config=config, queries=queries))
    return folder


def write_session(
    run: Path,
    episode: str,
    said: Said,
    *,
    repeat: int = 1,
    attempt: int = 1,
    torn: bool = False,
    behind: bytes | None = None,
) -> None:
    """``said`` per query: letters of its probes, such as "BCB" (task, status, one cause), and its outcome.

    In place of a letter, a text and the letters that were read from it. With ``behind``, the session has
    an end, and these bytes behind it.
    """
    ids = [f"{episode}-{number}" for number, _ in enumerate(said, 1)]
    events: list[AnyEvent] = [
        started(ids, run="r", episode=episode, subset="storm_x", repeat=repeat, attempt=attempt)
    ]
    for number, (steps, outcome) in enumerate(said, 1):
        pairs = [(step, step) if isinstance(step, str) else step for step in steps]
        events += chain(f"q{number}", *pairs, outcome=outcome)
    if behind is not None:
        events.append(SessionEnded(reason="completed"))
    data, digest = b"", FIRST_DIGEST
    for n, event in enumerate(events, 1):
        line, digest = encode_line(n, Instant(0, 0), event, digest)
        data += line
    journal_path(run, episode, repeat, attempt).write_bytes(data[:-5] if torn else data + (behind or b""))


def notices_of(scores: dict[str, object], word: str) -> list[str]:
    """The notices with that word."""
    notices = scores["notices"]
    assert isinstance(notices, list)
    return [text for text in notices if word in text]


ALL_RIGHT: Said = [("BA", "answered"), ("BCB", "answered")]


def test_a_whole_run(dataset: Path, tmp_path: Path) -> None:
    run = make_run(dataset, tmp_path / "run")
    for episode in EPISODES:
        write_session(run, episode, ALL_RIGHT)
    scores = score_run(run)
    assert scores["run"] == "r"
    assert scores["n"] == scores["answered"] == 4
    assert scores["task_accuracy"] == scores["storm_br_attr"] == 1.0
    assert scores["storm_br"] == 0.75  # both cells (2 + 1)/(2 + 2)
    assert scores["partial"] is None
    assert scores["notices"] == [
        "Storm-BR over 2 of 6 cells: no queries in mid known, mid uncertain, high known, high uncertain",
        "too few episodes for meaningful intervals: 2",
    ]
    assert scores["valid_rate"] == {"task": 1.0, "status": 1.0, "cause": 1.0}


def test_a_run_that_was_broken_off(dataset: Path, tmp_path: Path) -> None:
    """Torn in the last outcome of e1, e2 never began: 1 of 4 answered, the others are wrong."""
    run = make_run(dataset, tmp_path / "run")
    write_session(run, "e1", ALL_RIGHT, torn=True)
    scores = score_run(run)
    assert scores["n"] == 4
    assert scores["task_accuracy"] == 0.25
    assert scores["cells"] == {"low_known": 0.5, "low_uncertain": 0.0}
    assert scores["partial"] == {"answered": 1, "planned": 4}
    notices = scores["notices"]
    assert isinstance(notices, list)
    assert notices[0] == "partial: 1 of 4 queries were answered; the others count as wrong"
    assert notices[1].startswith("e1.1.1.jsonl: ")


def test_an_empty_run_scores_nothing_right(dataset: Path, tmp_path: Path) -> None:
    scores = score_run(make_run(dataset, tmp_path / "run"))
    assert scores["task_accuracy"] == 0.0
    assert scores["partial"] == {"answered": 0, "planned": 4}
    assert scores["valid_rate"] == {"task": None, "status": None, "cause": None}


def test_the_last_attempt_counts(dataset: Path, tmp_path: Path) -> None:
    run = make_run(dataset, tmp_path / "run")
    write_session(run, "e1", ALL_RIGHT)
    write_session(run, "e1", [("AA", "answered"), ("BCB", "answered")], attempt=10)
    write_session(run, "e1", ALL_RIGHT, attempt=9)
    write_session(run, "e2", ALL_RIGHT)
    assert score_run(run)["task_accuracy"] == 0.75


def test_repeats_are_scored_one_by_one(dataset: Path, tmp_path: Path) -> None:
    run = make_run(dataset, tmp_path / "run", repeat=2)
    for episode in EPISODES:
        write_session(run, episode, ALL_RIGHT)
        write_session(run, episode, [("AA", "answered"), ("BCB", "answered")], repeat=2)
    scores = score_run(run)
    assert (scores["n"], scores["repeats"], scores["task_accuracy"]) == (4, 2, 0.75)


def test_a_part_of_the_dataset(dataset: Path, tmp_path: Path) -> None:
    run = make_run(dataset, tmp_path / "run", episodes=("e2",), partial=True)
    write_session(run, "e2", ALL_RIGHT)
    scores = score_run(run)
    assert (scores["n"], scores["task_accuracy"], scores["partial"]) == (2, 1.0, None)
    notices = scores["notices"]
    assert isinstance(notices, list)
    assert notices[0].startswith("partial: 2 of 4 queries of the dataset")


def test_a_task_chain_has_no_storm_br(dataset: Path, tmp_path: Path) -> None:
    run = make_run(dataset, tmp_path / "run", chain="task")
    for episode in EPISODES:
        write_session(run, episode, [("B", "answered"), ("A", "answered")])
    scores = score_run(run)
    assert (scores["scope"], scores["task_accuracy"], scores["kci"]) == ("answer_only", 0.5, 1.0)
    assert scores["storm_br"] is scores["storm_br_ci95"] is scores["overconfidence"] is None


def test_another_reader(dataset: Path, tmp_path: Path) -> None:
    run = make_run(dataset, tmp_path / "run")
    write_session(run, "e1", ALL_RIGHT)
    scores = score_run(run, reader=READERS["storm-evaluator"])
    assert (scores["reader"], scores["task_accuracy"]) == ("storm-evaluator", 0.5)


def test_texts_that_could_not_be_read_are_shown(dataset: Path, tmp_path: Path) -> None:
    """STORM-Bench's evaluator takes a letter for the one behind "answer" or a leading "a"; "hm" has none."""
    run = make_run(dataset, tmp_path / "run", episodes=("e1",))
    hedged = ("a cup,\n\x1b[31mperhaps", "")
    write_session(
        run, "e1", [([hedged, ("Answer: C, or D", "")], "answered"), ([("hm", ""), "A"], "answered")]
    )
    told = [
        "unreadable: 2 of 2 task, 1 of 2 status answers count as none, since no letter could be read; "
        r"e1-1, task: 'a cup,\n\x1b[31mperhaps'",
        "`streamsim score --reader storm-evaluator` reads more loosely: "
        "it finds a letter in 2 of them (1 task, 1 status)",
    ]
    assert notices_of(score_run(run), "read") == told
    anew = score_run(run, reader=READERS["storm-evaluator"])
    assert anew["valid_rate"] == {"task": 0.5, "status": 1.0, "cause": None}
    assert notices_of(anew, "read") == [
        "unreadable: 1 of 2 task answers count as none, since no letter could be read; e1-2, task: 'hm'"
    ]


def test_a_changed_dataset_is_refused(dataset: Path, tmp_path: Path) -> None:
    run = make_run(dataset, tmp_path / "run")
    info = dataset / "public" / "dataset.json"
    info.write_bytes(info.read_bytes() + b" ")
    with pytest.raises(RunError, match="is not the one that was run"):
        score_run(run)


def test_a_dataset_that_moved(dataset: Path, tmp_path: Path) -> None:
    run = make_run(dataset, tmp_path / "run")
    moved = dataset.rename(tmp_path / "elsewhere")
    assert score_run(run, dataset=moved)["n"] == 4


def test_the_command_prints_and_keeps_the_same_object(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(dataset, tmp_path / "run")
    write_session(run, "e1", ALL_RIGHT)
    assert main(["score", str(run), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == json.loads((run / "scores.json").read_text()) == score_run(run)
    assert "notice: partial: 2 of 4" in err


def test_scores_can_be_written_again(dataset: Path, tmp_path: Path) -> None:
    run = make_run(dataset, tmp_path / "run")
    write_scores(run, {"n": 1})
    assert json.loads(write_scores(run, {"n": 2}).read_text()) == {"n": 2}


def test_an_illegal_key_is_not_scored(dataset: Path, tmp_path: Path) -> None:
    run = make_run(dataset, tmp_path / "run")
    path = dataset / "key" / "answers.jsonl"
    first, *others = path.read_text().splitlines()
    entry = json.loads(first)
    entry["answer_index"] = 99
    path.write_text("\n".join([json.dumps(entry), *others]) + "\n")
    with pytest.raises(
        DatasetError, match=r"answer_index: expected an index below \d+.*got 99.*streamsim check"
    ):
        score_run(run)


def test_a_key_that_changed_since_the_run_is_told(dataset: Path, tmp_path: Path) -> None:
    run = make_run(dataset, tmp_path / "run")
    run_file = read_run_file(run)
    kept = msgspec.structs.replace(run_file, key_digest=key_digest(dataset))
    (run / "run.json").write_bytes(msgspec.json.encode(kept))
    assert not any("answer key" in text for text in score_run(run)["notices"])  # type: ignore[attr-defined]
    path = dataset / "key" / "answers.jsonl"
    path.write_text(path.read_text() + "\n")
    assert any("the answer key has changed" in text for text in score_run(run)["notices"])  # type: ignore[attr-defined]


def test_figures_that_cannot_be_kept_are_printed_all_the_same(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(dataset, tmp_path / "run")
    for episode in EPISODES:
        write_session(run, episode, ALL_RIGHT)
    (run / "scores.json" / "in the way").mkdir(parents=True)
    says = f"the figures are in no file: cannot write {str(run / 'scores.json')!r}: is a directory: "
    assert main(["score", str(run), "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["task_accuracy"] == 1.0
    assert f"notice: {says}choose another place\n" in printed.err
    report_run(run, as_json=True)
    printed = capsys.readouterr()
    assert json.loads(printed.out)["scores"]["task_accuracy"] == 1.0
    assert printed.err.startswith(f"streamsim serve: {says}") and printed.err.count("\n") == 1
    assert not (run / ".scores.json").exists()


def test_a_copied_journal_is_refused_by_name(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(dataset, tmp_path / "run")
    write_session(run, "e1", ALL_RIGHT)
    stray = run / "sessions" / "zzz.1.1.jsonl"
    shutil.copy(journal_path(run, "e1", 1, 1), stray)
    assert main(["score", str(run)]) == 2
    assert capsys.readouterr().err == (
        f"streamsim score: {stray}: expected the session of its name, got a copy of 'e1.1.1.jsonl'; "
        f"move the file out of {str(run / 'sessions')!r}, then call again\n"
    )
    assert not (run / "scores.json").exists()


def test_what_stands_behind_a_session_is_told(dataset: Path, tmp_path: Path) -> None:
    run = make_run(dataset, tmp_path / "run")
    write_session(run, "e1", ALL_RIGHT, behind=b"garbage\n")
    write_session(run, "e2", ALL_RIGHT, torn=True)
    scores = score_run(run)
    behind, torn = notices_of(scores, ".1.1.jsonl")
    assert behind.startswith("e1.1.1.jsonl: line ") and "so nothing is lost" in behind
    assert torn.startswith("e2.1.1.jsonl: read up to line ") and torn.endswith(": torn")


@pytest.mark.parametrize(
    ("event", "before", "after"),
    [("ProbeRead", '"letters":"B"', '"letters":"C"'), ("SessionStarted", '"e1-1"', '"e1-3"')],
    ids=["a letter", "the first line"],
)
def test_what_was_changed_is_told_above_all(
    dataset: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    event: str,
    before: str,
    after: str,
) -> None:
    """One letter of a journal was changed: nothing from there on counts, and every figure says so first."""
    run = make_run(dataset, tmp_path / "run")
    for episode in EPISODES:
        write_session(run, episode, ALL_RIGHT, behind=b"")
    journal = journal_path(run, "e1", 1, 1)
    lines = journal.read_text().splitlines(keepends=True)
    number = next(number for number, line in enumerate(lines) if f'"{event}"' in line)
    assert before in lines[number]
    lines[number] = lines[number].replace(before, after)
    journal.write_text("".join(lines))
    place = f"e1.1.1.jsonl:{number + 1}"
    told = (
        f"e1.1.1.jsonl: the chain is broken at line {number + 1}: the file was changed or damaged since it "
        "was written; nothing from there on counts, see `streamsim verify`"
    )
    assert main(["score", str(run)]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0] == f"notice: {told}" and "chain" not in printed.err
    kept = json.loads((run / "scores.json").read_text())
    assert (kept["altered"], kept["notices"][0]) == ([place], told)
    assert kept["partial"] == {"answered": 2, "planned": 4}
    assert main(["score", str(run), "--json"]) == 0
    assert f"notice: {told}\n" in capsys.readouterr().err
    summary = summarise_run(run)
    assert (summary.altered, summary.warnings[0]) == ([place], told)
    report_run(run, as_json=False)
    out = capsys.readouterr().out
    assert out.splitlines()[0] == f"warning: {told}" and out.count("the chain is broken") == 1
    figures = rescore_run(run, Change())
    assert isinstance(figures["notices"], list)
    assert (figures["altered"], figures["notices"][0]) == ([place], told)
    assert main(["rescore", str(run)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"notice: {told}"
    journal_path(run, "e2", 1, 1).unlink()
    with pytest.raises(RunError, match=r"that could be played again: e1.1.1.jsonl: the chain is broken"):
        rescore_run(run, Change())


def test_of_nothing_there_are_no_scores(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(dataset, tmp_path / "run")
    write_session(run, "e1", [("BA", "timed_out"), ("BCB", "timed_out")], behind=b"")
    assert main(["score", str(run)]) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("nothing was answered: no scores\n", "")
    report_run(run, as_json=False)
    out = capsys.readouterr().out
    assert "nothing was answered: no scores\n" in out and "Storm-BR" not in out and "partial" not in out
    assert f"next: streamsim serve --resume --out {run}" in out
    kept = json.loads((run / "scores.json").read_text())
    assert (kept["partial"], kept["task_accuracy"]) == ({"answered": 0, "planned": 4}, 0.0)


def test_no_line_is_wrapped_where_nobody_sees_it(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Piped, a line is as long as what it says."""
    run = make_run(dataset, tmp_path / "run", episodes=("e1",))
    write_session(run, "e1", ALL_RIGHT, behind=b"")
    profile = tmp_path / "p.toml"
    profile.write_text(f'name = "{"long " * 30}"\nframe_s = 0\ntask_s = 0\nstatus_s = 0\ncause_s = 0\n')
    assert main(["rescore", str(run), "--service-profile", str(profile)]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("1 session played again in simulated time: ")
    assert first.endswith("long " * 30)

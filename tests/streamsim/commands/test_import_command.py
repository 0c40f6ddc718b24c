"""`streamsim import`: exit codes, what is written, and that nothing is where it must not be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamsim.cli import main
from streamsim.episodes.dataset import load_answer_key, load_dataset
from streamsim.episodes.video import probe_video

ROW: dict[str, Any] = {
    "id": "a_q01",
    "episode_id": "a",
    "query_time": 1.0,
    "question_type": "current_state",
    "question": "Which?",
    "options": ["w", "x", "y", "z"],
    "answer_index": 0,
    "change_intensity": 1,
    "diagnostics": {"epistemic_status": "known", "uncertainty_sources": []},
}
ILLEGAL = ROW | {"id": "a_q02", "answer_index": 9}


def write_rows(path: Path, *rows: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def call(*args: object) -> int:
    return main(["import", *map(str, args)])


def test_real_footage_imports_whole(
    test_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    real = test_data / "data/real"
    questions = sorted(real.glob("*.questions.jsonl"))
    folder = tmp_path / "d"
    code = call(
        "storm", *questions, "--manifest", real / "videos.jsonl", "--videos", real, "-o", folder, "--json"
    )
    output = capsys.readouterr()
    assert code == 0
    assert output.err == ""
    assert json.loads(output.out) == {
        "dataset": str(folder),
        "written": True,
        "episodes": 2,
        "queries": 18,
        "kinds": {"choice": 18},
        "refused": 0,
        "absent_videos": [],
        "findings": [],
    }
    dataset, key = load_dataset(folder), load_answer_key(folder)
    assert [(e.id, e.subset, len(e.queries)) for e in dataset.episodes] == [
        ("drive", "real", 11),
        ("swing", "real", 7),
    ]
    assert [Path(e.video) for e in dataset.episodes] == [real / "drive.mp4", real / "swing.mp4"]
    assert len(key) == 18
    assert (dataset.info.chain, dataset.info.name) == ("full", "d")


def test_copied_videos_have_neutral_names_and_their_bytes(test_data: Path, tmp_path: Path) -> None:
    real = test_data / "data/real"
    folder = tmp_path / "d"
    assert (
        call("storm", *sorted(real.glob("*.questions.jsonl")), "--videos", real, "--copy", "-o", folder) == 0
    )
    dataset = load_dataset(folder)
    assert [e.video for e in dataset.episodes] == ["videos/v0001.mp4", "videos/v0002.mp4"]
    for episode in dataset.episodes:
        copied = dataset.video_path(episode).read_bytes()
        assert copied == (real / f"{episode.id}.mp4").read_bytes()


def test_real_benchmark_rows_import_without_their_videos(
    test_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = sorted((test_data / "data/storm").glob("*.questions.jsonl"))
    assert call("storm", *files, "--videos", tmp_path / "none", "-o", tmp_path / "d") == 0
    output = capsys.readouterr()
    assert "2 episodes, 7 queries (7 choice)\n" in output.out
    assert output.err.splitlines() == [
        "absent videos (2), looked for at:",
        f"  {tmp_path}/none/P02/P02-20240210-220650_revisit.mp4",
        f"  {tmp_path}/none/FloorPlan406/STORM_FloorPlan406_seed323460856_96a9e1cc113f.mp4",
    ]


def test_an_absent_video_keeps_its_place_when_others_are_copied(tmp_path: Path) -> None:
    (tmp_path / "b.mp4").write_bytes(b"picture")
    questions = write_rows(tmp_path / "s.jsonl", ROW, ROW | {"id": "b_q01", "episode_id": "b"})
    assert call("storm", questions, "--copy", "-o", tmp_path / "d") == 0
    episodes = load_dataset(tmp_path / "d").episodes
    assert [episode.video for episode in episodes] == [str(tmp_path / "a.mp4"), "videos/v0001.mp4"]


def test_videos_are_found_in_a_folder_of_the_subset(tmp_path: Path) -> None:
    nested = tmp_path / "videos" / "storm_x" / "a.mp4"
    nested.parent.mkdir(parents=True)
    nested.touch()
    questions = write_rows(tmp_path / "annotations" / "storm_x.questions.jsonl", ROW)
    assert call("storm", questions, "--videos", tmp_path / "videos", "-o", tmp_path / "d") == 0
    assert load_dataset(tmp_path / "d").episodes[0].video == str(nested)


def test_videos_are_absolute_also_from_a_relative_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(Path("s.jsonl"), ROW)
    assert call("storm", "s.jsonl", "--videos", "clips", "-o", "d") == 0
    assert load_dataset(Path("d")).episodes[0].video == str(tmp_path / "clips/a.mp4")


# -------------------------------------------------------------------------------------- exit codes


def test_an_illegal_row_is_reported_and_the_rest_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = write_rows(tmp_path / "s.jsonl", ROW, ILLEGAL)
    assert call("storm", questions, "-o", tmp_path / "d") == 1
    output = capsys.readouterr()
    assert output.err.splitlines()[0] == (
        f"error: {questions}:2: a_q02: answer_index: expected an index from 0 to 3, got 9"
    )
    assert "1 row left out" in output.out
    assert list(load_answer_key(tmp_path / "d")) == ["a_q01"]


@pytest.mark.parametrize(
    ("rows", "strict", "code"), [((ROW, ILLEGAL), True, 2), ((ILLEGAL,), False, 1), ((ILLEGAL,), True, 2)]
)
def test_nothing_is_written_when_strict_or_when_no_row_is_legal(
    tmp_path: Path,
    rows: tuple[Any, ...],
    strict: bool,
    code: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    questions = write_rows(tmp_path / "s.jsonl", *rows)
    options = ["--strict"] if strict else []
    assert call("storm", questions, "-o", tmp_path / "d", "--json", *options) == code
    output = capsys.readouterr()
    report = json.loads(output.out)
    assert (report["written"], report["refused"]) == (False, 1)
    assert report["findings"][0]["line"] == len(rows)
    assert "nothing written" in output.err
    assert sorted(tmp_path.iterdir()) == [questions]


def test_strict_with_legal_rows_only_writes(tmp_path: Path) -> None:
    questions = write_rows(tmp_path / "s.jsonl", ROW)
    assert call("storm", questions, "--strict", "-o", tmp_path / "d") == 0
    assert len(load_dataset(tmp_path / "d").episodes) == 1


@pytest.mark.parametrize("command", ["storm", "csv"])
def test_a_malformed_line_stops_everything_with_its_number(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = write_rows(tmp_path / "s.jsonl", ROW)
    questions.write_text(questions.read_text() + '\n{"id": "a_q02",\n' + json.dumps(ROW) + "\n")
    assert call(command, questions, "-o", tmp_path / "d") == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"streamsim import: {questions}:3: malformed JSON: ")
    assert len(output.err.splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == [questions]


def test_a_malformed_manifest_stops_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions = write_rows(tmp_path / "s.jsonl", ROW)
    manifest = tmp_path / "m.jsonl"
    manifest.write_text('{"episode_id": "a"}\n{"episode_id"\n')
    assert call("storm", questions, "--manifest", manifest, "-o", tmp_path / "d") == 2
    assert f"{manifest}:2: malformed JSON" in capsys.readouterr().err
    assert not (tmp_path / "d").exists()


def test_an_absent_questions_file_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("storm", tmp_path / "no.jsonl", "-o", tmp_path / "d") == 2
    assert "cannot read" in capsys.readouterr().err


def test_an_existing_folder_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions = write_rows(tmp_path / "s.jsonl", ROW)
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "mine.txt").write_text("keep")
    assert call("storm", questions, "-o", folder) == 2
    assert "exists and is not empty" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions = write_rows(tmp_path / "s.jsonl", ROW)
    assert call("storm", questions, "-o", questions / "below") == 2
    assert "streamsim import: cannot write" in capsys.readouterr().err


# --------------------------------------------------------------------------------------------- csv


def test_csv_beside_its_videos(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.mp4").write_bytes(b"picture")
    questions = tmp_path / "mine.csv"
    questions.write_text("video,time,question,options,answer\na.mp4,1,Which?,x|y,B\nb.mp4,2,What?,,zinc\n")
    assert call("csv", questions, "-o", tmp_path / "d", "--copy") == 0
    dataset = load_dataset(tmp_path / "d")
    assert dataset.info.chain == "task"
    assert [episode.video for episode in dataset.episodes] == ["videos/v0001.mp4", str(tmp_path / "b.mp4")]
    output = capsys.readouterr()
    assert output.err.splitlines() == ["absent videos (1), looked for at:", f"  {tmp_path}/b.mp4"]
    assert output.out.startswith(f"{tmp_path}/d: 2 episodes, 2 queries (1 choice, 1 open)\n")
    assert load_answer_key(tmp_path / "d")["a_q01"].answer_index == 1


@pytest.mark.parametrize(
    ("options", "root", "written", "meant"),
    [
        (("--videos", "clips"), "clips", "clips/a.mp4", "a.mp4"),
        (("--videos", "../there/clips"), "../there/clips", "there/clips/a.mp4", "a.mp4"),
        ((), ".", "there/clips/a.mp4", "clips/a.mp4"),
    ],
)
def test_a_path_that_begins_with_the_root_itself_gets_a_hint(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    root: str,
    written: str,
    meant: str,
) -> None:
    (tmp_path / "there" / "clips").mkdir(parents=True)
    (tmp_path / "there" / "clips" / "a.mp4").write_bytes(b"picture")
    monkeypatch.chdir(tmp_path / "there")
    Path("q.csv").write_text(f"video,time,question\n{written},1,What?\nnone/b.mp4,1,What?\n")
    assert call("csv", "q.csv", *options, "-o", "d") == 0
    looked_in = tmp_path / "there" / root
    assert capsys.readouterr().err.splitlines() == [
        "absent videos (2), looked for at:",
        f"  {looked_in / written}: did you mean {meant!r}?",
        f"  {looked_in / 'none/b.mp4'}",
    ]


def test_a_table_with_a_column_for_each_option_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = tmp_path / "mine.csv"
    questions.write_text("Video,Time,Question,A,B,Answer\na.mp4,0:14,Which?,a cup,a plate,A\n")
    assert call("csv", questions, "-o", tmp_path / "d") == 2
    assert capsys.readouterr().err == (
        f"streamsim import: {questions}: expected no column for each option, got 'a', 'b': "
        "options go into one column options, with | between them: a cup|a plate|nothing\n"
    )
    assert list(tmp_path.iterdir()) == [questions]


@pytest.mark.parametrize(("command", "other"), [("storm", "import csv"), ("csv", "import storm")])
def test_the_help_of_a_format_is_its_own(
    command: str, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        call(command, "--help")
    shown = capsys.readouterr().out
    assert f"\n  streamsim import {command} " in shown and other not in shown
    assert "exit codes: 0 all imported" in shown


def test_csv_options_are_permuted_when_asked(tmp_path: Path) -> None:
    questions = tmp_path / "mine.csv"
    questions.write_text(
        "video,time,question,options,answer,id\na.mp4,1,Which?,w|x|y|z,C,P02-20240210-220650_revisit_q01\n"
    )
    assert call("csv", questions, "-o", tmp_path / "d", "--permute-options") == 0
    assert load_dataset(tmp_path / "d").episodes[0].queries[0].options == ("x", "y", "z", "w")


def test_no_label_of_any_kind_is_in_the_public_half(test_data: Path, tmp_path: Path) -> None:
    cook = test_data / "data/storm/storm_cook.P02.rows.questions.jsonl"
    assert call("storm", cook, "-o", tmp_path / "d") == 0
    public = json.loads((tmp_path / "d/public/episodes.jsonl").read_text())
    assert public.keys() == {"id", "subset", "video", "queries"}
    for query in public["queries"]:
        assert query.keys() == {"id", "kind", "media_ns", "stem", "options"}


# --------------------------------------------------------------------------------- the video's end


def test_csv_rows_after_the_end_of_their_video_are_illegal(
    make_clip: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clip = make_clip("a.mkv", [0, 500, 1000, 1500])
    (clip.parent / "broken.mkv").write_bytes(b"no video at all")
    questions = tmp_path / "mine.csv"
    questions.write_text(
        "video,time,question\n"
        "a.mkv,0:00:01,What?\n"
        "a.mkv,1000000,And now?\n"
        "broken.mkv,1000000,What?\n"
        "absent.mkv,1000000,What?\n"
    )
    command = ("csv", questions, "--videos", clip.parent, "-o", tmp_path / "d")
    assert call(*command, "--strict") == 2
    assert not (tmp_path / "d").exists()
    capsys.readouterr()
    assert call(*command) == 1
    line = capsys.readouterr().err.splitlines()[0]
    end = probe_video(clip).end_ns / 1e9
    assert 1.5 <= end < 3
    assert line == (
        f"error: {questions}:3: row 2: time: expected a time within the video, which ends at {end:g} s; "
        "due at 1000000 s"
    )
    # what cannot be looked into is left to `streamsim check`
    times = {e.id: [q.media_ns for q in e.queries] for e in load_dataset(tmp_path / "d").episodes}
    assert times == {"a": [10**9], "broken": [10**15], "absent": [10**15]}


def test_storm_rows_after_the_end_of_their_video_are_illegal(
    make_clip: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clip = make_clip("a.mp4", [0, 500])
    questions = write_rows(
        tmp_path / "s.jsonl", ROW | {"query_time": 0.5}, ROW | {"id": "a_q02", "query_time": 99}
    )
    assert call("storm", questions, "--videos", clip.parent, "-o", tmp_path / "d") == 1
    line = capsys.readouterr().err.splitlines()[0]
    assert line.startswith(f"error: {questions}:2: a_q02: query_time: expected a time within the video")
    assert list(load_answer_key(tmp_path / "d")) == ["a_q01"]

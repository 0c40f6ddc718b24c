"""Every text file that a person may have saved in an editor is read with a byte order mark as without."""

from __future__ import annotations

import codecs
import json
from pathlib import Path

import pytest

from streamsim.cli import main
from streamsim.episodes.check import check_dataset
from streamsim.episodes.dataset import DatasetInfo, load_answer_key, load_dataset, write_dataset
from streamsim.episodes.episode import Episode, EpisodeQuery, KeyEntry
from streamsim.episodes.formats.row import parse_json_rows
from streamsim.errors import DatasetError
from streamsim.prompts import SHIPPED, load_prompts
from streamsim.report.rescoring import read_profile

QUESTION = {
    "id": "q1",
    "episode_id": "e1",
    "query_time": 3.0,
    "question_type": "current_state",
    "question": "Which?",
    "options": ["a", "b", "c", "d"],
    "answer_index": 0,
    "evidence_spans": [[0.0, 3.0]],
    "diagnostics": {"epistemic_status": "known", "uncertainty_sources": []},
    "change_intensity": 1,
}


def mark(path: Path) -> Path:
    """Put a byte order mark before what a file holds."""
    data = path.read_bytes()
    assert data and not data.startswith(codecs.BOM_UTF8)
    path.write_bytes(codecs.BOM_UTF8 + data)
    return path


def test_datasets(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    queries = (EpisodeQuery(id="q", kind="open", media_ns=0, stem="?"),)
    episode = Episode(id="e", subset="s", video="absent.mp4", queries=queries)
    entry = KeyEntry(id="q", episode_id="e", subset="s", media_ns=0, answer_text="a")
    write_dataset(folder, DatasetInfo(name="d", chain="task", source="test"), [episode], [entry])
    before = (load_dataset(folder), load_answer_key(folder), check_dataset(folder))
    for name in ("public/dataset.json", "public/episodes.jsonl", "key/answers.jsonl"):
        mark(folder / name)
    after = load_dataset(folder)
    assert (after.info, after.episodes) == (before[0].info, before[0].episodes)
    assert after.digest != before[0].digest, "the digest is over the files as they are"
    assert load_answer_key(folder) == before[1]
    assert check_dataset(folder) == before[2]


def test_prompts(tmp_path: Path) -> None:
    path = tmp_path / "prompts.toml"
    path.write_bytes(SHIPPED.read_bytes())
    assert load_prompts(mark(path)).digest == load_prompts().digest


def test_service_profiles(tmp_path: Path) -> None:
    path = tmp_path / "h200.toml"
    path.write_text("frame_s = 0.1\ntask_s = 1\nstatus_s = 1\ncause_s = 1\n")
    profile = read_profile(path)
    assert read_profile(mark(path)) == profile


def test_questions_manifests_and_predictions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = tmp_path / "storm_a.questions.jsonl"
    asked.write_text(json.dumps(QUESTION) + "\n")
    manifest = tmp_path / "videos.jsonl"
    manifest.write_text(json.dumps({"episode_id": "e1", "video_path": "e1.mp4"}) + "\n")
    said = tmp_path / "p.jsonl"
    said.write_text(json.dumps({"id": "q1", "task_answer": "A", "status": "known"}) + "\n")
    table = tmp_path / "mine.csv"
    table.write_text("video,time,question\ne1.mp4,3,What is it?\n")
    for path in (asked, manifest, said, table):
        mark(path)
    out = str(tmp_path / "storm")
    assert main(["import", "storm", str(asked), "--manifest", str(manifest), "-o", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["queries"] == 1
    assert main(["import", "csv", str(table), "-o", str(tmp_path / "csv"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["queries"] == 1
    assert main(["score", "--questions", str(asked), "--predictions", str(said), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["task_accuracy"] == 1.0


def test_a_byte_after_the_mark_that_is_no_utf8_is_the_one_that_is_named() -> None:
    with pytest.raises(DatasetError, match=r"^f:2: expected UTF-8, got byte 0xfc$"):
        parse_json_rows(codecs.BOM_UTF8 + b'{"a": 1}\n{"b": "\xfc"}\n', "f")


def test_a_mark_inside_a_text_stays() -> None:
    (row,) = parse_json_rows('{"a": "\ufeffb"}'.encode(), "f")
    assert row.value == {"a": "\ufeffb"}

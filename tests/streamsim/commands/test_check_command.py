"""`streamsim check`: real footage passes; a planted fault gives exit 1 and is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamsim.cli import main


@pytest.fixture
def real_dataset(test_data: Path, tmp_path: Path) -> Path:
    real = test_data / "data/real"
    questions = map(str, sorted(real.glob("*.questions.jsonl")))
    manifest = ["--manifest", str(real / "videos.jsonl")]
    folder = tmp_path / "d"
    assert main(["import", "storm", *questions, *manifest, "--videos", str(real), "-o", str(folder)]) == 0
    return folder


def test_real_footage_passes(real_dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["check", str(real_dataset), "--json"]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert json.loads(output.out) == {
        "dataset": str(real_dataset),
        "episodes": 2,
        "queries": 18,
        "errors": 0,
        "warnings": 0,
        "findings": [],
    }


def test_a_query_after_the_end_of_real_footage_is_an_error(
    real_dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # the film of the swing lasts 38.7 s
    for path in (real_dataset / "public/episodes.jsonl", real_dataset / "key/answers.jsonl"):
        path.write_text(path.read_text().replace('"media_ns":38000000000', '"media_ns":39000000000'))
    capsys.readouterr()
    assert main(["check", str(real_dataset)]) == 1
    output = capsys.readouterr().out.splitlines()
    assert output[0].startswith("error: public/episodes.jsonl:2: swing_q07: media_ns: expected a time within")
    assert output[-1] == f"{real_dataset}: 2 episodes, 18 queries, 1 error, 0 warnings"


def test_no_dataset_is_wrong_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tmp_path)]) == 2
    assert "no dataset at" in capsys.readouterr().err

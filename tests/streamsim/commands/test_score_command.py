"""``streamsim score`` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamsim.cli import main


def questions(path: Path, count: int = 4, letter: str = "q") -> Path:
    rows = [
        {
            "id": f"{letter}{n}",
            "episode_id": f"episode {letter}{n}",
            "query_time": 3.0,
            "question_type": "current_state",
            "question": "Which?",
            "options": ["a", "b", "c", "d"],
            "answer_index": 0,
            "evidence_spans": [[0.0, 3.0]],
            "diagnostics": {"epistemic_status": "known", "uncertainty_sources": []},
            "change_intensity": 1,
        }
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def predictions(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_json_is_all_that_stdout_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = questions(tmp_path / "storm_a.questions.jsonl")
    said = predictions(
        tmp_path / "p.jsonl",
        [{"id": f"q{n}", "task_answer": "A" if n else "B", "status": "known"} for n in range(4)],
    )
    assert main(["score", "--questions", str(asked), "--predictions", str(said), "--json"]) == 0
    out, err = capsys.readouterr()
    scores = json.loads(out)
    assert scores["subset"] == "storm_a"
    assert scores["task_accuracy"] == 0.75
    assert scores["storm_br"] == pytest.approx(4 / 6)  # one cell: (3 + 1)/(4 + 2)
    assert scores["storm_br_ci95"][0] < scores["storm_br"] < scores["storm_br_ci95"][1]
    assert "no option_permutation" in err


def test_the_table_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = questions(tmp_path / "storm_a.questions.jsonl")
    said = predictions(
        tmp_path / "p.jsonl", [{"id": f"q{n}", "task_answer": "A", "status": "known"} for n in range(4)]
    )
    assert main(["score", "--questions", str(asked), "--predictions", str(said)]) == 0
    out, _ = capsys.readouterr()
    lines = {line.split("  ")[0]: line.split() for line in out.splitlines()}
    assert lines["Storm-BR"][1] == "83.3"
    assert lines["task accuracy"][2] == "100.0"
    assert "low (1–3)" in out


def test_several_subsets_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = questions(tmp_path / "storm_a.questions.jsonl", 2)
    second = questions(tmp_path / "storm_b.questions.jsonl", 2, "r")
    said = [{"id": f"{q}{n}", "task_answer": 0, "status": "known"} for q in "qr" for n in range(2)]
    paths = [
        "--questions",
        str(first),
        str(second),
        "--predictions",
        str(predictions(tmp_path / "p.jsonl", said)),
    ]
    assert main(["score", *paths]) == 0
    out, _ = capsys.readouterr()
    assert "storm_a" in out
    assert "macro mean" in out
    assert main(["score", *paths, "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["subsets"]) == {"storm_a", "storm_b"}


def test_answers_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = questions(tmp_path / "storm_a.questions.jsonl")
    said = predictions(tmp_path / "p.jsonl", [{"id": f"q{n}", "task_answer": n % 4} for n in range(4)])
    assert main(["score", "--questions", str(asked), "--predictions", str(said), "--json"]) == 0
    out, err = capsys.readouterr()
    scores = json.loads(out)
    assert (scores["task_accuracy"], scores["storm_br"], scores["scope"]) == (0.25, None, "answer_only")
    assert "no Storm-BR" in err
    assert main(["score", "--questions", str(asked), "--predictions", str(said)]) == 0
    assert "Storm-BR" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "expected either a run folder, or --questions with --predictions"),
        (["RUN", "--questions", "Q", "--predictions", "P"], "expected either"),
        (["--questions", "Q"], "together, got one of them"),
        (["--questions", "Q", "--predictions", "P"], "exactly the 4 choice questions, found 3 missing: 'q1'"),
        (["--questions", "Q", "--predictions", "TORN"], "torn.jsonl:2"),
        (["--questions", "ILLEGAL", "--predictions", "P"], "1 illegal row in the questions: mend or"),
        (["--questions", "Q", "--predictions", "P", "--reader", "lax"], "no reader 'lax': expected one of"),
        (["RUN"], "no run at"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_exit_2(
    arguments: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = questions(tmp_path / "q.questions.jsonl")
    paths = {
        "Q": asked,
        "P": predictions(tmp_path / "p.jsonl", [{"id": "q0", "task_answer": 0}]),
        "TORN": tmp_path / "torn.jsonl",
        "ILLEGAL": tmp_path / "illegal.questions.jsonl",
        "RUN": tmp_path / "run",
    }
    paths["TORN"].write_text('{"id": "q0", "task_answer": 0}\n{"id": "q1", "ta')
    paths["ILLEGAL"].write_text(asked.read_text().replace('"answer_index": 0', '"answer_index": 9', 1))
    assert main(["score", *(str(paths.get(argument, argument)) for argument in arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert text in err

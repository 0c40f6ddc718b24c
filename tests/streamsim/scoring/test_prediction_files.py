"""Both prediction formats, their aliases, and the order of options."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamsim.episodes.episode import KeyEntry
from streamsim.errors import DatasetError
from streamsim.reading import READERS
from streamsim.report.prediction_scores import score_predictions
from streamsim.scoring.predictions import PredictionOrder, ReadPredictions, parse_predictions

# real ids of storm_cook with the permutations and indices that the benchmark's rule gives them
Q01, Q12 = "P02-20240210-220650_revisit_q01", "P02-20240210-220650_revisit_q12"
KEY = {
    Q01: KeyEntry(id=Q01, episode_id="e", subset="s", media_ns=0, answer_index=1, permutation=(1, 2, 3, 0)),
    Q12: KeyEntry(id=Q12, episode_id="e", subset="s", media_ns=0, answer_index=3, permutation=(0, 3, 2, 1)),
}


def parse(*rows: object, order: PredictionOrder = "auto", reader: str | None = None) -> ReadPredictions:
    return parse_predictions(
        [(f"p.jsonl:{number}", row) for number, row in enumerate(rows, 1)],
        KEY,
        order=order,
        reader=None if reader is None else READERS[reader],
    )


def test_the_evaluators_format() -> None:
    read = parse(
        {
            "id": Q01,
            "pred_index": 1,
            "pred_epistemic_status": "uncertain",
            "pred_uncertainty_sources": ["ambiguous_evidence", "missing_observation"],
            "option_permutation": [1, 2, 3, 0],
        }
    )
    prediction = read.predictions[0]
    assert prediction.answer_index == 1
    assert prediction.status == "uncertain"
    assert prediction.causes == ("missing_observation", "ambiguous_evidence")
    assert (prediction.task_valid, prediction.status_valid, prediction.cause_valid) == (True, True, True)
    assert not read.answer_only
    assert read.notices == ()


def test_the_schema_pages_format_is_in_stored_order() -> None:
    read = parse(
        {"id": Q01, "task_answer": "C", "status": "known"}, {"id": Q12, "task_answer": 1, "status": "known"}
    )
    assert [prediction.answer_index for prediction in read.predictions] == [1, 3]  # stored 2 and 1
    assert len(read.notices) == 1
    assert "2 of 2 rows carry no option_permutation" in read.notices[0]


@pytest.mark.parametrize(
    ("order", "permutation", "expected"),
    [
        ("auto", [1, 2, 3, 0], 2),
        ("auto", None, 1),
        ("presented", [1, 2, 3, 0], 2),
        ("presented", None, 2),
        ("stored", [1, 2, 3, 0], 1),
        ("stored", None, 1),
        # shown as they are stored, unlike the key: index 2 was stored 2, which the key presents as 1
        ("auto", [0, 1, 2, 3], 1),
    ],
)
def test_order_of_options(order: PredictionOrder, permutation: list[int] | None, expected: int) -> None:
    row = {"id": Q01, "pred_index": 2, "option_permutation": permutation}
    assert parse(row, order=order).predictions[0].answer_index == expected


@pytest.mark.parametrize(
    "row",
    [
        {"predicted_index": 0, "predicted_epistemic_status": "Uncertain ",
         "predicted_uncertainty_source": "low_visual_quality"},
        {"task_answer": "b ", "status": "uncertain", "uncertainty_source": ["low_visual_quality"]},
        {"pred_index": 0, "pred_epistemic_status": "uncertain", "pred_uncertainty_sources": None,
         "pred_uncertainty_source": "low_visual_quality"},
    ],
)  # fmt: skip
def test_aliases(row: dict[str, object]) -> None:
    prediction = parse({"id": Q01, **row}, order="presented").predictions[0]
    assert prediction.answer_index in (0, 1)
    assert prediction.status == "uncertain"
    assert prediction.causes == ("low_visual_quality",)


@pytest.mark.parametrize("nothing", [None, "", "  "])
def test_no_answer_is_invalid_and_kept(nothing: object) -> None:
    prediction = parse({"id": Q01, "task_answer": nothing}).predictions[0]
    assert prediction.answer_index is None
    assert prediction.task_valid is False


def test_without_any_status_only_answers_are_scored() -> None:
    assert parse({"id": Q01, "pred_index": 0, "pred_epistemic_status": None}).answer_only


def test_a_row_without_status_does_not_spoil_the_file() -> None:
    read = parse(
        {"id": Q01, "task_answer": 0, "status": "known"},
        {"id": Q12, "task_answer": 0, "status": None},
        {"id": Q12, "task_answer": 0, "status": "unsure"},
        order="stored",
    )
    assert not read.answer_only
    assert [prediction.status for prediction in read.predictions] == ["known", None, None]
    assert [prediction.status_valid for prediction in read.predictions] == [True, None, False]
    assert any("2 of 3 rows have no valid status" in notice for notice in read.notices)
    assert any("1 of 3 rows have the status 'unsure'" in notice for notice in read.notices)


def test_unknown_causes_are_left_out_with_a_notice() -> None:
    read = parse(
        {"id": Q01, "task_answer": 0, "status": "uncertain", "uncertainty_sources": ["fog"]}, order="stored"
    )
    assert read.predictions[0].causes == ()
    assert read.predictions[0].cause_valid is False
    assert read.notices == ("1 of 1 rows name the cause 'fog', which is none of the six and was left out",)


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (["x"], "p.jsonl:1: expected an object with id and prediction, got ['x']"),
        ({"task_answer": 1}, "p.jsonl:1: expected an id, got None"),
        ({"id": Q01}, "expected one of the fields pred_index, predicted_index, task_answer"),
        ({"id": Q01, "task_answer": 4}, "_q01'): expected an answer 0 to 3 or A to D (null for none), got 4"),
        ({"id": Q01, "task_answer": True}, "got True"),
        ({"id": Q01, "task_answer": "E"}, "got 'E'"),
        ({"id": Q01, "task_answer": 1.0}, "got 1.0"),
        ({"id": Q01, "task_answer": 1, "status": 3}, "expected status known, uncertain or null, got 3"),
        ({"id": Q01, "task_answer": 1, "uncertainty_source": [2]}, "expected causes as a list of labels"),
        ({"id": Q01, "pred_index": 1, "option_permutation": [0, 1, 2, 2]}, "option_permutation to order"),
    ],
)  # fmt: skip
def test_what_is_no_prediction_is_refused(row: object, text: str) -> None:
    with pytest.raises(DatasetError) as caught:
        parse(row)
    assert text in str(caught.value)


def test_raw_texts_read_anew() -> None:
    """STORM-Bench's reader finds an A in "I see a cup", the strict one does not."""
    row = {
        "id": Q01,
        "pred": "I see a cup",
        "pred_index": 0,
        "pred_epistemic_raw": "C",
        "pred_epistemic_status": "uncertain",
        "pred_uncertainty_raw": "A, D",
        "option_permutation": [1, 2, 3, 0],
    }
    strict = parse(row, reader="strict").predictions[0]
    assert (strict.answer_index, strict.task_valid) == (None, False)
    assert strict.status == "uncertain"
    assert strict.causes == ("missing_observation", "ambiguous_evidence")
    theirs = parse(row, reader="storm-evaluator").predictions[0]
    assert (theirs.answer_index, theirs.task_valid) == (0, True)


def test_reading_anew_needs_the_raw_text() -> None:
    with pytest.raises(DatasetError, match="expected raw text in the field 'pred'"):
        parse({"id": Q01, "pred_index": 0}, reader="strict")


def test_the_published_examples(test_data: Path) -> None:
    """All right: two cells of one item each, (1 + 1)/(1 + 2) = 2/3 in both."""
    storm = test_data / "data" / "storm"
    scores = score_predictions([storm / "examples_questions.jsonl"], [storm / "examples_predictions.jsonl"])
    assert scores["n"] == 2
    assert scores["task_accuracy"] == scores["storm_br_attr"] == scores["cause_f1"] == 1.0
    assert scores["storm_br"] == pytest.approx(2 / 3)
    assert scores["cells"] == {"low_known": 1.0, "mid_uncertain": 1.0}
    assert scores["overconfidence"] == 0.0


def test_the_published_examples_in_presented_order(test_data: Path) -> None:
    """The rule shows demo-001 as [3, 2, 1, 0] and demo-002 as [3, 1, 0, 2]: their golds are D and A."""
    storm = test_data / "data" / "storm"
    scores = score_predictions(
        [storm / "examples_questions.jsonl"], [storm / "examples_predictions.jsonl"], order="presented"
    )
    assert scores["task_accuracy"] == 0.0

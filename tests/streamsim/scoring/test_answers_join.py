"""Joining predictions with the answer key, in files and in runs."""

from __future__ import annotations

import pytest

from streamsim.episodes.episode import KeyEntry
from streamsim.errors import DatasetError, UsageError
from streamsim.scoring.answers import (
    Prediction,
    causes_of,
    evidence_age_ns,
    join_exact,
    join_run,
    partial_notice,
)
from streamsim.scoring.summary import summarise

SECOND = 1_000_000_000


def entry(id: str, **other: object) -> KeyEntry:
    fields: dict[str, object] = {
        "episode_id": "e",
        "subset": "s",
        "media_ns": 0,
        "answer_index": 1,
        "permutation": (0, 1, 2, 3),
    }
    return KeyEntry(id=id, **(fields | other))  # type: ignore[arg-type]


def key(*entries: KeyEntry) -> dict[str, KeyEntry]:
    return {item.id: item for item in entries}


def test_missing_and_extra_ids_are_named() -> None:
    gold = key(*(entry(f"q{number}") for number in range(6)))
    predictions = [Prediction(id=id, answer_index=1) for id in ("q0", "other")]
    with pytest.raises(UsageError) as caught:
        join_exact(predictions, gold)
    text = str(caught.value)
    assert "exactly the 6 choice questions" in text
    assert "5 missing: 'q1', 'q2', 'q3', …" in text
    assert "1 extra: 'other'" in text


def test_a_repeated_id_is_refused() -> None:
    with pytest.raises(UsageError, match="several for 'q0'"):
        join_exact([Prediction(id="q0", answer_index=1)] * 2, key(entry("q0")))


def test_open_questions_need_no_prediction_and_allow_one() -> None:
    gold = key(entry("q0"), entry("q1", answer_index=None, answer_text="a cup"))
    said = [Prediction(id="q0", answer_index=1)]
    assert [item.id for item in join_exact(said, gold)] == ["q0"]
    assert [item.id for item in join_exact([*said, Prediction(id="q1", answer_index=None)], gold)] == ["q0"]


def test_in_a_run_what_is_unanswered_counts_as_wrong() -> None:
    gold = key(entry("q0", status="known", intensity=1), entry("q1", status="known", intensity=1))
    timed_out = Prediction(
        id="q1", answer_index=1, status="known", causes=("a",), answered=False, task_valid=True
    )
    for predictions in ([], [timed_out]):
        items = join_run([Prediction(id="q0", answer_index=1, status="known"), *predictions], gold)
        assert [item.joint for item in items] == [True, False]
        assert [item.answered for item in items] == [True, False]
        assert (items[1].answer_index, items[1].status) == (None, None)
        assert summarise([items], replicates=2)["task_accuracy"] == 0.5


def test_a_run_of_another_dataset_is_refused() -> None:
    with pytest.raises(UsageError, match="1 query of the run not in the answer key: 'x'"):
        join_run([Prediction(id="x", answer_index=0)], key(entry("q0")))


def test_the_notice_of_a_partial_run() -> None:
    assert partial_notice(18, 18) is None
    assert str(partial_notice(17, 18)).startswith("partial: 17 of 18 ")


def test_evidence_age() -> None:
    late = entry("q", media_ns=10 * SECOND, spans_ns=((0, 9 * SECOND), (2 * SECOND, 3 * SECOND)))
    assert evidence_age_ns(late) == SECOND
    assert evidence_age_ns(entry("q", media_ns=10 * SECOND)) == 10 * SECOND
    assert evidence_age_ns(entry("q", media_ns=10, spans_ns=((0, 11),))) == 0


def test_letters_of_causes() -> None:
    assert causes_of("AF") == ("missing_observation", "multiple_candidates")
    assert causes_of("") == ()


def test_an_unknown_gold_cause_is_refused() -> None:
    with pytest.raises(DatasetError, match="got 'fog'"):
        join_exact([Prediction(id="q", answer_index=1)], key(entry("q", status="uncertain", causes=("fog",))))


def test_without_status_labels_only_answers_are_scored() -> None:
    items = join_exact(
        [Prediction(id="q0", answer_index=1), Prediction(id="q1", answer_index=0)],
        key(entry("q0"), entry("q1")),
    )
    summary = summarise([items])
    assert summary["scope"] == "answer_only"
    assert summary["task_accuracy"] == 0.5
    assert summary["storm_br"] is summary["storm_br_ci95"] is summary["kci"] is None
    assert summary["cells"] == {}
    assert summary["ci95"] == {"task_accuracy": [0.5, 0.5]}


def test_subsets_are_never_pooled() -> None:
    """Macro is the mean over subsets, whatever their sizes; a figure counts where it is defined."""
    labels = {"status": "known", "intensity": 8}
    gold = key(
        *(entry(f"a{n}", subset="a") for n in range(3)), entry("b0", subset="b", episode_id="f", **labels)
    )
    items = join_exact([Prediction(id=id, answer_index=int(id == "b0"), status="known") for id in gold], gold)
    summary = summarise([items], replicates=2)
    assert summary["n"] == 4
    assert "task_accuracy" not in summary
    subsets, macro = summary["subsets"], summary["macro"]
    assert isinstance(subsets, dict)
    assert isinstance(macro, dict)
    assert [subsets[name]["task_accuracy"] for name in ("a", "b")] == [0.0, 1.0]
    assert macro["task_accuracy"] == 0.5
    assert macro["storm_br"] == pytest.approx(2 / 3)
    assert macro["subsets_counted"]["storm_br"] == 1


def test_repeats_give_mean_and_spread() -> None:
    gold = key(*(entry(f"q{n}", episode_id=f"e{n}", status="known", intensity=1) for n in range(4)))
    repeats = [
        join_run([Prediction(id=f"q{n}", answer_index=1, status="known") for n in range(right)], gold)
        for right in (4, 2)
    ]
    summary = summarise(repeats)
    assert summary["n"] == 4
    assert summary["repeats"] == 2
    assert summary["task_accuracy"] == 0.75
    assert summary["storm_br"] == pytest.approx((5 / 6 + 3 / 6) / 2)
    spread = summary["spread"]
    assert isinstance(spread, dict)
    assert spread["task_accuracy"] == {"min": 0.5, "max": 1.0, "sd": pytest.approx(0.5**0.5 / 2)}
    by_repeat = summary["by_repeat"]
    assert isinstance(by_repeat, list)
    assert [part["task_accuracy"] for part in by_repeat] == [1.0, 0.5]
    limits = summary["ci95"]
    assert isinstance(limits, dict)
    assert limits["task_accuracy"] == [0.5, 1.0]  # (1 + k/4)/2 with k right among four drawn episodes


def test_valid_rates_count_what_was_read() -> None:
    gold = key(*(entry(f"q{n}") for n in range(4)))
    predictions = [
        Prediction(id="q0", answer_index=1, task_valid=True, status_valid=True),
        Prediction(id="q1", answer_index=None, task_valid=False, status_valid=True),
        Prediction(id="q2", answer_index=1, task_valid=True, status_valid=False, answered=False),
    ]
    rates = summarise([join_run(predictions, gold)], replicates=2)["valid_rate"]
    assert rates == {"task": pytest.approx(2 / 3), "status": pytest.approx(2 / 3), "cause": None}


def test_nothing_to_score() -> None:
    with pytest.raises(UsageError, match="nothing to score"):
        summarise([[]])

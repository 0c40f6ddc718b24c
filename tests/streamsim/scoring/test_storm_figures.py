"""STORM-Bench's figures against a computation of their own, written from the paper's formulas.

``expected`` below knows nothing of streamsim: plain dicts in, exact fractions inside, no numpy.
"""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsim.episodes.episode import KeyEntry, seconds_to_ns
from streamsim.scoring.answers import Prediction, ScoredItem, join_exact
from streamsim.scoring.storm import FIGURES, CauseRule
from streamsim.scoring.summary import score_subset, summarise

SIX = [
    "missing_observation",
    "partial_observation",
    "low_visual_quality",
    "ambiguous_evidence",
    "ambiguous_attribute",
    "multiple_candidates",
]
Row = dict[str, Any]

# ------------------------------------------------------------------------- the formulas, from the paper


def expected(rows: list[Row], gated: bool = True) -> dict[str, float | None]:
    """Every figure by name; None where it is undefined."""
    cells: dict[str, list[Row]] = {}
    for row in rows:
        level = "low" if row["c"] in (1, 2, 3) else "mid" if row["c"] in (4, 5, 6) else "high"
        cells.setdefault(f"{level}_{row['s']}", []).append(row)
    order = [f"{level}_{s}" for level in ("low", "mid", "high") for s in ("known", "uncertain")]
    known = [row for row in rows if row["s"] == "known"]
    uncertain = [row for row in rows if row["s"] == "uncertain"]
    j_cell = {name: mean(J(row) for row in cells[name]) for name in order if name in cells}
    t_cell = {name: mean(right(row) for row in cells[name]) for name in order if name in cells}
    attr_cell = {
        name: mean(J(row) * (f1(row, gated) if row["s"] == "uncertain" else 1) for row in cells[name])
        for name in order
        if name in cells
    }
    recalls = [mean(row["s_hat"] == s for row in rows if row["s"] == s) for s in ("known", "uncertain")]
    levels = {"low": range(1, 4), "mid": range(4, 7), "high": range(7, 11)}
    out: dict[str, Fraction | None] = {
        "task_accuracy": mean(right(row) for row in rows),
        "storm_br": harmonic(
            [Fraction(sum(map(J, cells[name])) + 1, len(cells[name]) + 2) for name in order if name in cells]
        ),
        "storm_br_unsmoothed": harmonic(list(j_cell.values())),
        "storm_br_attr": harmonic(list(attr_cell.values())),
        "overconfidence": mean(row["s_hat"] == "known" for row in uncertain),
        "underconfidence": mean(row["s_hat"] == "uncertain" for row in known),
        "kci": mean_of([mean(right(row) for row in known if row["c"] in level) for level in levels.values()]),
        "kci_all_items": mean_of(
            [mean(right(row) for row in rows if row["c"] in level) for level in levels.values()]
        ),
        "epi": mean_of([mean(map(J, known)), mean(map(J, uncertain))]),
        "known_joint": mean(map(J, known)),
        "uncertain_joint": mean(map(J, uncertain)),
        "worst_cell": min((value for value in j_cell.values() if value is not None), default=None),
        "known_drop": minus(t_cell.get("low_known"), t_cell.get("high_known")),
        "known_joint_drop": minus(j_cell.get("low_known"), j_cell.get("high_known")),
        "uncertain_joint_drop": minus(j_cell.get("low_uncertain"), j_cell.get("high_uncertain")),
        "high_intensity": harmonic([j_cell["high_known"], j_cell["high_uncertain"]])
        if "high_known" in cells and "high_uncertain" in cells
        else None,
        "status_balanced_accuracy": mean_of(recalls),
        "cause_f1": mean(f1(row, gated) for row in uncertain),
    }
    per_label = []
    tp_all = fp_all = fn_all = 0
    for label in SIX:
        tp = sum(label in said(row, gated) and label in row["g"] for row in uncertain)
        fp = sum(label in said(row, gated) and label not in row["g"] for row in uncertain)
        fn = sum(label not in said(row, gated) and label in row["g"] for row in uncertain)
        out[f"cause.{label}"] = Fraction(2 * tp, 2 * tp + fp + fn) if tp + fn else None
        if tp + fn:
            per_label.append(out[f"cause.{label}"])
        tp_all, fp_all, fn_all = tp_all + tp, fp_all + fp, fn_all + fn
    out["cause_f1_macro"] = mean_of(per_label)
    both = 2 * tp_all + fp_all + fn_all
    out["cause_f1_micro"] = Fraction(2 * tp_all, both) if both else None
    for name in order:
        out[f"cell.{name}"], out[f"task.{name}"] = j_cell.get(name), t_cell.get(name)
    for name, inside in (("0-2s", (-1, 2)), ("2-5s", (2, 5)), ("over_5s", (5, math.inf))):
        part = [row for row in rows if inside[0] < age(row) <= inside[1]]
        out[f"age.{name}.task_accuracy"] = mean(right(row) for row in part)
        out[f"age.{name}.joint_accuracy"] = mean(map(J, part))
        grid = [[row for row in part if row in cells.get(cell, [])] for cell in order]
        out[f"age.{name}.storm_br"] = harmonic(
            [Fraction(sum(map(J, cell)) + 1, len(cell) + 2) for cell in grid if cell]
        )
    return {name: None if value is None else float(value) for name, value in out.items()}


def right(row: Row) -> bool:
    return bool(row["a_hat"] == row["a"])


def J(row: Row) -> bool:
    return right(row) and bool(row["s_hat"] == row["s"])


def said(row: Row, gated: bool) -> set[str]:
    return set(row["c_hat"]) if row["s_hat"] == "uncertain" or not gated else set()


def f1(row: Row, gated: bool) -> Fraction:
    size = len(said(row, gated)) + len(row["g"])
    return Fraction(2 * len(said(row, gated) & set(row["g"])), size) if size else Fraction(1)


def age(row: Row) -> float:
    return max(0.0, float(row["t"]) - max((float(end) for _, end in row["spans"]), default=0.0))


def mean(values: Any) -> Fraction | None:
    found = [Fraction(value) for value in values]
    return sum(found, Fraction()) / len(found) if found else None


def mean_of(values: list[Fraction | None]) -> Fraction | None:
    return mean(value for value in values if value is not None)


def harmonic(values: list[Fraction | None]) -> Fraction | None:
    found = [value for value in values if value is not None]
    if not found:
        return None
    return Fraction(0) if 0 in found else len(found) / sum((1 / value for value in found), Fraction())


def minus(first: Fraction | None, second: Fraction | None) -> Fraction | None:
    return None if first is None or second is None else first - second


# ------------------------------------------------------------------------------ rows for both sides


def scored(rows: list[Row]) -> list[ScoredItem]:
    key = {
        row["id"]: KeyEntry(
            id=row["id"],
            episode_id=row["episode"],
            subset="storm_x",
            media_ns=seconds_to_ns(row["t"]),
            answer_index=row["a"],
            status=row["s"],
            causes=tuple(row["g"]),
            intensity=row["c"],
            spans_ns=tuple((seconds_to_ns(start), seconds_to_ns(end)) for start, end in row["spans"]),
        )
        for row in rows
    }
    predictions = [
        Prediction(id=row["id"], answer_index=row["a_hat"], status=row["s_hat"], causes=tuple(row["c_hat"]))
        for row in rows
    ]
    return join_exact(predictions, key)


def random_rows(seed: int, count: int = 200, episodes: int = 17, **fixed: Any) -> list[Row]:
    """Rows with some agreement between prediction and gold; ``fixed`` maps a field to its choices."""
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        s = rng.choice(fixed.get("s", ["known", "known", "uncertain"]))
        a, t = rng.randrange(4), rng.choice([0, 2.0, 5, 7.5, 17.05, 48])
        g = rng.sample(SIX, rng.randint(1, 4)) if s == "uncertain" else []
        spans = sorted([t * rng.choice([0, 0.4, 0.75, 1]), t * rng.choice([0.5, 1])] for _ in range(2))
        rows.append(
            {
                "id": f"q{number}",
                "episode": f"episode {rng.randrange(episodes)}",
                "c": rng.choice(fixed.get("c", range(1, 11))),
                "s": s,
                "a": a,
                "g": g,
                "t": t,
                "spans": rng.choice([[], spans]),
                "a_hat": rng.choice([a, a, a, (a + 1) % 4, None])
                if fixed.get("right", True)
                else (a + 1) % 4,
                "s_hat": rng.choice(fixed.get("s_hat", [s, s, "known", "uncertain", None])),
                "c_hat": rng.choice([g, g, rng.sample(SIX, rng.randint(0, 6))]),
            }
        )
    return rows


def agrees(rows: list[Row], rule: CauseRule = "paper") -> None:
    scores = score_subset(scored(rows), cause_rule=rule, replicates=1)
    wanted = expected(rows, gated=rule == "paper")
    assert set(scores.point) == set(wanted)
    assert set(FIGURES) <= set(wanted)
    for name, value in wanted.items():
        assert scores.point[name] == (None if value is None else pytest.approx(value, abs=1e-12)), name


@pytest.mark.parametrize("seed", range(8))
def test_random_predictions(seed: int) -> None:
    agrees(random_rows(seed))
    agrees(random_rows(seed), "storm-evaluator")


@pytest.mark.parametrize(
    "fixed",
    [
        pytest.param({"c": range(1, 7)}, id="music: no high intensity, four cells"),
        pytest.param({"s": ["known"]}, id="no uncertain items"),
        pytest.param({"s": ["uncertain"]}, id="no known items"),
        pytest.param({"right": False}, id="all wrong"),
        pytest.param({"s_hat": ["known"]}, id="always sure: causes never count"),
        pytest.param({"s_hat": ["uncertain"]}, id="never sure"),
        pytest.param({"s_hat": [None]}, id="no valid status"),
        pytest.param({"c": [10], "s": ["uncertain"]}, id="one cell"),
    ],
)
def test_lopsided_data(fixed: Row) -> None:
    for seed in range(3):
        agrees(random_rows(seed, 40, **fixed))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 12), episodes=st.integers(1, 4))
def test_tiny_sets_with_empty_cells(seed: int, count: int, episodes: int) -> None:
    agrees(random_rows(seed, count, episodes))


# ----------------------------------------------------------------------------------- worked by hand


def row(number: int, c: int, s: str, **other: Any) -> Row:
    """Answered right with the right status and no causes, unless said otherwise."""
    right_row = {"id": f"q{number}", "episode": "e", "c": c, "s": s, "a": 0, "g": [], "t": 9.0, "spans": []}
    return right_row | {"a_hat": 0, "s_hat": s, "c_hat": []} | other


def test_two_cells_by_hand() -> None:
    """low_known 1 of 2: (1+1)/(2+2) = 1/2; low_uncertain 0 of 1: (0+1)/(1+2) = 1/3; 2/(2 + 3) = 0.4."""
    rows = [row(1, 1, "known"), row(2, 3, "known", a_hat=1), row(3, 2, "uncertain", s_hat="known", g=SIX[:1])]
    point = score_subset(scored(rows), replicates=1).point
    assert point["storm_br"] == pytest.approx(0.4, abs=1e-15)
    assert point["cell.low_known"] == 0.5
    assert point["cell.low_uncertain"] == 0.0
    assert point["cell.mid_known"] is None
    assert point["storm_br_unsmoothed"] == point["storm_br_attr"] == point["worst_cell"] == 0.0
    assert point["task_accuracy"] == pytest.approx(2 / 3)
    assert point["overconfidence"] == 1.0
    assert point["underconfidence"] == 0.0
    assert point["epi"] == 0.25
    assert point["kci"] == 0.5
    assert point["high_intensity"] is None


def test_attribution_by_hand() -> None:
    """high_uncertain: F1 of {A, D} against {A} is 2/3, of {B} is 0, mean 1/3; high_known 1: 2/(1 + 3)."""
    rows = [
        row(1, 7, "known"),
        row(2, 10, "uncertain", g=SIX[:1], c_hat=[SIX[0], SIX[3]]),
        row(3, 9, "uncertain", g=SIX[:1], c_hat=[SIX[1]]),
    ]
    point = score_subset(scored(rows), replicates=1).point
    assert point["storm_br_attr"] == pytest.approx(0.5, abs=1e-15)
    assert point["cause_f1"] == pytest.approx(1 / 3, abs=1e-15)
    assert point["cause_f1_micro"] == pytest.approx(2 * 1 / (2 * 1 + 2 + 1), abs=1e-15)
    assert point["cause_f1_macro"] == pytest.approx(2 * 1 / (2 * 1 + 0 + 1), abs=1e-15)
    assert point["cause.ambiguous_evidence"] is None
    assert point["high_intensity"] == 1.0
    assert point["age.over_5s.storm_br"] == pytest.approx(2 / (1 / (2 / 3) + 1 / (3 / 4)), abs=1e-15)


def test_causes_count_only_under_an_uncertain_status() -> None:
    rows = [row(1, 5, "uncertain", g=SIX[:2], s_hat="known", c_hat=SIX[:2])]
    assert score_subset(scored(rows), replicates=1).point["cause_f1"] == 0.0
    assert score_subset(scored(rows), cause_rule="storm-evaluator", replicates=1).point["cause_f1"] == 1.0


def test_items_without_labels_count_only_where_none_is_needed() -> None:
    """Two unlabelled items, one right, both without predicted status, beside a labelled one."""
    labelled = row(1, 8, "known", t=1.0)
    bare = [row(n, None, None, s_hat=None, a_hat=n % 2, t=1.0) for n in (2, 3)]  # type: ignore[arg-type]
    alone, mixed = (score_subset(scored(rows), replicates=1) for rows in ([labelled], [labelled, *bare]))
    counted = {"task_accuracy", "age.0-2s.task_accuracy"}
    assert {name: alone.point[name] for name in alone.point if name not in counted} == {
        name: mixed.point[name] for name in mixed.point if name not in counted
    }
    assert [mixed.point[name] for name in counted] == [pytest.approx(2 / 3)] * 2


def test_ages_at_the_edges_of_the_bins() -> None:
    """[0, 2], (2, 5], (5, ∞) seconds; 0 where a span ends after the query; without spans age is t."""
    rows = [
        row(1, 1, "known", t=10.0, spans=[[0, 8.0]]),
        row(2, 1, "known", t=10.0, spans=[[9, 12.0]]),
        row(3, 1, "known", t=10.0, spans=[[0, 7.999]]),
        row(4, 1, "known", t=10.0, spans=[[0, 5.0], [1, 2]]),
        row(5, 1, "known", t=10.0, spans=[[0, 4.99]]),
        row(6, 1, "known", t=5.5),
    ]
    by_age = summarise([scored(rows)], replicates=2)["by_age"]
    assert isinstance(by_age, dict)
    assert {name: part["n"] for name, part in by_age.items()} == {"0-2s": 2, "2-5s": 2, "over_5s": 2}


def test_blind_heuristic() -> None:
    """Abstain where there is an abstention option, else guess: (0.25·K + U) / N; on Cook 39.72 %."""
    known, uncertain = 2120, 520
    rows = [row(n, 1 + n % 10, "known", a=n % 4, a_hat=0, s_hat="uncertain") for n in range(known)]
    rows += [row(known + n, 1 + n % 10, "uncertain", a=3, a_hat=3, g=SIX[:1]) for n in range(uncertain)]
    summary = summarise([scored(rows)], replicates=2)
    assert summary["task_accuracy"] == pytest.approx(
        (0.25 * known + uncertain) / (known + uncertain), abs=1e-12
    )
    assert summary["overconfidence"] == 0.0
    assert summary["underconfidence"] == 1.0
    assert summary["worst_cell"] == 0.0
    assert round((0.25 * 2122 + 518) / 2640, 4) == 0.3972  # the paper's own arithmetic, appendix A.7

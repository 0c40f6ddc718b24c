"""STORM-Bench rows to episodes: the benchmark's permutation, its path rules, and rows to refuse."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsim.episodes.episode import EpisodeQuery, KeyEntry
from streamsim.episodes.formats.imported import Imported
from streamsim.episodes.formats.row import RowFile, parse_json_rows
from streamsim.episodes.formats.storm import import_storm, option_permutation, subset_of, video_path

COOK = "data/storm/storm_cook.P02.rows.questions.jsonl"
SIM = "data/storm/storm_sim.FloorPlan406.rows.questions.jsonl"

ROW: Mapping[str, Any] = {
    "id": "e1_q01",
    "episode_id": "e1",
    "query_time": 17.05,
    "question_type": "current_state",
    "question_subtype": "colour",
    "question": "What colour is the door?",
    "options": ["Red", "Green", "Blue", "It cannot be told"],
    "answer_index": 2,
    "evidence_spans": [[3.0, 3.0], [5, 17.05]],
    "video_evidence": "Seen from 5 s on.",
    "change_intensity": 4,
    "diagnostics": {"epistemic_status": "known", "uncertainty_sources": []},
    "diagnostic_rationale": {"volatility": "It is painted.", "uncertainty": ""},
}


def row(**changes: Any) -> dict[str, Any]:
    """A legal row with changes; None removes a key."""
    changed = copy.deepcopy(dict(ROW)) | changes
    return {key: value for key, value in changed.items() if value is not None}


def rows_of(data: str | bytes, name: str) -> RowFile:
    return RowFile(name=name, rows=parse_json_rows(data.encode() if isinstance(data, str) else data, name))


def imported(
    *rows: Any, manifest: list[Any] | None = None, name: str = "storm_x.questions.jsonl"
) -> Imported:
    questions = rows_of("".join(json.dumps(value) + "\n" for value in rows), name)
    manifests = [rows_of(json.dumps(manifest), "m.json")] if manifest is not None else []
    return import_storm(questions=[questions], manifests=manifests, name="d", locate=located)


def located(subset: str, video: str) -> Path:
    return Path("/videos") / subset / video


def only(result: Imported) -> tuple[EpisodeQuery, KeyEntry]:
    assert result.findings == ()
    (episode,), (entry,) = result.episodes, result.key
    (query,) = episode.queries
    return query, entry


def stored_rows(path: Path) -> dict[str, dict[str, Any]]:
    return {value["id"]: value for value in map(json.loads, path.read_text().splitlines())}


# ------------------------------------------------------------------------------------- real rows


def test_published_permutations_of_real_rows(test_data: Path) -> None:
    path = test_data / COOK
    result = import_storm([rows_of(path.read_bytes(), path.name)], name="d", locate=located)
    assert result.findings == ()
    key = {entry.id: entry for entry in result.key}
    first = key["P02-20240210-220650_revisit_q01"]
    assert (first.permutation, first.answer_index) == ((1, 2, 3, 0), 1)
    twelfth = key["P02-20240210-220650_revisit_q12"]
    assert (twelfth.permutation, twelfth.answer_index) == ((0, 3, 2, 1), 3)


@pytest.mark.parametrize(("file", "subset", "count"), [(COOK, "storm_cook", 3), (SIM, "storm_sim", 4)])
def test_real_rows_keep_the_gold_text_and_all_labels(
    test_data: Path, file: str, subset: str, count: int
) -> None:
    path = test_data / file
    stored = stored_rows(path)
    result = import_storm([rows_of(path.read_bytes(), path.name)], name="d", locate=located)
    queries = {query.id: query for episode in result.episodes for query in episode.queries}
    assert result.findings == ()
    assert len(result.key) == len(queries) == count
    for entry in result.key:
        source, query = stored[entry.id], queries[entry.id]
        assert entry.answer_index is not None
        assert query.options[entry.answer_index] == source["options"][source["answer_index"]]
        assert sorted(query.options) == sorted(source["options"])
        assert query.stem == source["question"]
        assert entry.status == source["diagnostics"]["epistemic_status"]
        assert list(entry.causes) == source["diagnostics"]["uncertainty_sources"]
        assert entry.intensity == source["change_intensity"]
        assert entry.subset == subset
        assert [[start / 1e9, end / 1e9] for start, end in entry.spans_ns] == source["evidence_spans"]
        assert entry.notes["video_evidence"] == source["video_evidence"]


def test_real_episodes_find_their_video_by_the_episode_id(test_data: Path) -> None:
    for file, path in [
        (COOK, "/videos/storm_cook/P02/P02-20240210-220650_revisit.mp4"),
        (
            SIM,
            "/videos/storm_sim/FloorPlan406/STORM_FloorPlan406_seed323460856_96a9e1cc113f.mp4",
        ),
    ]:
        questions = rows_of((test_data / file).read_bytes(), file)
        (episode,) = import_storm([questions], name="d", locate=located).episodes
        assert episode.video == path


# ------------------------------------------------------------------------------------ permutation


@given(sample_id=st.text(min_size=1).filter(lambda text: text.isprintable()), count=st.integers(0, 26))
def test_permutation_is_a_bijection_in_order_of_digests(sample_id: str, count: int) -> None:
    order = option_permutation(sample_id, count)
    assert sorted(order) == list(range(count))
    digests = [hashlib.sha256(f"{sample_id}:{index}".encode()).hexdigest() for index in order]
    assert digests == sorted(digests)


@given(
    sample_id=st.from_regex(r"[\w-]{1,40}", fullmatch=True),
    options=st.lists(st.from_regex(r"[a-z]{1,8}", fullmatch=True), min_size=4, max_size=4, unique=True),
    answer=st.integers(0, 3),
)
def test_gold_moves_with_its_option(sample_id: str, options: list[str], answer: int) -> None:
    query, entry = only(imported(row(id=sample_id, options=options, answer_index=answer)))
    assert entry.answer_index is not None
    assert query.options[entry.answer_index] == options[answer]
    assert query.options == tuple(options[index] for index in entry.permutation)


# ------------------------------------------------------------------------------------------ fields


def test_a_row_becomes_a_query_and_a_key_entry() -> None:
    query, entry = only(imported(row()))
    assert (query.id, query.kind, query.media_ns) == ("e1_q01", "choice", 17_050_000_000)
    assert query.stem == "What colour is the door?"
    assert entry.episode_id == "e1"
    assert entry.media_ns == 17_050_000_000
    assert entry.spans_ns == ((3_000_000_000, 3_000_000_000), (5_000_000_000, 17_050_000_000))
    assert (entry.status, entry.causes, entry.intensity) == ("known", (), 4)
    assert (entry.question_type, entry.question_subtype) == ("current_state", "colour")
    assert entry.notes == {"volatility": "It is painted.", "video_evidence": "Seen from 5 s on."}


def test_a_query_at_zero_seconds_is_legal() -> None:
    query, _ = only(imported(row(query_time=0.0, evidence_spans=[[0.0, 0.0]])))
    assert query.media_ns == 0


def test_intensity_may_stand_under_diagnostics() -> None:
    diagnostics = {"epistemic_status": "known", "uncertainty_sources": [], "change_intensity": 9}
    _, entry = only(imported(row(change_intensity=None, diagnostics=diagnostics)))
    assert entry.intensity == 9


def test_optional_fields_may_be_absent() -> None:
    query, entry = only(
        imported(
            row(
                question_subtype=None,
                evidence_spans=None,
                video_evidence=None,
                diagnostic_rationale=None,
                diagnostics={"epistemic_status": "known"},
            )
        )
    )
    assert query.id == entry.id
    assert (entry.spans_ns, entry.question_subtype, entry.notes, entry.causes) == ((), "", {}, ())


def test_queries_come_in_order_of_time_and_ties_keep_the_order_of_the_file() -> None:
    times = [5, 2, 5, 0.5, 2]
    result = imported(*(row(id=f"q{n}", query_time=t, evidence_spans=[]) for n, t in enumerate(times)))
    (episode,) = result.episodes
    assert [query.id for query in episode.queries] == ["q3", "q1", "q4", "q0", "q2"]
    assert [entry.id for entry in result.key] == ["q3", "q1", "q4", "q0", "q2"]


# ------------------------------------------------------------------------------------ file shapes


def test_all_file_shapes_give_the_same() -> None:
    rows = [row(), row(id="e1_q02"), row(id="e2_q01", episode_id="e2")]
    shapes = [
        "\n".join(map(json.dumps, rows)),
        json.dumps(rows),
        json.dumps(rows, indent=2),
        json.dumps({"qa_samples": rows}, indent=1),
        json.dumps([{"qa_samples": rows[:2]}, {"qa_samples": rows[2:]}]),
        "\n".join([json.dumps({"qa_samples": rows[:2]}), json.dumps({"qa_samples": rows[2:]})]),
    ]
    results = [
        import_storm([rows_of(shape, "s.questions.json")], name="d", locate=located) for shape in shapes
    ]
    assert all(result == results[0] for result in results)
    assert [len(episode.queries) for episode in results[0].episodes] == [2, 1]


def test_samples_of_an_episode_file_inherit_its_episode_id() -> None:
    document = {"episode_id": "e7", "qa_samples": [row(episode_id=None)]}
    (episode,) = imported(document).episodes
    assert episode.id == "e7"


def test_several_files_keep_their_subsets() -> None:
    files = [
        rows_of(json.dumps(row()), "in/storm_cook.questions.jsonl"),
        rows_of(json.dumps(row(id="q2", episode_id="e2")), "storm_sim.P1.questions.jsonl"),
    ]
    result = import_storm(files, name="d", locate=located)
    assert [episode.subset for episode in result.episodes] == ["storm_cook", "storm_sim"]
    assert result.info.chain == "full"


# ---------------------------------------------------------------------------------------- manifest


def test_a_manifest_gives_subset_and_path() -> None:
    manifest = [
        {"subset": "cook", "episode_id": "e1", "participant": "P1", "video_path": "x/y.mp4"},
        {"subset": "cook", "episode_id": "unasked", "video_path": "z.mp4"},
    ]
    result = imported(row(), row(id="q2", episode_id="P02-1"), manifest=manifest)
    assert [(e.subset, e.video) for e in result.episodes] == [
        ("cook", "/videos/cook/x/y.mp4"),
        ("storm_x", "/videos/storm_x/P02/P02-1.mp4"),
    ]
    assert [entry.subset for entry in result.key] == ["cook", "storm_x"]


def test_a_manifest_that_counts_otherwise_is_a_warning() -> None:
    manifest = [{"episode_id": "e1", "num_questions": 2, "query_times": [17.05, 20.0]}]
    result = imported(row(), manifest=manifest)
    assert result.refused == 0
    assert [(f.level, f.item, f.field) for f in result.findings] == [
        ("warning", "e1", "num_questions"),
        ("warning", "e1", "query_times"),
    ]
    assert "20 s" in result.findings[1].text


def test_real_manifest_rows_are_read(test_data: Path) -> None:
    manifest = (test_data / "data/storm/storm_music.videos.head.jsonl").read_bytes()
    asked = row(episode_id="iiith_guitar_002_window001_revisit")
    result = import_storm(
        [rows_of(json.dumps(asked), "q.jsonl")], [rows_of(manifest, "m")], name="d", locate=located
    )
    (episode,) = result.episodes
    assert episode.subset == "storm_music"
    assert episode.video == "/videos/storm_music/iiith_guitar_002_window001_revisit.mp4"


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (5, "row"),
        ({"subset": "s"}, "episode_id"),
        ({"episode_id": "e1", "video_path": 5}, "video_path"),
        ({"episode_id": "e1", "num_questions": "3"}, "num_questions"),
        ({"episode_id": "e1", "query_times": [-1]}, "query_times"),
        ({"episode_id": "e0"}, "episode_id"),
    ],
)
def test_illegal_manifest_rows_are_reported_and_left_out(bad: object, field: str) -> None:
    result = imported(row(), manifest=[{"episode_id": "e0", "subset": "first"}, bad])
    assert [(f.level, f.file, f.field) for f in result.findings] == [("error", "m.json", field)]
    assert [episode.id for episode in result.episodes] == ["e1"]


@pytest.mark.parametrize(
    ("episode_id", "path"),
    [
        ("P02-20240210-220650_revisit", "P02/P02-20240210-220650_revisit.mp4"),
        ("STORM_FloorPlan406_seed3_96a9", "FloorPlan406/STORM_FloorPlan406_seed3_96a9.mp4"),
        ("scene_5_room_162_seed_7", "Scene5_Room162/scene_5_room_162_seed_7.mp4"),
        ("cmu_bike01_window001_revisit", "cmu_bike01_window001_revisit.mp4"),
        ("Park-1", "Park-1.mp4"),
    ],
)
def test_path_rules(episode_id: str, path: str) -> None:
    assert video_path(episode_id) == path


@pytest.mark.parametrize(
    ("file", "subset"),
    [("a/b/storm_cook.P02.rows.questions.jsonl", "storm_cook"), ("drive", "drive"), (".x.jsonl", ".x.jsonl")],
)
def test_subset_is_the_name_up_to_the_first_dot(file: str, subset: str) -> None:
    assert subset_of(file) == subset


# -------------------------------------------------------------------------------------- refusals

KNOWN, UNSURE = {"epistemic_status": "known"}, {"epistemic_status": "uncertain"}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"id": None}, "id"),
        ({"id": 5}, "id"),
        ({"id": " "}, "id"),
        ({"id": "\ud800"}, "id"),
        ({"episode_id": None}, "episode_id"),
        ({"episode_id": "../up"}, "episode_id"),
        ({"episode_id": ".hidden"}, "episode_id"),
        ({"query_time": None}, "query_time"),
        ({"query_time": "17"}, "query_time"),
        ({"query_time": True}, "query_time"),
        ({"query_time": -0.5}, "query_time"),
        ({"query_time": float("nan")}, "query_time"),
        ({"query_time": float("inf")}, "query_time"),
        ({"query_time": 1e12}, "query_time"),
        ({"question_type": "guessing"}, "question_type"),
        ({"question_type": None}, "question_type"),
        ({"question": ""}, "question"),
        ({"options": None}, "options"),
        ({"options": ["a", "b", "c"], "answer_index": 0}, "options"),
        ({"options": ["a", "b", "c", "d", "e"]}, "options"),
        ({"options": ["a", "b", "c", "a "]}, "options"),
        ({"options": ["a", "b", "c", ""]}, "options"),
        ({"options": ["a", "b", "c", 4]}, "options"),
        ({"options": {"A": "a"}}, "options"),
        ({"answer_index": None}, "answer_index"),
        ({"answer_index": 4}, "answer_index"),
        ({"answer_index": -1}, "answer_index"),
        ({"answer_index": "2"}, "answer_index"),
        ({"answer_index": True}, "answer_index"),
        ({"answer_index": 1.5}, "answer_index"),
        ({"evidence_spans": [[5, 3]]}, "evidence_spans"),
        ({"evidence_spans": [[5, 18]]}, "evidence_spans"),
        ({"evidence_spans": [[-1, 3]]}, "evidence_spans"),
        ({"evidence_spans": [5, 6]}, "evidence_spans"),
        ({"evidence_spans": [[5]]}, "evidence_spans"),
        ({"evidence_spans": "5-6"}, "evidence_spans"),
        ({"change_intensity": 0}, "change_intensity"),
        ({"change_intensity": 11}, "change_intensity"),
        ({"change_intensity": 4.5}, "change_intensity"),
        ({"change_intensity": None}, "change_intensity"),
        ({"diagnostics": {**KNOWN, "change_intensity": 5}}, "diagnostics.change_intensity"),
        ({"diagnostics": None}, "diagnostics"),
        ({"diagnostics": {"epistemic_status": "maybe"}}, "diagnostics.epistemic_status"),
        ({"diagnostics": {"epistemic_status": ["known"]}}, "diagnostics.epistemic_status"),
        (
            {"diagnostics": {**KNOWN, "uncertainty_sources": ["missing_observation"]}},
            "diagnostics.uncertainty_sources",
        ),
        ({"diagnostics": {**UNSURE, "uncertainty_sources": []}}, "diagnostics.uncertainty_sources"),
        ({"diagnostics": UNSURE}, "diagnostics.uncertainty_sources"),
        ({"diagnostics": {**UNSURE, "uncertainty_sources": ["fog"]}}, "diagnostics.uncertainty_sources"),
        (
            {"diagnostics": {**UNSURE, "uncertainty_sources": ["missing_observation"] * 2}},
            "diagnostics.uncertainty_sources",
        ),
    ],
)
def test_an_illegal_row_is_reported_with_its_field_and_left_out(change: dict[str, Any], field: str) -> None:
    result = imported(row(id="good", evidence_spans=[]), row(**change))
    assert result.refused == 1
    assert [entry.id for entry in result.key] == ["good"]
    assert {finding.field for finding in result.findings} == {field}
    assert all(f.level == "error" and f.line == 2 for f in result.findings)
    named = isinstance(change.get("id", "e1_q01"), str)
    assert result.findings[0].item == (change.get("id", "e1_q01") if named else "row 2")


def test_a_row_that_is_no_object_is_illegal() -> None:
    result = imported(row(), "text", {"qa_samples": 5})
    assert [(f.item, f.line, f.field) for f in result.findings] == [
        ("row 2", 2, "row"),
        ("row 3", 3, "qa_samples"),
    ]
    assert len(result.key) == 1


def test_a_repeated_id_is_refused_and_the_first_is_kept() -> None:
    result = imported(row(), row(episode_id="e2", question="Another?"))
    assert [(f.item, f.line, f.field) for f in result.findings] == [("e1_q01", 2, "id")]
    assert "storm_x.questions.jsonl:1" in result.findings[0].text
    assert [episode.id for episode in result.episodes] == ["e1"]


def test_an_episode_in_two_subsets_is_refused() -> None:
    files = [rows_of(json.dumps(row()), "a.jsonl"), rows_of(json.dumps(row(id="q2")), "b.jsonl")]
    result = import_storm(files, name="d", locate=located)
    assert [(f.file, f.field) for f in result.findings] == [("b.jsonl", "subset")]
    assert len(result.key) == 1


def test_all_faults_of_a_row_are_reported_at_once() -> None:
    result = imported(row(question_type="x", change_intensity=12, evidence_spans=[[9, 8]]))
    assert [f.field for f in result.findings] == ["change_intensity", "evidence_spans", "question_type"]
    assert result.refused == 1
    assert result.episodes == ()

"""Each planted fault is found, with file, item and field; a sound dataset has none."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from streamsim.episodes.check import EPISODES, INFO, KEY, check_dataset, preflight
from streamsim.episodes.dataset import DatasetInfo, load_dataset, write_dataset
from streamsim.episodes.episode import Episode, EpisodeQuery, KeyEntry
from streamsim.episodes.finding import Finding
from streamsim.episodes.formats.storm import option_permutation

Plant = Callable[[dict[str, Any]], object]
SECOND = 1_000_000_000


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six pictures, one a second, 32 × 32: it ends at 6 s."""
    path = tmp_path_factory.mktemp("clip") / "six.mp4"
    with av.open(path, "w") as container:
        stream = container.add_stream("mpeg4", rate=1)
        stream.width = stream.height = 32
        stream.pix_fmt = "yuv420p"
        for level in range(6):
            picture = av.VideoFrame.from_ndarray(np.full((32, 32, 3), 40 * level, np.uint8), format="rgb24")
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))
    return path


@pytest.fixture
def folder(tmp_path: Path, clip: Path) -> Path:
    """A sound dataset of two episodes on one clip, by the rules of STORM-Bench."""
    episodes, key = [], []
    for episode_id in ("e1", "e2"):
        queries = []
        for number, media_ns in enumerate([0, 3 * SECOND, 6 * SECOND]):
            query_id = f"{episode_id}_q{number}"
            order = option_permutation(query_id, 4)
            options = tuple(("red", "blue", "gold", "pink")[index] for index in order)
            queries.append(
                EpisodeQuery(
                    id=query_id, kind="choice", media_ns=media_ns, stem="Which colour?", options=options
                )
            )
            key.append(
                KeyEntry(
                    id=query_id,
                    episode_id=episode_id,
                    subset="s",
                    media_ns=media_ns,
                    answer_index=number,
                    permutation=order,
                    status="uncertain" if number == 2 else "known",
                    causes=("missing_observation",) if number == 2 else (),
                    intensity=number + 1,
                    spans_ns=((0, media_ns),),
                    question_type="current_state",
                )
            )
        episodes.append(Episode(id=episode_id, subset="s", video=str(clip), queries=tuple(queries)))
    info = DatasetInfo(name="d", chain="full", source="STORM-Bench: made for this test")
    write_dataset(tmp_path / "d", info, episodes, key)
    return tmp_path / "d"


def change(folder: Path, file: str, line: int, plant: Plant) -> None:
    """Change one record of a file, counted from 1, in place."""
    path = folder / file
    lines = path.read_text().splitlines()
    record = json.loads(lines[line - 1])
    plant(record)
    path.write_text("".join(f"{text}\n" for text in [*lines[: line - 1], json.dumps(record), *lines[line:]]))


def found(folder: Path, level: str = "error") -> list[tuple[str, int | None, str, str]]:
    findings = check_dataset(folder).findings
    return [(f.file, f.line, f.item, f.field) for f in findings if f.level == level]


def setting(*path: str | int, to: object) -> Plant:
    """Set a value deep in a record."""

    def plant(record: Any) -> None:
        for step in path[:-1]:
            record = record[step]
        record[path[-1]] = to

    return plant


def test_a_sound_dataset_has_no_findings(folder: Path) -> None:
    checked = check_dataset(folder)
    assert checked.findings == ()
    assert (checked.episodes, checked.queries) == (2, 6)
    assert check_dataset(folder / "public") == checked


@pytest.mark.parametrize(
    ("plant", "item", "field"),
    [
        (setting("id", to="e1"), "e1", "id"),
        (setting("id", to="a/b"), "a/b", "id"),
        (setting("video", to="videos/none.mp4"), "e2", "video"),
        (setting("video", to=""), "e2", "video"),
        (setting("queries", 1, "id", to="e1_q0"), "e1_q0", "id"),
        (setting("queries", 1, "media_ns", to=-1), "e2_q1", "media_ns"),
        (setting("queries", 2, "media_ns", to=6 * SECOND + 1_001), "e2_q2", "media_ns"),
        (setting("queries", 0, "media_ns", to=4 * SECOND), "e2", "queries"),
        (setting("queries", 1, "stem", to=" "), "e2_q1", "stem"),
        (setting("queries", 1, "options", to=["red"]), "e2_q1", "options"),
        (setting("queries", 1, "options", 2, to="red "), "e2_q1", "options"),
        (setting("queries", 1, "kind", to="open"), "e2_q1", "options"),
        (setting("queries", 1, "kind", to="riddle"), "line 2", "queries[1].kind"),
        (setting("queries", 1, "media_ns", to="3"), "line 2", "queries[1].media_ns"),
        (setting("length", to=6), "line 2", "row"),
    ],
)
def test_a_fault_of_the_public_half_is_named(folder: Path, plant: Plant, item: str, field: str) -> None:
    change(folder, EPISODES, 2, plant)
    assert (EPISODES, 2, item, field) in found(folder)


@pytest.mark.parametrize(
    ("plant", "item", "field"),
    [
        (setting("id", to="e1_q0"), "e1_q0", "id"),
        (setting("id", to="other"), "other", "id"),
        (setting("episode_id", to="e1"), "e2_q2", "episode_id"),
        (setting("subset", to="t"), "e2_q2", "subset"),
        (setting("media_ns", to=1), "e2_q2", "media_ns"),
        (setting("answer_index", to=4), "e2_q2", "answer_index"),
        (setting("answer_index", to=None), "e2_q2", "answer_index"),
        (setting("answer_index", to=1.5), "line 6", "answer_index"),
        (setting("permutation", to=[0, 1, 2, 2]), "e2_q2", "permutation"),
        (setting("permutation", to=[]), "e2_q2", "permutation"),
        (setting("status", to="known"), "e2_q2", "causes"),
        (setting("status", to=None), "e2_q2", "status"),
        (setting("status", to="unsure"), "line 6", "status"),
        (setting("causes", to=[]), "e2_q2", "causes"),
        (setting("causes", to=["fog"]), "e2_q2", "causes"),
        (setting("intensity", to=0), "e2_q2", "intensity"),
        (setting("intensity", to=11), "e2_q2", "intensity"),
        (setting("intensity", to=None), "e2_q2", "intensity"),
        (setting("spans_ns", to=[[2, 1]]), "e2_q2", "spans_ns"),
        (setting("spans_ns", to=[[0, 6 * SECOND + 1_001]]), "e2_q2", "spans_ns"),
        (setting("spans_ns", to=[[-1, 1]]), "e2_q2", "spans_ns"),
        (setting("question_type", to="riddle"), "e2_q2", "question_type"),
    ],
)
def test_a_fault_of_the_answer_key_is_named(folder: Path, plant: Plant, item: str, field: str) -> None:
    change(folder, KEY, 6, plant)
    assert (KEY, 6, item, field) in found(folder)


def test_a_lawful_but_other_permutation_is_a_fault_for_this_benchmark_only(folder: Path) -> None:
    def rotate(record: dict[str, Any]) -> None:
        record["permutation"] = record["permutation"][1:] + record["permutation"][:1]

    change(folder, KEY, 6, rotate)
    assert found(folder) == [(KEY, 6, "e2_q2", "permutation")]
    change_info(folder, source="my own rows")
    assert found(folder) == []


def test_a_query_without_an_entry_is_named(folder: Path) -> None:
    path = folder / KEY
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert found(folder) == [(KEY, None, "e2_q2", "id")]


def test_a_torn_line_and_an_absent_key_are_faults_of_the_dataset(folder: Path) -> None:
    path = folder / EPISODES
    path.write_text(path.read_text()[:-20])
    assert (EPISODES, 2, "line 2", "row") in found(folder)
    (folder / KEY).unlink()
    assert (KEY, None, "dataset", "file") in found(folder)


def test_a_dataset_without_episodes_is_a_fault(folder: Path) -> None:
    (folder / EPISODES).write_text("")
    (folder / KEY).write_text("")
    assert found(folder) == [(EPISODES, None, "dataset", "episodes")]


def change_info(folder: Path, **values: str) -> None:
    path = folder / INFO
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("name", "value", "field"), [("format", "other/2", "format"), ("chain", "half", "chain")]
)
def test_a_fault_of_the_description_is_named(folder: Path, name: str, value: str, field: str) -> None:
    change_info(folder, **{name: value})
    assert found(folder) == [(INFO, None, "dataset", field)]


# ------------------------------------------------------------------------------------------ videos


def test_the_last_microsecond_after_the_end_is_tolerated(folder: Path) -> None:
    for file, line, plant in [
        (EPISODES, 2, setting("queries", 2, "media_ns", to=6 * SECOND + 1_000)),
        (KEY, 6, setting("media_ns", to=6 * SECOND + 1_000)),
    ]:
        change(folder, file, line, plant)
    assert check_dataset(folder).findings == ()


@pytest.mark.parametrize("name", ["audio_only.m4a", "empty.mp4", "truncated.mp4"])
def test_a_video_that_cannot_be_played_is_named(test_data: Path, folder: Path, name: str) -> None:
    change(folder, EPISODES, 2, setting("video", to=str(test_data / "cases/video" / name)))
    assert found(folder) == [(EPISODES, 2, "e2", "video")]


def test_a_query_that_sees_nothing_is_a_warning(test_data: Path, folder: Path) -> None:
    # sound from 0 s, the first picture at 1.24 s or so: at 1 FPS the first sample with a picture is at 2 s
    late = test_data / "cases/video/video_starts_late.mp4"
    samples = json.loads((test_data / "cases/video/expected.json").read_text())[late.name]["samples"]
    first = next(k for k, picture in enumerate(samples) if picture is not None)
    assert first > 0
    change(folder, EPISODES, 2, setting("video", to=str(late)))
    times = {"e2_q0": 0, "e2_q1": 3 * SECOND, "e2_q2": 6 * SECOND}
    blind = [(EPISODES, 2, query, "media_ns") for query, ns in times.items() if ns < first * SECOND]
    assert found(folder, "warning") == blind


# ---------------------------------------------------------------------------------------- warnings


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("evidence_spans", [(KEY, setting("spans_ns", to=[]))]),
        ("intensity", [(KEY, setting("intensity", to=None))]),
        ("status", [(KEY, lambda record: record.update(status=None, causes=[]))]),
        (
            "answer",
            [
                (KEY, lambda record: record.update(answer_index=None, permutation=[])),
                (EPISODES, lambda record: record["queries"][2].update(kind="open", options=[])),
            ],
        ),
    ],
)
def test_what_is_lacking_is_one_warning_per_subset(
    folder: Path, field: str, changes: list[tuple[str, Plant]]
) -> None:
    change_info(folder, source="my own rows")
    for file, plant in changes:
        change(folder, file, 6 if file == KEY else 2, plant)
    assert found(folder) == []
    (warning,) = check_dataset(folder).findings
    assert (warning.file, warning.item, warning.field) == (KEY, "subset s", field)
    assert warning.text.startswith("1 of 6 queries has ")
    assert "'e2_q2'" in warning.text


def test_a_subset_without_any_evidence_is_worth_a_word_for_the_benchmark_only(folder: Path) -> None:
    for line in range(1, 7):
        change(folder, KEY, line, setting("spans_ns", to=[]))
    (warning,) = check_dataset(folder).findings
    assert str(warning) == (
        "warning: key/answers.jsonl: subset s: evidence_spans: 6 of 6 queries have none: in figures by "
        "evidence age theirs counts from the video's start; the first is 'e1_q0'"
    )
    change_info(folder, source="my own rows")
    assert check_dataset(folder).findings == ()


def test_cues_are_warnings(folder: Path) -> None:
    for line in range(1, 7):
        change(folder, KEY, line, setting("answer_index", to=0))
    (warning,) = check_dataset(folder).findings
    assert (warning.level, warning.item, warning.field) == ("warning", "subset s", "answer_index")


def test_an_episode_without_queries_is_a_warning(folder: Path) -> None:
    change(folder, EPISODES, 2, setting("queries", to=[]))
    path = folder / KEY
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:3]))
    assert found(folder) == []
    assert found(folder, "warning") == [(EPISODES, 2, "e2", "queries")]


# --------------------------------------------------------------------------------------- preflight


@pytest.fixture
def opened() -> Iterator[list[str]]:
    """Every path that is opened while the test runs; an audit hook cannot be taken off again."""
    paths: list[str] = []
    listening = True

    def listen(event: str, args: tuple[object, ...]) -> None:
        if listening and event == "open":
            paths.append(str(args[0]))

    sys.addaudithook(listen)
    yield paths
    listening = False


def test_preflight_sees_the_public_half_only(folder: Path, opened: list[str]) -> None:
    (folder / KEY).write_text("spoilt")
    opened.clear()
    dataset = load_dataset(folder)
    assert preflight(dataset, dataset.episodes) == ()
    assert any(path.endswith("episodes.jsonl") for path in opened)
    assert not any("answers" in path for path in opened)


def test_preflight_finds_what_spoils_the_chosen_episodes(folder: Path) -> None:
    change(folder, EPISODES, 2, setting("video", to="none.mp4"))
    dataset = load_dataset(folder)
    assert preflight(dataset, dataset.episodes[:1]) == ()
    findings = preflight(dataset, dataset.episodes)
    assert findings == (
        Finding(
            level="error",
            file=EPISODES,
            item="e2",
            field="video",
            text=f"missing video: {str(folder / 'public/none.mp4')!r}",
        ),
    )

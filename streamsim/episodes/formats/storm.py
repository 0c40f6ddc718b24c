"""STORM-Bench: annotation files and manifests to episodes.

Files: ``annotations/storm_X.questions.jsonl`` and ``manifests/storm_X.videos.jsonl`` of its public
release. Questions come as a JSON array, as JSON lines, or per episode as ``{"qa_samples": [...]}``.
Options are permuted by the benchmark's rule, the same for every agent. This module reads no files.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from streamsim.episodes.dataset import DatasetInfo
from streamsim.episodes.episode import QUESTION_TYPES, EpisodeQuery, KeyEntry, Status
from streamsim.episodes.formats import field
from streamsim.episodes.formats.field import IllegalRow
from streamsim.episodes.formats.imported import Collector, EndOf, Imported, Locate
from streamsim.episodes.formats.row import Row, RowFile
from streamsim.episodes.rule import Fault

SOURCE = "STORM-Bench"
"""How the ``source`` of every dataset of this benchmark begins."""

_NAMES = {
    "media_ns": "query_time",
    "stem": "question",
    "spans_ns": "evidence_spans",
    "intensity": "change_intensity",
    "status": "diagnostics.epistemic_status",
    "causes": "diagnostics.uncertainty_sources",
}


class _Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest's row: where it stands, and what it says."""

    file: str
    line: int | None
    subset: str | None
    video_path: str | None
    question_count: int | None
    times_ns: frozenset[int] | None


def option_permutation(sample_id: str, count: int) -> tuple[int, ...]:
    """The benchmark's order of options: ``presented[j] = stored[permutation[j]]``.

    Stored indices sorted by the SHA-256 digest of ``"{id}:{index}"``.
    """
    digests = [hashlib.sha256(f"{sample_id}:{index}".encode()).digest() for index in range(count)]
    return tuple(sorted(range(count), key=digests.__getitem__))


def video_path(episode_id: str) -> str:
    """Where an episode's video lies below the root when no manifest says so."""
    if match := re.match(r"(P\d+)-", episode_id):
        return f"{match[1]}/{episode_id}.mp4"
    if match := re.search(r"FloorPlan\d+", episode_id):
        return f"{match[0]}/{episode_id}.mp4"
    if match := re.match(r"scene_(\d+)_room_(\d+)_seed_", episode_id):
        return f"Scene{match[1]}_Room{match[2]}/{episode_id}.mp4"
    return f"{episode_id}.mp4"


def subset_of(file: str) -> str:
    """The subset that a questions file's name gives: up to its first dot."""
    name = Path(file).name
    return name.partition(".")[0] or name


def import_storm(
    questions: Sequence[RowFile],
    manifests: Sequence[RowFile] = (),
    *,
    name: str,
    locate: Locate,
    end_of: EndOf = lambda video: None,
) -> Imported:
    """Episodes of questions files, with the manifests' subsets and paths where they give them.

    Illegal rows are left out with findings; so are a manifest's. Counts and times of a manifest
    that differ from its questions are warnings. A row due after its video's end, where ``end_of`` knows
    it, is illegal.
    """
    collector = Collector(_NAMES, end_of)
    listed = _read_manifests(manifests, collector)
    for file in questions:
        for row in _samples(file, collector):
            _add_sample(file.name, row, listed, locate, collector)
    _compare(listed, collector)
    files = ", ".join(Path(file.name).name for file in questions)
    return collector.finish(DatasetInfo(name=name, chain="full", source=f"{SOURCE}: {files}"))


def storm_faults(query: EpisodeQuery, entry: KeyEntry) -> Iterator[Fault]:
    """The rules that only this benchmark has."""
    if len(query.options) != 4:
        yield Fault("options", f"expected four options, got {len(query.options)}")
    elif entry.permutation != (order := option_permutation(query.id, 4)):
        yield Fault(
            "permutation", f"expected {list(order)} by the benchmark's rule, got {list(entry.permutation)}"
        )
    if entry.status is None:
        yield Fault("status", "expected 'known' or 'uncertain', got nothing")
    if entry.intensity is None:
        yield Fault("intensity", "expected an integer from 1 to 10, got nothing")
    if entry.question_type not in QUESTION_TYPES:
        yield Fault(
            "question_type", f"expected one of {', '.join(QUESTION_TYPES)}, got {entry.question_type!r}"
        )


def _samples(file: RowFile, collector: Collector) -> Iterator[Row]:
    """The rows, with those of ``{"qa_samples": [...]}`` taken out; they inherit its ``episode_id``."""
    for row in file.rows:
        if not isinstance(row.value, dict) or "qa_samples" not in row.value:
            yield row
            continue
        samples = row.value["qa_samples"]
        if not isinstance(samples, list):
            fault = Fault("qa_samples", f"expected a list, got {field.shown(samples)}")
            collector.refuse(file.name, row, None, [fault])
            continue
        inherited = {key: row.value[key] for key in ("episode_id",) if key in row.value}
        for number, sample in enumerate(samples, 1):
            value = {**inherited, **sample} if isinstance(sample, dict) else sample
            yield Row(number=number, line=row.line if len(file.rows) > 1 else None, value=value)


def _add_sample(
    file: str, row: Row, listed: Mapping[str, _Listed], locate: Locate, collector: Collector
) -> None:
    sample_id = row.value.get("id") if isinstance(row.value, dict) else None

    def read() -> tuple[EpisodeQuery, KeyEntry]:
        return _read_sample(field.as_object(row.value), file, listed)

    def video(entry: KeyEntry) -> Path:
        manifest = listed.get(entry.episode_id)
        path = manifest.video_path if manifest else None
        return locate(entry.subset, path or video_path(entry.episode_id))

    item = sample_id if isinstance(sample_id, str) and sample_id else None
    collector.add(file, row, read, video=video, item=item, extra_rules=storm_faults)


def _read_sample(
    sample: Mapping[str, object], file: str, listed: Mapping[str, _Listed]
) -> tuple[EpisodeQuery, KeyEntry]:
    sample_id = field.as_text(sample.get("id"), "id")
    episode_id = field.as_text(sample.get("episode_id"), "episode_id")
    manifest = listed.get(episode_id)
    stored = field.as_texts(sample.get("options"), "options")
    answer = field.as_integer(sample.get("answer_index"), "answer_index")
    if not 0 <= answer < len(stored):
        raise IllegalRow("answer_index", f"expected an index from 0 to {len(stored) - 1}, got {answer}")
    permutation = option_permutation(sample_id, len(stored))
    diagnostics = field.as_object(sample.get("diagnostics"), "diagnostics")
    query = EpisodeQuery(
        id=sample_id,
        kind="choice",
        media_ns=field.as_time_ns(sample.get("query_time"), "query_time"),
        stem=field.as_text(sample.get("question"), "question"),
        options=tuple(stored[index] for index in permutation),
    )
    sources = diagnostics.get("uncertainty_sources")
    entry = KeyEntry(
        id=sample_id,
        episode_id=episode_id,
        subset=(manifest.subset if manifest else None) or subset_of(file),
        media_ns=query.media_ns,
        answer_index=permutation.index(answer),
        permutation=permutation,
        status=_status(diagnostics),
        causes=() if sources is None else field.as_texts(sources, "diagnostics.uncertainty_sources"),
        intensity=_intensity(sample, diagnostics),
        spans_ns=field.as_spans_ns(sample.get("evidence_spans"), "evidence_spans"),
        question_type=field.as_text(sample.get("question_type"), "question_type"),
        question_subtype=field.as_optional_text(sample.get("question_subtype"), "question_subtype"),
        notes=_notes(sample),
    )
    return query, entry


def _status(diagnostics: Mapping[str, object]) -> Status:
    status = diagnostics.get("epistemic_status")
    if status == "known":
        return "known"
    if status == "uncertain":
        return "uncertain"
    raise IllegalRow(
        "diagnostics.epistemic_status", f"expected 'known' or 'uncertain', got {field.shown(status)}"
    )


def _intensity(sample: Mapping[str, object], diagnostics: Mapping[str, object]) -> int:
    """``change_intensity``, which some files keep under ``diagnostics``."""
    found = {
        name: values["change_intensity"]
        for name, values in (("change_intensity", sample), ("diagnostics.change_intensity", diagnostics))
        if values.get("change_intensity") is not None
    }
    if not found:
        raise IllegalRow("change_intensity", "expected an integer from 1 to 10, got nothing")
    values = {field.as_integer(value, name) for name, value in found.items()}
    if len(values) > 1:
        raise IllegalRow("diagnostics.change_intensity", f"expected one intensity, got {sorted(values)}")
    return values.pop()


def _notes(sample: Mapping[str, object]) -> dict[str, str]:
    """The annotators' reasons, which nothing computes with."""
    rationale = sample.get("diagnostic_rationale")
    found = {
        **(rationale if isinstance(rationale, dict) else {}),
        "video_evidence": sample.get("video_evidence"),
    }
    return {
        str(key): field.as_text(value, str(key))
        for key, value in found.items()
        if isinstance(value, str) and value
    }


def _read_manifests(manifests: Sequence[RowFile], collector: Collector) -> dict[str, _Listed]:
    listed: dict[str, _Listed] = {}
    for file in manifests:
        for row in file.rows:
            episode_id: str | None = None
            try:
                value = field.as_object(row.value)
                episode_id = field.as_text(value.get("episode_id"), "episode_id")
                entry = _read_listed(file.name, row, value)
                if episode_id in listed:
                    raise IllegalRow("episode_id", "expected each episode once, got this one before")
                listed[episode_id] = entry
            except IllegalRow as error:
                collector.refuse(file.name, row, episode_id, [Fault(error.field, error.text)])
    return listed


def _read_listed(file: str, row: Row, value: Mapping[str, object]) -> _Listed:
    count, times = value.get("num_questions"), value.get("query_times")
    return _Listed(
        file=file,
        line=row.line,
        subset=field.as_optional_text(value.get("subset"), "subset") or None,
        video_path=field.as_optional_text(value.get("video_path"), "video_path") or None,
        question_count=None if count is None else field.as_integer(count, "num_questions"),
        times_ns=None
        if times is None
        else frozenset(field.as_time_ns(time, "query_times") for time in field.as_list(times, "query_times")),
    )


def _compare(listed: Mapping[str, _Listed], collector: Collector) -> None:
    """Warn where a manifest's counts or times are not those of the questions."""
    for episode_id, queries in collector.episodes.items():
        manifest = listed.get(episode_id)
        if manifest is None:
            continue
        place = (manifest.file, manifest.line, episode_id)
        if manifest.question_count not in (None, len(queries)):
            collector.warn(
                *place,
                "num_questions",
                f"expected the {len(queries)} imported, got {manifest.question_count}",
            )
        times_ns = {query.media_ns for query in queries}
        if manifest.times_ns is not None and manifest.times_ns != times_ns:
            odd = sorted(manifest.times_ns ^ times_ns)
            collector.warn(
                *place,
                "query_times",
                f"expected the times of the questions imported; {odd[0] / 1e9:g} s is on one side only",
            )

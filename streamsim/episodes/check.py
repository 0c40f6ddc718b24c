"""Is a dataset fit to be played and scored? Faults are errors; what only looks odd is a warning.

`check_dataset` reads both halves and probes the videos; `preflight` is the part of it that a run
needs, on the public half alone. Both name file, item and field of everything they find. Video is seen
only through `streamsim.episodes.video`, which is imported when the first one is probed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from streamsim.episodes.cue import cue_findings
from streamsim.episodes.dataset import FORMAT, Dataset, DatasetInfo, public_folder
from streamsim.episodes.episode import Episode, EpisodeQuery, KeyEntry, is_visible
from streamsim.episodes.finding import Finding, Level
from streamsim.episodes.formats.storm import SOURCE, storm_faults
from streamsim.episodes.rule import Fault, end_faults, episode_id_faults, in_seconds, key_faults, query_faults
from streamsim.episodes.sampling import Sampling, VideoInfo
from streamsim.errors import VideoError
from streamsim.plural import counted
from streamsim.text import without_mark
from streamsim.writing import describe

INFO = "public/dataset.json"
EPISODES = "public/episodes.jsonl"
KEY = "key/answers.jsonl"

_Row = TypeVar("_Row")
_Lines = Sequence[tuple[int | None, _Row]]
"""Records with the line that each stands on, None where it is not known."""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `check_dataset`: what was looked at, and what was found."""

    episodes: int
    queries: int
    findings: tuple[Finding, ...]


def check_dataset(folder: Path) -> Checked:
    """Check a dataset given by its folder or its public folder.

    ``DatasetError`` only where there is no dataset at all; whatever is wrong inside it is a finding.
    """
    public = public_folder(folder)
    findings: list[Finding] = []
    info = _read_info(public / "dataset.json", findings)
    episodes = _read_lines(public / "episodes.jsonl", EPISODES, Episode, findings)
    key = _read_lines(public.parent / "key" / "answers.jsonl", KEY, KeyEntry, findings)
    findings += _public_findings(episodes)
    findings += _video_findings(episodes, public)
    findings += _key_findings(episodes, key, info)
    queries = sum(len(episode.queries) for _, episode in episodes)
    return Checked(episodes=len(episodes), queries=queries, findings=tuple(findings))


def preflight(dataset: Dataset, episodes: Sequence[Episode], *, fps: float = 1.0) -> tuple[Finding, ...]:
    """What could spoil a run of these episodes: structure of the public half, and the videos.

    ``fps`` is the run's sampling rate. Never opens the answer key. Errors must keep the run from
    starting.
    """
    lines = [(None, episode) for episode in episodes]
    return (*_public_findings(lines), *_video_findings(lines, dataset.public, fps))


# ------------------------------------------------------------------------------------- public half


def _public_findings(episodes: _Lines[Episode]) -> Iterator[Finding]:
    episode_ids: set[str] = set()
    query_ids: set[str] = set()
    if not episodes:
        yield _finding("error", EPISODES, None, "dataset", "episodes", "expected episodes, found none")
    for line, episode in episodes:
        faults = list(episode_id_faults(episode.id))
        if episode.id in episode_ids:
            faults.append(Fault("id", "expected each episode once, got this id before"))
        episode_ids.add(episode.id)
        if not episode.video:
            faults.append(Fault("video", "expected a path, got an empty text"))
        times = [query.media_ns for query in episode.queries]
        if times != sorted(times):
            faults.append(Fault("queries", "expected queries in order of time"))
        yield from (_finding("error", EPISODES, line, episode.id, *fault) for fault in faults)
        if not times:
            text = "the episode has no queries: it is played and nothing is asked"
            yield _finding("warning", EPISODES, line, episode.id, "queries", text)
        for query in episode.queries:
            faults = list(query_faults(query))
            if query.id in query_ids:
                faults.append(Fault("id", "expected each query once, got this id before"))
            query_ids.add(query.id)
            yield from (_finding("error", EPISODES, line, query.id, *fault) for fault in faults)


def _video_findings(episodes: _Lines[Episode], public: Path, fps: float = 1.0) -> Iterator[Finding]:
    """Missing and unreadable videos, queries after the end: errors; queries that see nothing: warnings."""
    from streamsim.episodes.video import probe_video

    probed: dict[Path, VideoInfo | str] = {}
    for line, episode in episodes:
        path = public / episode.video
        if path not in probed:
            try:
                probed[path] = probe_video(path) if path.is_file() else f"missing video: {str(path)!r}"
            except VideoError as error:
                probed[path] = str(error)
        info = probed[path]
        if isinstance(info, str):
            yield _finding("error", EPISODES, line, episode.id, "video", info)
            continue
        shown_ns = _first_shown_ns(info, fps)
        for query in episode.queries:
            due = f"due at {in_seconds(query.media_ns)} s"
            beyond = tuple(end_faults(query, info.end_ns))
            yield from (_finding("error", EPISODES, line, query.id, *fault) for fault in beyond)
            if beyond:
                continue
            if shown_ns is None or not is_visible(shown_ns, query.media_ns):
                start = in_seconds(info.first_picture_ns)
                text = (
                    f"{due}, before any sample at {fps:g} FPS: nothing is seen; pictures start at {start} s"
                )
                yield _finding("warning", EPISODES, line, query.id, "media_ns", text)


def _first_shown_ns(info: VideoInfo, fps: float) -> int | None:
    """Media time of the first sample that shows a picture, None if none does."""
    times = info.sample_times(Sampling(fps=fps))
    return next((media_ns for media_ns in times if media_ns >= info.first_picture_ns), None)


# ------------------------------------------------------------------------------------- answer key


def _key_findings(
    episodes: _Lines[Episode], key: _Lines[KeyEntry], info: DatasetInfo | None
) -> Iterator[Finding]:
    queries = {query.id: (episode, query) for _, episode in episodes for query in episode.queries}
    is_storm = info is not None and info.source.startswith(SOURCE)
    seen: set[str] = set()
    sound: list[tuple[EpisodeQuery, KeyEntry]] = []
    for line, entry in key:
        faults: list[Fault] = []
        if entry.id in seen:
            faults.append(Fault("id", "expected each query once, got this id before"))
        elif entry.id not in queries:
            faults.append(Fault("id", f"expected the id of a query in {EPISODES}"))
        else:
            episode, query = queries[entry.id]
            faults += _mismatches(episode, query, entry)
            faults += key_faults(query, entry)
            faults += storm_faults(query, entry) if is_storm else ()
            if not faults:
                sound.append((query, entry))
        seen.add(entry.id)
        yield from (_finding("error", KEY, line, entry.id, *fault) for fault in faults)
    for query_id in queries:
        if query_id not in seen:
            yield _finding("error", KEY, None, query_id, "id", "expected an entry for this query, found none")
    yield from _lacks(sound, info)
    yield from cue_findings(sound, KEY)


def _mismatches(episode: Episode, query: EpisodeQuery, entry: KeyEntry) -> Iterator[Fault]:
    pairs = (
        ("episode_id", episode.id, entry.episode_id),
        ("subset", episode.subset, entry.subset),
        ("media_ns", query.media_ns, entry.media_ns),
    )
    for field, public, hidden in pairs:
        if public != hidden:
            yield Fault(field, f"expected {public!r} as in {EPISODES}, got {hidden!r}")


def _lacks(sound: Iterable[tuple[EpisodeQuery, KeyEntry]], info: DatasetInfo | None) -> Iterator[Finding]:
    """What entries may lack, but scoring or analysis then misses: one warning per subset and field.

    Fields are named as the columns of an annotation file. Evidence is optional: that a subset has none at
    all is worth a word only where the benchmark has it.
    """
    groups: defaultdict[str, list[tuple[EpisodeQuery, KeyEntry]]] = defaultdict(list)
    for query, entry in sound:
        groups[entry.subset].append((query, entry))
    full = info is not None and info.chain == "full"
    is_storm = info is not None and info.source.startswith(SOURCE)
    lacks: tuple[tuple[str, str, Callable[[EpisodeQuery, KeyEntry], bool]], ...] = (
        (
            "evidence_spans",
            "none: in figures by evidence age theirs counts from the video's start",
            lambda query, entry: not entry.spans_ns,
        ),
        (
            "status",
            "none, though the dataset's chain asks for it",
            lambda query, entry: full and query.kind == "choice" and entry.status is None,
        ),
        (
            "intensity",
            "a status but no intensity: they belong to no cell of Storm-BR",
            lambda query, entry: entry.status is not None and entry.intensity is None,
        ),
        (
            "answer",
            "none: they cannot be scored",
            lambda query, entry: query.kind == "open" and not entry.answer_text,
        ),
    )
    for subset, group in groups.items():
        for field, what, is_lacking in lacks:
            ids = [query.id for query, entry in group if is_lacking(query, entry)]
            if field == "evidence_spans" and len(ids) == len(group) and not is_storm:
                continue
            if ids:
                have = "has" if len(ids) == 1 else "have"
                of = f"{len(ids)} of {counted(len(group), 'query')}"
                text = f"{of} {have} {what}; the first is {ids[0]!r}"
                yield _finding("warning", KEY, None, f"subset {subset}", field, text)


# ----------------------------------------------------------------------------------------- reading


def _read_info(path: Path, findings: list[Finding]) -> DatasetInfo | None:
    try:
        info = msgspec.json.decode(without_mark(path.read_bytes()), type=DatasetInfo)
    except (OSError, msgspec.DecodeError) as error:
        findings.append(_finding("error", INFO, None, "dataset", *_split(error)))
        return None
    if info.format != FORMAT:
        text = f"expected {FORMAT!r}, got {info.format!r}"
        findings.append(_finding("error", INFO, None, "dataset", "format", text))
    return info


def _read_lines(path: Path, file: str, kind: type[_Row], findings: list[Finding]) -> list[tuple[int, _Row]]:
    """The lines that decode; a finding for each that does not, and for a file that cannot be read."""
    try:
        lines = without_mark(path.read_bytes()).splitlines()
    except OSError as error:
        findings.append(_finding("error", file, None, "dataset", *_split(error)))
        return []
    rows: list[tuple[int, _Row]] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                rows.append((number, msgspec.json.decode(line, type=kind)))
            except msgspec.DecodeError as error:
                findings.append(_finding("error", file, number, f"line {number}", *_split(error)))
    return rows


def _split(error: OSError | msgspec.DecodeError) -> tuple[str, str]:
    """Field and text of a decoding error: msgspec ends its messages with the path of the field."""
    if isinstance(error, OSError):
        return "file", f"cannot be read: {describe(error)}"
    text, _, path = str(error).partition(" - at `$")
    return path.rstrip("`").lstrip(".") or "row", text[:1].lower() + text[1:]


def _finding(level: Level, file: str, line: int | None, item: str, field: str, text: str) -> Finding:
    return Finding(level=level, file=file, line=line, item=item, field=field, text=text)

"""What every importer gives: episodes, their answer key, and what it has to say about the rows.

An importer is a module of this package with a pure function from parsed rows to `Imported`; it feeds
a `Collector`, which applies the rules that hold for all formats. `write_imported` makes the dataset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from streamsim.episodes.dataset import DatasetInfo, write_dataset
from streamsim.episodes.episode import Episode, EpisodeQuery, KeyEntry, sort_queries
from streamsim.episodes.finding import Finding
from streamsim.episodes.formats.field import IllegalRow
from streamsim.episodes.formats.row import Row
from streamsim.episodes.rule import Fault, end_faults, episode_id_faults, key_faults, query_faults
from streamsim.errors import VideoError

Locate = Callable[[str, str], Path]
"""From subset and video path, as the annotations give them, to where the file is or should be."""
EndOf = Callable[[Path], int | None]
"""From a video's place to its end in nanoseconds; None where it is absent or cannot be read."""


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """Annotations as episodes. Each ``Episode.video`` is where the file was looked for; it may be absent.

    ``refused`` counts the rows that were left out; each has at least one finding of level error.
    """

    info: DatasetInfo
    episodes: tuple[Episode, ...]
    key: tuple[KeyEntry, ...]
    findings: tuple[Finding, ...]
    refused: int

    @property
    def absent_videos(self) -> tuple[str, ...]:
        """Paths of the videos that do not exist, each once, in the episodes' order."""
        videos = dict.fromkeys(episode.video for episode in self.episodes)
        return tuple(video for video in videos if not Path(video).is_file())


class Collector:
    """Gathers rows into episodes; refuses those that break a rule, with a finding for each fault.

    ``names`` translates fields of `EpisodeQuery` and `KeyEntry` to those of the file, for the findings.
    ``end_of`` gives a video's end, beyond which no query may be due.
    """

    def __init__(self, names: Mapping[str, str], end_of: EndOf = lambda video: None) -> None:
        self._names = names
        self._end_of = end_of
        self._episodes: dict[str, tuple[str, Path, list[EpisodeQuery]]] = {}
        self._key: dict[str, KeyEntry] = {}
        self._first: dict[str, str] = {}
        self._findings: list[Finding] = []
        self._refused = 0

    @property
    def episodes(self) -> Mapping[str, Sequence[EpisodeQuery]]:
        """The queries so far by episode id, in the order of the rows."""
        return {episode_id: queries for episode_id, (_, _, queries) in self._episodes.items()}

    @property
    def key(self) -> Sequence[KeyEntry]:
        """The hidden half so far, in the order of the rows."""
        return tuple(self._key.values())

    def warn(self, file: str, line: int | None, item: str, field: str, text: str) -> None:
        """Note an oddity."""
        self._note("warning", file, line, item, Fault(field, text))

    def refuse(self, file: str, row: Row, item: str | None, faults: Iterable[Fault]) -> None:
        """Leave a row out, for these reasons. ``item`` is None where the row has no id."""
        self._refused += 1
        for fault in faults:
            self._note("error", file, row.line, item or f"row {row.number}", fault)

    def add(
        self,
        file: str,
        row: Row,
        read: Callable[[], tuple[EpisodeQuery, KeyEntry]],
        *,
        video: Callable[[KeyEntry], Path],
        item: str | None,
        extra_rules: Callable[[EpisodeQuery, KeyEntry], Iterable[Fault]] = lambda query, entry: (),
    ) -> None:
        """Take the query that ``read`` makes of a row, or refuse the row.

        ``video`` says where the video of its episode is; ``extra_rules`` are the benchmark's own.
        """
        try:
            query, entry = read()
        except IllegalRow as error:
            self.refuse(file, row, item, [Fault(error.field, error.text)])
            return
        faults = [
            *(Fault("episode_id", text) for _, text in episode_id_faults(entry.episode_id)),
            *query_faults(query),
            *key_faults(query, entry),
            *extra_rules(query, entry),
        ]
        place = f"{file}:{row.line}" if row.line is not None else f"{file}, row {row.number}"
        if query.id in self._first:
            faults.append(Fault("id", f"expected ids once, got this one before at {self._first[query.id]}"))
        path = video(entry)
        subset, earlier, queries = self._episodes.get(entry.episode_id, (entry.subset, path, []))
        if subset != entry.subset:
            faults.append(
                Fault("subset", f"expected {subset!r} as for the episode before, got {entry.subset!r}")
            )
        elif path != earlier:
            faults.append(Fault("video", f"expected {str(earlier)!r} as for the episode before"))
        elif (end_ns := self._end_of(path)) is not None:
            faults += end_faults(query, end_ns)
        if faults:
            self.refuse(file, row, item, faults)
            return
        self._first[query.id] = place
        self._key[query.id] = entry
        queries.append(query)
        self._episodes[entry.episode_id] = (subset, path, queries)

    def finish(self, info: DatasetInfo) -> Imported:
        """Everything that was taken, queries in order of time."""
        episodes = tuple(
            Episode(id=episode_id, subset=subset, video=str(video), queries=sort_queries(queries))
            for episode_id, (subset, video, queries) in self._episodes.items()
        )
        return Imported(
            info=info,
            episodes=episodes,
            key=tuple(self._key[query.id] for episode in episodes for query in episode.queries),
            findings=tuple(self._findings),
            refused=self._refused,
        )

    def _note(self, level: str, file: str, line: int | None, item: str, fault: Fault) -> None:
        self._findings.append(
            Finding(
                level="error" if level == "error" else "warning",
                file=file,
                line=line,
                item=item,
                field=self._names.get(fault.field, fault.field),
                text=fault.text,
            )
        )


def locate_under(roots: Sequence[Path]) -> Locate:
    """Look for videos under roots, in each directly and in a folder of the subset's name.

    Absent ones are where they would be directly under the first root. Paths are absolute.
    """

    def locate(subset: str, video: str) -> Path:
        places = [root / part for root in roots for part in (Path(video), Path(subset) / video)]
        return next((place for place in places if place.is_file()), places[0]).absolute()

    return locate


def suggest_video(roots: Sequence[Path], video: str) -> str | None:
    """The path below a root that an absent video may have been meant by: its own without leading folders.

    ``video`` is where it was looked for; None where there is no such file.
    """
    for root in (root.absolute() for root in roots):
        if Path(video).is_relative_to(root):
            parts = Path(video).relative_to(root).parts
            shorter = (Path(*parts[count:]) for count in range(1, len(parts)))
            for path in shorter:
                if (root / path).is_file():
                    return str(path)
    return None


def probe_ends() -> EndOf:
    """Look into each video once. A video that cannot be read has no end here: `check` says what is wrong."""
    from streamsim.episodes.video import probe_video

    found: dict[Path, int | None] = {}

    def end_of(video: Path) -> int | None:
        if video not in found:
            try:
                found[video] = probe_video(video).end_ns if video.is_file() else None
            except VideoError:
                found[video] = None
        return found[video]

    return end_of


def write_imported(folder: Path, imported: Imported, *, copy: bool = False) -> None:
    """Write the dataset. With ``copy`` the videos go into it under neutral names (``videos/v0001.mp4``).

    An absent video cannot be copied: its episode keeps the path where it was looked for.
    """
    names: dict[str, str] = {}
    if copy:
        absent = set(imported.absent_videos)
        present = dict.fromkeys(e.video for e in imported.episodes if e.video not in absent)
        names = {
            video: f"videos/v{number:04d}{Path(video).suffix.lower()}"
            for number, video in enumerate(present, 1)
        }
    write_dataset(
        folder,
        imported.info,
        (
            msgspec.structs.replace(episode, video=names.get(episode.video, episode.video))
            for episode in imported.episodes
        ),
        imported.key,
        copy={name: Path(video) for video, name in names.items()},
    )

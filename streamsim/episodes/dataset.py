"""A dataset is a folder with two halves that never mix.

    DATASET/public/dataset.json     what it is (DatasetInfo)
    DATASET/public/episodes.jsonl   one Episode a line: what the server plays
    DATASET/public/videos/          the videos, where they were copied or made
    DATASET/key/answers.jsonl       one KeyEntry a line: what only scoring reads

The server is given ``DATASET/public`` and nothing else. This module knows no annotation format.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from streamsim.episodes.episode import Chain, Episode, KeyEntry
from streamsim.errors import DatasetError
from streamsim.text import without_mark
from streamsim.writing import cannot_write, describe, folder_for

FORMAT = "streamsim.dataset/1"

_Row = TypeVar("_Row")


class DatasetInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``dataset.json``. ``source`` says where it came from, in words; ``chain`` is its default chain."""

    format: str = FORMAT
    name: str
    chain: Chain
    source: str


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """The public half, loaded. ``digest`` is the SHA-256 of its two files."""

    public: Path
    info: DatasetInfo
    episodes: tuple[Episode, ...]
    digest: str

    def video_path(self, episode: Episode) -> Path:
        """Where an episode's video lies; it may not exist."""
        return self.public / episode.video

    def video_sizes(self, episodes: Iterable[Episode]) -> dict[str, int]:
        """Sizes in bytes of episodes' video files, by episode id; those that are not there are left out."""
        sizes = {}
        for episode in episodes:
            with contextlib.suppress(OSError):
                sizes[episode.id] = self.video_path(episode).stat().st_size
        return sizes


def public_folder(folder: Path) -> Path:
    """The public half of a dataset given by its folder or by its public folder."""
    for candidate in (folder / "public", folder):
        if (candidate / "dataset.json").is_file():
            return candidate
    raise DatasetError(
        f"no dataset at {str(folder)!r}: expected public/dataset.json in it; make one with "
        "`streamsim import` or `streamsim make`"
    )


def load_dataset(folder: Path) -> Dataset:
    """Load the public half; ``DatasetError`` names file and line of what cannot be read."""
    public = public_folder(folder)
    info_bytes = _read(public / "dataset.json")
    try:
        info = msgspec.json.decode(without_mark(info_bytes), type=DatasetInfo)
    except msgspec.DecodeError as error:
        raise DatasetError(f"{public / 'dataset.json'}: {error}") from error
    if info.format != FORMAT:
        raise DatasetError(f"{public / 'dataset.json'}: expected format {FORMAT!r}, got {info.format!r}")
    rows_bytes = _read(public / "episodes.jsonl")
    episodes = _decode_lines(rows_bytes, Episode, public / "episodes.jsonl")
    digest = hashlib.sha256(info_bytes + b"\0" + rows_bytes).hexdigest()
    return Dataset(public=public, info=info, episodes=tuple(episodes), digest=digest)


def key_path(folder: Path) -> Path:
    """Where the answer key of a dataset lies, given its folder or its public folder."""
    return public_folder(folder).parent / "key" / "answers.jsonl"


def key_digest(folder: Path) -> str | None:
    """SHA-256, hex, of the answer key's file; None where there is none. The server never calls this."""
    try:
        return hashlib.sha256(key_path(folder).read_bytes()).hexdigest()
    except OSError:
        return None


def load_answer_key(folder: Path) -> dict[str, KeyEntry]:
    """Load the hidden half by query id. Only scoring and ``check`` call this."""
    path = key_path(folder)
    entries = _decode_lines(_read(path), KeyEntry, path)
    key = {entry.id: entry for entry in entries}
    if len(key) != len(entries):
        raise DatasetError(f"{path}: expected unique ids, found some twice; import the dataset anew")
    return key


def write_dataset(
    folder: Path,
    info: DatasetInfo,
    episodes: Iterable[Episode],
    key: Iterable[KeyEntry],
    *,
    copy: Mapping[str, Path] | None = None,
    move: Mapping[str, Path] | None = None,
) -> None:
    """Write a dataset folder in one step: it appears whole or not at all.

    ``copy`` and ``move`` map relative video paths of the public half to the files that are copied or
    moved there. ``DatasetError`` if ``folder`` exists and is not empty, or something cannot be read or
    written.
    """
    require_free(folder)
    for source in (copy or {}).values():
        _require_readable(source)
    try:
        with folder_for(folder.parent):
            _write(folder, info, episodes, key, copy=copy or {}, move=move or {})
    except OSError as error:
        raise DatasetError(cannot_write(folder, error)) from error


def _write(
    folder: Path,
    info: DatasetInfo,
    episodes: Iterable[Episode],
    key: Iterable[KeyEntry],
    *,
    copy: Mapping[str, Path],
    move: Mapping[str, Path],
) -> None:
    staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        (staging / "public").mkdir()
        (staging / "key").mkdir()
        (staging / "public" / "dataset.json").write_bytes(
            msgspec.json.format(msgspec.json.encode(info), indent=2) + b"\n"
        )
        _write_lines(staging / "public" / "episodes.jsonl", episodes)
        _write_lines(staging / "key" / "answers.jsonl", key)
        for relative, source in copy.items():
            target = staging / "public" / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        for relative, source in move.items():
            target = staging / "public" / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(source, target)
        staging.chmod(0o755)
        if folder.exists():
            folder.rmdir()
        staging.rename(folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def require_free(folder: Path) -> None:
    """``DatasetError`` if ``folder`` exists and is not empty: nothing is ever written over."""
    try:
        taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    except OSError as error:
        raise DatasetError(cannot_write(folder, error)) from error
    if taken:
        raise DatasetError(f"{str(folder)!r} exists and is not empty: choose another folder or remove it")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DatasetError(f"cannot read {str(path)!r}: {describe(error)}") from error


def _require_readable(video: Path) -> None:
    try:
        with video.open("rb"):
            pass
    except OSError as error:
        raise DatasetError(f"cannot read video {str(video)!r}: {describe(error)}") from error


def _write_lines(path: Path, rows: Iterable[msgspec.Struct]) -> None:
    with path.open("wb") as file:
        for row in rows:
            file.write(msgspec.json.encode(row) + b"\n")


def _decode_lines(data: bytes, kind: type[_Row], path: Path) -> list[_Row]:
    rows = []
    for number, line in enumerate(without_mark(data).splitlines(), 1):
        if not line.strip():
            continue
        try:
            rows.append(msgspec.json.decode(line, type=kind))
        except msgspec.DecodeError as error:
            raise DatasetError(f"{path}:{number}: {error}") from error
    return rows

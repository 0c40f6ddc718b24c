"""A run is a folder: ``run.json`` and one journal per session and attempt.

    runs/NAME/run.json                          the configuration, written first
    runs/NAME/sessions/EPISODE.R.A.jsonl        repeat R, attempt A, both from 1
    runs/NAME/memory/SESSION/                   what the agent saved
    runs/NAME/logs/lane-N.log                   what the agent processes printed
    runs/NAME/scores.json                       derived; can always be made again

This module knows the names in the folder and nothing of sessions.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec

from streamsim.episodes.episode import Chain
from streamsim.episodes.sampling import Encoding, SamplingRule
from streamsim.errors import RunError
from streamsim.events import SessionStarted
from streamsim.journal.read import JournalFile, read_entries, read_journal
from streamsim.writing import describe
from streamsim_protocol.messages import ClockMode, FramePolicy, History

_JOURNAL_NAME = re.compile(r"(?P<episode>.+)\.(?P<repeat>\d+)\.(?P<attempt>\d+)\.jsonl")
_MAX_NAME = 180
SUBFOLDERS = ("sessions", "memory", "logs")
RUN_FORMAT = "streamsim.run/1"
_PLACES = ("dataset", "prompts")
"""Fields that say where files lay; what is in them is told by digests."""


class AgentSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Which agent, with which arguments, under which interpreter (None: the server's own)."""

    name: str
    arguments: dict[str, str] = {}
    python: str | None = None


class RunConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What fixes a run: two runs with equal ``RunConfig`` give comparable figures.

    ``dataset`` is the path of the public half. ``episodes`` are the ids that are played, in the order
    of the dataset; ``partial`` says that the dataset has more. Timeouts are in seconds of wall time.
    """

    dataset: str
    dataset_digest: str
    episodes: tuple[str, ...]
    partial: bool
    agent: AgentSpec | None
    clock: ClockMode
    rate: float
    history: History
    chain: Chain
    frames: FramePolicy | None
    fps: float
    pixel_budget: int
    encoding: Encoding
    quality: int
    sampling: SamplingRule
    seed: int
    repeat: int
    prompts: str | None
    prompts_digest: str
    reader: str
    credit: int
    credit_timeout_s: float
    ready_timeout_s: float
    answer_timeout_s: float
    hang_timeout_s: float
    drain_timeout_s: float


class RunFile(msgspec.Struct, frozen=True, kw_only=True):
    """``run.json``: the configuration, and what is worth knowing of where it was made.

    ``queries`` counts those of each planned episode. ``key_digest`` is the SHA-256 of the answer key as it
    was when the run began, None where there was none. ``videos`` are the sizes in bytes of the planned
    episodes' video files at that moment, by episode id; unset in runs of before they were recorded, so that
    the digests of those stay as they are.
    """

    format: str = RUN_FORMAT
    run: str
    started_at: str
    streamsim: str
    host: dict[str, str]
    queries: dict[str, int]
    key_digest: str | None = None
    videos: dict[str, int] | msgspec.UnsetType = msgspec.UNSET
    config: RunConfig


def encoder_versions() -> dict[str, str]:
    """The installed versions of the packages that decide the bytes of a picture."""
    return {name: version(name) for name in ("av", "pillow")}


def write_run_file(folder: Path, run_file: RunFile) -> None:
    """Create the run folder with its ``run.json``, whole or not at all; ``RunError`` if it exists."""
    staging: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        for name in SUBFOLDERS:
            (staging / name).mkdir()
        (staging / "run.json").write_bytes(
            msgspec.json.format(msgspec.json.encode(run_file), indent=2) + b"\n"
        )
        staging.chmod(0o755)
        if folder.exists():
            raise RunError(describe_existing(folder))
        staging.rename(folder)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST) and folder.exists():
            raise RunError(describe_existing(folder)) from None
        raise RunError(f"cannot make run folder {str(folder)!r}: {describe(error)}") from error
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)


def describe_existing(folder: Path) -> str:
    """Why a run cannot be made in ``folder``, which is there."""
    return f"run folder {str(folder)!r} exists: choose another --out, or continue it with --resume"


def discard_run_folder(folder: Path) -> None:
    """Take back ``write_run_file``: the run never began. A folder that holds anything else stays."""
    with contextlib.suppress(OSError):
        for name in SUBFOLDERS:
            (folder / name).rmdir()
        (folder / "run.json").unlink()
        folder.rmdir()


@contextlib.contextmanager
def hold_run_folder(folder: Path) -> Iterator[None]:
    """Keep a run to this process while the block runs; ``RunError`` if another process plays it.

    The kernel ends the hold with the process, however that ends.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise RunError(f"cannot open run folder {str(folder)!r}: {describe(error)}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(
                f"run folder {str(folder)!r} is in use by another process: wait for its end, or stop it"
            ) from None
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(descriptor)


def read_run_file(folder: Path) -> RunFile:
    """Read ``run.json``; ``RunError`` says what is wrong with it."""
    path = folder / "run.json"
    try:
        run_file = msgspec.json.decode(path.read_bytes(), type=RunFile)
    except OSError as error:
        raise RunError(
            f"no run at {str(folder)!r}: expected run.json in it ({describe(error)}); "
            "give the folder that `streamsim run` named"
        ) from error
    except msgspec.DecodeError as error:
        raise RunError(f"{path}: {error}") from error
    if run_file.format != RUN_FORMAT:
        raise RunError(
            f"{path}: expected format {RUN_FORMAT!r}, got {run_file.format!r}: "
            "use the version of streamsim that played the run"
        )
    return run_file


def config_difference(old: RunConfig, new: RunConfig) -> list[str]:
    """What differs between two configurations, one line a field; that files have moved is no difference."""
    lines = []
    for name in RunConfig.__struct_fields__:
        if name in _PLACES:
            continue
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            lines.append(f"{name}: the run has {_show(before)}, the command says {_show(after)}")
    return lines


def changed_videos(run_file: RunFile, sizes: Mapping[str, int]) -> list[str]:
    """Which videos are not as large as when the run began, one line an episode, in the run's order.

    ``sizes`` are those of now, in bytes by episode id; an episode that is missing there has no video now.
    Episodes whose size the run has not recorded are passed over.
    """
    if run_file.videos is msgspec.UNSET:
        return []
    lines = []
    for episode in run_file.config.episodes:
        before, now = run_file.videos.get(episode), sizes.get(episode)
        if before is not None and before != now:
            there = "none" if now is None else str(now)
            lines.append(f"video of {episode!r}: {before} bytes when the run began, {there} now")
    return lines


def _show(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else text[:77] + "..."


def journal_path(folder: Path, episode: str, repeat: int, attempt: int) -> Path:
    """Where a session's journal lies. Ids that make no file name are quoted, long ones shortened."""
    name = quote(episode, safe="-_.~+=@,() ")
    if len(name) > _MAX_NAME:
        name = name[: _MAX_NAME - 17] + "~" + hashlib.sha256(episode.encode()).hexdigest()[:16]
    return folder / "sessions" / f"{name}.{repeat}.{attempt}.jsonl"


def next_attempt(folder: Path, episode: str, repeat: int) -> int:
    """The first attempt that has no journal yet."""
    attempt = 1
    while journal_path(folder, episode, repeat, attempt).exists():
        attempt += 1
    return attempt


def list_journals(folder: Path) -> list[Path]:
    """All files of ``sessions/`` that could be journals, by name; none where there is no such folder."""
    sessions = folder / "sessions"
    try:
        return sorted(path for path in sessions.iterdir() if path.suffix == ".jsonl")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunError(f"cannot read {str(sessions)!r}: {describe(error)}") from error


def read_last_attempts(folder: Path) -> list[JournalFile]:
    """The attempt of every session that counts, by file name: a complete one, else the newest.

    An attempt that never got as far as its first line says nothing: the one before it counts. A complete
    session is never played again, so what stands behind it is an accident.
    """
    counts: dict[tuple[str, int], tuple[bool, int, JournalFile]] = {}
    for path in list_journals(folder):
        named = _JOURNAL_NAME.fullmatch(path.name)
        if named is None:
            continue
        journal = read_journal(path)
        if not journal.entries:
            continue
        session = (unquote(named["episode"]), int(named["repeat"]))
        rank = (journal.complete, int(named["attempt"]))
        if session not in counts or rank > counts[session][:2]:
            counts[session] = (*rank, journal)
    return [journal for _, _, journal in counts.values()]


def read_sessions(folder: Path, run_file: RunFile) -> list[JournalFile]:
    """The attempt of every session of a run that counts, for figures.

    ``RunError`` names a journal that is none of the run's, or stands under the name of another session: in
    the figures it would count as a session of its own.
    """
    journals = read_last_attempts(folder)
    for journal in journals:
        found = _stray(journal, run_file)
        if found is not None:
            raise RunError(
                f"{journal.path}: {found}; move the file out of {str(journal.path.parent)!r}, then call again"
            )
    return journals


def altered_journals(folder: Path, journals: Iterable[JournalFile]) -> dict[str, str]:
    """Of a run's figures, the notices that must come first: by ``FILE:LINE``, whose chain is broken there.

    ``journals`` are those that the figures are made of; a file whose very first line does not hold is
    among none of them, and is looked up.
    """
    counting = {journal.path.name: journal for journal in journals}
    found = {}
    for path in list_journals(folder):
        if _JOURNAL_NAME.fullmatch(path.name) is None:
            continue
        journal = counting.get(path.name) or _read_first_line(path)
        if journal.altered:
            found[f"{path.name}:{journal.fault_place[0]}"] = journal.fault_notice or ""
    return found


def _read_first_line(path: Path) -> JournalFile:
    try:
        with path.open("rb") as file:
            entries, fault = read_entries(file.readline())
    except OSError as error:
        raise RunError(f"cannot read journal {str(path)!r}: {describe(error)}") from error
    return JournalFile(path=path, entries=entries, fault=fault)


def _stray(journal: JournalFile, run_file: RunFile) -> str | None:
    """What is wrong with a journal's being where it is; None if nothing is."""
    started = journal.entries[0].event
    if not isinstance(started, SessionStarted):
        return f"expected SessionStarted in the first line, got {type(started).__name__}"
    if started.run != run_file.run:
        return f"expected a journal of run {run_file.run!r}, got one of run {started.run!r}"
    name = journal_path(Path(), started.episode, started.repeat, started.attempt).name
    if name != journal.path.name:
        return f"expected the session of its name, got a copy of {name!r}"
    config = run_file.config
    if started.episode not in config.episodes or not 1 <= started.repeat <= config.repeat:
        return f"the run has no episode {started.episode!r}, repeat {started.repeat}"
    return None

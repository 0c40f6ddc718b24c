"""The names in a run folder: any episode id, any number of attempts, and folders that are no runs."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsim.errors import RunError
from streamsim.events import Instant, MediaEnded, SessionEnded
from streamsim.journal.folder import (
    AgentSpec,
    RunConfig,
    RunFile,
    changed_videos,
    config_difference,
    discard_run_folder,
    hold_run_folder,
    journal_path,
    next_attempt,
    read_last_attempts,
    read_run_file,
    write_run_file,
)
from streamsim.journal.verify import run_digest
from streamsim.journal.write import JournalSync, JournalWriter
from streamsim.testing import tiny_config

CONFIG = RunConfig(
    dataset="data/public",
    dataset_digest="ab" * 32,
    episodes=("one", "two"),
    partial=False,
    agent=AgentSpec(name="fixed-delay", arguments={"frame": "0.2"}),
    clock="realtime",
    rate=1.0,
    history="frozen",
    chain="full",
    frames=None,
    fps=1.0,
    pixel_budget=200_704,
    encoding="jpeg",
    quality=90,
    sampling="presentation",
    seed=0,
    repeat=1,
    prompts=None,
    prompts_digest="cd" * 32,
    reader="strict",
    credit=32,
    credit_timeout_s=60.0,
    ready_timeout_s=900.0,
    answer_timeout_s=30.0,
    hang_timeout_s=60.0,
    drain_timeout_s=600.0,
)
RUN = RunFile(
    run="a-run",
    started_at="2026-01-02T03:04:05Z",
    streamsim="0.1.0",
    host={"python": "3.11"},
    queries={"one": 3, "two": 0},
    config=CONFIG,
)


def add_journal(folder: Path, episode: str, repeat: int, attempt: int, *, end: str | None) -> Path:
    """A journal with its first line, and its last with reason ``end`` (None: it was cut off)."""
    (folder / "sessions").mkdir(exist_ok=True, parents=True)
    writer = JournalWriter(journal_path(folder, episode, repeat, attempt), JournalSync())
    config = tiny_config(episode=episode, repeat=repeat, attempt=attempt)
    writer.write(Instant(0, 0), config.to_event(()))
    if end is not None:
        writer.write(Instant(0, 0), SessionEnded(reason=end))  # type: ignore[arg-type]
    writer.close()
    return writer.path


class TestNames:
    @pytest.mark.parametrize(
        ("episode", "name"),
        [
            ("P02-03_clip", "P02-03_clip.1.2.jsonl"),
            ("a/b\\c", "a%2Fb%5Cc.1.2.jsonl"),
            ("..", "...1.2.jsonl"),
            ("P02.3.1", "P02.3.1.1.2.jsonl"),
            ("küche", "k%C3%BCche.1.2.jsonl"),
            ("100%\n*?", "100%25%0A%2A%3F.1.2.jsonl"),
        ],
    )
    def test_ids_that_make_no_file_name_are_quoted(self, tmp_path: Path, episode: str, name: str) -> None:
        path = journal_path(tmp_path, episode, 1, 2)
        assert path == tmp_path / "sessions" / name

    @given(
        st.lists(st.text(min_size=1, max_size=60), min_size=2, max_size=2, unique=True), st.integers(1, 99)
    )
    def test_two_ids_never_share_a_file(self, ids: list[str], stretch: int) -> None:
        """Also where only the far end of a long id differs."""
        try:
            names = [journal_path(Path("run"), id * stretch, 1, 1).name for id in ids]
        except UnicodeEncodeError:
            return  # lone surrogates: no JSON file carries them
        assert len({id * stretch for id in ids}) == len(set(names))
        assert all(len(name.encode()) <= 255 and "/" not in name for name in names)

    def test_a_long_id_is_shortened_by_its_digest(self) -> None:
        one, other = (journal_path(Path(), "x" * 300 + end, 1, 1).name for end in "ab")
        assert one != other and one[:160] == other[:160] == "x" * 160
        assert len(one) == len("180.1.1.jsonl") - 3 + 180


class TestAttempts:
    def test_the_newest_attempt_counts_by_number_not_by_name(self, tmp_path: Path) -> None:
        for attempt in (1, 2, 9, 10):
            add_journal(tmp_path, "a", 1, attempt, end="interrupted" if attempt < 10 else "completed")
        add_journal(tmp_path, "a", 2, 1, end="completed")
        add_journal(tmp_path, "b/c.1", 1, 1, end=None)
        add_journal(tmp_path, "b" * 200, 1, 1, end="hung")
        found = {
            (journal.started.episode, journal.started.repeat): journal
            for journal in read_last_attempts(tmp_path)
        }
        assert {session: journal.started.attempt for session, journal in found.items()} == {
            ("a", 1): 10,
            ("a", 2): 1,
            ("b/c.1", 1): 1,
            ("b" * 200, 1): 1,
        }
        assert [found[session].complete for session in sorted(found)] == [True, True, False, False]
        assert next_attempt(tmp_path, "a", 1) == 3  # 3 to 8 are free
        assert next_attempt(tmp_path, "b/c.1", 1) == 2 and next_attempt(tmp_path, "new", 1) == 1

    @pytest.mark.parametrize("nothing", [b"", b'{"n":1,"at_med', b"\0" * 100, b'{"n":1}\n'])
    def test_an_attempt_without_a_first_line_says_nothing(self, tmp_path: Path, nothing: bytes) -> None:
        """A kill between the making of the file and its first line, or a lost page after a crash."""
        path = add_journal(tmp_path, "a", 1, 1, end="completed")
        journal_path(tmp_path, "a", 1, 2).write_bytes(nothing)
        (journal,) = read_last_attempts(tmp_path)
        assert journal.path == path and journal.complete

    def test_a_torn_attempt_counts_as_far_as_it_goes(self, tmp_path: Path) -> None:
        add_journal(tmp_path, "a", 1, 1, end="interrupted")
        path = add_journal(tmp_path, "a", 1, 2, end="completed")
        path.write_bytes(path.read_bytes()[:-5])
        (journal,) = read_last_attempts(tmp_path)
        assert (journal.started.attempt, journal.complete, journal.fault) == (2, False, "line 2: torn")

    def test_a_complete_attempt_counts_whatever_stands_behind_it(self, tmp_path: Path) -> None:
        """Two processes on one folder: a session that was complete is not lost to the other's attempt."""
        path = add_journal(tmp_path, "a", 1, 1, end="completed")
        add_journal(tmp_path, "a", 1, 2, end="interrupted")
        (journal,) = read_last_attempts(tmp_path)
        assert journal.path == path and journal.complete

    def test_other_files_are_left_alone(self, tmp_path: Path) -> None:
        add_journal(tmp_path, "a", 1, 1, end="completed")
        for name in ("notes.jsonl", "a.1.jsonl", "a.1.1.jsonl.bak", ".a.1.1.jsonl.swp"):
            (tmp_path / "sessions" / name).write_text("anything")
        assert len(read_last_attempts(tmp_path)) == 1

    def test_a_folder_without_sessions_has_none(self, tmp_path: Path) -> None:
        assert read_last_attempts(tmp_path) == []

    def test_a_journal_goes_on_after_its_last_line_only(self, tmp_path: Path) -> None:
        """A second writer must take the next attempt: a journal is never opened again."""
        add_journal(tmp_path, "a", 1, 1, end=None)
        with pytest.raises(FileExistsError):
            JournalWriter(journal_path(tmp_path, "a", 1, 1), JournalSync()).write(
                Instant(0, 0), MediaEnded(samples=0)
            )


class TestRunFile:
    def test_is_read_as_it_was_written(self, tmp_path: Path) -> None:
        folder = tmp_path / "runs" / "one"
        write_run_file(folder, RUN)
        assert read_run_file(folder) == RUN
        assert sorted(path.name for path in folder.iterdir()) == ["logs", "memory", "run.json", "sessions"]
        assert [path.name for path in folder.parent.iterdir()] == ["one"], "nothing else is left behind"

    def test_an_existing_folder_is_refused_and_left_alone(self, tmp_path: Path) -> None:
        folder = tmp_path / "one"
        write_run_file(folder, RUN)
        (folder / "scores.json").write_text("{}")
        with pytest.raises(RunError, match=r"exists: choose another --out, or continue it with --resume"):
            write_run_file(folder, RUN)
        assert (folder / "scores.json").exists() and len(list(tmp_path.iterdir())) == 1

    def test_an_empty_folder_exists_too(self, tmp_path: Path) -> None:
        (tmp_path / "one").mkdir()
        with pytest.raises(RunError, match="exists: choose another --out"):
            write_run_file(tmp_path / "one", RUN)

    def test_what_stands_in_the_way_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(
            RunError, match=r"cannot make run folder .*/file/one': (not a directory|file exists)"
        ):
            write_run_file(tmp_path / "file" / "one", RUN)

    def test_taking_it_back(self, tmp_path: Path) -> None:
        write_run_file(tmp_path / "never", RUN)
        discard_run_folder(tmp_path / "never")
        assert not (tmp_path / "never").exists()
        write_run_file(tmp_path / "played", RUN)
        add_journal(tmp_path / "played", "a", 1, 1, end="completed")
        discard_run_folder(tmp_path / "played")
        assert read_last_attempts(tmp_path / "played")

    def test_no_run_and_a_broken_one(self, tmp_path: Path) -> None:
        with pytest.raises(
            RunError, match=r"no run at .* expected run.json in it \(no such file or directory\)"
        ):
            read_run_file(tmp_path)
        (tmp_path / "run.json").write_text('{"run": 1}')
        with pytest.raises(RunError, match=r"run.json: Expected `str`, got `int` - at `\$\.run`"):
            read_run_file(tmp_path)

    @pytest.mark.parametrize(
        ("changes", "lines"),
        [
            ({}, []),
            ({"seed": 7}, ["seed: the run has 0, the command says 7"]),
            (
                {"clock": "lockstep", "frames": "latest"},
                [
                    'clock: the run has "realtime", the command says "lockstep"',
                    'frames: the run has null, the command says "latest"',
                ],
            ),
            (
                {"episodes": tuple("abcdefghijklmnopqrstuvwxyz")},
                [
                    'episodes: the run has ["one","two"], the command says '
                    '["a","b","c","d","e","f","g","h","i","j","k","l","m","n","o","p","q","r","s",...'
                ],
            ),
        ],
    )
    def test_differences_are_told_field_by_field(self, changes: dict[str, Any], lines: list[str]) -> None:
        assert config_difference(CONFIG, msgspec.structs.replace(CONFIG, **changes)) == lines

    def test_videos_that_changed_are_named(self) -> None:
        run_file = msgspec.structs.replace(RUN, videos={"one": 1234, "two": 5})
        assert changed_videos(run_file, {"one": 1234, "two": 5, "other": 1}) == []
        assert changed_videos(run_file, {"two": 6, "one": 999}) == [
            "video of 'one': 1234 bytes when the run began, 999 now",
            "video of 'two': 5 bytes when the run began, 6 now",
        ]
        assert changed_videos(run_file, {"one": 1234}) == [
            "video of 'two': 5 bytes when the run began, none now"
        ]
        assert changed_videos(msgspec.structs.replace(RUN, videos={"two": 5}), {"one": 1, "two": 5}) == []

    def test_a_run_of_before_videos_were_recorded(self, tmp_path: Path) -> None:
        """It is read, knows of no change, and its digest is the one that was kept when it was made."""
        written = msgspec.to_builtins(RUN)
        assert "videos" not in written
        (tmp_path / "run.json").write_bytes(msgspec.json.encode(written))
        run_file = read_run_file(tmp_path)
        assert changed_videos(run_file, {"one": 1}) == []
        compact = hashlib.sha256(msgspec.json.encode(written)).hexdigest()
        assert run_digest(run_file, []) == hashlib.sha256(f"run.json {compact}\n".encode()).hexdigest()
        recorded = msgspec.structs.replace(RUN, videos={"one": 1234})
        write_run_file(tmp_path / "new", recorded)
        assert read_run_file(tmp_path / "new") == recorded
        assert run_digest(recorded, []) != run_digest(RUN, [])

    def test_one_process_plays_a_run(self, tmp_path: Path) -> None:
        with (
            hold_run_folder(tmp_path),
            pytest.raises(RunError, match="in use by another process"),
            hold_run_folder(tmp_path),
        ):
            pass
        with hold_run_folder(tmp_path):
            pass
        with pytest.raises(RunError, match="cannot open run folder"), hold_run_folder(tmp_path / "absent"):
            pass

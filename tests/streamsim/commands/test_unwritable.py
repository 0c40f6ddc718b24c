"""Full disks and places that cannot be written: one line, exit code 2, and nothing half-written."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamsim.cli import main
from streamsim.episodes.dataset import DatasetInfo, write_dataset
from streamsim.errors import DatasetError

MakeClip = Callable[..., Path]

LIMITED = """\
import resource, signal, sys
from streamsim.cli import main
if __name__ == "__main__":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limit = int(sys.argv.pop(1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    sys.exit(main(sys.argv[1:]))
"""
"""The command line in a process that can write no file beyond a size: as a full disk, but for the reason."""


@pytest.fixture
def limited(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """``limited(size_bytes, *arguments)`` runs a command so."""
    script = tmp_path_factory.mktemp("limited") / "limited.py"
    script.write_text(LIMITED)

    def run(size_bytes: int, *arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(script), str(size_bytes), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run


Limited = Callable[..., subprocess.CompletedProcess[str]]


def questions(folder: Path, video: Path) -> Path:
    path = folder / "q.csv"
    path.write_text(f"video,time,question\n{video.name},0,{'What is on the table? ' * 20}\n")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0, 300, 1000])
def test_import_leaves_nothing_on_a_full_disk(
    limited: Limited, make_clip: MakeClip, tmp_path: Path, limit: int
) -> None:
    """At 0 the first file cannot be written, at 300 the episodes, at 1000 the copy of the video."""
    asked = questions(tmp_path, make_clip("clip.mp4", [0, 500]))
    assert (tmp_path / "clip.mp4").stat().st_size > 1000
    out = tmp_path / "new" / "d"
    done = limited(limit, "import", "csv", asked, "--copy", "-o", out)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"streamsim import: cannot write {str(out)!r}: file too large: "
        "free space there, or choose another place\n"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clip.mp4", "q.csv"]


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0, 40_000])
def test_make_leaves_nothing_on_a_full_disk(limited: Limited, tmp_path: Path, limit: int) -> None:
    out = tmp_path / "new" / "rooms"
    done = limited(limit, "make", "rooms", "--count", 1, "--seconds", 20, "--processes", 1, "-o", out)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"streamsim make: cannot write {str(out)!r}: file too large: "
        "free space there, or choose another place\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("there", [False, True])
def test_frames_takes_its_pictures_back_on_a_full_disk(
    limited: Limited, make_clip: MakeClip, tmp_path: Path, there: bool
) -> None:
    """The second picture is larger than the first; a folder that was there stays, empty."""
    clip = make_clip("clip.mp4", [0, 1000, 2000])
    folder = tmp_path / "new" / "pictures"
    assert main(["frames", str(clip), "-o", str(tmp_path / "all")]) == 0
    sizes = [path.stat().st_size for path in sorted((tmp_path / "all").iterdir())]
    assert sizes[0] < max(sizes), "the limit is meant to let the first one pass"
    if there:
        folder.mkdir(parents=True)
    done = limited(sizes[0], "frames", clip, "-o", folder)
    assert done.returncode == 2
    assert done.stderr == (
        f"streamsim frames: cannot write {str(folder)!r}: file too large: "
        "free space there, or choose another place\n"
    )
    assert folder.is_dir() == there and (tmp_path / "new").is_dir() == there
    assert not there or list(folder.iterdir()) == []


@pytest.fixture
def below_a_file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "d"


def test_a_place_below_a_file(
    make_clip: MakeClip, tmp_path: Path, below_a_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clip = make_clip("clip.mp4", [0])
    before = sorted(tmp_path.rglob("*"))
    says = f"cannot write {str(below_a_file)!r}: not a directory: choose another place\n"
    asked = questions(tmp_path, clip)
    for arguments in (
        ["import", "csv", str(asked), "-o", str(below_a_file)],
        ["make", "rooms", "--count", "1", "--processes", "1", "-o", str(below_a_file)],
        ["frames", str(clip), "-o", str(below_a_file)],
    ):
        assert main(arguments) == 2
        printed = capsys.readouterr()
        assert (printed.out, printed.err) == ("", f"streamsim {arguments[0]}: {says}")
    assert sorted(tmp_path.rglob("*")) == sorted([*before, asked])


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder in which this user may not write."""
    folder = tmp_path / "read-only"
    folder.mkdir()
    folder.chmod(0o555)
    try:
        with contextlib.suppress(OSError):
            (folder / "probe").touch()
            pytest.skip("this user may write everywhere: permissions mean nothing")
        yield folder
    finally:
        folder.chmod(0o755)


def test_a_folder_without_permission(
    make_clip: MakeClip, tmp_path: Path, read_only: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clip = make_clip("clip.mp4", [0])
    out = read_only / "d"
    for arguments in (
        ["import", "csv", str(questions(tmp_path, clip)), "-o", str(out)],
        ["make", "rooms", "--count", "1", "--processes", "1", "-o", str(out)],
        ["frames", str(clip), "-o", str(out)],
    ):
        assert main(arguments) == 2
        assert capsys.readouterr().err == (
            f"streamsim {arguments[0]}: cannot write {str(out)!r}: permission denied: "
            "choose a place that you may write to\n"
        )


def test_a_name_that_is_too_long_is_one_line_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = str(tmp_path / ("x" * 300))
    (tmp_path / "q.csv").write_text("video,time,question\na.mp4,1,?\n")
    for arguments in (
        ["check", long],
        ["frames", long],
        ["score", long],
        ["rescore", long],
        ["verify", long],
        ["import", "csv", str(tmp_path / "q.csv"), "-o", long],
        ["make", "rooms", "-o", long],
    ):
        assert main(arguments) == 2
        printed = capsys.readouterr()
        assert printed.out == "" and printed.err.count("\n") == 1
        assert (
            printed.err.startswith(f"streamsim {arguments[0]}: ")
            and "file name too long" in printed.err.lower()
        )


def test_an_unreadable_video_to_copy_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    info = DatasetInfo(name="d", chain="task", source="test")
    gone = tmp_path / "gone.mp4"
    with pytest.raises(DatasetError, match=r"cannot read video '.*gone.mp4': no such file or directory"):
        write_dataset(tmp_path / "d", info, [], [], copy={"videos/v0001.mp4": gone})
    assert list(tmp_path.iterdir()) == []


def test_no_room_for_the_findings_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):  # noqa: PTH110
        pytest.skip("no /dev/full here")
    table = tmp_path / "q.csv"
    table.write_text("video,time,question\na.mp4,1,?\n")
    assert main(["import", "csv", str(table), "-o", str(tmp_path / "d")]) == 0
    capsys.readouterr()
    command = [sys.executable, "-m", "streamsim", "check", str(tmp_path / "d")]
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 1
        assert done.stderr == "streamsim check: no space left for the output: nothing else is lost\n"
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, text=True, check=False)
    assert done.returncode == 1 and "1 error," in done.stdout


def test_a_folder_that_may_not_be_entered_is_one_line(
    make_clip: MakeClip, tmp_path: Path, read_only: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clip = make_clip("clip.mp4", [0])
    asked = questions(tmp_path, clip)
    read_only.chmod(0)
    inside = str(read_only / "d")
    for arguments in (
        ["check", inside],
        ["frames", inside],
        ["frames", str(clip), "-o", inside],
        ["score", inside],
        ["rescore", inside],
        ["verify", inside],
        ["import", "csv", str(asked), "-o", inside],
        ["import", "csv", inside, "-o", str(tmp_path / "out")],
        ["import", "csv", str(asked), "--videos", inside, "-o", str(tmp_path / "out")],
        ["make", "rooms", "--count", "1", "--processes", "1", "-o", inside],
    ):
        assert main(arguments) == 2
        printed = capsys.readouterr()
        assert printed.out == "" and printed.err.count("\n") == 1
        assert printed.err.startswith(f"streamsim {arguments[0]}: ") and "permission denied" in printed.err
    assert not (tmp_path / "out").exists()

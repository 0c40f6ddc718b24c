"""``streamsim frames``: JSON for programs, lines for people, exit codes for both."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from streamsim.cli import main

MakeClip = Callable[..., Path]
ShownMs = Callable[[bytes | None], int | None]


def test_json_and_pictures(
    make_clip: MakeClip, shown_ms: ShownMs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clip = make_clip("late.mp4", [700, 740, 1990, 2010], sound_ms=1000)
    folder = tmp_path / "new" / "pictures"
    assert main(["frames", str(clip), "--json", "-o", str(folder)]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {
        "samples": [
            {"k": 0, "media_ns": 0, "source_ns": None, "width": None, "height": None, "png": None},
            {
                "k": 1,
                "media_ns": 10**9,
                "source_ns": 740_000_000,
                "width": 128,
                "height": 96,
                "png": str(folder / "000001.png"),
            },
            {
                "k": 2,
                "media_ns": 2 * 10**9,
                "source_ns": 1_990_000_000,
                "width": 128,
                "height": 96,
                "png": str(folder / "000002.png"),
            },
        ],
        "damaged": 0,
        "error": None,
    }
    assert "nothing is visible before 0.700 s" in printed.err
    assert [shown_ms(path.read_bytes()) for path in sorted(folder.iterdir())] == [740, 1990]


def test_options_reach_the_sampler(
    make_clip: MakeClip, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clip = make_clip("clip.mkv", [0, 100, 200, 900], declared_fps=2)
    assert main(["frames", str(clip), "--json", "--fps", "2.5"]) == 0
    samples = json.loads(capsys.readouterr().out)["samples"]
    assert [sample["source_ns"] for sample in samples] == [0, 200_000_000, 200_000_000]
    assert [sample["png"] for sample in samples] == [None, None, None]
    arguments = ["--sampling", "storm-evaluator", "--pixel-budget", "3000", "-o", str(tmp_path / "p")]
    assert main(["frames", str(clip), "--json", *arguments]) == 0
    samples = json.loads(capsys.readouterr().out)["samples"]
    assert [sample["source_ns"] for sample in samples] == [0, 200_000_000]
    for sample in samples:
        with Image.open(sample["png"]) as picture:
            assert picture.size == (sample["width"], sample["height"]) == (63, 47)


def test_lines_for_people(make_clip: MakeClip, capsys: pytest.CaptureFixture[str]) -> None:
    clip = make_clip("late.mp4", [700, 990, 1400], sound_ms=1000)
    assert main(["frames", str(clip)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "    0      0.000 s  nothing visible yet",
        "    1      1.000 s  picture of     0.990 s  128x96",
        f"{clip}: 2 samples, 0 damaged pictures in the file",
    ]


def test_one_sample_is_told_in_the_singular(make_clip: MakeClip, capsys: pytest.CaptureFixture[str]) -> None:
    clip = make_clip("short.mkv", [0, 200])
    assert main(["frames", str(clip)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{clip}: 1 sample, 0 damaged pictures in the file"


def test_a_bad_video_is_exit_1_and_said_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "no.mp4").write_bytes(b"")
    says = f"no video in {str(tmp_path / 'no.mp4')!r}: the file is empty"
    assert main(["frames", str(tmp_path / "no.mp4"), "--json"]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"samples": [], "damaged": 0, "error": says}
    assert printed.err == f"streamsim frames: {says}\n"
    assert main(["frames", str(tmp_path / "no.mp4")]) == 1
    assert capsys.readouterr().out == ""


def test_paths_that_cannot_be_used_are_exit_2(
    make_clip: MakeClip, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clip = make_clip("clip.mp4", [0])
    (tmp_path / "file").write_text("")
    for arguments, says in (
        ([str(tmp_path / "absent.mp4")], "expected a video file at"),
        ([str(clip), "-o", str(tmp_path / "file")], "not a directory: choose another place"),
        ([str(clip), "--fps", "0"], "expected a sampling rate from 1e-06 to 10000, got 0.0"),
    ):
        assert main(["frames", *arguments]) == 2
        printed = capsys.readouterr()
        assert printed.out == "" and says in printed.err and printed.err.count("\n") == 1


def test_damage_is_counted(test_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clip = test_data / "cases" / "video" / "corrupt_middle.mp4"
    assert main(["frames", str(clip), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    # 1,500 zero bytes: 21 pictures cannot be decoded, one is flagged
    assert (found["damaged"], len(found["samples"]), found["error"]) == (22, 8, None)
    assert main(["frames", str(clip)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"{clip}: 8 samples, 22 damaged pictures in the file"


def test_a_folder_that_holds_something_is_left_as_it_is(
    make_clip: MakeClip, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    clip = make_clip("clip.mp4", [0])
    assert main(["frames", str(clip), "-o", str(folder)]) == 0  # an empty one will do
    before = [(path.name, path.read_bytes()) for path in folder.iterdir()]
    capsys.readouterr()
    assert main(["frames", str(clip), "-o", str(folder), "--fps", "2"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        f"streamsim frames: {str(folder)!r} exists and is not empty: choose another folder or remove it\n"
    )
    assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == before != []

"""What the encoded video shows against what the answer key says, without the maker's masks.

The video is decoded as a run would sample it and its colours are counted; of the script only geometry
is used: where a spot lies in the view. A thing of 42 pixels has 600 and more; H.264 smears a few.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from streamsim.cli import main
from streamsim.episodes.check import check_dataset
from streamsim.episodes.dataset import Dataset, load_dataset
from streamsim.episodes.make.produce import Recipe, make_dataset, make_script, outline_episode
from streamsim.episodes.make.scene import Spot
from streamsim.episodes.make.script import Hidden, Script
from streamsim.episodes.video import probe_video, sample_video
from streamsim.errors import DatasetError

pytestmark = pytest.mark.slow

RECIPE = Recipe(count=2, seed=77)
SECOND = 10**9
HUES = {"red": 0, "orange": 30, "yellow": 51, "green": 130, "blue": 223, "purple": 276}
WALLS = {"kitchen": (44, 12), "lounge": (8, -16), "bedroom": (-8, 12), "bathroom": (-34, -22)}
"""Of each wall red minus blue, and red minus green."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("made") / "rooms"
    make_dataset(RECIPE, folder)
    return load_dataset(folder)


@pytest.fixture(scope="module")
def pictures(dataset: Dataset) -> list[list[NDArray[np.uint8]]]:
    """By episode and second, (384, 512, 3)."""
    return [
        [
            np.asarray(Image.open(io.BytesIO(sample.data or b"")).convert("RGB"))
            for sample in sample_video(dataset.video_path(episode))
        ]
        for episode in dataset.episodes
    ]


def test_the_file_is_what_it_should_be(dataset: Dataset) -> None:
    for episode in dataset.episodes:
        info = probe_video(dataset.video_path(episode))
        assert (info.width, info.height, info.pictures) == (512, 384, 601)
        assert (info.first_picture_ns, info.last_picture_ns) == (0, 60 * SECOND)
        assert info.average_fps == 10
        assert all(query.media_ns <= info.last_picture_ns for query in episode.queries)


def test_check_finds_nothing(dataset: Dataset) -> None:
    checked = check_dataset(dataset.public)
    assert (checked.episodes, checked.queries, checked.findings) == (2, 20, ())


def test_events_show_in_the_picture(pictures: list[list[NDArray[np.uint8]]]) -> None:
    """The thing is there (or its spot is empty) a sample before each event and two after it."""
    for index, frames in enumerate(pictures):
        script = make_script(RECIPE, index)
        assert len(script.events) == 10
        for event in script.events:
            colour = script.things[event.thing].colour
            vanishes = event.kind == "disappearance"
            spot = spot_at(script, event.thing, event.media_ns, after=not vanishes)
            k = event.media_ns // SECOND - 1
            before, first, second = (count_at(script, frames, n, spot, colour) for n in (k, k + 2, k + 3))
            there, empty = ([before], [first, second]) if vanishes else ([first, second], [before])
            assert min(there) >= 128 and max(empty) < 40, f"{event}: {before}, {first}, {second}"


def test_where_things_are_said_to_be(pictures: list[list[NDArray[np.uint8]]]) -> None:
    """Every fourth item that asks where something is: if known, the wall has the room's colour and its
    spot that of the thing; if uncertain, no more of its colour is in view than belongs to others."""
    known = uncertain = 0
    for index, frames in enumerate(pictures):
        script = make_script(RECIPE, index)
        items = [item for item in outline_episode(RECIPE, index).items if item.form == "room_now"]
        for item in items[::4]:
            frame, media_ns = frames[item.n], item.n * SECOND
            thing = next(i for i, one in enumerate(script.things) if one.name == item.fields["thing"])
            colour = script.things[thing].colour
            if item.status == "known":
                spot = spot_at(script, thing, media_ns, after=True)
                assert count_at(script, frames, item.n, spot, colour) >= 128
                assert f"in the {wall_of(frame)}" == item.answer
                known += 1
            else:
                others = [
                    script.where(i, media_ns) for i, one in enumerate(script.things) if one.colour == colour
                ]
                spots = [where for where in others if isinstance(where, Spot)]
                theirs = sum(count_at(script, frames, item.n, spot, colour) for spot in spots)
                edges = 128 * sum(isinstance(where, Hidden) for where in others)
                assert int(is_colour(frame, colour).sum()) - theirs < 100 + edges
                uncertain += 1
    assert known > 80 and uncertain > 20


def test_blinds_hang_as_is_said(pictures: list[list[NDArray[np.uint8]]]) -> None:
    """Sky is counted in the picture: none behind a lowered blind, most of the window under a raised one."""
    seen = set()
    for index, frames in enumerate(pictures):
        items = [item for item in outline_episode(RECIPE, index).items if item.form == "blind_now"]
        for item in items:
            frame = frames[item.n].astype(int)
            if item.causes == ("low_visual_quality",):
                assert frame.mean() < 45
            elif item.answer is not None:
                sky = int(((frame[..., 2] - frame[..., 0] > 62) & (frame[..., 0] > 110)).sum())
                limits = {
                    "all the way up": (5200, 8000),
                    "halfway down": (2500, 4200),
                    "all the way down": (0, 300),
                }
                low, high = limits[item.answer]
                assert low <= sky <= high, f"{item}: {sky}"
                seen.add(item.answer)
    assert len(seen) == 3


def test_what_shows_only_an_edge_has_fewer_pixels_than_count_as_visible(
    pictures: list[list[NDArray[np.uint8]]],
) -> None:
    shown = 0
    for index, frames in enumerate(pictures):
        script = make_script(RECIPE, index)
        for stranger in (i for i, thing in enumerate(script.things) if thing.stranger):
            for n, frame in enumerate(frames):
                where = script.where(stranger, n * SECOND)
                left = script.view_x(n * SECOND)
                if where is None or isinstance(where, Spot) or frame.mean() < 45:
                    continue
                x = script.scene.rooms[where.room].chest_x - left
                if 30 <= x <= 482:
                    box = frame[290:322, x - 30 : x + 30]
                    pixels = int(is_colour(box, script.things[stranger].colour).sum())
                    assert 20 <= pixels < 128
                    shown += 1
    assert shown > 10


def test_the_command_makes_the_same_annotations_with_any_number_of_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = ["--count", "2", "--seed", "3", "--seconds", "20", "--fps", "2", "--json"]
    for processes in ("1", "2"):
        folder = tmp_path / processes / "data"
        assert main(["make", "rooms", *short, "--processes", processes, "-o", str(folder)]) == 0
        printed = capsys.readouterr()
        report = json.loads(printed.out)
        assert (report["episodes"], report["queries"], report["uncertain"]) == (2, 8, 4)
        assert "2 of 2 episodes drawn" in printed.err
    for file in ("public/episodes.jsonl", "public/dataset.json", "key/answers.jsonl"):
        one, two = ((tmp_path / processes / "data" / file).read_bytes() for processes in "12")
        assert one == two
    assert sorted(path.name for path in (tmp_path / "1").iterdir()) == ["data"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--count", "0"], "expected --count from 1 to"),
        (["--seconds", "5"], "expected --seconds from 20 to 120"),
        (["--style", "revisit", "--seconds", "90"], "expected --seconds from 20 to 60"),
        (["--fps", "0"], "expected --fps from 1 to 60"),
    ],
)
def test_wrong_usage_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["make", "rooms", *arguments, "-o", str(tmp_path / "data")]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(DatasetError, match="not empty"):
        make_dataset(RECIPE, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def spot_at(script: Script, thing: int, media_ns: int, *, after: bool) -> Spot:
    """Where a thing stands at an instant, or stood just before it."""
    until = media_ns if after else media_ns - 1
    held = [where for since, where in script.whereabouts[thing] if since <= until]
    assert isinstance(held[-1], Spot)
    return held[-1]


def count_at(script: Script, frames: list[NDArray[np.uint8]], n: int, spot: Spot, colour: str) -> int:
    """Pixels of a colour in the 44 by 44 box above a spot, as sample ``n`` shows it; 0 out of view."""
    x = spot.x - script.view_x(n * SECOND)
    box = frames[n][spot.y - 44 : spot.y, max(0, x - 22) : max(0, x + 22)]
    return int(is_colour(box, colour).sum()) if box.size else 0


def is_colour(picture: NDArray[np.uint8], colour: str) -> NDArray[np.bool_]:
    """Pixels of strong colour within 12 degrees of its hue, by Pillow's HSV."""
    hue, saturation, value = np.moveaxis(
        np.asarray(Image.fromarray(picture).convert("HSV")).astype(int), 2, 0
    )
    off = np.abs((hue * 360 / 256 - HUES[colour] + 180) % 360 - 180)
    return np.asarray((off < 12) & (saturation > 128) & (value > 76))


def wall_of(picture: NDArray[np.uint8]) -> str:
    """The room whose wall has the colour of the picture's upper strip."""
    red, green, blue = (float(v) for v in np.median(picture[6:24].reshape(-1, 3), axis=0))
    return min(WALLS, key=lambda room: abs(red - blue - WALLS[room][0]) + abs(red - green - WALLS[room][1]))

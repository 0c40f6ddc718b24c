"""What the eye of the sightings agent makes of pictures, and that its vocabulary is the maker's."""

from __future__ import annotations

import colorsys
import io
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from streamsim.episodes.episode import CAUSES
from streamsim.episodes.make import palette, question, scene
from streamsim.episodes.make.sprite import draw_object
from streamsim_agents.sightings import eye, world
from streamsim_agents.sightings.answer import CAUSE_LETTERS, parse
from streamsim_agents.sightings.eye import Look, look_at
from streamsim_agents.sightings.memory import Memory


def test_the_vocabulary_is_the_makers() -> None:
    hues = {
        name: colorsys.rgb_to_hsv(*(v / 255 for v in rgb))[0] * 360 for name, rgb in palette.COLOURS.items()
    }
    assert pytest.approx(hues, abs=0.5) == world.HUES
    assert world.SHAPES == palette.SHAPES
    fliers = {**world.FLIER_HUES, world.DARK_FLIER: None}
    assert set(fliers) == set(palette.FLIERS)
    for name, hue in world.FLIER_HUES.items():
        rgb = palette.FLIERS[name]
        assert hue == pytest.approx(colorsys.rgb_to_hsv(*(v / 255 for v in rgb))[0] * 360, abs=0.5)
    assert max(palette.FLIERS[world.DARK_FLIER]) < 40
    assert world.WALLS == palette.WALLS
    assert world.SKY == palette.SKY
    assert world.PICTURE_SIZE == (palette.WIDTH, palette.HEIGHT)
    assert (
        dict(zip(palette.PLACES, (scene.SHELF_Y, scene.TABLE_Y, scene.FLOOR_Y), strict=True)) == world.PLACE_Y
    )


def test_the_wordings_are_the_makers() -> None:
    assert world.WORDINGS == question.WORDINGS
    assert (world.ABSTENTION, world.CONTRACT) == (question.ABSTENTION, question.CONTRACT)
    assert world.PLACE_PHRASES == question.PLACE_OPTIONS
    assert world.BLIND_PHRASES == question.BLIND_OPTIONS
    assert world.COUNT_PHRASES == question.MOVE_OPTIONS
    assert tuple(world.ORDINALS) == question.ORDINALS
    assert tuple(world.VERBS) == tuple(question.VERBS.values())
    assert tuple(world.CHANGES) == tuple(question.CHANGE_WORDS.values())
    assert dict(zip(CAUSES, "ABCDEF", strict=True)) == CAUSE_LETTERS


def test_it_reads_every_wording() -> None:
    values = {
        "thing": "red ball",
        "other": "blue cone",
        "change": "gone",
        "room": "kitchen",
        "colour": "red",
        "first": "red ball",
        "second": "blue cone",
        "third": "green star",
        "ordinal": "second",
        "verb": "come back",
    }
    for form, wordings in world.WORDINGS.items():
        for wording in wordings:
            parsed = parse(f"{wording.format(**values)} {world.CONTRACT}")
            assert parsed is not None
            assert parsed[0] == form
            assert parsed[1] == {name: values[name] for name in parsed[1]}
            assert len(parsed[1]) == wording.count("{")
    assert parse("What is on the table?") is None


def paint(
    wall: tuple[int, int, int], draw: Callable[[Image.Image], None] = lambda image: None
) -> NDArray[np.uint8]:
    """A picture of a bare wall with something on it, as a JPEG shows it."""
    image = Image.new("RGB", (512, 384), wall)
    draw(image)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=85)
    return np.asarray(Image.open(file).convert("RGB"))


@pytest.mark.parametrize("colour", palette.COLOURS)
@pytest.mark.parametrize("shape", palette.SHAPES)
def test_it_names_every_object(colour: str, shape: str) -> None:
    sprite = draw_object(colour, shape)

    def put(image: Image.Image) -> None:
        picture = Image.fromarray(np.dstack([sprite.rgb, sprite.alpha]), "RGBA")
        image.paste(picture, (100, 236 - 44), picture)

    look = look_at(paint(palette.WALLS["lounge"], put), 0)
    (seen,) = look.things
    assert (seen.name, seen.place, look.room) == (f"{colour} {shape}", "table", "lounge")
    assert abs(seen.x - 122) <= 2
    assert look.edges == () and look.fliers == ()


def test_shapes_are_told_by_outline_alone() -> None:
    """Drawn here with other means than the maker's: a disc, a square, a triangle, a ring."""

    def put(image: Image.Image) -> None:
        draw = ImageDraw.Draw(image)
        red = (220, 30, 30)
        draw.ellipse((20, 90, 62, 136), fill=red)
        draw.rectangle((120, 94, 162, 136), fill=red)
        draw.polygon([(241, 94), (262, 136), (220, 136)], fill=red)
        draw.ellipse((320, 94, 362, 136), outline=red, width=11)

    look = look_at(paint(palette.WALLS["bedroom"], put), 0)
    assert [thing.shape for thing in sorted(look.things, key=lambda thing: thing.x)] == [
        "ball",
        "cube",
        "cone",
        "ring",
    ]


@pytest.mark.parametrize("room", palette.WALLS)
def test_it_knows_rooms_by_their_walls(room: str) -> None:
    assert look_at(paint(palette.WALLS[room]), 0).room == room


def test_between_two_rooms_it_is_in_none() -> None:
    def half(image: Image.Image) -> None:
        image.paste(palette.WALLS["kitchen"], (200, 0, 512, 384))

    assert look_at(paint(palette.WALLS["bedroom"], half), 0).room is None


def test_dark_and_black() -> None:
    dark = look_at((paint(palette.WALLS["kitchen"]) * 0.07).astype(np.uint8), 0)
    black = look_at(np.zeros((384, 512, 3), np.uint8), 0)
    assert (dark.lit, dark.black, black.lit, black.black) == (False, False, False, True)


def test_an_edge_has_a_colour_and_no_shape() -> None:
    def put(image: Image.Image) -> None:
        ImageDraw.Draw(image).chord((200, 300, 242, 342), 220, 320, fill=(30, 80, 220))

    look = look_at(paint(palette.WALLS["kitchen"], put), 0)
    assert (look.things, look.edges) == ((), ("blue",))


def test_it_sees_smaller_pictures_too() -> None:
    sprite = draw_object("red", "star")

    def put(image: Image.Image) -> None:
        picture = Image.fromarray(np.dstack([sprite.rgb, sprite.alpha]), "RGBA")
        image.paste(picture, (300, 346 - 44), picture)

    small = np.asarray(Image.fromarray(paint(palette.WALLS["kitchen"], put)).resize((256, 192)))
    (seen,) = look_at(small, 0).things
    assert (seen.name, seen.place) == ("red star", "floor")


@given(st.lists(st.lists(st.booleans(), min_size=7, max_size=7), min_size=1, max_size=6))
def test_blobs_are_the_connected_sets(rows: list[list[bool]]) -> None:
    """Against a flood fill over the eight neighbours."""
    mask = np.asarray(rows, dtype=np.bool_)
    left = {(int(y), int(x)) for y, x in zip(*np.nonzero(mask), strict=True)}
    expected = []
    while left:
        todo, blob = [left.pop()], set()
        while todo:
            y, x = todo.pop()
            blob.add((y, x))
            near = {(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)} & left
            left -= near
            todo += near
        expected.append(blob)
    found = [
        {(blob.y0 + int(y), blob.x0 + int(x)) for y, x in zip(*np.nonzero(blob.mask), strict=True)}
        for blob in eye._blobs(mask, 1)
    ]
    assert sorted(map(sorted, found)) == sorted(map(sorted, expected))


def test_the_memory_is_bounded_and_forgets_the_oldest() -> None:
    memory = Memory(3)
    sizes = []
    for second in range(6):
        memory.add(Look(media_ns=second * 10**9, room="kitchen", lit=True))
        sizes.append(memory.nbytes)
    assert [look.media_ns // 10**9 for look in memory.recall().looks] == [3, 4, 5]
    assert sizes[2] == sizes[-1] > sizes[0]

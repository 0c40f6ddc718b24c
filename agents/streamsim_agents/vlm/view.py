"""From what a memory shows to what a model is shown: steps of frames, encoded once, under titles."""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image

from streamsim_agents.memory.entry import Entry, Part
from streamsim_agents.vlm.family import Family, Features
from streamsim_agents.vlm.prompt import Step, Video

if TYPE_CHECKING:
    from streamsim_agents.vlm.family import Picture

TITLES = {"long": "A summary of", "short": "The latest,"}
"""How a part with a label is introduced, before the seconds that it covers."""


class View:
    """Makes videos of memory parts for one model; keeps the encoded form of up to ``steps`` steps.

    ``encodings`` counts how often the vision half ran.
    """

    def __init__(self, family: Family, unit: int, steps: int) -> None:
        self._family, self._unit, self._steps = family, unit, steps
        self._features: OrderedDict[tuple[object, ...], Features] = OrderedDict()
        self._pictures: OrderedDict[tuple[object, ...], Picture] = OrderedDict()
        self.encodings = 0

    @property
    def bytes(self) -> int:
        """Bytes of the encoded steps that are kept."""
        return sum(item.tokens.numel() * item.tokens.element_size() for item in self._features.values())

    def videos(self, parts: Sequence[Part], *, session: int, fps: float) -> list[Video]:
        """One video per part and session, each with a title where there is more to tell apart."""
        videos = []
        for part in parts:
            for number, entries in groupby(part.entries, key=lambda entry: entry.session):
                chosen = tuple(entries)
                title = _title(part.label, chosen, earlier=number != session)
                videos.append(Video(steps=self.steps(chosen), fps=part.fps or fps, title=title))
        return videos

    def steps(self, entries: Sequence[Entry]) -> tuple[Step, ...]:
        """The steps of consecutive entries: encoded entries as they are, frames in groups."""
        if entries and not isinstance(entries[0].value, bytes):
            return tuple(self._encoded(entry) for entry in entries)
        padded = list(entries)
        while len(padded) % max(self._unit, self._family.step_frames):
            padded.append(padded[-1])
        size = self._family.step_frames
        return tuple(
            self._frames(padded[at : at + size], padded[at - 1] if at else None)
            for at in range(0, len(padded), size)
        )

    def encode(self, entries: Sequence[Entry], previous: Entry | None = None) -> Features:
        """The encoded form of one step's frames."""
        key = tuple(entry.key for entry in entries), previous and previous.key
        found = self._features.get(key)
        if found is None:
            pictures = [self.picture(entry) for entry in entries]
            with torch.inference_mode():
                found = self._family.encode(pictures, None if previous is None else self.picture(previous))
            self.encodings += 1
            self._features[key] = found
            while len(self._features) > self._steps:
                self._features.popitem(last=False)
        self._features.move_to_end(key)
        return found

    def picture(self, entry: Entry) -> Picture:
        """The frame of an entry, (H, W, 3) uint8 RGB."""
        found = self._pictures.get(entry.key)
        if found is None:
            found = open_picture(entry)
            self._pictures[entry.key] = found
            while len(self._pictures) > 2 * self._family.step_frames:
                self._pictures.popitem(last=False)
        return found

    def clear(self) -> None:
        """Forget all encoded steps."""
        self._features.clear()
        self._pictures.clear()

    def _frames(self, entries: Sequence[Entry], previous: Entry | None) -> Step:
        if not self._family.uses_previous:
            previous = None
        return Step(
            key=("frames", tuple(entry.key for entry in entries), previous and previous.key),
            seconds=tuple(entry.first_ns / 1e9 for entry in entries),
            features=lambda: self.encode(entries, previous),
            pictures=lambda: [self.picture(entry) for entry in entries],
        )

    def _encoded(self, entry: Entry) -> Step:
        return Step(
            key=("tokens", entry.key),
            seconds=(entry.first_ns / 1e9, entry.last_ns / 1e9),
            features=_inflated(entry),
        )


def open_picture(entry: Entry) -> Picture:
    """The frame of an entry that holds a picture file, (H, W, 3) uint8 RGB."""
    assert isinstance(entry.value, bytes)
    with Image.open(io.BytesIO(entry.value)) as picture:
        return np.array(picture.convert("RGB"), dtype=np.uint8)


def _inflated(entry: Entry) -> Callable[[], Features]:
    def features() -> Features:
        assert isinstance(entry.value, np.ndarray) and entry.grid is not None
        return Features(tokens=torch.from_numpy(entry.value), grid=entry.grid)

    return features


def _title(label: str, entries: Sequence[Entry], *, earlier: bool) -> str:
    seconds = f"seconds {entries[0].first_ns / 1e9:.1f} to {entries[-1].last_ns / 1e9:.1f}"
    what = TITLES.get(label, "")
    if earlier:
        session = f"session {entries[0].session + 1}"
        return f"{what or 'Seen'} {seconds} of the earlier {session}:\n"
    return f"{what} {seconds}:\n" if what else ""

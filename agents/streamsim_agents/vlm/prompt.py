"""Prompts as pieces: text and vision steps in turn, the same tokens as the checkpoint's own processor.

A ``Prompter`` renders the checkpoint's chat template with the video's placeholder in it, and puts the
steps and the texts around them in the placeholder's place. Pieces are what the engine compares with
what it has prefilled already. ``offline_inputs`` gives the same prompt through the checkpoint's own
processor in one go: the plain way, and what the pieces are checked against.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from streamsim_agents.vlm.family import Family, Features, to_model
from streamsim_agents.vlm.profile import Profile

if TYPE_CHECKING:
    from streamsim_agents.vlm.family import Picture

_LINE_MARK = "\ue000"
"""Stands for the line before an image while a template is rendered (private use, in no template)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One vision step of a prompt.

    ``key`` tells steps apart: equal keys mean equal tokens. ``seconds`` are the times of its first and
    last frame. ``features`` encodes it, or finds it again; ``pictures`` are its frames, for the plain
    way (empty where only the encoded form is remembered).
    """

    key: tuple[Any, ...]
    seconds: tuple[float, ...]
    features: Callable[[], Features] = field(compare=False, repr=False)
    pictures: Callable[[], Sequence[Picture]] = field(compare=False, repr=False, default=tuple)


@dataclass(frozen=True, slots=True, kw_only=True)
class Video:
    """Steps shown under one placeholder, behind a ``title`` (empty for none)."""

    steps: tuple[Step, ...]
    fps: float
    title: str = ""


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Tokens of text."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VisionPiece:
    """One step; equal pieces at equal places have equal keys and values in the model's layers."""

    key: tuple[Any, ...]
    interval: float
    features: Callable[[], Features] = field(compare=False, repr=False)


Piece = TextPiece | VisionPiece


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The beginning of a prompt: ``pieces``, of ``videos``, and text of the last step still to come."""

    pieces: tuple[Piece, ...]
    videos: tuple[Video, ...]
    text: str


class Prompter:
    """Makes the prompts of one loaded model."""

    def __init__(self, family: Family, profile: Profile) -> None:
        self._family, self._profile = family, profile
        self._processor = family.processor
        self._tokenizer = family.processor.tokenizer
        self._placeholder_token: str = self._tokenizer.convert_ids_to_tokens(family.vision_id)
        self._ids = lru_cache(maxsize=4096)(self._tokenize)

    def pieces(self, videos: Sequence[Video], question: str) -> list[Piece]:
        """The whole prompt, whichever comes first in it."""
        videos = _shown(videos)
        texts, between = self._split(videos, question)
        pieces, text = self._lay(videos, texts, between)
        return [*pieces, TextPiece(self._ids(text + texts[-1], not pieces))]

    def history(self, videos: Sequence[Video]) -> History:
        """All that comes before a question, for models that are shown the video first."""
        videos = _shown(videos)
        texts, between = self._split(videos, "")
        pieces, text = self._lay(videos, texts, between)
        return History(pieces=tuple(pieces), videos=tuple(videos), text=text)

    def tail(self, history: History, question: str) -> TextPiece:
        """The piece that completes ``history`` with ``question``."""
        texts, _ = self._split([replace(video, steps=video.steps[:1]) for video in history.videos], question)
        return TextPiece(self._ids(history.text + texts[-1], not history.pieces))

    def end_of_opening(self) -> TextPiece:
        """The piece before a video of which only ``add_step`` and ``end`` tell more."""
        texts, _ = self._split([_blank()], "")
        return TextPiece(self._ids(texts[0], True))

    def add_step(self, text: str, number: int, step: Step, fps: float) -> tuple[list[Piece], str]:
        """The pieces of step ``number`` of a video behind ``text``, and the text that then is due."""
        _, between = self._split([_blank()], "")
        return self._add_step(text, number, step, self._family.interval(fps), between, first=False)

    def end(self, text: str, question: str) -> TextPiece:
        """The piece that completes a video whose last step left ``text``."""
        texts, _ = self._split([_blank()], question)
        return TextPiece(self._ids(text + texts[-1], False))

    def _lay(self, videos: Sequence[Video], texts: Sequence[str], between: str) -> tuple[list[Piece], str]:
        """The pieces up to the last step, and the text behind it that belongs to the step itself."""
        pieces: list[Piece] = []
        text = ""
        for video, opening in zip(videos, texts, strict=False):
            text += opening
            interval = self._family.interval(video.fps)
            for number, step in enumerate(video.steps):
                added, text = self._add_step(text, number, step, interval, between, first=not pieces)
                pieces += added
        return pieces, text

    def _add_step(
        self, text: str, number: int, step: Step, interval: float, between: str, *, first: bool
    ) -> tuple[list[Piece], str]:
        before, after = self._family.around(number, step.seconds)
        line = self._family.line(number, step.seconds[0]) if self._family.takes == "images" else ""
        text += (between if number else "") + line + before
        vision = VisionPiece(step.key, interval, step.features)
        return [TextPiece(self._ids(text, first)), vision] if text or first else [vision], after

    def offline_inputs(self, videos: Sequence[Video], question: str) -> dict[str, Any]:
        """Arguments of ``model.generate`` from the checkpoint's own processor over all frames at once."""
        family = self._family
        arguments: dict[str, Any] = {}
        videos = _shown(videos)
        if videos and family.takes == "images":
            pictures = [picture for video in videos for step in video.steps for picture in step.pictures()]
            arguments = {"images": pictures, **family.media_settings()}
        elif videos:
            arguments = {
                "videos": [_stacked(video) for video in videos],
                "video_metadata": [self._metadata(video) for video in videos],
                **family.media_settings(),
            }
        text = self._render(self._content(videos, question))
        inputs = self._processor(text=[text], return_tensors="pt", **arguments)
        return {
            name: to_model(value, family.model) if torch.is_tensor(value) else value
            for name, value in inputs.items()
        }

    def _split(self, videos: Sequence[Video], question: str) -> tuple[list[str], str]:
        """The rendered text around each video (one more than there are videos) and between two steps."""
        family = self._family
        if family.takes == "images":
            return self._split_images(videos, question)
        texts = self._render(self._content(videos, question)).split(family.placeholder, len(videos))
        assert len(texts) == len(videos) + 1, "the chat template dropped a video"
        return texts, family.joiner

    def _split_images(self, videos: Sequence[Video], question: str) -> tuple[list[str], str]:
        """As ``_split``, with two marked images standing for each video's frames."""
        content: list[dict[str, str]] = []
        for video in videos:
            content += [_text(video.title)] if video.title else []
            content += [_text(_LINE_MARK), {"type": "image"}] * 2
        rendered = self._render(_with_question(content, question, self._profile))
        chunks = rendered.split(self._family.placeholder, 2 * len(videos))
        between = {chunk.removesuffix(_LINE_MARK) for chunk in chunks[1::2]}
        assert len(chunks) == 2 * len(videos) + 1 and len(between) <= 1, "unexpected chat template"
        return [chunk.removesuffix(_LINE_MARK) for chunk in chunks[::2]], "".join(between)

    def _content(self, videos: Sequence[Video], question: str) -> list[dict[str, str]]:
        content: list[dict[str, str]] = []
        for video in videos:
            content += [_text(video.title)] if video.title else []
            if self._family.takes == "video":
                content.append({"type": "video"})
                continue
            for number, step in enumerate(video.steps):
                content += [_text(self._family.line(number, step.seconds[0])), {"type": "image"}]
        return _with_question(content, question, self._profile)

    def _render(self, content: list[dict[str, str]]) -> str:
        rendered = self._processor.apply_chat_template(
            [{"role": "user", "content": content}],
            tokenize=False,
            add_generation_prompt=True,
            **self._profile.template,
        )
        return str(rendered)

    def _tokenize(self, text: str, first: bool) -> tuple[int, ...]:
        if first:
            return tuple(self._tokenizer(self._family.opening(text)).input_ids)
        # behind a vision token, as in the whole prompt: some tokenizers treat a beginning differently
        ids = self._tokenizer(self._placeholder_token + text, add_special_tokens=False).input_ids
        return tuple(ids[1:])

    def _metadata(self, video: Video) -> Any:
        from transformers.video_utils import VideoMetadata

        seconds = _frame_seconds(video)
        return VideoMetadata(
            total_num_frames=len(seconds), fps=video.fps, frames_indices=[at * video.fps for at in seconds]
        )


def _blank() -> Video:
    return Video(steps=(), fps=1.0)


def _shown(videos: Sequence[Video]) -> list[Video]:
    return [video for video in videos if video.steps]


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _with_question(content: list[dict[str, str]], question: str, profile: Profile) -> list[dict[str, str]]:
    return [_text(question), *content] if profile.order == "text" else [*content, _text(question)]


def _stacked(video: Video) -> Any:
    return np.stack([picture for step in video.steps for picture in step.pictures()])


def _frame_seconds(video: Video) -> list[float]:
    return [at for step in video.steps for at in step.seconds]

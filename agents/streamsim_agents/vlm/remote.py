"""Checkpoints that bring their own code: MiniCPM-V 4.5, InternVideo2.5 and Eagle2.5.

Only loaded when the user trusts that code. They are asked through the entry points that their model
cards show, with all frames at once and the whole answer back: no streaming of text, no prefill, and a
cancel takes effect when the answer is complete. That code pins versions of transformers older than
the ones this package is tested with; what stands here has been run with stand-ins of the same entry
points only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image

from streamsim_agents.memory.entry import Cue, Entry
from streamsim_agents.memory.memory import Memory
from streamsim_agents.vlm.load import Loaded
from streamsim_agents.vlm.profile import ProfileError, Streaming
from streamsim_agents.vlm.stream import latest
from streamsim_agents.vlm.view import open_picture

SIDE = 448
"""InternVideo2.5 takes squares of this side."""
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet, by which it normalises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A frame as these models take it."""

    image: Any
    seconds: float


class Remote(ABC):
    """Asks one loaded model."""

    def __init__(self, loaded: Loaded) -> None:
        self.model, self.processor, self.profile = loaded.model, loaded.processor, loaded.profile

    @abstractmethod
    def answer(self, frames: Sequence[Shown], question: str, tokens: int) -> str:
        """The whole answer of up to ``tokens`` new tokens, greedy."""


class MiniCPMV(Remote):
    """``chat`` with frames and question in one message; frames are not sliced."""

    def answer(self, frames: Sequence[Shown], question: str, tokens: int) -> str:
        answer = self.model.chat(
            msgs=[{"role": "user", "content": [*(frame.image for frame in frames), question]}],
            tokenizer=self.processor,
            sampling=False,
            max_new_tokens=tokens,
            use_image_id=False,
            max_slice_nums=1,
            enable_thinking=False,
            stream=False,
        )
        return str(answer)


class InternVideo(Remote):
    """``chat`` with one tile a frame, each behind its line; the number of frames fills a unit."""

    def answer(self, frames: Sequence[Shown], question: str, tokens: int) -> str:
        unit = int(getattr(self.model.config, "local_num_frames", None) or self.profile.unit)
        shown = list(frames)
        while shown and len(shown) % unit:
            shown.append(shown[-1])
        lines = "".join(
            f"Frame{number + 1} ({frame.seconds:.1f} s): <image>\n" for number, frame in enumerate(shown)
        )
        pixels = torch.stack([_tile(frame.image) for frame in shown]) if shown else None
        answer = self.model.chat(
            self.processor,
            None if pixels is None else pixels.to(self.model.device, self.model.dtype),
            lines + question,
            {"do_sample": False, "num_beams": 1, "max_new_tokens": tokens},
            num_patches_list=[1] * len(shown),
            history=None,
            return_history=False,
        )
        return str(answer[0] if isinstance(answer, tuple) else answer)


class Eagle(Remote):
    """``generate`` on what its processor makes of a message with all frames as one video."""

    def answer(self, frames: Sequence[Shown], question: str, tokens: int) -> str:
        shown = list(frames)
        while shown and len(shown) % self.profile.unit:
            shown.append(shown[-1])
        video = [{"type": "video", "video": [frame.image for frame in shown]}] if shown else []
        messages = [{"role": "user", "content": [*video, {"type": "text", "text": question}]}]
        text = self.processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        images, videos, settings = self.processor.process_vision_info(messages, return_video_kwargs=True)
        inputs = self.processor(
            text=[text],
            images=images,
            videos=videos,
            videos_kwargs=settings,
            return_tensors="pt",
            padding=True,
        ).to(self.model.device)
        with torch.inference_mode():
            ids = self.model.generate(**inputs, max_new_tokens=tokens, do_sample=False)
        prompt = inputs["input_ids"].shape[1]
        ids = ids[:, prompt:] if ids.shape[1] > prompt else ids
        return str(self.processor.batch_decode(ids, skip_special_tokens=True)[0])


class RemoteStream:
    """Keeps frames as they are and asks with what the memory shows."""

    def __init__(self, remote: Remote, memory: Memory, max_frames: int) -> None:
        self.remote, self.memory, self._max_frames = remote, memory, max_frames

    def begin(self, fps: float) -> None:
        """Nothing to prepare."""

    def resume(self, session: int, waiting: Sequence[Entry]) -> None:
        """Nothing to prepare."""

    def next_session(self) -> None:
        """Frames of all sessions are shown alike."""

    def waiting(self) -> Sequence[Entry]:
        """Nothing waits."""
        return ()

    def observe(self, entry: Entry) -> None:
        """Keep the frame."""
        self.memory.write(entry)

    def finish(self) -> None:
        """Nothing waits."""

    @contextmanager
    def utterance(
        self, question: str, media_ns: int, cancelled: Callable[[], bool]
    ) -> Iterator[Callable[[int], str]]:
        """A function that gives the answer of up to so many tokens."""
        parts = latest(self.memory.read(Cue(text=question, media_ns=media_ns)), self._max_frames)
        frames = [
            Shown(image=Image.fromarray(open_picture(entry)), seconds=entry.first_ns / 1e9)
            for part in parts
            for entry in part.entries
        ]
        yield lambda tokens: self.remote.answer(frames, question, tokens)

    def stats(self) -> dict[str, float]:
        """None of its own."""
        return {}


_REMOTES: dict[str, Callable[[Loaded], Remote]] = {
    "minicpmv": MiniCPMV,
    "internvl_chat": InternVideo,
    "eagle_2_5_vl": Eagle,
}


def remote_stream(loaded: Loaded, memory: Memory, streaming: Streaming, max_frames: int) -> RemoteStream:
    """The stream for a model of its own code; asks it one dummy question.

    Raises ProfileError for an architecture that nobody wrote the entry points down for, for
    ``streaming=on`` and for a memory of anything but frames.
    """
    known = _REMOTES.get(loaded.profile.model_type)
    if known is None:
        raise ProfileError(
            f"no entry points known for {loaded.profile.model_type!r}: expected {', '.join(_REMOTES)}"
        )
    if streaming == "on" or memory.kind != "frames":
        raise ProfileError(
            "a model of its own code takes frames only, all at once: streaming=auto, memory=recent"
        )
    stream = RemoteStream(known(loaded), memory, max_frames)
    grey = Shown(image=Image.new("RGB", (112, 112), (127, 127, 127)), seconds=0.0)
    stream.remote.answer([grey], "What is this?", 1)
    return stream


def _tile(image: Any) -> Any:
    """(3, 448, 448) float32, squashed and normalised."""
    pixels = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BICUBIC), dtype=np.float32) / 255
    normal = (pixels - np.array(MEAN, dtype=np.float32)) / np.array(DEVIATION, dtype=np.float32)
    return torch.from_numpy(normal).permute(2, 0, 1)

"""What each architecture does with frames: how they are encoded, and what text stands around them.

The offline way (the checkpoint's own processor over all frames at once) needs little of this; it is
what lets frames be encoded and placed one step at a time. A step is the smallest group of frames that
the vision half encodes together (two for the Qwen and GLM models, else one). The texts repeat what
the installed transformers' processors write; the check at load compares the two token for token, so a
difference costs the streaming prefill and never an answer.

Pictures are used at the size at which they come (rounded to the patch grid): the total budgets by
which some processors shrink every frame as a video grows are set aside, in the offline way too.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from streamsim_agents.vlm.position import Cursor, Scheme

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Picture = NDArray[np.uint8]
    """(H, W, 3) uint8 RGB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """One encoded step.

    ``tokens`` is (levels, count, width): level 0 takes the place of the placeholders' embeddings, the
    others are added in the first layers (DeepStack). ``grid`` is (rows, columns) of the tokens.
    """

    tokens: Any
    grid: tuple[int, int]

    @property
    def count(self) -> int:
        """Tokens that the step takes in the prompt."""
        return int(self.tokens.shape[1])


class Family:
    """One architecture, bound to a loaded model and its processor."""

    model_type: ClassVar[str]
    takes: ClassVar[str] = "video"
    """``video``: one placeholder for all frames. ``images``: one for each, between lines of text."""
    step_frames: ClassVar[int] = 1
    scheme: ClassVar[Scheme] = "line"
    causal: ClassVar[bool] = True
    """False where frames see later ones or the question: then nothing can be prefilled ahead."""
    uses_previous: ClassVar[bool] = False
    """True where a step's tokens depend on the frame before it."""
    joiner: ClassVar[str] = ""
    features_name: ClassVar[str] = "get_video_features"
    bounds_whole_video: ClassVar[bool] = False
    """True where the processor shrinks each frame as a video grows; we set that budget aside."""
    bounds_shortest: ClassVar[bool] = False
    """True where the lower bound counts the whole video, too."""

    def __init__(self, model: Any, processor: Any) -> None:
        self.model, self.processor = model, processor
        self.inner = getattr(model, "model", model)
        self.placeholder: str = (
            processor.video_token if self.takes == "video" else getattr(processor, "image_token", "<image>")
        )

    @property
    def language(self) -> Any:
        """The model's language half, which takes embeddings and positions."""
        return getattr(self.inner, "language_model", None) or self.inner.text_model

    @property
    def vision_id(self) -> int:
        """The token id that vision tokens stand in for."""
        config = self.model.config
        return int(config.video_token_id if self.takes == "video" else config.image_token_id)

    def media_settings(self) -> dict[str, Any]:
        """Arguments for the processor that leave the choice and the size of frames to us."""
        if self.takes == "images":
            return {}
        settings: dict[str, Any] = {"do_sample_frames": False}
        if self.bounds_whole_video:
            shortest = 1 if self.bounds_shortest else self.processor.video_processor.size["shortest_edge"]
            settings["size"] = {"shortest_edge": shortest, "longest_edge": 1 << 40}
        if "cap_pixels_per_frame" in inspect.get_annotations(self.processor.video_processor.valid_kwargs):
            settings["cap_pixels_per_frame"] = False
        return settings

    def cursor(self, fps: float) -> Cursor:
        """A cursor at the prompt's beginning; ``fps`` is the frame rate of a video without stamps."""
        return Cursor(scheme=self.scheme, interval=self.interval(fps))

    def interval(self, fps: float) -> float:
        """Time numbers between two steps of a run."""
        return 1.0

    def around(self, number: int, seconds: Sequence[float]) -> tuple[str, str]:
        """The text before and behind step ``number`` (from 0) of a video, seen at ``seconds``."""
        return "", ""

    def opening(self, text: str) -> str:
        """The beginning of a prompt, as the processor would complete it."""
        return text

    def line(self, number: int, seconds: float) -> str:
        """The line before frame ``number`` (from 0), where frames are passed as images."""
        return f"Frame{number + 1} ({seconds:.1f} s): "

    def encode(self, frames: Sequence[Picture], previous: Picture | None = None) -> Features:
        """Encode one step of ``step_frames`` frames of one size.

        ``previous`` is the frame before it (None: it is the first), used only where ``uses_previous``.
        """
        inputs = self._preprocess(frames)
        return self._features(inputs, self._grid(inputs))

    def extras(self, tokens: Any, mask: Any) -> dict[str, Any]:
        """Further arguments of the language model for a chunk whose vision tokens are at ``mask``."""
        return {}

    def embed(self, embeddings: Any, mask: Any, tokens: Any) -> Any:
        """``embeddings`` (1, n, width) with ``tokens`` (m, width) at the ``mask`` (1, n)."""
        embeddings[mask] = tokens.to(embeddings.dtype)
        return embeddings

    def _preprocess(self, frames: Sequence[Picture]) -> dict[str, Any]:
        if self.takes == "images":
            data = self.processor.image_processor(
                images=list(frames), return_tensors="pt", **self.media_settings()
            )
        else:
            data = self.processor.video_processor(
                videos=[np.stack(list(frames))], return_tensors="pt", **self.media_settings()
            )
        return {name: to_model(value, self.model) for name, value in data.items() if torch.is_tensor(value)}

    def _grid(self, inputs: dict[str, Any]) -> tuple[int, int] | None:
        if "video_grid_thw" not in inputs:
            return None
        merge = self.processor.video_processor.merge_size
        _, height, width = inputs["video_grid_thw"][0].tolist()
        return height // merge, width // merge

    def _features(self, inputs: dict[str, Any], grid: tuple[int, int] | None) -> Features:
        function = getattr(self.inner, self.features_name)
        accepted = inspect.signature(function).parameters
        output = function(**{name: value for name, value in inputs.items() if name in accepted})
        levels = [joined(getattr(output, "pooler_output", output))]
        levels += [joined(level) for level in getattr(output, "deepstack_features", None) or ()]
        tokens = torch.stack(levels)
        return Features(tokens=tokens, grid=grid or (1, tokens.shape[1]))


class Qwen2VL(Family):
    """Frames in pairs, one run of vision tokens for the whole video, no stamps in the text."""

    model_type = "qwen2_vl"
    step_frames = 2
    scheme = "run"


class Qwen25VL(Qwen2VL):
    """As Qwen2-VL, with the time axis in seconds."""

    model_type = "qwen2_5_vl"

    def interval(self, fps: float) -> float:
        """Time numbers between two pairs: ``tokens_per_second`` times the seconds of a pair."""
        seconds = self.processor.video_processor.temporal_patch_size / fps
        return float(self.model.config.vision_config.tokens_per_second * seconds)


class Qwen3VL(Family):
    """Frames in pairs, each behind its mean time; DeepStack levels where the vision half has them."""

    model_type = "qwen3_vl"
    step_frames = 2
    scheme = "step"
    bounds_whole_video = True
    bounds_shortest = True

    def around(self, number: int, seconds: Sequence[float]) -> tuple[str, str]:
        mean = (seconds[0] + seconds[-1]) / 2
        return f"<{mean:.1f} seconds>{self.processor.vision_start_token}", self.processor.vision_end_token

    def extras(self, tokens: Any, mask: Any) -> dict[str, Any]:
        levels = tokens[1:]
        if len(levels) == 0:
            return {}
        return {"visual_pos_masks": mask, "deepstack_visual_embeds": list(levels)}


class Qwen35(Qwen3VL):
    """As Qwen3-VL without DeepStack; most of its layers keep a recurrent state."""

    model_type = "qwen3_5"


class Glm4V(Family):
    """Frames in pairs, each before the whole second of its first frame."""

    model_type = "glm4v"
    step_frames = 2
    scheme = "step"
    bounds_whole_video = True
    bounds_shortest = True

    @property
    def vision_id(self) -> int:
        """Video frames of this model stand behind image placeholders."""
        return int(self.model.config.image_token_id)

    def around(self, number: int, seconds: Sequence[float]) -> tuple[str, str]:
        return "<|begin_of_image|>", f"<|end_of_image|>{int(seconds[0])}"


class VideoLlama3(Family):
    """Single frames, each behind its time; tokens of patches that hardly changed are left out."""

    model_type = "video_llama_3"
    uses_previous = True
    joiner = ","
    bounds_whole_video = True

    def around(self, number: int, seconds: Sequence[float]) -> tuple[str, str]:
        mean = (seconds[0] + seconds[-1]) / 2
        return f"Time {mean:.1f}s:", ""

    def encode(self, frames: Sequence[Picture], previous: Picture | None = None) -> Features:
        inputs = self._preprocess(frames if previous is None else [previous, *frames])
        kept = inputs.pop("video_compression_mask")
        if previous is not None:
            half = len(kept) // 2
            kept = kept[half:]
            inputs["pixel_values_videos"] = inputs["pixel_values_videos"].chunk(2)[1]
            inputs["video_grid_thw"] = inputs["video_grid_thw"].clone()
            inputs["video_grid_thw"][:, 0] = 1
        features = self._features(inputs, None)
        tokens = features.tokens[:, kept.bool()]
        return Features(tokens=tokens, grid=(1, tokens.shape[1]))


class LlavaNextVideo(Family):
    """Single frames in one run, no stamps."""

    model_type = "llava_next_video"


class InternVL(Family):
    """Single frames as images of a fixed size, each behind its line of text."""

    model_type = "internvl"
    takes = "images"
    features_name = "get_image_features"

    def media_settings(self) -> dict[str, Any]:
        return {"crop_to_patches": False}

    def around(self, number: int, seconds: Sequence[float]) -> tuple[str, str]:
        return self.processor.start_image_token, self.processor.end_image_token


class SmolVLM(Family):
    """Single frames as images without splitting, each behind its line of text."""

    model_type = "smolvlm"
    takes = "images"
    features_name = "get_image_features"

    def media_settings(self) -> dict[str, Any]:
        return {"do_image_splitting": False}

    def around(self, number: int, seconds: Sequence[float]) -> tuple[str, str]:
        edge = self.processor.fake_image_token
        return edge + self.processor.global_image_token, edge


class Molmo2(Family):
    """Single frames behind their times; all vision tokens see each other and stand behind the question."""

    model_type = "molmo2"
    causal = False

    def opening(self, text: str) -> str:
        tokenizer = self.processor.tokenizer
        begin = tokenizer.bos_token or tokenizer.eos_token
        return text if text.startswith(begin) else str(begin + text)

    def around(self, number: int, seconds: Sequence[float]) -> tuple[str, str]:
        space = " " if number else ""
        mean = (seconds[0] + seconds[-1]) / 2
        return f"{space}{mean:.1f} <frame_start>", "<frame_end>"


_KNOWN: tuple[type[Family], ...] = (
    Qwen2VL,
    Qwen25VL,
    Qwen3VL,
    Qwen35,
    Glm4V,
    VideoLlama3,
    LlavaNextVideo,
    InternVL,
    SmolVLM,
    Molmo2,
)
FAMILIES = {family.model_type: family for family in _KNOWN}


def to_model(value: Any, model: Any) -> Any:
    """``value`` on the model's device; floating point values in its type."""
    return value.to(model.device, model.dtype) if value.is_floating_point() else value.to(model.device)


def joined(values: Any) -> Any:
    """(count, width) of a tensor or a sequence of tensors, whatever their leading dimensions."""
    if torch.is_tensor(values):
        return values.reshape(-1, values.shape[-1])
    return torch.cat([joined(value) for value in values])

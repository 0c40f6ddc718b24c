"""What the tests of real models share: a made-up scene, probes, and the offline way of answering.

The offline way is transformers' own and uses nothing of ours: the whole message with all frames goes
through ``apply_chat_template`` and ``generate``.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from streamsim_agents.agent import Agent, Frame, Query, SessionInfo, Turn

if TYPE_CHECKING:
    from streamsim_agents.vlm.load import Loaded

SIZE = (84, 56)
QUESTION = "Which of these is in view now? A. a cup B. a knife\nAnswer with the letter."
ARCHITECTURES = (
    "glm4v",
    "internvl",
    "llava_next_video",
    "molmo2",
    "qwen2_5_vl",
    "qwen2_vl",
    "qwen3_5",
    "qwen3_vl",
    "smolvlm",
    "video_llama_3",
)
CAUSAL = tuple(name for name in ARCHITECTURES if name != "molmo2")
UNITS = dict.fromkeys(("glm4v", "qwen2_5_vl", "qwen2_vl", "qwen3_5", "qwen3_vl", "video_llama_3"), 2)
"""Frames are padded to a multiple of two for these (STORM-Bench's public evaluator)."""


@cache
def picture(k: int) -> Any:
    """Picture ``k`` of the scene, (56, 84, 3) uint8: a still ground on which a patch moves."""
    ground = np.random.default_rng(7).integers(0, 256, (SIZE[1], SIZE[0], 3), dtype=np.uint8)
    patch = np.random.default_rng(100 + k).integers(0, 256, (28, 28, 3), dtype=np.uint8)
    left, top = 28 * (k % 3), 28 * (k // 3 % 2)
    ground[top : top + 28, left : left + 28] = patch
    return ground


@cache
def frame(k: int) -> Frame:
    """Frame ``k`` at second ``k``, lossless."""
    file = io.BytesIO()
    Image.fromarray(picture(k)).save(file, "PNG")
    return Frame(k=k, media_ns=k * 10**9, data=file.getvalue())


def session() -> SessionInfo:
    """One frame a second, lockstep."""
    return SessionInfo(seed=1, clock="lockstep", history="frozen", fps=1.0, size=SIZE)


def probe(text: str = QUESTION, *, kind: Any = "choice", step: Any = "task") -> Query:
    """A probe with the text as the server rendered it."""
    return Query(id="q1", kind=kind, probe=step, text=text, stem=text, options=(), media_ns=0)


def turn() -> Turn:
    """A turn that nobody has cancelled."""
    return Turn(1, media_ns=0, seen_media_ns=None)


def say(agent: Agent, query: Query | None = None) -> str:
    """The whole answer."""
    return "".join(agent.answer(query or probe(), turn()))


def offline_inputs(loaded: Loaded, frames: Sequence[int], question: str = QUESTION) -> dict[str, Any]:
    """Arguments of ``generate`` by transformers' documented way for a message with ``frames``."""
    from transformers.video_utils import VideoMetadata

    name = loaded.model.config.model_type
    shown = list(frames)
    while shown and len(shown) % UNITS.get(name, 1):
        shown.append(shown[-1])
    settings: dict[str, Any] = {}
    content: list[dict[str, Any]] = []
    if name in ("internvl", "smolvlm"):
        for number, k in enumerate(shown):
            line = f"Frame{number + 1} ({k}.0 s): "
            image = {"type": "image", "image": Image.fromarray(picture(k))}
            content += [{"type": "text", "text": line}, image]
        settings = {"crop_to_patches": False} if name == "internvl" else {"do_image_splitting": False}
    elif shown:
        content = [{"type": "video", "video": np.stack([picture(k) for k in shown])}]
        metadata = VideoMetadata(total_num_frames=len(shown), fps=1.0, frames_indices=shown)
        settings = {"do_sample_frames": False, "video_metadata": [metadata]}
    asked = [{"type": "text", "text": question}]
    inputs = loaded.processor.apply_chat_template(
        [{"role": "user", "content": asked + content if name == "molmo2" else content + asked}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs=settings,
    )
    return dict(inputs)


def offline_answer(
    loaded: Loaded, frames: Sequence[int], tokens: int, question: str = QUESTION
) -> tuple[list[int], Any]:
    """The tokens that ``generate`` says, without the end token, and the logits of the first."""
    inputs = offline_inputs(loaded, frames, question)
    output = loaded.model.generate(
        **inputs, max_new_tokens=tokens, do_sample=False, output_logits=True, return_dict_in_generate=True
    )
    said = output.sequences[0, inputs["input_ids"].shape[1] :].tolist()
    end = loaded.model.generation_config.eos_token_id
    return said[:-1] if said and said[-1] == end else said, output.logits[0]


def offline_text(loaded: Loaded, frames: Sequence[int], tokens: int = 8, question: str = QUESTION) -> str:
    """The text of ``offline_answer``."""
    said, _ = offline_answer(loaded, frames, tokens, question)
    return str(loaded.processor.tokenizer.decode(said, skip_special_tokens=True))

"""One dummy question at load, both ways: the plain one, and the one with frames prefilled ahead.

Whatever the checkpoint, its chat template or the installed transformers do differently from what
``family`` and ``position`` expect shows here, and the agent then falls back instead of answering
another prompt than the plain way would. The time numbers of the dummy are stretched, so that a wrong
count of positions cannot hide.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from streamsim_agents.vlm.engine import Engine, inference
from streamsim_agents.vlm.family import Family
from streamsim_agents.vlm.load import is_out_of_memory
from streamsim_agents.vlm.profile import Profile
from streamsim_agents.vlm.prompt import Piece, Prompter, Step, TextPiece, Video
from streamsim_agents.vlm.whole import WholeEngine

if TYPE_CHECKING:
    from streamsim_agents.vlm.family import Picture

_log = logging.getLogger(__name__)
Mode = Literal["prefill", "features", "plain"]
"""``prefill``: frames go into the cache as they come. ``features``: only their encoded form is kept.
``plain``: everything through ``generate`` for each question."""
QUESTION = "Which of these do you see? A. a cup B. a door\nAnswer with the letter."
TOKENS = 4
FRAMES = 3
AGREEMENT = {torch.float32: 0.9999}
"""Least correlation of the two ways' logits, by type; 0.98 for the types not named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a model can do, and why not more (empty if it can do all)."""

    mode: Mode
    reason: str = ""


def check(family: Family, profile: Profile, prompter: Prompter) -> Verdict:
    """Try the best way that the architecture allows; ``plain`` with the reason if it departs."""
    mode: Mode = "prefill" if family.causal else "features"
    try:
        reason = _difference(family, profile, prompter)
    except (AssertionError, AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        if is_out_of_memory(error):
            raise
        reason = f"{type(error).__name__}: {error}"
    if reason:
        _log.warning("%s: no %s, answering the plain way: %s", profile.model_type, mode, reason)
        return Verdict(mode="plain", reason=reason)
    return Verdict(
        mode=mode, reason="" if family.causal else "vision tokens see the question or later frames"
    )


def answer_dummy(family: Family, profile: Profile, prompter: Prompter) -> None:
    """One dummy question the plain way; raises what it raises."""
    inputs = prompter.offline_inputs([dummy_video(family, profile.unit)], QUESTION)
    family.model.generate(**inputs, max_new_tokens=1, do_sample=False)


def make_engine(family: Family) -> Engine:
    """The engine that fits the architecture."""
    return Engine(family) if family.causal else WholeEngine(family)


def dummy_video(family: Family, unit: int, frames: int = FRAMES) -> Video:
    """``frames`` frames of noise, padded to ``unit``, at 0, 1, 2, … s."""
    numbers = list(range(frames))
    while len(numbers) % max(unit, family.step_frames):
        numbers.append(numbers[-1])
    noise = np.random.default_rng(0)
    pictures = [noise.integers(0, 256, (112, 140, 3), dtype=np.uint8) for _ in range(frames)]
    size = family.step_frames
    steps = tuple(
        _step(family, pictures, numbers[at : at + size], numbers[at - 1] if at else None)
        for at in range(0, len(numbers), size)
    )
    # a slow video stretches its time axis
    return Video(steps=steps, fps=0.02 if family.scheme == "run" else 1.0)


@inference
def _difference(family: Family, profile: Profile, prompter: Prompter) -> str:
    """In what the two ways differ; empty if in nothing."""
    videos = [dummy_video(family, profile.unit)]
    pieces = prompter.pieces(videos, QUESTION)
    inputs = prompter.offline_inputs(videos, QUESTION)
    expected = inputs["input_ids"][0].tolist()
    ids = _flat(family, pieces)
    if ids != expected:
        at = next((at for at, (a, b) in enumerate(zip(ids, expected, strict=False)) if a != b), len(ids))
        return f"prompts differ from token {at} on ({len(ids)} and {len(expected)} tokens)"
    output = family.model.generate(
        **inputs, max_new_tokens=TOKENS, do_sample=False, output_logits=True, return_dict_in_generate=True
    )
    said = output.sequences[0, len(expected) :].tolist()
    engine = make_engine(family)
    for frames in range(1, FRAMES + 1):  # as they come, with a question after each
        seen = prompter.pieces([dummy_video(family, profile.unit, frames)], "?")
        engine.sync(seen[:-1])
        with engine.branch() as branch:
            branch.feed(seen[-1:] if family.causal else seen)
            branch.logits()
    with engine.branch() as branch:
        branch.feed(pieces[-1:] if family.causal else pieces)
        for at, logits in enumerate(output.logits):
            mine = branch.logits()
            agreement = _correlation(mine, logits)
            if not agreement >= AGREEMENT.get(family.model.dtype, 0.98):
                return f"logits of token {at} correlate by {agreement:.5f} only"
            branch.force(said[at : at + 1])
    return ""


def _step(family: Family, pictures: Sequence[Picture], numbers: list[int], previous: int | None) -> Step:
    chosen = [pictures[number] for number in numbers]
    before = pictures[previous] if family.uses_previous and previous is not None else None
    return Step(
        key=("dummy", tuple(numbers), previous),
        seconds=tuple(float(number) for number in numbers),
        features=lambda: family.encode(chosen, before),
        pictures=lambda: chosen,
    )


def _flat(family: Family, pieces: Sequence[Piece]) -> list[int]:
    flat: list[int] = []
    for piece in pieces:
        flat += piece.ids if isinstance(piece, TextPiece) else [family.vision_id] * piece.features().count
    return flat


def _correlation(left: Any, right: Any) -> float:
    pair = torch.stack([left.float().reshape(-1), right.float().reshape(-1).to(left.device)])
    return float(torch.corrcoef(pair)[0, 1])

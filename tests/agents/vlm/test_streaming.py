"""Streaming prefill says what the offline way says, token for token, and leaves no trace."""

# ruff: noqa: E402
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch and transformers: pip install 'streamsim[vlm]'")

from streamsim_agents.memory.entry import Entry, Part
from streamsim_agents.vlm.check import check, make_engine
from streamsim_agents.vlm.engine import Cancelled, Engine
from streamsim_agents.vlm.family import FAMILIES, Family, Features, LlavaNextVideo, Qwen3VL, Qwen25VL
from streamsim_agents.vlm.load import Loaded
from streamsim_agents.vlm.prompt import Prompter, Video
from streamsim_agents.vlm.view import View
from tests.agents.vlm.scene import ARCHITECTURES, CAUSAL, QUESTION, frame, offline_answer

Load = Callable[[str], Loaded]
TOKENS = 12


class Watcher:
    """Engine, view and prompter of one architecture, shown frames one by one."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.family = FAMILIES[loaded.profile.model_type](loaded.model, loaded.processor)
        self.prompter = Prompter(self.family, loaded.profile)
        self.view = View(self.family, loaded.profile.unit, steps=64)
        self.engine: Engine = make_engine(self.family)

    def videos(self, frames: Sequence[int]) -> list[Video]:
        entries = tuple(
            Entry(session=0, first_ns=k * 10**9, last_ns=k * 10**9, value=frame(k).data) for k in frames
        )
        return self.view.videos([Part(entries=entries)], session=0, fps=1.0)

    def see(self, frames: Sequence[int]) -> int:
        """Make the engine hold ``frames`` and no question; returns the tokens that had to run."""
        return self.engine.sync(self.prompter.history(self.videos(frames)).pieces)

    def ask(self, frames: Sequence[int], question: str = QUESTION) -> tuple[list[int], Any]:
        """The tokens of an answer, and the logits of the first."""
        pieces = self.prompter.pieces(self.videos(frames), question)
        with self.engine.branch() as branch:
            branch.feed(pieces[-1:] if self.family.causal else pieces)
            logits = branch.logits()
            return list(branch.decode(TOKENS)), logits


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_answers_are_those_of_generate(name: str, loaded: Load) -> None:
    watcher = Watcher(loaded(name))
    asked = (1, 2, 3, 8, 17, 24)
    for count in range(1, max(asked) + 1):
        watcher.see(range(count))
        if count not in asked:
            continue
        said, logits = watcher.ask(range(count))
        expected, expected_logits = offline_answer(loaded(name), range(count), TOKENS)
        assert said == expected, f"{name} after {count} frames"
        assert (logits - expected_logits).abs().max() < 1e-4 * expected_logits.abs().max()


@pytest.mark.parametrize("name", CAUSAL)
def test_each_frame_costs_its_own_tokens_only(name: str, loaded: Load) -> None:
    watcher = Watcher(loaded(name))
    costs = [watcher.see(range(count)) for count in range(1, 25)]
    # the first frames carry the prompt's head; from there on none costs more than a frame and its like
    step = max(costs[4:8])
    assert max(costs[8:]) <= step + 2  # a second of two digits is one token longer
    assert watcher.see(range(24)) == 0
    assert watcher.view.encodings <= 24 + 12  # a padded video encodes a repeated frame besides


@pytest.mark.parametrize("name", CAUSAL)
def test_questions_leave_no_trace(name: str, loaded: Load) -> None:
    watcher = Watcher(loaded(name))
    watcher.see(range(5))
    before = contents(watcher.engine)
    first = watcher.ask(range(5))[0]
    other = watcher.ask(range(5), "What is it about?")[0]
    assert watcher.ask(range(5))[0] == first != other
    after = contents(watcher.engine)
    assert len(before) == len(after)
    assert all(torch.equal(left, right) for left, right in zip(before, after, strict=True))


@pytest.mark.parametrize("name", ["qwen2_5_vl", "qwen3_5", "internvl"])
def test_other_frames_are_prefilled_anew(name: str, loaded: Load) -> None:
    watcher = Watcher(loaded(name))
    watcher.see(range(6))
    watcher.see(range(2, 8))
    assert watcher.ask(range(2, 8))[0] == offline_answer(loaded(name), range(2, 8), TOKENS)[0]
    assert watcher.engine.tokens_again > 0


@pytest.mark.parametrize("name", ["qwen2_5_vl", "qwen3_5"])
def test_a_cancelled_prefill_keeps_what_is_done(
    name: str, loaded: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamsim_agents.vlm.engine.CHUNK_TOKENS", 16)
    watcher = Watcher(loaded(name))
    pieces = watcher.prompter.history(watcher.videos(range(12))).pieces
    polls = iter([False, False, True])
    with pytest.raises(Cancelled):
        watcher.engine.sync(pieces, lambda: next(polls))
    assert watcher.engine.length > 0
    watcher.see(range(12))
    assert watcher.ask(range(12))[0] == offline_answer(loaded(name), range(12), TOKENS)[0]


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen3_5"])
def test_a_failed_prefill_leaves_the_cache_whole(name: str, loaded: Load) -> None:
    watcher = Watcher(loaded(name))
    watcher.see(range(4))
    last = watcher.family.language.layers[-1]
    hook = last.register_forward_pre_hook(lambda *_: torch.empty(1 << 60))
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        watcher.see(range(8))
    hook.remove()
    watcher.see(range(8))
    assert watcher.ask(range(8))[0] == offline_answer(loaded(name), range(8), TOKENS)[0]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_check_at_load_approves(name: str, loaded: Load) -> None:
    watcher = Watcher(loaded(name))
    verdict = check(watcher.family, watcher.loaded.profile, watcher.prompter)
    assert verdict.mode == ("prefill" if name in CAUSAL else "features"), verdict.reason


class WrongPositions(Qwen25VL):
    def interval(self, fps: float) -> float:
        return super().interval(fps) + 1


class WrongText(Qwen3VL):
    def around(self, number: int, seconds: Sequence[float]) -> tuple[str, str]:
        before, after = super().around(number, seconds)
        return before.replace(" seconds", " s"), after


class WrongPixels(LlavaNextVideo):
    def encode(self, frames: Sequence[Any], previous: Any = None) -> Features:
        return super().encode([255 - picture for picture in frames], previous)


@pytest.mark.parametrize(
    ("family_class", "reason"),
    [
        (WrongPositions, "logits of token 0"),
        (WrongText, "prompts differ"),
        (WrongPixels, "logits of token 0"),
    ],
)
def test_the_check_at_load_finds_a_departure(
    family_class: type[Family], reason: str, loaded: Load, caplog: pytest.LogCaptureFixture
) -> None:
    model = loaded(family_class.model_type)
    family = family_class(model.model, model.processor)
    verdict = check(family, model.profile, Prompter(family, model.profile))
    assert verdict.mode == "plain"
    assert reason in verdict.reason
    assert "answering the plain way" in caplog.text


def test_a_repetition_penalty_sees_the_prompt(loaded: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    model = loaded("qwen2_vl")
    plain = offline_answer(model, range(4), TOKENS)[0]
    monkeypatch.setattr(model.model.generation_config, "repetition_penalty", 5.0)
    watcher = Watcher(model)
    watcher.see(range(4))
    penalised = watcher.ask(range(4))[0]
    assert penalised == offline_answer(model, range(4), TOKENS)[0] != plain


def test_a_prompt_of_text_alone(loaded: Load) -> None:
    """A question at the beginning, before any frame."""
    for name in CAUSAL:
        watcher = Watcher(loaded(name))
        assert watcher.see([]) == 0
        assert watcher.ask([])[0] == offline_answer(loaded(name), [], TOKENS)[0], name


def test_parts_have_titles_and_videos_of_their_own(loaded: Load) -> None:
    watcher = Watcher(loaded("qwen2_5_vl"))
    entries = watcher.videos(range(4))
    titled = [replace(entries[0], title="Before:\n"), replace(entries[0], title="Now:\n")]
    pieces = watcher.prompter.pieces(titled, QUESTION)
    inputs = watcher.prompter.offline_inputs(titled, QUESTION)
    watcher.engine.sync(pieces[:-1])
    with watcher.engine.branch() as branch:
        branch.feed(pieces[-1:])
        said = list(branch.decode(TOKENS))
    model = watcher.loaded.model
    output = model.generate(**inputs, max_new_tokens=TOKENS, do_sample=False)
    assert said == output[0, inputs["input_ids"].shape[1] :].tolist()
    text = watcher.loaded.processor.tokenizer.decode(inputs["input_ids"][0])
    assert text.index("Before:") < text.index("<|video_pad|>") < text.index("Now:")


def contents(engine: Engine) -> list[Any]:
    """Copies of all that a cache holds."""
    tensors: list[Any] = []
    for layer in engine.cache.layers:
        if hasattr(layer, "recurrent_states"):
            tensors += [*layer.conv_states.values(), *layer.recurrent_states.values()]
        else:
            tensors += [layer.keys, layer.values]
    return [tensor.clone() for tensor in tensors if tensor is not None]

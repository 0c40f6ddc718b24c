"""The growing cache holds what transformers' own would, and comes back bit for bit."""

# ruff: noqa: E402
from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs torch and transformers: pip install 'streamsim[vlm]'")

from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from streamsim_agents.vlm import cache as cache_module
from streamsim_agents.vlm.cache import GrowingLayer, mark, new_cache, recurrent, rollback, size_bytes
from streamsim_agents.vlm.load import Loaded


def states(count: int, seed: int) -> Any:
    return torch.randn((1, 2, count, 4), generator=torch.Generator().manual_seed(seed))


@settings(deadline=None, max_examples=50)
@given(steps=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 30)), max_size=12))
def test_it_holds_what_the_library_s_layer_holds(steps: list[tuple[int, int]]) -> None:
    """Adding and cutting back in any order; the room is small, so that it grows within a few steps."""
    mine, theirs = GrowingLayer(), DynamicLayer()
    room, cache_module.ROOM = cache_module.ROOM, 8
    try:
        for seed, (added, cut) in enumerate(steps):
            keys, values = states(added, seed), states(added, 1000 + seed)
            shown = mine.update(keys, values)
            expected = theirs.update(keys, values)
            assert all(torch.equal(left, right) for left, right in zip(shown, expected, strict=True))
            cut = min(cut, mine.get_seq_length())
            mine.crop(-cut)
            if cut:
                theirs.crop(-cut)
            assert mine.get_seq_length() == theirs.get_seq_length()
    finally:
        cache_module.ROOM = room


def test_a_stretch_is_cut_out() -> None:
    layer = GrowingLayer()
    keys, values = states(20, 0), states(20, 1)
    layer.update(keys, values)
    layer.cut_out(3, 9)
    assert torch.equal(layer.keys, torch.cat([keys[:, :, :3], keys[:, :, 9:]], dim=2))
    assert torch.equal(layer.values, torch.cat([values[:, :, :3], values[:, :, 9:]], dim=2))
    layer.reset()
    assert layer.get_seq_length() == 0


def named(model: Any, cache: Any) -> dict[str, Any]:
    """The cache as the installed transformers calls it."""
    new = "cache" in inspect.signature(model.forward).parameters
    return {"cache" if new else "past_key_values": cache}


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen3_5"])
def test_a_mark_brings_a_model_s_cache_back(name: str, loaded: Callable[[str], Loaded]) -> None:
    model = loaded(name).model
    tokens = torch.arange(40)[None]
    with torch.inference_mode():
        cache = new_cache(model.config)
        assert recurrent(cache) == (name == "qwen3_5")
        model(input_ids=tokens[:, :20], use_cache=True, **named(model, cache))
        here = mark(cache)
        size = size_bytes(cache)
        first = model(input_ids=tokens[:, 20:], use_cache=True, **named(model, cache)).logits
        assert size_bytes(cache) > size
        for _ in range(2):
            rollback(cache, here)
            assert cache.get_seq_length() == 20
            assert size_bytes(cache) == size
            again = model(input_ids=tokens[:, 20:], use_cache=True, **named(model, cache)).logits
            assert torch.equal(first, again)


def test_bytes_are_those_of_keys_and_values(loaded: Callable[[str], Loaded]) -> None:
    model = loaded("qwen2_vl").model
    with torch.inference_mode():
        cache = new_cache(model.config)
        assert size_bytes(cache) == 0
        model(input_ids=torch.arange(10)[None], use_cache=True, **named(model, cache))
    # 2 layers, keys and values, 2 heads of 16, 10 tokens, 4 bytes
    assert size_bytes(cache) == 2 * 2 * 2 * 16 * 10 * 4


def test_layers_that_forget_by_themselves_are_refused(
    loaded: Callable[[str], Loaded], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Sliding(DynamicCache):  # type: ignore[misc]
        def __init__(self, config: Any) -> None:
            super().__init__(config=config)
            self.layers[0] = DynamicSlidingWindowLayer(sliding_window=8)

    monkeypatch.setattr(cache_module, "DynamicCache", Sliding)
    with pytest.raises(NotImplementedError, match="DynamicSlidingWindowLayer"):
        new_cache(loaded("qwen2_vl").model.config)

"""The key-value cache that grows in place, and going back to an earlier state of it.

transformers' own dynamic cache copies the whole history for every token that is added; this one
writes into spare room and doubles it when it is full, so that a step costs the same after an hour as
after a minute. ``mark`` and ``rollback`` are what lets a query branch off: attention layers are cut
back to their length, which leaves the kept values untouched; layers with a recurrent state (linear
attention) cannot be cut, so a mark keeps a copy of that state, whose size doesn't grow with history.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer, LinearAttentionLayer

ROOM = 512
"""Tokens of room that a layer begins with."""


class GrowingLayer(DynamicLayer):  # type: ignore[misc]
    """One attention layer: (1, heads, room, width) buffers of which the first ``length`` tokens count."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.length = 0
        self._room: tuple[Any, Any] | None = None

    def update(self, key_states: Any, value_states: Any, *args: Any, **more: Any) -> tuple[Any, Any]:
        """Add the tokens of ``key_states`` and ``value_states``, (1, heads, new, width); return all."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[-2]
        self._reserve(end, key_states, value_states)
        assert self._room is not None
        for room, states in zip(self._room, (key_states, value_states), strict=True):
            room[..., self.length : end, :] = states
        self._show(end)
        return self.keys, self.values

    def truncate(self, length: int) -> None:
        """Forget all but the first ``length`` tokens; their values are not touched."""
        assert length <= self.length
        if self._room is not None:
            self._show(length)

    def cut_out(self, start: int, end: int) -> None:
        """Forget the tokens from ``start`` up to ``end``; those behind move forward."""
        assert 0 <= start <= end <= self.length
        if self._room is None:
            return
        kept = self.length - end
        for room in self._room:
            room[..., start : start + kept, :] = room[..., end : self.length, :].clone()
        self._show(start + kept)

    def crop(self, tokens_to_remove: int) -> None:
        """transformers' own spelling of ``truncate``: a negative number of tokens to forget."""
        self.truncate(self.length + min(0, tokens_to_remove))

    def get_seq_length(self) -> int:
        """Tokens that count."""
        return self.length

    def reset(self) -> None:
        """Forget everything and give the memory back."""
        super().reset()
        self.length, self._room = 0, None

    def _reserve(self, end: int, key_states: Any, value_states: Any) -> None:
        if self._room is not None and end <= self._room[0].shape[-2]:
            return
        room = max(end, ROOM if self._room is None else 2 * self._room[0].shape[-2])
        grown = []
        for index, states in enumerate((key_states, value_states)):
            buffer = states.new_empty((*states.shape[:-2], room, states.shape[-1]))
            if self._room is not None:
                buffer[..., : self.length, :] = self._room[index][..., : self.length, :]
            grown.append(buffer)
        self._room = (grown[0], grown[1])

    def _show(self, length: int) -> None:
        assert self._room is not None
        self.length = length
        self.keys, self.values = (room[..., :length, :] for room in self._room)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A state of a cache to come back to."""

    length: int
    states: tuple[Any, ...]
    """Per layer: None for an attention layer, copies of its tensors for a recurrent one."""


def new_cache(config: Any) -> Any:
    """An empty cache for a model of ``config``.

    Raises NotImplementedError where a layer can neither be cut back nor copied (sliding windows).
    """
    cache = DynamicCache(config=config)
    for index, layer in enumerate(cache.layers):
        if type(layer) is DynamicLayer:
            cache.layers[index] = GrowingLayer()
        elif type(layer) is not LinearAttentionLayer or not isinstance(layer.recurrent_states, dict):
            raise NotImplementedError(f"cannot go back in a layer of type {type(layer).__name__}")
    return cache


def recurrent(cache: Any) -> bool:
    """True if some layer has a recurrent state: then only marked states can be returned to."""
    return any(isinstance(layer, LinearAttentionLayer) for layer in cache.layers)


def mark(cache: Any) -> Mark:
    """The present state; costs a copy of the recurrent states, nothing for attention layers."""
    return Mark(
        length=cache.get_seq_length(),
        states=tuple(
            _copy(layer) if isinstance(layer, LinearAttentionLayer) else None for layer in cache.layers
        ),
    )


def rollback(cache: Any, to: Mark) -> None:
    """Put the cache back to ``to``, bit for bit. The mark stays good."""
    for layer, state in zip(cache.layers, to.states, strict=True):
        if state is None:
            layer.truncate(to.length)
        else:
            layer.__dict__.update(_copied(state))


def size_bytes(cache: Any) -> int:
    """Bytes of the tokens that count and of the recurrent states (room to grow is not counted)."""
    total = 0
    for layer in cache.layers:
        if isinstance(layer, GrowingLayer):
            tensors = [layer.keys, layer.values] if layer.length else []
        else:
            tensors = [*layer.conv_states.values(), *layer.recurrent_states.values()]
        total += sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor is not None)
    return total


def _copy(layer: Any) -> dict[str, Any]:
    return _copied({name: value for name, value in vars(layer).items() if isinstance(value, dict)})


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {key: item.clone() if torch.is_tensor(item) else item for key, item in values.items()}
        for name, values in state.items()
    }

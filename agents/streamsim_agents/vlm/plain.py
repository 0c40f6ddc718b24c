"""The plain way: everything through ``generate`` again for each question. The baseline, and the fallback."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Generator, Iterator, Sequence
from typing import Any, TypeAlias

import torch

from streamsim_agents.vlm.engine import end_tokens

_Said: TypeAlias = "queue.Queue[int | BaseException | None]"


class PlainUtterance:
    """One answer by ``model.generate`` on ``inputs``, token by token.

    ``generate`` runs on a helper thread, never more than two tokens ahead of whoever takes them, and is
    stopped when the iteration ends.
    """

    def __init__(self, model: Any, inputs: dict[str, Any]) -> None:
        self._model, self._inputs = model, dict(inputs)
        self._ends = end_tokens(model)
        self._said: list[int] = []
        self.ended = False

    def force(self, ids: Sequence[int]) -> None:
        """Go on as if the model had said ``ids``: the next ``decode`` begins anew with them."""
        self._said += ids
        self.ended = False

    def decode(self, limit: int) -> Iterator[int]:
        """Up to ``limit`` further tokens, without the token that ends them."""
        inputs = extended(self._inputs, self._said)
        # a prompt echo comes first and doesn't count
        tokens = _generate(self._model, inputs, limit)
        try:
            for token in tokens:
                if token in self._ends:
                    self.ended = True
                    return
                self._said.append(token)
                yield token
        finally:
            tokens.close()


def extended(inputs: dict[str, Any], ids: Sequence[int]) -> dict[str, Any]:
    """``inputs`` with further text tokens at the end."""
    if not ids:
        return inputs
    more = torch.tensor([list(ids)], device=inputs["input_ids"].device)
    result = inputs | {"input_ids": torch.cat([inputs["input_ids"], more], dim=1)}
    for name, fill in (("attention_mask", 1), ("mm_token_type_ids", 0), ("token_type_ids", 0)):
        if name in inputs:
            result[name] = torch.cat([inputs[name], inputs[name].new_full(more.shape, fill)], dim=1)
    return result


def _generate(model: Any, inputs: dict[str, Any], limit: int) -> Generator[int, None, None]:
    from transformers import StoppingCriteriaList

    said: _Said = queue.Queue(maxsize=1)
    stop = threading.Event()

    def stopped(input_ids: Any, scores: Any, **_: Any) -> Any:
        return torch.full((input_ids.shape[0],), stop.is_set(), device=input_ids.device)

    def run() -> None:
        try:
            model.generate(
                **inputs,
                max_new_tokens=limit,
                do_sample=False,
                streamer=_Streamer(said),
                stopping_criteria=StoppingCriteriaList([stopped]),
            )
        except BaseException as error:  # noqa: BLE001 - raised again where the tokens are taken
            said.put(error)
        said.put(None)

    thread = threading.Thread(target=run, name="generate", daemon=True)
    thread.start()
    try:
        while (item := said.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
        while thread.is_alive():  # it may be waiting for somebody to take its last tokens
            with contextlib.suppress(queue.Empty):
                said.get(timeout=0.01)
        thread.join()


class _Streamer:
    """Puts each generated token into a queue; the first thing that it is given is the prompt."""

    def __init__(self, said: _Said) -> None:
        self._said = said
        self._prompt_passed = False

    def put(self, value: Any) -> None:
        """Called by ``generate`` with the prompt, then with each token."""
        if not self._prompt_passed:
            self._prompt_passed = True
            return
        for token in value.reshape(-1).tolist():
            self._said.put(token)

    def end(self) -> None:
        """Called by ``generate`` at the end."""

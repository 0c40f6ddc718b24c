"""The model's side of a memory of keys and values: making blocks, and attending to the found ones.

While frames come, the cache holds the prompt's head and a window of the latest steps; what leaves the
window is in the memory only. A question first passes through the model to see what it asks for, then
again over head, found blocks and window. For models of attention layers with separate query and key
projections; others are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from streamsim_agents.memory.entry import Cue, Entry, Part
from streamsim_agents.memory.memory import Memory
from streamsim_agents.vlm.cache import Mark, mark, new_cache, recurrent, rollback
from streamsim_agents.vlm.engine import Branch, Engine, inference
from streamsim_agents.vlm.position import Cursor
from streamsim_agents.vlm.profile import ProfileError
from streamsim_agents.vlm.prompt import Prompter
from streamsim_agents.vlm.speech import Utterance
from streamsim_agents.vlm.stream import Stream
from streamsim_agents.vlm.view import View

DEPTHS = (0.25, 0.5, 0.75)
"""The layers, by depth, whose queries and keys find blocks."""


NEXT_SESSION = "\nNow, the next session:\n"
"""Stands between what was seen before this session and in it."""


class KeyStream(Stream):
    """Prefills steps in a sliding window, hands their keys and values to the memory, finds them again."""

    def __init__(
        self, memory: Memory, view: View, prompter: Prompter, max_frames: int, engine: Engine
    ) -> None:
        super().__init__(memory, view, prompter, max_frames)
        if not engine.family.causal or recurrent(engine.cache):
            raise ProfileError(
                f"kv_retrieval doesn't fit {engine.family.model_type!r}: its layers don't keep frames apart, "
                "choose another memory"
            )
        self.engine = engine
        self._probe = Probe(engine)
        self._waiting: list[Entry] = []
        self._window: list[list[int]] = []
        """Token ids of each step in the cache behind the head."""
        self._head: list[int] = []
        self._cursor = Cursor(scheme=engine.family.scheme)
        self._text = ""
        self._steps = 0
        """Of the present session; frames that are passed as images are numbered by them."""
        self._before_waiting: tuple[Mark, Cursor, str] | None = None
        self.found = 0

    @inference
    def begin(self, fps: float) -> None:
        super().begin(fps)
        self._rebuild()

    @inference
    def resume(self, session: int, waiting: Sequence[Entry]) -> None:
        super().resume(session, waiting)
        self._rebuild()
        for entry in waiting:
            self.observe(entry)

    def next_session(self) -> None:
        super().next_session()
        self._text += NEXT_SESSION
        self._steps = 0

    @inference
    def observe(self, entry: Entry) -> None:
        self._drop_waiting()
        self._waiting.append(entry)
        if len(self._waiting) == self.engine.family.step_frames:
            self._write()
        else:
            self._before_waiting = mark(self.engine.cache), self._cursor, self._text
            self._run_step()

    def waiting(self) -> Sequence[Entry]:
        return tuple(self._waiting)

    @inference
    def finish(self) -> None:
        if self._waiting:
            self._drop_waiting()
            self._write()

    @contextmanager
    def utterance(self, question: str, media_ns: int, cancelled: Callable[[], bool]) -> Iterator[Utterance]:
        tail = [self.prompter.end(self._text, question)]
        with self.engine.branch():
            vector = self._probe.query(lambda: self.engine.run(tail, self._cursor))
        parts = self.memory.read(Cue(text=question, media_ns=media_ns, vector=vector))
        found = [entry for part in parts if part.label == "retrieved" for entry in part.entries]
        self.found = len(found)
        kept = self.engine.cache
        self.engine.cache = self._with(found)
        try:
            ids = [*self._head, *(token for entry in found for token in _ids(entry))]
            ids += [token for step in self._window for token in step]
            branch = Branch(self.engine, self._cursor, ids)
            branch.feed(tail)
            yield branch
        finally:
            self.engine.cache = kept

    def parts(self, cue: Cue) -> list[Part]:
        """What the memory shows; its own settings bound it."""
        return self.memory.read(cue)

    def stats(self) -> dict[str, float]:
        return super().stats() | {
            "cache_bytes": float(self.engine.bytes),
            "cache_tokens": float(self.engine.cache.get_seq_length()),
            "found": float(self.found),
        }

    def _rebuild(self) -> None:
        """Fill the cache with the head and the steps that the memory has for the window."""
        self.engine.reset()
        self._waiting, self._window, self._before_waiting, self._steps = [], [], None, 0
        head = self.prompter.end_of_opening()
        self._cursor, self._head, self._text = self.engine.family.cursor(self.fps), list(head.ids), ""
        _, cursors, _ = self.engine.run([head], self._cursor)
        self._cursor = cursors[-1]
        remembered = [entry for part in self.memory.read(Cue()) for entry in part.entries]
        for entry in remembered:
            self._append(entry)
        if remembered:
            seconds = remembered[-1].first_ns / 1e9, remembered[-1].last_ns / 1e9
            self._text = self.engine.family.around(0, seconds)[1]

    def _write(self) -> None:
        """Run the waiting frames as a step for good and hand it to the memory."""
        frames, self._waiting = self._waiting, []
        start = self.engine.cache.get_seq_length()
        index, ids = self._run_step(frames)
        self._steps += 1
        keys, values = self._block(start)
        run = -1 if self._cursor.run is None else self._cursor.run
        state = [self._cursor.next, run, self._cursor.steps, self._steps]
        self.memory.write(
            Entry(
                session=frames[0].session,
                first_ns=frames[0].first_ns,
                last_ns=frames[-1].last_ns,
                frames=len(frames),
                value={
                    "index": index,
                    "keys": keys,
                    "values": values,
                    "ids": np.array(ids),
                    "cursor": np.array(state),
                },
            )
        )
        self._window.append(ids)
        self._trim()

    def _run_step(self, frames: Sequence[Entry] = ()) -> tuple[Any, list[int]]:
        """Run one step from ``frames`` (default: those that wait); returns its index and token ids."""
        chosen = list(frames or self._waiting)
        missing = self.engine.family.step_frames - len(chosen)
        (step,) = self.view.steps([*chosen, *[chosen[-1]] * missing])[:1]
        pieces, self._text = self.prompter.add_step(self._text, self._steps, step, self.fps)
        ids: list[int] = []

        def run() -> None:
            _, cursors, piece_ids = self.engine.run(pieces, self._cursor)
            self._cursor = cursors[-1]
            ids.extend(token for tokens in piece_ids for token in tokens)

        return self._probe.key(run, step.features().count), ids

    def _drop_waiting(self) -> None:
        """Take a step back that stood for a single frame of its pair."""
        if self._before_waiting is not None:
            before, self._cursor, self._text = self._before_waiting
            rollback(self.engine.cache, before)
            self._before_waiting = None

    def _block(self, start: int) -> tuple[Any, Any]:
        """Keys and values from token ``start`` on, (layers, heads, count, width), as numpy."""
        layers = self.engine.cache.layers
        return (
            to_numpy(torch.cat([layer.keys[:, :, start:] for layer in layers])),
            to_numpy(torch.cat([layer.values[:, :, start:] for layer in layers])),
        )

    def _append(self, entry: Entry) -> None:
        """Put a remembered block behind the cache's content, and the numbering behind it."""
        assert isinstance(entry.value, dict)
        self._extend(self.engine.cache, entry)
        self._window.append(_ids(entry))
        position, run, steps, self._steps = (int(number) for number in entry.value["cursor"])
        self._cursor = Cursor(
            scheme=self._cursor.scheme,
            interval=self._cursor.interval,
            next=position,
            run=None if run < 0 else run,
            steps=steps,
        )

    def _extend(self, cache: Any, entry: Entry) -> None:
        assert isinstance(entry.value, dict)
        model = self.engine.model
        keys = from_numpy(entry.value["keys"], model.dtype).to(model.device)
        values = from_numpy(entry.value["values"], model.dtype).to(model.device)
        for layer, layer_keys, layer_values in zip(cache.layers, keys, values, strict=True):
            layer.update(layer_keys[None], layer_values[None])

    @inference
    def _with(self, found: Sequence[Entry]) -> Any:
        """A cache of head, found blocks and window."""
        cache, head = new_cache(self.engine.model.config), len(self._head)
        for layer, mine in zip(cache.layers, self.engine.cache.layers, strict=True):
            layer.update(mine.keys[:, :, :head], mine.values[:, :, :head])
        for entry in found:
            self._extend(cache, entry)
        for layer, mine in zip(cache.layers, self.engine.cache.layers, strict=True):
            layer.update(mine.keys[:, :, head:], mine.values[:, :, head:])
        return cache

    def _trim(self) -> None:
        """Let the oldest steps go out of the window."""
        local = max(1, self.memory.local)
        gone = sum(len(step) for step in self._window[:-local])
        self._window = self._window[-local:]
        for layer in self.engine.cache.layers if gone else ():
            layer.cut_out(len(self._head), len(self._head) + gone)


class Probe:
    """Catches what some layers ask for and offer: means of their query and key projections."""

    def __init__(self, engine: Engine) -> None:
        layers = engine.family.language.layers
        chosen = sorted({min(int(depth * len(layers)), len(layers) - 1) for depth in DEPTHS})
        try:
            self._attention = [layers[at].self_attn for at in chosen]
            self._projections = [(layer.q_proj, layer.k_proj) for layer in self._attention]
        except AttributeError as error:
            raise ProfileError(
                f"kv_retrieval doesn't fit this architecture ({error}): choose another memory"
            ) from None

    def query(self, run: Callable[[], object]) -> Any:
        """What the tokens that ``run`` runs ask for, averaged to the shape of keys; (width,) float32."""
        outputs = self._catch(0, run)
        vectors = []
        for output, (queries, keys) in zip(outputs, self._projections, strict=True):
            groups = queries.out_features // keys.out_features
            head = self._attention[0].head_dim
            heads = output.mean(dim=0).view(-1, groups, head)
            vectors.append(heads.mean(dim=1).reshape(-1))
        return torch.cat(vectors).cpu().numpy()

    def key(self, run: Callable[[], object], count: int) -> Any:
        """What the last ``count`` tokens that ``run`` runs offer; (width,) float32."""
        outputs = self._catch(1, run)
        return torch.cat([output[-count:].mean(dim=0) for output in outputs]).cpu().numpy()

    @inference
    def _catch(self, which: int, run: Callable[[], object]) -> list[Any]:
        caught: list[Any] = []
        hooks = [
            pair[which].register_forward_hook(lambda _, __, output: caught.append(output[0].float()))
            for pair in self._projections
        ]
        try:
            run()
        finally:
            for hook in hooks:
                hook.remove()
        return caught


def _ids(entry: Entry) -> list[int]:
    assert isinstance(entry.value, dict)
    ids: list[int] = entry.value["ids"].tolist()
    return ids


def to_numpy(tensor: Any) -> Any:
    """A tensor's bits as numpy: types that numpy lacks become integers of their size."""
    tensor = tensor.detach().cpu().contiguous()
    return (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy().copy()


def from_numpy(array: Any, dtype: Any) -> Any:
    """The tensor of ``dtype`` that ``to_numpy`` made ``array`` of."""
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if dtype == torch.bfloat16 else tensor.to(dtype)

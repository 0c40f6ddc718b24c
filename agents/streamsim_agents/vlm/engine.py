"""Prefilling a prompt piece by piece, and answering from a branch of it that leaves no trace.

The engine holds one key-value cache and knows which pieces are in it. ``sync`` makes it hold another
list of pieces: what is common at the beginning stays, the rest is cut off and prefilled. ``branch``
goes on from there for one query and then puts everything back, bit for bit. Only the language half
runs here; vision steps come encoded. Greedy only.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar, cast

import torch

from streamsim_agents.vlm.cache import Mark, mark, new_cache, recurrent, rollback, size_bytes
from streamsim_agents.vlm.family import Family
from streamsim_agents.vlm.position import Cursor
from streamsim_agents.vlm.prompt import Piece, TextPiece, VisionPiece

_Function = TypeVar("_Function", bound=Callable[..., Any])
CHUNK_TOKENS = 4096
"""So many tokens at most go through the model at once while a history is prefilled anew."""


def inference(function: _Function) -> _Function:
    """``function`` without the bookkeeping that training needs."""
    return cast(_Function, torch.inference_mode()(function))


class Cancelled(Exception):
    """The caller's ``cancelled`` became true while pieces were prefilled."""


class Engine:
    """The language half of one loaded model with one cache.

    ``tokens_prefilled`` counts all tokens that ``sync`` ran, ``tokens_again`` those of them whose
    pieces had been in the cache before they were cut off.
    """

    def __init__(self, family: Family) -> None:
        self.family = family
        self.model = family.model
        self._language = family.language
        self._embed = self.model.get_input_embeddings()
        self._head = self.model.get_output_embeddings()
        parameters = inspect.signature(self._language.forward).parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"
        self.processors = logits_processors(self.model)
        self.ends = end_tokens(self.model)
        self.tokens_prefilled = 0
        self.tokens_again = 0
        self.reset()

    def reset(self) -> None:
        """Forget everything and give the memory back."""
        self.cache = new_cache(self.model.config)
        self._recurrent = recurrent(self.cache)
        self._pieces: list[Piece] = []
        self._cursors: list[Cursor] = [self.family.cursor(1.0)]
        self._ids: list[int] = []
        self._lengths: list[int] = [0]
        self._marks: dict[int, Mark] = {}
        self._synced: Sequence[Piece] | None = None

    @property
    def length(self) -> int:
        """Tokens in the cache."""
        return self._lengths[-1]

    @property
    def bytes(self) -> int:
        """Bytes of the keys, values and states held now."""
        return size_bytes(self.cache)

    def common(self, pieces: Sequence[Piece]) -> int:
        """How many of ``pieces``, from the first, are in the cache already."""
        for index, (mine, theirs) in enumerate(zip(self._pieces, pieces, strict=False)):
            if mine != theirs:
                return index
        return min(len(self._pieces), len(pieces))

    def extends(self, pieces: Sequence[Piece], *, replacing: int = 0) -> bool:
        """True if ``pieces`` keep all that is in the cache but the last ``replacing`` pieces."""
        return self.common(pieces) >= len(self._pieces) - replacing

    @inference
    def sync(self, pieces: Sequence[Piece], cancelled: Callable[[], bool] = lambda: False) -> int:
        """Make the cache hold exactly ``pieces``; returns how many tokens had to run.

        Raises Cancelled between two chunks; what is prefilled by then stays.
        """
        if pieces is self._synced:
            return 0
        self._synced = None
        kept = self._cut(self.common(pieces))
        before = self.tokens_prefilled
        todo = list(pieces[kept:])
        # the newest step may change once more: where states cannot be cut back, remember the one before
        newest = len(pieces) - (2 if isinstance(pieces[-2:][0], TextPiece) else 1) if pieces else 0
        while todo:
            if cancelled():
                raise Cancelled
            ahead = newest - len(self._pieces)
            if self._recurrent and ahead == 0:
                self._marks = {newest: mark(self.cache)}
            self._prefill(_take_batch(todo, ahead if self._recurrent and ahead > 0 else len(todo)))
        self._synced = pieces
        return self.tokens_prefilled - before

    @contextmanager
    def branch(self) -> Iterator[Branch]:
        """Go on from the cache's content for one query; afterwards the cache is as it was."""
        with torch.inference_mode():
            before = mark(self.cache)
        try:
            yield Branch(self, self._cursors[-1], self._ids)
        finally:
            with torch.inference_mode():
                rollback(self.cache, before)

    def run(self, pieces: Sequence[Piece], cursor: Cursor) -> tuple[Any, list[Cursor], list[list[int]]]:
        """Run ``pieces`` from ``cursor`` on; returns the last hidden state, and per piece the cursor
        behind it and its token ids. The cache grows; nothing else changes."""
        ids: list[list[int]] = []
        cursors: list[Cursor] = []
        positions: list[Any] = []
        features: list[Any] = []
        seen: list[bool] = []
        for piece in pieces:
            if isinstance(piece, TextPiece):
                ids.append(list(piece.ids))
                numbers, cursor = cursor.text(len(piece.ids))
            else:
                encoded = piece.features()
                features.append(encoded)
                ids.append([self.family.vision_id] * encoded.count)
                numbers, cursor = _spaced(cursor, piece).vision(encoded.count, encoded.grid)
            seen += [isinstance(piece, VisionPiece)] * len(ids[-1])
            positions.append(numbers)
            cursors.append(cursor)
        flat = [token for piece_ids in ids for token in piece_ids]
        hidden = self._forward(flat, torch.cat(positions, dim=-1), features, seen)
        return hidden, cursors, ids

    def step(self, ids: Sequence[int], positions: Any) -> Any:
        """Run tokens of text at ``positions``; returns the last hidden state."""
        return self._forward(list(ids), positions)

    @inference
    def logits(self, hidden: Any) -> Any:
        """(1, vocabulary) float32 for the token behind ``hidden``."""
        return self._head(hidden)[:, -1].float()

    def _forward(
        self, ids: list[int], positions: Any, features: Sequence[Any] = (), seen: Sequence[bool] = ()
    ) -> Any:
        """``features`` take the places of the tokens that are ``seen``."""
        device = self.model.device
        embeddings = self._embed(torch.tensor([ids], device=device))
        more: dict[str, Any] = {}
        if features:
            mask = torch.tensor([seen], device=device)
            encoded = torch.cat([item.tokens.to(device, embeddings.dtype) for item in features], dim=1)
            embeddings = self.family.embed(embeddings, mask, encoded[0])
            more = self.family.extras(encoded, mask)
        output = self._language(
            inputs_embeds=embeddings,
            position_ids=positions.to(device),
            use_cache=True,
            **{self._cache_name: self.cache},
            **more,
        )
        return output.last_hidden_state[:, -1:]

    def _prefill(self, batch: list[Piece]) -> None:
        try:
            _, cursors, ids = self.run(batch, self._cursors[-1])
        except BaseException:
            # some layers may hold more than others: go back to what is known to be whole
            if self._recurrent:
                self.reset()
            else:
                rollback(self.cache, Mark(length=self.length, states=(None,) * len(self.cache.layers)))
            raise
        for piece, cursor, piece_ids in zip(batch, cursors, ids, strict=True):
            self._pieces.append(piece)
            self._cursors.append(cursor)
            self._ids += piece_ids
            self._lengths.append(self._lengths[-1] + len(piece_ids))
            self.tokens_prefilled += len(piece_ids)

    def _cut(self, pieces: int) -> int:
        """Cut the cache back to the first ``pieces`` pieces, or further where it must; returns how many."""
        if pieces == len(self._pieces):
            return pieces
        again = self.length
        if self._recurrent:
            usable = [at for at in self._marks if at <= pieces]
            if not usable:
                self.reset()
            else:
                pieces = max(usable)
                rollback(self.cache, self._marks[pieces])
        else:
            rollback(self.cache, Mark(length=self._lengths[pieces], states=(None,) * len(self.cache.layers)))
        pieces = min(pieces, len(self._pieces))
        del self._pieces[pieces:], self._cursors[pieces + 1 :], self._lengths[pieces + 1 :]
        del self._ids[self.length :]
        self.tokens_again += again - self.length
        return pieces


class Branch:
    """One query's way on from the engine's cache. Valid inside ``Engine.branch`` only."""

    def __init__(self, engine: Engine, cursor: Cursor, ids: Sequence[int]) -> None:
        self._engine, self._cursor = engine, cursor
        self._ids = torch.tensor([list(ids) if engine.processors else []], dtype=torch.long)
        self._hidden: Any = None
        self._pending: list[int] = []
        self.ended = False
        """True once the model said that it is done."""

    @inference
    def feed(self, pieces: Sequence[Piece]) -> None:
        """Run the query's own pieces; the answer begins behind them."""
        self._hidden, cursors, ids = self._engine.run(pieces, self._cursor)
        self._cursor = cursors[-1]
        self._remember([token for piece_ids in ids for token in piece_ids])

    def force(self, ids: Sequence[int]) -> None:
        """Go on as if the model had said ``ids``."""
        self._pending += ids
        self._remember(ids)
        self.ended = False

    def decode(self, limit: int) -> Iterator[int]:
        """Up to ``limit`` further tokens, the likeliest each time, without the token that ends them."""
        for _ in range(limit):
            token = self._next()
            if token in self._engine.ends:
                self.ended = True
                return
            self._pending = [token]
            self._remember([token])
            yield token

    @inference
    def logits(self) -> Any:
        """(1, vocabulary) float32 of the token that comes next, before any processor."""
        if self._pending:
            numbers, self._cursor = self._cursor.text(len(self._pending))
            self._hidden = self._engine.step(self._pending, numbers)
            self._pending = []
        return self._engine.logits(self._hidden)

    @inference
    def _next(self) -> int:
        logits = self.logits()
        for processor in self._engine.processors:
            logits = processor(self._ids.to(logits.device), logits)
        return int(logits.argmax(dim=-1))

    def _remember(self, ids: Sequence[int]) -> None:
        """Keep the prompt's tokens for the processors, if there are any."""
        if self._engine.processors:
            self._ids = torch.cat([self._ids, torch.tensor([list(ids)], dtype=torch.long)], dim=1)


def _take_batch(todo: list[Piece], limit: int) -> list[Piece]:
    """Take up to ``limit`` pieces off ``todo``, not many more tokens than a chunk holds."""
    batch: list[Piece] = []
    tokens = 0
    while todo and len(batch) < limit and tokens < CHUNK_TOKENS:
        piece = todo.pop(0)
        batch.append(piece)
        tokens += len(piece.ids) if isinstance(piece, TextPiece) else piece.features().count
    return batch


def end_tokens(model: Any) -> frozenset[int]:
    """The tokens by which a model says that it is done."""
    ends = model.generation_config.eos_token_id
    return frozenset(ends if isinstance(ends, list) else [] if ends is None else [ends])


def logits_processors(model: Any) -> list[Any]:
    """What ``generate`` would do to the logits of a greedy run under the checkpoint's own settings."""
    from transformers import (
        NoRepeatNGramLogitsProcessor,
        RepetitionPenaltyLogitsProcessor,
        SuppressTokensLogitsProcessor,
    )

    config = model.generation_config
    made: list[Any] = []
    if config.repetition_penalty not in (None, 1.0):
        made.append(RepetitionPenaltyLogitsProcessor(penalty=config.repetition_penalty))
    if config.no_repeat_ngram_size:
        made.append(NoRepeatNGramLogitsProcessor(config.no_repeat_ngram_size))
    if config.suppress_tokens:
        made.append(SuppressTokensLogitsProcessor(config.suppress_tokens, device=model.device))
    return made


def _spaced(cursor: Cursor, piece: VisionPiece) -> Cursor:
    return cursor if cursor.interval == piece.interval else replace(cursor, interval=piece.interval)

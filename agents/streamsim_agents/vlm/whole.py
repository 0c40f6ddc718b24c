"""For models whose vision tokens see the question or later frames: nothing can be prefilled ahead.

What can be kept is each frame's encoded form, so a question costs the language half over the whole
prompt but no vision. Exact all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from streamsim_agents.vlm.cache import new_cache
from streamsim_agents.vlm.engine import Branch, Engine
from streamsim_agents.vlm.position import Cursor
from streamsim_agents.vlm.prompt import Piece, TextPiece, VisionPiece


class WholeEngine(Engine):
    """The engine's interface over whole prompts: ``sync`` only sees to it that steps are encoded."""

    def sync(self, pieces: Sequence[Piece], cancelled: Callable[[], bool] = lambda: False) -> int:
        """Encode the newest step; returns 0, since nothing is prefilled."""
        for piece in reversed(pieces):
            if isinstance(piece, VisionPiece):
                piece.features()
                break
        return 0

    @contextmanager
    def branch(self) -> Iterator[Branch]:
        """A fresh cache for one query."""
        self.cache = new_cache(self.model.config)
        try:
            yield Branch(self, self.family.cursor(1.0), [])
        finally:
            self.cache = new_cache(self.model.config)

    def run(self, pieces: Sequence[Piece], cursor: Cursor) -> tuple[Any, list[Cursor], list[list[int]]]:
        """Run the whole prompt at once, encoded steps in the place of pictures."""
        from transformers.modeling_outputs import BaseModelOutputWithPooling

        ids: list[list[int]] = []
        encoded = []
        for piece in pieces:
            if isinstance(piece, TextPiece):
                ids.append(list(piece.ids))
            else:
                features = piece.features()
                encoded.append(features.tokens[0].to(self.model.device, self.model.dtype))
                ids.append([self.family.vision_id] * features.count)
        flat = [token for piece_ids in ids for token in piece_ids]
        kinds = self.family.processor.create_mm_token_type_ids([flat])
        vision = {"mm_encoder_outputs": {"video": BaseModelOutputWithPooling(pooler_output=tuple(encoded))}}
        output = self.family.inner(
            input_ids=torch.tensor([flat], device=self.model.device),
            mm_token_type_ids=torch.tensor(kinds, device=self.model.device),
            use_cache=True,
            **{self._cache_name: self.cache},
            **(vision if encoded else {}),
        )
        _, cursor = cursor.text(len(flat))
        return output.last_hidden_state[:, -1:], [cursor] * len(pieces), ids

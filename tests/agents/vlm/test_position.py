"""Positions counted forward are those that the models give a whole prompt."""

# ruff: noqa: E402
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch and transformers: pip install 'streamsim[vlm]'")

from streamsim_agents.vlm.family import FAMILIES
from streamsim_agents.vlm.load import Loaded
from streamsim_agents.vlm.position import Cursor

TEXT, VIDEO = 0, 2


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "glm4v"])
@pytest.mark.parametrize("fps", [1.0, 0.1, 3.0])
def test_positions_of_a_prompt_with_two_videos(
    name: str, fps: float, loaded: Callable[[str], Loaded]
) -> None:
    """Against the model's own ``get_rope_index`` over the whole prompt."""
    model = loaded(name)
    family = FAMILIES[name](model.model, model.processor)
    cursor = family.cursor(fps)
    stamped = cursor.scheme == "step"
    parts: list[tuple[int, int, tuple[int, int]]] = []
    # text, four steps on a grid of 2 × 3, text, one step on a grid of 3 × 1, text
    for steps, (rows, columns), text in ((4, (2, 3), 7), (1, (3, 1), 5)):
        parts.append((TEXT, text, (0, 0)))
        for step in range(steps):
            if stamped and step:
                parts.append((TEXT, 4, (0, 0)))
            parts.append((VIDEO, rows * columns, (rows, columns)))
    parts.append((TEXT, 6, (0, 0)))
    positions: list[Any] = []
    for kind, count, grid in parts:
        numbers, cursor = cursor.text(count) if kind == TEXT else cursor.vision(count, grid)
        positions.append(numbers)
    kinds = torch.tensor([[kind for kind, count, _ in parts for _ in range(count)]])
    merge = model.processor.video_processor.merge_size
    more: dict[str, Any] = {}
    if name == "qwen2_5_vl":
        seconds = model.processor.video_processor.temporal_patch_size / fps
        more["second_per_grid_ts"] = torch.tensor([seconds, seconds])
    expected, _ = model.model.model.get_rope_index(
        torch.zeros_like(kinds),
        mm_token_type_ids=kinds,
        video_grid_thw=torch.tensor([[4, 2 * merge, 3 * merge], [1, 3 * merge, 1 * merge]]),
        **more,
    )
    assert torch.equal(torch.cat(positions, dim=-1), expected)


def test_a_line_counts_on() -> None:
    cursor = Cursor(scheme="line")
    first, cursor = cursor.text(3)
    second, cursor = cursor.vision(4, (2, 2))
    third, cursor = cursor.text(0)
    assert first.tolist() == [[0, 1, 2]]
    assert second.tolist() == [[3, 4, 5, 6]]
    assert third.shape == (1, 0)
    assert cursor.next == 7

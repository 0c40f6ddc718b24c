"""Tiny checkpoints of each architecture, built on the spot and loaded like any other.

Where torch is installed without a GPU build beside a torchvision that has one, torchvision cannot load
its compiled operators. The processors of transformers need none of them, only that two are declared;
``operators/sitecustomize.py`` does the same for processes that tests start.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from streamsim_agents.vlm.load import Loaded

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
if importlib.util.find_spec("torch"):
    import torch

    from tests.agents.vlm.operators.torchvision_operators import declare

    declare()
    torch.set_num_threads(1)  # the models are too small to gain from more, and the machine may be shared


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a tiny checkpoint by architecture; each is built once."""
    from streamsim_agents.vlm.shape import write

    return cache(lambda name: write(name, tmp_path_factory.mktemp("checkpoint") / name))


@pytest.fixture(scope="session")
def loaded(checkpoint: Callable[[str], Path]) -> Callable[[str], Loaded]:
    """A tiny checkpoint, loaded from its folder; each is loaded once."""
    from streamsim_agents.vlm.load import load

    return cache(lambda name: load(str(checkpoint(name)), device="cpu"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A warning of transformers itself, in a processor that copies tensors into numpy the old way."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"))

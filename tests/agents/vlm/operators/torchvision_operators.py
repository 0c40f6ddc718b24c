"""Lets torchvision be imported beside a torch of another build, for tests on a CPU."""

from __future__ import annotations

import importlib.util
import sys


def declare() -> None:
    """Declare what torchvision's own library would; no-op where that loads, or without torchvision."""
    if importlib.util.find_spec("torchvision") is None:
        return
    import torch

    try:
        import torchvision
    except RuntimeError:
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "FRAGMENT")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision

        torchvision.declared = library  # it lives as long as this

"""Declares torchvision's operators in processes that tests start, when transformers is first wanted."""

from __future__ import annotations

import importlib
import importlib.abc
import sys
from importlib.machinery import ModuleSpec
from typing import Any


class _Declarer(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name == "transformers":
            sys.meta_path.remove(self)
            importlib.import_module("torchvision_operators").declare()
        return None


sys.meta_path.insert(0, _Declarer())

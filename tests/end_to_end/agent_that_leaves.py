"""A module that ends its process when it is imported to be played, as a broken native library would."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from streamsim_agents.agent import Agent, Frame, Query, Turn

if "--check" not in sys.argv:
    os._exit(7)


class Leaver(Agent):
    """Never made."""

    def observe(self, frame: Frame) -> None:
        raise AssertionError("never made")

    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        raise AssertionError("never made")

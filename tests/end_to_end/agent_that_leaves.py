"""A module that ends its process when it is imported to be played, as a broken native library would."""

from __future__ import annotations

import os
import sys

from streamsim_agents.agent import Agent

if "--check" not in sys.argv:
    os._exit(7)


class Leaver(Agent):
    """Never made."""

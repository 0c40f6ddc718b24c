"""What is said to people on standard error: errors and notices, one line each.

Whatever stands in it, of data, agents and file names, reaches the terminal as text; and if nobody can
read it, nothing else is lost.
"""

from __future__ import annotations

import contextlib
import sys

from streamsim_protocol.terminal import for_terminal


def notice(text: str) -> None:
    """One line on standard error, its controls shown; lost if nobody reads."""
    with contextlib.suppress(OSError, ValueError):
        print(for_terminal(text), file=sys.stderr, flush=True)

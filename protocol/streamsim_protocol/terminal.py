"""Text that came from elsewhere, made fit for one line of a terminal.

Names of files, ids in datasets and reasons that a peer gives may hold anything: an escape sequence would
repaint the screen, a line feed would forge a second line.
"""

from __future__ import annotations

import re

_UNFIT = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # controls
    "\u2028\u2029"  # line and paragraph separators
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # directions, which reorder what stands after them
    "\ud800-\udfff]"  # bytes of file names that are no text
)


def for_terminal(text: str, *, keep: str = "") -> str:
    r"""Show controls, line ends and turns of direction as Python writes them: ``\x1b``, ``\n``, ``\u202e``.

    The characters of ``keep`` stay as they are.
    """
    return _UNFIT.sub(lambda match: match[0] if match[0] in keep else repr(match[0])[1:-1], text)

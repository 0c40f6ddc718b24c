"""Text files that people write or edit: UTF-8, with or without a byte order mark.

Editors on Windows put the mark at a file's beginning, spreadsheets into every CSV. It is no part of the
text. Journals and what else we write for ourselves are read without this.
"""

from __future__ import annotations

import codecs
from pathlib import Path


def without_mark(data: bytes) -> bytes:
    """The bytes of a text file without a leading UTF-8 byte order mark."""
    return data.removeprefix(codecs.BOM_UTF8)


def read_text(path: Path) -> str:
    """The text of a file that a person wrote. ``OSError``, or ``UnicodeDecodeError`` if it is not UTF-8."""
    return without_mark(path.read_bytes()).decode("utf-8")

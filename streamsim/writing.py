"""Writing what a command was asked for: what to say when it cannot be written, and leaving nothing behind."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def describe(error: OSError) -> str:
    """What the system says, in lower case and without numbers."""
    return (error.strerror or str(error)).lower()


def cannot_write(path: Path, error: OSError) -> str:
    """One line for a user: what cannot be written, why, and what to do."""
    if error.errno in _FULL:
        advice = "free space there, or choose another place"
    elif error.errno in _FORBIDDEN:
        advice = "choose a place that you may write to"
    else:
        advice = "choose another place"
    return f"cannot write {str(path)!r}: {describe(error)}: {advice}"


def is_full(error: OSError) -> bool:
    """Whether there was no room for what was to be written."""
    return error.errno in _FULL


@contextlib.contextmanager
def folder_for(folder: Path) -> Iterator[None]:
    """Make ``folder`` and its parents; if the block fails, those that were made and are empty go again.

    ``OSError`` if they cannot be made.
    """
    absent = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:  # it, or a parent, is a file
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from error
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            for place in absent:
                place.rmdir()
        raise

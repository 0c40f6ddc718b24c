"""Errors that a user can meet, each with the exit code of the command line.

    StreamsimError          exit 1: the thing that was checked or run is bad
    ├── JournalError        a session's journal cannot be written: the run stops, and can be resumed
    └── UsageError          exit 2: wrong usage or wrong input; nothing was changed
        ├── DatasetError    a dataset folder or annotation file cannot be read
        ├── VideoError      a video cannot be read, has no picture, or ends early
        └── RunError        a run folder exists, is missing, or was made under another configuration

Texts are lower case without a full stop: what was found, what was expected, what to do.
"""

from __future__ import annotations


class StreamsimError(Exception):
    """Something that was checked or run is bad."""

    exit_code = 1


class JournalError(StreamsimError):
    """A session's journal cannot be written, so nothing more may be played."""


class UsageError(StreamsimError):
    """Wrong usage or wrong input: mend it and call again."""

    exit_code = 2


class DatasetError(UsageError):
    """A dataset folder or an annotation file cannot be read."""


class VideoError(UsageError):
    """A video cannot be read, has no picture, or ends before its declared end."""


class RunError(UsageError):
    """A run folder exists already, is missing, or belongs to another configuration."""

"""What is said to people while something long goes on: said to nobody, it costs nothing.

Whoever reads a command's output may go away (``| head``, a closed terminal); a run then goes on to its
end, with everything in its folder.
"""

from __future__ import annotations

import contextlib
import errno
import sys

from rich.console import Console


class PatientConsole(Console):
    """A console whose reader may go away: what is said from then on is lost, and nothing else."""

    def on_broken_pipe(self) -> None:
        """Say nothing more."""
        self.quiet = True

    def _check_buffer(self) -> None:
        try:
            super()._check_buffer()
        except OSError as error:
            if error.errno != errno.ENOSPC or not self.stderr:
                raise
            self.quiet = True  # progress that cannot be written costs nothing else


def notice(text: str) -> None:
    """One line on standard error, lost if nobody reads."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)

"""What is said to people while something long goes on: said to nobody, it costs nothing.

Whoever reads a command's output may go away (``| head``, a closed terminal); a run then goes on to its
end, with everything in its folder.
"""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.text import Text

from streamsim.writing import is_full
from streamsim_protocol.terminal import for_terminal


class PatientConsole(Console):
    """A console whose reader may go away: what is said from then on is lost, and nothing else.

    Controls in texts are shown, not sent. A text without markup that is not wrapped is one line.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich prints; but what stands in a line cannot make it two."""
        if options.get("markup") is False and options.get("soft_wrap"):
            objects = tuple(for_terminal(part) if isinstance(part, str) else part for part in objects)
        super().print(*objects, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Every text that is printed, and every cell of a table, comes through here."""
        return super().render_str(for_terminal(text, keep="\n\t"), **options)

    def on_broken_pipe(self) -> None:
        """Say nothing more."""
        self.quiet = True

    def _check_buffer(self) -> None:
        try:
            super()._check_buffer()
        except OSError as error:
            if not is_full(error) or not self.stderr:
                raise
            self.quiet = True  # progress that cannot be written costs nothing else


PLAIN_WIDTH = 200
"""Of what is not a terminal: wide enough for every table, and no line is filled up to it."""


def report_console() -> PatientConsole:
    """A console on stdout; where that is no terminal it is plain, and nothing is wrapped."""
    return PatientConsole() if sys.stdout.isatty() else PatientConsole(width=PLAIN_WIDTH, no_color=True)


def say(console: Console, text: str) -> None:
    """One line, whatever stands in it, for the terminal to wrap."""
    console.print(for_terminal(text), markup=False, highlight=False, soft_wrap=True)

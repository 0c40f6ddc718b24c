"""Keys that steer a scaled clock from a terminal: space, full stop, plus and minus.

The terminal is put back as it was found, however the run ends. Rates come from an exact list, so that a
key pressed twice and its opposite pressed twice lead back to where one was.
"""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streamsim.server.plan import Control

RATES = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
HELP = "keys: space pause and resume, . single step, + and - faster and slower"


class Keys:
    """Turns keys into controls."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._paused = False

    def press(self, key: str) -> Control | None:
        """What ``key`` means now; None for nothing."""
        match key:
            case " ":
                self._paused = not self._paused
                return Control(do="pause" if self._paused else "resume")
            case ".":
                self._paused = True
                return Control(do="step")
            case "+":
                return self._change(min((rate for rate in RATES if rate > self._rate), default=self._rate))
            case "-":
                return self._change(max((rate for rate in RATES if rate < self._rate), default=self._rate))
            case _:
                return None

    def _change(self, rate: float) -> Control | None:
        if rate == self._rate:
            return None
        self._rate = rate
        return Control(do="rate", rate=rate)


@contextmanager
def listening(rate: float, command: Callable[[Control], None]) -> Iterator[bool]:
    """Pass keys on while the block runs; False where standard input is no terminal of ours."""
    descriptor = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else -1
    if descriptor < 0 or os.getpgrp() != os.tcgetpgrp(descriptor):
        yield False
        return
    before = termios.tcgetattr(descriptor)
    keys = Keys(rate)
    loop = asyncio.get_running_loop()

    def read() -> None:
        for key in os.read(descriptor, 64).decode("ascii", "ignore"):
            control = keys.press(key)
            if control is not None:
                command(control)

    try:
        tty.setcbreak(descriptor)
        loop.add_reader(descriptor, read)
        yield True
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)

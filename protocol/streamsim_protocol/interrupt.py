"""Ctrl-C while a program's modules are still being loaded, and once it is over: leave, and say nothing.

Python would show a traceback of wherever it came. A program's own code, from its first to its last line,
gets ``KeyboardInterrupt`` as always. This module imports next to nothing, so that it can be the first.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType

EXIT_CODE = 130
_HELD = "STREAMSIM_INTERRUPT_HELD"
"""In the environment while Ctrl-C is held: what is blocked stays so across an ``exec``."""


def run_guarded(load_and_run: Callable[[], int]) -> int:
    """Call a program that imports what it needs and then calls ``raise_on_interrupt``; returns its exit code.

    Before that call, and from its return to the end of the process, Ctrl-C ends the process with 130.
    """
    _leave_on_interrupt()
    try:
        return load_and_run()
    except KeyboardInterrupt:  # a second one, while the program told of the first
        return EXIT_CODE
    finally:
        _leave_on_interrupt()


def raise_on_interrupt() -> None:
    """Have Ctrl-C raise ``KeyboardInterrupt`` again, and now, if it came while ``hold_interrupt`` held it.

    For the main thread. What is ignored, as in the background of a shell, or handled, stays so.
    """
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if _HELD in os.environ:
        del os.environ[_HELD]
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def hold_interrupt() -> None:
    """Let a Ctrl-C wait for ``raise_on_interrupt``, of this program or of the one that takes its place."""
    os.environ[_HELD] = "1"
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def _leave_on_interrupt() -> None:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(EXIT_CODE)

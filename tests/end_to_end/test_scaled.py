"""A scaled clock, steered by keys on a real terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from streamsim.events import ClockTaken, FrameSent
from streamsim.journal.folder import read_last_attempts
from streamsim.journal.read import JournalFile
from streamsim.journal.verify import verify_run
from streamsim.launch.keys import Keys
from streamsim.server.plan import Control

GUARD_S = 40.0


class TestKeys:
    def test_space_pauses_and_resumes(self) -> None:
        keys = Keys(1.0)
        assert keys.press(" ") == Control(do="pause")
        assert keys.press(" ") == Control(do="resume")

    def test_a_step_pauses(self) -> None:
        keys = Keys(1.0)
        assert keys.press(".") == Control(do="step")
        assert keys.press(" ") == Control(do="resume")

    def test_faster_and_slower_lead_back(self) -> None:
        keys = Keys(1.0)
        rates = [control.rate for key in "++--" if (control := keys.press(key)) is not None]
        assert rates == [2.0, 4.0, 2.0, 1.0]

    def test_the_ends_of_the_list_are_the_ends(self) -> None:
        keys = Keys(16.0)
        assert keys.press("+") is None
        assert keys.press("x") is None


@pytest.mark.slow
def test_keys_on_a_terminal_move_the_clock_and_the_terminal_is_left_as_it_was(
    tiny: Path, tmp_path: Path
) -> None:
    ours, theirs = pty.openpty()
    import termios

    before = termios.tcgetattr(theirs)
    out = tmp_path / "run"
    command = [
        sys.executable,
        "-m",
        "streamsim.cli",
        "run",
        str(tiny),
        "--agent",
        "null",
        "--out",
        str(out),
    ]
    command += ["--clock", "scaled", "--rate", "0.25", "--limit", "1"]
    shown = bytearray()
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=_own_the_terminal(theirs)
    )
    try:
        _until(lambda: b"keys:" in _drain(ours, shown), "the help line")
        _until(lambda: bool(_drain(ours, shown)) and _frames(out) >= 1, "a frame")
        for key, reason in ((b" ", "pause"), (b".", "step"), (b" ", "resume"), (b"+++", "rate")):
            os.write(ours, key)
            _until(lambda wanted=reason: _drain(ours, shown) is not None and wanted in _reasons(out), reason)  # type: ignore[misc]
        _until(lambda: _drain(ours, shown) is not None and process.poll() is not None, "the end")
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, shown[-2000:].decode("utf-8", "replace")
    assert termios.tcgetattr(theirs)[3] == before[3]
    reasons = _reasons(out)
    assert reasons[0] == "start"
    assert [reason for reason in ("pause", "step", "resume", "rate") if reason in reasons] == [
        "pause", "step", "resume", "rate",
    ]  # fmt: skip
    proof = verify_run(out)
    assert proof.offence is None, proof
    os.close(ours)
    os.close(theirs)


def _own_the_terminal(descriptor: int) -> Callable[[], None]:
    def take() -> None:
        import fcntl
        import termios

        os.setsid()
        fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0)

    return take


def _drain(descriptor: int, shown: bytearray) -> bytearray:
    while select.select([descriptor], [], [], 0.02)[0]:
        shown += os.read(descriptor, 4096)
    return shown


def _journal(out: Path) -> JournalFile | None:
    journals = read_last_attempts(out) if (out / "sessions").is_dir() else []
    return journals[0] if journals else None


def _reasons(out: Path) -> list[str]:
    journal = _journal(out)
    entries = journal.entries if journal is not None else ()
    return [entry.event.reason for entry in entries if isinstance(entry.event, ClockTaken)]


def _frames(out: Path) -> int:
    journal = _journal(out)
    entries = journal.entries if journal is not None else ()
    return sum(isinstance(entry.event, FrameSent) for entry in entries)


def _until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + GUARD_S
    while not true():
        assert time.monotonic() < deadline, f"waited {GUARD_S:g} s for {what}"

"""The CPU time of a process, all its threads, as the kernel counts it (Linux)."""

from __future__ import annotations

import os
from pathlib import Path

_UTIME, _STIME = 11, 12
"""Places in ``/proc/PID/stat`` behind the process's name, counted from 0."""


def cpu_seconds(pid: int) -> float:
    """User and system time of a process up to now; threads that have ended may be missing.

    From the scheduler's own count, in nanoseconds; where the kernel keeps none, in clock ticks.
    """
    tasks = Path(f"/proc/{pid}/task")
    try:
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9
    except OSError:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[_UTIME]) + int(fields[_STIME])) / os.sysconf("SC_CLK_TCK")

"""The log of an agent that prints without end."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from pathlib import Path

import pytest

from streamsim.server.agent_log import AgentLog

LIMIT, KEPT, LINES = 1 << 20, 1 << 14, 600_000
FLOOD = f"for number in range({LINES}): print(f'line {{number:08}}')"


@pytest.mark.slow
async def test_flood_keeps_beginning_and_end(tmp_path: Path) -> None:
    log = AgentLog(tmp_path / "logs" / "lane-1.log", limit_bytes=LIMIT, kept_bytes=KEPT)
    longest = 0

    async def watch() -> None:
        nonlocal longest
        while True:
            await asyncio.sleep(0)
            longest = max(longest, log.path.stat().st_size)

    process = await asyncio.create_subprocess_exec(sys.executable, "-c", FLOOD, stdout=log.fileno())
    tasks = [asyncio.create_task(log.keep_short(0.001)), asyncio.create_task(watch())]
    assert await process.wait() == 0
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    log.close()
    log.close()
    written = LINES * len("line 00000000\n")
    assert LIMIT < longest < written
    text = log.path.read_text()
    assert len(text) <= LIMIT + 2 * KEPT
    lines = text.splitlines()
    assert (lines[0], lines[-1]) == ("line 00000000", f"line {LINES - 1:08}")
    left_out = [int(found) for found in re.findall(r"\.\.\. (\d+) bytes left out \.\.\.", text)]
    assert left_out and sum(left_out) <= written
    whole = [line for line in lines if re.fullmatch(r"line \d{8}", line)]
    assert len(whole) == len(set(whole)), "some lines stand there twice"


def test_short_logs_are_left_alone_and_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "lane-1.log"
    path.write_bytes(b"before\n" * 10)
    log = AgentLog(path, limit_bytes=70, kept_bytes=20)
    log.shorten()
    assert path.read_bytes() == b"before\n" * 10
    with path.open("ab") as file:
        file.write(b"x")
    log.close()
    # the beginning's two whole lines, and of the end what follows its first line end
    assert path.read_bytes() == b"before\nbefore\n\n... 42 bytes left out ...\nbefore\nbefore\nx"

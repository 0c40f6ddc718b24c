"""A run from its plan to its end: one server process, watched until it has gone."""

from __future__ import annotations

import asyncio
import shlex
import signal
import socket
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import msgspec

from streamsim.errors import StreamsimError, UsageError
from streamsim.journal.folder import discard_run_folder
from streamsim.launch.child import ServerProcess
from streamsim.launch.display import RunDisplay
from streamsim.launch.keys import HELP, listening
from streamsim.launch.planning import PlannedRun
from streamsim.notice import notice
from streamsim.report.console import PatientConsole
from streamsim.server.plan import listens_everywhere


class ServerDied(StreamsimError):
    """The server process ended on its own; the journals hold what it had done."""


class RunEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended. ``signal`` is the signal that stopped it, None if none did."""

    signal: signal.Signals | None


def play(planned: PlannedRun, *, quiet: bool = False, announce_urls: bool = False) -> RunEnd:
    """Play all jobs of a plan. ``UsageError`` if the server refused it, ``ServerDied`` if it crashed.

    A run that was refused before it began leaves no folder behind.
    """
    if not planned.plan.jobs:
        return RunEnd(signal=None)
    try:
        return asyncio.run(_play(planned, quiet=quiet, announce_urls=announce_urls))
    except UsageError:
        if not planned.resumed:
            discard_run_folder(planned.folder)
        raise


async def _play(planned: PlannedRun, *, quiet: bool, announce_urls: bool) -> RunEnd:
    loop = asyncio.get_running_loop()
    stopped: list[signal.Signals] = []
    console = PatientConsole(stderr=True)
    server = ServerProcess(planned.plan)

    def stop(number: signal.Signals) -> None:
        if stopped:
            server.kill()
        else:
            server.stop()
        stopped.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(server)
        config = planned.plan.config
        if config.clock == "scaled" and stack.enter_context(listening(config.rate, server.command)):
            console.print(HELP, markup=False, highlight=False)
        refused = failed = ""
        with RunDisplay(console, sessions=len(planned.plan.jobs), quiet=quiet) as display:
            async for news in server.notices():
                if news.kind == "refused":
                    refused = news.detail
                if news.kind == "failed":
                    failed = news.detail
                if news.kind == "listening" and announce_urls:
                    for line in _describe_address(news.url, planned.plan.host):
                        console.print(line, markup=False, highlight=False, soft_wrap=True)
                display.show(news)
        code = await server.wait()
    if refused:
        raise UsageError(refused)
    if failed:
        raise ServerDied(failed)
    if server.errors:
        log = planned.folder / "logs" / "server.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as file:
            file.write(server.errors)
        said = server.errors.strip().splitlines()[-1]
        command = "run" if planned.plan.agent else "serve"
        notice(f"streamsim {command}: the server met an error of its own ({said}), see {log}")
    if code not in (0, 143) and not stopped:
        last = server.errors.strip().splitlines()[-1:] or [f"exit code {code}"]
        raise ServerDied(
            f"the server process ended unexpectedly ({last[0]}); the journals in {str(planned.folder)!r} "
            "hold what was done: continue with --resume"
        )
    return RunEnd(signal=stopped[0] if stopped else None)


def _describe_address(url: str, host: str) -> list[str]:
    """What to tell those who are to start an agent, here and, where the server listens to all, elsewhere."""
    lines = [f"listening: {url}", f"  streamsim join {shlex.quote(url)} --agent NAME"]
    if listens_everywhere(host):
        address = urlsplit(url)
        elsewhere = address._replace(netloc=f"{socket.gethostname()}:{address.port}").geturl()
        lines.append("on another host (if it does not know this one by its name, put its address there):")
        lines.append(f"  streamsim join {shlex.quote(elsewhere)} --agent NAME")
    return lines

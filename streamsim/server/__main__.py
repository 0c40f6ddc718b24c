"""``python -m streamsim.server``: one server process, told what to do on its standard input.

The first line of standard input is a ``ServerPlan``, each further one a ``Control``; its end, like
SIGTERM, stops the run gracefully, so a server never outlives whoever started it. Standard output
carries notices, one JSON object a line: ``listening``, ``session``, ``position``, ``outcome``,
``failure``, ``ended``. Exit codes: 0 all jobs were tried, 2 the plan cannot be served, 143 stopped by a
signal.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import msgspec
from aiohttp import web

from streamsim.episodes.dataset import Dataset, load_dataset
from streamsim.errors import JournalError, RunError, StreamsimError, UsageError
from streamsim.journal.folder import hold_run_folder, journal_path
from streamsim.journal.read import read_journal
from streamsim.journal.write import JournalSync
from streamsim.prompts import load_prompts
from streamsim.reading import READERS
from streamsim.server.app import build_app, ignore_bad_requests
from streamsim.server.lane import Lane, Shared
from streamsim.server.leftovers import MARK, end_marked
from streamsim.server.loop_lag import LoopLag
from streamsim.server.media import MediaStore
from streamsim.server.notices import Notices
from streamsim.server.plan import Control, ServerPlan, describe_listen_error, listens_everywhere

EXIT_STOPPED = 143


async def serve(plan: ServerPlan, notices: Notices, commands: asyncio.StreamReader) -> int:
    """Play all jobs of ``plan``; returns the exit code."""
    config = plan.config
    dataset = load_dataset(Path(config.dataset))
    if dataset.digest != config.dataset_digest:
        raise UsageError(f"dataset {config.dataset!r} has changed since the run was planned: start a new run")
    prompts = load_prompts(Path(config.prompts) if config.prompts else None)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    with hold_run_folder(Path(plan.folder)), JournalSync() as sync, LoopLag() as loop_lag:
        refuse_stale_plan(plan, dataset)
        async with MediaStore() as store:
            shared = Shared(
                plan=plan,
                dataset=dataset,
                prompts=prompts,
                reader=READERS[config.reader],
                store=store,
                sync=sync,
                loop_lag=loop_lag,
                jobs=deque(plan.jobs),
                observer=notices.observe,
            )
            lanes = [Lane(number, shared) for number in range(1, plan.lanes + 1)]
            runner = web.AppRunner(build_app(lanes, token=plan.token, host=plan.host), access_log=None)
            await runner.setup()
            try:
                await _listen(runner, plan, lanes, notices)
                await _play_all(lanes, shared, stopping, commands)
            finally:
                await runner.cleanup()
    return EXIT_STOPPED if stopping.is_set() else 0


def refuse_stale_plan(plan: ServerPlan, dataset: Dataset) -> None:
    """``RunError`` if another process has played of the run since it was planned; hold the folder."""
    folder = Path(plan.folder)
    for job in plan.jobs:
        episode = dataset.episodes[job.episode].id
        earlier = journal_path(folder, episode, job.repeat, job.attempt - 1)
        if journal_path(folder, episode, job.repeat, job.attempt).exists() or (
            job.attempt > 1 and read_journal(earlier).complete
        ):
            raise RunError(
                f"another process has played {episode!r} of {plan.folder!r} meanwhile: "
                "call again with --resume, which takes that into account"
            )


async def _listen(runner: web.AppRunner, plan: ServerPlan, lanes: list[Lane], notices: Notices) -> None:
    site = web.TCPSite(runner, plan.host, plan.port, shutdown_timeout=2.0)
    try:
        await site.start()
    except OSError as error:
        raise UsageError(describe_listen_error(plan.host, plan.port, error)) from None
    address, port = runner.addresses[0][:2]
    host = plan.host
    if listens_everywhere(host):
        host = "::1" if ":" in address else "127.0.0.1"
    netloc = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    for lane in lanes:
        lane.url = f"ws://{netloc}/v1/lanes/{lane.number}?token={plan.token}"
    notices.listening(port, [lane.url for lane in lanes])


async def _play_all(
    lanes: list[Lane], shared: Shared, stopping: asyncio.Event, commands: asyncio.StreamReader
) -> None:
    async def stop_when_asked() -> None:
        closed = asyncio.ensure_future(_obey(commands, lanes))
        asked = asyncio.ensure_future(stopping.wait())
        try:
            await asyncio.wait({closed, asked}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            closed.cancel()
            asked.cancel()
        stopping.set()
        shared.stopping = True
        for lane in lanes:
            lane.stop()

    async with asyncio.TaskGroup() as group:
        watcher = group.create_task(stop_when_asked())
        players = [group.create_task(lane.run()) for lane in lanes]
        await asyncio.wait(players)
        watcher.cancel()


async def _obey(commands: asyncio.StreamReader, lanes: list[Lane]) -> None:
    """Pass on what whoever started us commands, until it has gone."""
    while line := await commands.readline():
        control = msgspec.json.decode(line, type=Control)
        for lane in lanes:
            lane.control(control)


async def _main() -> int:
    loop = asyncio.get_running_loop()
    commands = asyncio.StreamReader(limit=64 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    plan = msgspec.json.decode(await commands.readline(), type=ServerPlan)
    notices = Notices(sys.stdout.fileno())
    try:
        return await serve(plan, notices, commands)
    except StreamsimError as error:
        notices.refused(str(error))
        return error.exit_code
    except BaseExceptionGroup as group:  # what a lane met ends all of them
        faults = group.subgroup(JournalError)
        if faults is None:
            raise
        notices.failed(str(next(_leaves(faults))))
        return JournalError.exit_code


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def main() -> int:
    """Run one server."""
    ignore_bad_requests()
    gc.freeze()  # what was imported need not be looked at again by the collector
    try:
        return asyncio.run(_main())
    finally:
        if MARK in os.environ:
            end_marked(os.environ[MARK])  # whoever started us may be gone


if __name__ == "__main__":
    sys.exit(main())

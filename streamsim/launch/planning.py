"""From options to a plan: which sessions a run plays, under which configuration, in which folder.

Everything that a user could have got wrong is found here, before a server or an agent starts.
"""

from __future__ import annotations

import datetime
import os
import platform
import re
import secrets
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from streamsim import __version__
from streamsim.episodes.check import preflight
from streamsim.episodes.dataset import Dataset, key_digest, load_dataset
from streamsim.episodes.episode import Episode
from streamsim.episodes.finding import Finding, errors
from streamsim.episodes.sampling import MAX_FPS, MIN_FPS
from streamsim.errors import RunError, UsageError
from streamsim.journal.folder import (
    AgentSpec,
    RunConfig,
    RunFile,
    describe_existing,
    encoder_versions,
    write_run_file,
)
from streamsim.launch.interpreter import RegistryEnded, ask_registry
from streamsim.launch.options import RunOptions
from streamsim.launch.resuming import remaining_jobs, reopen, restore_folders
from streamsim.prompts import load_prompts
from streamsim.reading import READERS
from streamsim.server.plan import Job, ServerPlan, describe_listen_error

MAX_PROBLEMS_SHOWN = 10
MAX_REPEAT = 10_000
MAX_SECONDS = 1e9
"""Of a timeout: thirty years, which in nanoseconds still fits what clocks and journals hold."""
MAX_RATE = 1000.0
MAX_CREDIT = 1024
"""So many pictures in flight, each under the limit of a message, are what a server keeps for one client."""


class PlannedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that may start. ``plan.jobs`` are the sessions still to play, ``complete`` those done before."""

    folder: Path
    plan: ServerPlan
    dataset: Dataset
    warnings: tuple[Finding, ...]
    complete: int
    resumed: bool


def plan_run(options: RunOptions, *, dry: bool = False) -> PlannedRun:
    """Plan a run and create or reopen its folder (``dry``: touch nothing).

    ``UsageError`` and its kin for everything that is wrong with options, dataset, videos or agent.
    """
    check_numbers(options)
    if options.resume and not options.dataset.exists():
        raise RunError(
            f"the dataset of this run is no longer at {str(options.dataset)!r}: give DATASET, where it is now"
        )
    dataset = load_dataset(options.dataset)
    chosen, partial = choose_episodes(dataset, options)
    warnings = check_episodes(dataset, [dataset.episodes[index] for index in chosen], options.fps)
    agent = None
    if options.agent is not None:
        agent = check_agent(options.agent, options.agent_arguments, options.agent_python)
    if not dry:
        check_port(options.host, options.port)
    config = make_config(options, dataset, chosen, partial=partial, agent=agent)
    check_prompts(options.prompts, [dataset.episodes[index] for index in chosen])
    folder = options.out or default_folder(options.agent)
    if options.resume:
        run_file, sessions = reopen(folder, config, dataset)
        if not dry:
            restore_folders(folder)
        jobs, complete = remaining_jobs(folder, sessions, dataset, chosen, config.repeat)
    else:
        if folder.exists():
            raise RunError(describe_existing(folder))
        run_file = make_run_file(config, dataset, [dataset.episodes[index] for index in chosen])
        jobs = tuple(
            Job(episode=index, repeat=repeat, attempt=1)
            for repeat in range(1, config.repeat + 1)
            for index in chosen
        )
        complete = 0
        if not dry:
            write_run_file(folder, run_file)
    plan = ServerPlan(
        folder=str(folder.absolute()),
        run=run_file.run,
        config=config,
        jobs=jobs,
        lanes=max(1, min(options.sessions, len(jobs))),
        host=options.host,
        port=options.port,
        token=secrets.token_urlsafe(16),
        agent=agent,
    )
    return PlannedRun(
        folder=folder,
        plan=plan,
        dataset=dataset,
        warnings=warnings,
        complete=complete,
        resumed=options.resume,
    )


def check_numbers(options: RunOptions) -> None:
    """Refuse numbers that make no sense, by the name of their option."""
    if options.rate != 1.0 and options.clock != "scaled":
        raise UsageError(f"--rate: only --clock scaled has one, got --clock {options.clock}")
    at_least = {
        "--sessions": (options.sessions, 1),
        "--repeat": (options.repeat, 1),
        "--credit": (options.credit, 1),
        "--pixel-budget": (options.pixel_budget, 1),
        "--quality": (options.quality, 1),
        "--limit": (1 if options.limit is None else options.limit, 1),
        "--port": (options.port, 0),
    }
    for name, (value, least) in at_least.items():
        if value < least:
            raise UsageError(f"{name}: expected at least {least}, got {value}")
    at_most = {
        "--port": (options.port, 65_535),
        "--credit": (options.credit, MAX_CREDIT),
        "--quality": (options.quality, 100),
    }
    for name, (value, most) in at_most.items():
        if value > most:
            raise UsageError(f"{name}: expected at most {most}, got {value}")
    if options.repeat > MAX_REPEAT:
        raise UsageError(f"--repeat: expected at most {MAX_REPEAT}, got {options.repeat}")
    if not MIN_FPS <= options.fps <= MAX_FPS:
        raise UsageError(f"--fps: expected from {MIN_FPS:g} to {MAX_FPS:g}, got {options.fps:g}")
    above_zero = {
        "--answer-timeout": options.answer_timeout,
        "--ready-timeout": options.ready_timeout_s,
        "--hang-timeout": options.hang_timeout_s,
        "--drain-timeout": options.drain_timeout_s,
        "--credit-timeout": options.credit_timeout_s,
    }
    for name, number in above_zero.items():
        if not 0 < number <= MAX_SECONDS:
            raise UsageError(f"{name}: expected a number above 0, at most {MAX_SECONDS:g}, got {number:g}")
    if not 1 / MAX_RATE <= options.rate <= MAX_RATE:
        raise UsageError(f"--rate: expected from {1 / MAX_RATE:g} to {MAX_RATE:g}, got {options.rate:g}")


def choose_episodes(dataset: Dataset, options: RunOptions) -> tuple[list[int], bool]:
    """Indices of the episodes to play, and whether the dataset has more."""
    index_of = {episode.id: index for index, episode in enumerate(dataset.episodes)}
    if len(index_of) < len(dataset.episodes):
        raise UsageError("the dataset has some episode ids twice: `streamsim check` names them")
    unknown = [name for name in options.episodes if name not in index_of]
    if unknown:
        named_by = "--resume" if options.resume else "--episode"
        raise UsageError(
            f"{named_by}: no episode {unknown[0]!r} in the dataset; it has {len(index_of)}, "
            f"the first is {next(iter(index_of), None)!r}"
        )
    chosen = [index for name, index in index_of.items() if not options.episodes or name in options.episodes]
    if options.available:
        chosen = [index for index in chosen if dataset.video_path(dataset.episodes[index]).is_file()]
        if not chosen:
            raise UsageError("--available: no episode of the dataset has its video; put the videos in place")
    if options.limit is not None:
        chosen = chosen[: options.limit]
    if not chosen:
        raise UsageError("the dataset has no episodes: nothing to play")
    return chosen, len(chosen) < len(dataset.episodes)


def check_episodes(dataset: Dataset, episodes: Sequence[Episode], fps: float) -> tuple[Finding, ...]:
    """Look at structure and videos; errors keep the run from starting, warnings are returned."""
    findings = preflight(dataset, episodes, fps=fps)
    problems = errors(findings)
    if problems:
        shown = "; ".join(
            f"{found.item}: {found.field}: {found.text}" for found in problems[:MAX_PROBLEMS_SHOWN]
        )
        more = len(problems) - MAX_PROBLEMS_SHOWN
        tail = f"; and {more} more" if more > 0 else ""
        absent = not all(dataset.video_path(episode).is_file() for episode in episodes)
        hint = "; --available plays what is there" if absent else ""
        raise UsageError(f"{shown}{tail} (`streamsim check` lists all{hint})")
    return findings


def check_prompts(path: Path | None, episodes: Sequence[Episode]) -> None:
    """Render every text that will be needed once, so that none fails in the middle of a session."""
    prompts = load_prompts(path)
    for kind in {query.kind for episode in episodes for query in episode.queries}:
        for probe in ("task", "status", "cause"):
            prompts.render(
                probe, kind=kind, stem="", options=("",) if probe == "task" else (), frame_stamps=(0,)
            )


def check_port(host: str, port: int) -> None:
    """Refuse a host or port on which the server could not listen; what happens later it tells itself."""
    try:
        places = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in places:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
                probe.listen(1)
    except OSError as error:
        raise UsageError(describe_listen_error(host, port, error)) from None


def check_agent(name: str, pairs: Sequence[str], python: str | None) -> AgentSpec:
    """Ask the agent's interpreter whether it knows the agent and takes the arguments (``key=value``)."""
    arguments = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"--agent-arg: expected KEY=VALUE, got {pair!r}")
        arguments[key] = value
    options = [part for pair in pairs for part in ("--agent-arg", pair)]
    try:
        ask_registry(python, ["--check", name, *options])
    except RegistryEnded as error:
        raise UsageError(
            f"agent {name!r} cannot be loaded by {python or sys.executable!r}: {error}"
        ) from None
    return AgentSpec(name=name, arguments=arguments, python=absolute_interpreter(python))


def absolute_interpreter(python: str | None) -> str | None:
    """A path as it is from every folder; a name that is looked up in PATH, and None, stay as they are.

    Links are not followed: by its link an interpreter knows its environment.
    """
    return os.path.abspath(python) if python is not None and os.sep in python else python  # noqa: PTH100


def make_config(
    options: RunOptions, dataset: Dataset, chosen: Sequence[int], *, partial: bool, agent: AgentSpec | None
) -> RunConfig:
    """The part of the options that fixes the figures."""
    prompts = load_prompts(options.prompts)
    if options.reader not in READERS:
        raise UsageError(f"--reader: expected {' or '.join(READERS)}, got {options.reader!r}")
    config = {
        "dataset": str(dataset.public.absolute()),
        "dataset_digest": dataset.digest,
        "episodes": [dataset.episodes[index].id for index in chosen],
        "partial": partial,
        "agent": agent,
        "clock": options.clock,
        "rate": options.rate if options.clock == "scaled" else 1.0,
        "history": options.history,
        "chain": options.chain or dataset.info.chain,
        "frames": options.frames,
        "fps": options.fps,
        "pixel_budget": options.pixel_budget,
        "encoding": options.encoding,
        "quality": options.quality,
        "sampling": options.sampling,
        "seed": options.seed,
        "repeat": options.repeat,
        "prompts": None if options.prompts is None else str(options.prompts.absolute()),
        "prompts_digest": prompts.digest,
        "reader": options.reader,
        "credit": options.credit,
        "credit_timeout_s": options.credit_timeout_s,
        "ready_timeout_s": options.ready_timeout_s,
        "answer_timeout_s": options.answer_timeout,
        "hang_timeout_s": options.hang_timeout_s,
        "drain_timeout_s": options.drain_timeout_s,
    }
    return msgspec.convert(msgspec.to_builtins(config), RunConfig)


def default_folder(agent: str | None) -> Path:
    """``runs/YYYYMMDD-HHMMSS-AGENT``, with ``-2`` and so on when it is taken."""
    stamp = datetime.datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", agent or "serve").strip("-.") or "agent"
    folder = Path("runs") / f"{stamp}-{name}"
    number = 2
    while folder.exists():
        folder = Path("runs") / f"{stamp}-{name}-{number}"
        number += 1
    return folder


def make_run_file(config: RunConfig, dataset: Dataset, episodes: Sequence[Episode]) -> RunFile:
    """``run.json`` of a run that starts now."""
    return RunFile(
        run=secrets.token_hex(8),
        started_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        streamsim=__version__,
        host={
            "name": platform.node(),
            "platform": platform.platform(),
            "python": platform.python_version(),
            "processors": str(os.cpu_count()),
            **encoder_versions(),
        },
        queries={episode.id: len(episode.queries) for episode in episodes},
        key_digest=key_digest(Path(config.dataset)),
        videos=dataset.video_sizes(episodes),
        config=config,
    )

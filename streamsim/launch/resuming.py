"""Going on with a run that was broken off: as it was planned, and only what is not complete."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamsim.episodes.dataset import Dataset
from streamsim.errors import RunError
from streamsim.journal.folder import (
    SUBFOLDERS,
    RunConfig,
    RunFile,
    changed_videos,
    config_difference,
    next_attempt,
    read_run_file,
    read_sessions,
)
from streamsim.journal.read import JournalFile
from streamsim.launch.options import RunOptions
from streamsim.server.plan import Job
from streamsim.writing import cannot_write


def recorded_options(folder: Path) -> RunOptions:
    """The options under which the run in ``folder`` was started; ``RunError`` if there is none.

    What leaves the figures alone, such as the number of sessions, is not recorded and as by default.
    """
    config = read_run_file(folder).config
    agent = config.agent
    return RunOptions(
        dataset=Path(config.dataset),
        agent=None if agent is None else agent.name,
        agent_arguments=()
        if agent is None
        else tuple(f"{key}={value}" for key, value in agent.arguments.items()),
        agent_python=None if agent is None else agent.python,
        out=folder,
        resume=True,
        clock=config.clock,
        rate=config.rate,
        repeat=config.repeat,
        episodes=config.episodes,
        history=config.history,
        chain=config.chain,
        frames=config.frames,
        fps=config.fps,
        pixel_budget=config.pixel_budget,
        encoding=config.encoding,
        quality=config.quality,
        sampling=config.sampling,
        seed=config.seed,
        prompts=None if config.prompts is None else Path(config.prompts),
        reader=config.reader,
        credit=config.credit,
        credit_timeout_s=config.credit_timeout_s,
        ready_timeout_s=config.ready_timeout_s,
        answer_timeout_s=config.answer_timeout_s,
        hang_timeout_s=config.hang_timeout_s,
        drain_timeout_s=config.drain_timeout_s,
    )


def reopen(folder: Path, config: RunConfig, dataset: Dataset) -> tuple[RunFile, list[JournalFile]]:
    """The run to go on with, and the attempts of its sessions that count.

    ``RunError`` if it has another configuration, other videos, or a journal that is not its own.
    """
    run_file = read_run_file(folder)
    difference = config_difference(run_file.config, config)
    if difference:
        raise RunError(
            f"cannot resume {str(folder)!r} under another configuration: {'; '.join(difference)} "
            "(leave these options out: --resume takes them from the run)"
        )
    planned = [episode for episode in dataset.episodes if episode.id in config.episodes]
    changed = changed_videos(run_file, dataset.video_sizes(planned))
    if changed:
        raise RunError(
            f"cannot resume {str(folder)!r} with other videos: {'; '.join(changed)} "
            "(put the videos back that the run began with, or start a new run)"
        )
    return run_file, read_sessions(folder, run_file)


def restore_folders(folder: Path) -> None:
    """Make what a run folder lacks: tools that copy folders leave empty ones out, and logs are deleted."""
    for name in SUBFOLDERS:
        try:
            (folder / name).mkdir(exist_ok=True)
        except OSError as error:
            raise RunError(cannot_write(folder / name, error)) from error


def remaining_jobs(
    folder: Path, sessions: Sequence[JournalFile], dataset: Dataset, chosen: Sequence[int], repeats: int
) -> tuple[tuple[Job, ...], int]:
    """The sessions that are not complete, each as a new attempt, and how many are.

    ``sessions`` are the attempts that count so far.
    """
    done = {(journal.started.episode, journal.started.repeat) for journal in sessions if journal.complete}
    jobs: list[Job] = []
    complete = 0
    for repeat in range(1, repeats + 1):
        for index in chosen:
            episode = dataset.episodes[index].id
            if (episode, repeat) in done:
                complete += 1
            else:
                attempt = next_attempt(folder, episode, repeat)
                jobs.append(Job(episode=index, repeat=repeat, attempt=attempt))
    return tuple(jobs), complete

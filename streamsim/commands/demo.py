"""``streamsim demo``: the whole of it in two minutes, without a model."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from streamsim.errors import DatasetError

if TYPE_CHECKING:
    from rich.console import Console

HELP = "see the whole of it in two minutes: render episodes, play them live, compare three agents"
EPILOG = """example:
  streamsim demo
  streamsim demo --seed 5 --out /tmp/demo"""

EPISODES = 4
AGENTS = ("sightings", "random", "abstain")
LIVE_AGENT = "sightings"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where to, and which episodes."""
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: runs/demo-YYYYMMDD-HHMMSS")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the rendered episodes (1)")
    parser.add_argument("--seconds", type=int, default=60, metavar="S", help="length of an episode (60)")


def execute(args: argparse.Namespace) -> int:
    """Render, play one episode in realtime, play all in lockstep with three agents, compare."""
    from rich.console import Console

    from streamsim.episodes.make.produce import Recipe, make_dataset, require_legal
    from streamsim.launch.options import RunOptions
    from streamsim.report.latency_table import print_latency
    from streamsim.report.run_summary import summarise_run
    from streamsim.writing import cannot_write

    recipe = Recipe(count=EPISODES, seed=args.seed, seconds=args.seconds)
    require_legal(recipe)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    folder = args.out or Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S")
    began = time.monotonic()
    dataset = folder / "dataset"
    console.print(f"1. rendering {EPISODES} episodes of {args.seconds} s into {dataset}")
    try:
        annotations = make_dataset(recipe, dataset, processes=os.cpu_count() or 1)
    except OSError as error:
        raise DatasetError(cannot_write(dataset, error)) from error
    console.print(
        f"   {sum(len(episode.queries) for episode in annotations.episodes)} questions, truth known"
    )

    first = annotations.episodes[0].id
    console.print(f"2. live: {LIVE_AGENT!r} watches {first} at 1 FPS on a wall clock and is asked as it goes")
    live = folder / "live"
    code = _play(RunOptions(dataset=dataset, agent=LIVE_AGENT, out=live, episodes=(first,)))
    print_latency(summarise_run(live).latency, console)

    console.print(f"3. all episodes in lockstep, where time waits for the agent: {', '.join(AGENTS)}")
    scores = {}
    for agent in AGENTS:
        out = folder / agent
        options = RunOptions(
            dataset=dataset, agent=agent, out=out, clock="lockstep", sessions=os.cpu_count() or 1
        )
        code = max(code, _play(options, quiet=True))
        scores[agent] = _score(out)
    _print_comparison(scores, console)
    console.print(
        f"done in {time.monotonic() - began:.0f} s; the journals of all sessions: {folder}/*/sessions"
    )
    console.print(f"next: streamsim run {quote(str(dataset))} --agent random --clock realtime", markup=False)
    console.print("      agents/README.md: write your own agent in 20 lines")
    return code


def _play(options: Any, *, quiet: bool = False) -> int:
    from streamsim.launch.planning import plan_run
    from streamsim.launch.running import play
    from streamsim.report.run_report import run_exit_code
    from streamsim.report.run_summary import summarise_run

    planned = plan_run(options)
    end = play(planned, quiet=quiet)
    if end.signal is not None:
        raise KeyboardInterrupt
    return run_exit_code(summarise_run(planned.folder))


def _score(folder: Path) -> dict[str, Any]:
    from streamsim.report.run_scores import score_run, write_scores

    scores = score_run(folder)
    write_scores(folder, scores)
    return scores


def _print_comparison(scores: dict[str, dict[str, Any]], console: Console) -> None:
    from rich.table import Table

    table = Table(title="STORM-Bench's figures, %", title_justify="left")
    table.add_column("agent")
    for name in ("accuracy", "Storm-BR", "95 % interval", "unsmoothed", "overconfident", "underconfident"):
        table.add_column(name, justify="right", no_wrap=True)
    for agent, figures in scores.items():
        low, high = figures["storm_br_ci95"]
        table.add_row(
            agent,
            _percent(figures["task_accuracy"]),
            _percent(figures["storm_br"]),
            f"{_percent(low)} – {_percent(high)}",
            _percent(figures["storm_br_unsmoothed"]),
            _percent(figures["overconfidence"]),
            _percent(figures["underconfidence"]),
        )
    console.print(table)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"

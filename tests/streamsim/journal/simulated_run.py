"""Run folders written from simulated sessions, and journals rewritten with a whole chain."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamsim.journal.folder import RunConfig, RunFile, journal_path, write_run_file
from streamsim.journal.write import FIRST_DIGEST, encode_line, line_digest
from streamsim.session import SessionConfig
from streamsim.simulation import Simulation

Lines = list[dict[str, Any]]
Edit = Callable[[Lines], None]


def make_run_file(config: SessionConfig, queries: int) -> RunFile:
    """The ``run.json`` that goes with a simulated session."""
    return RunFile(
        run=config.run,
        started_at="2026-08-17T12:00:00+00:00",
        streamsim="0.1.0",
        host={},
        queries={config.episode: queries},
        config=RunConfig(
            dataset="nowhere",
            dataset_digest="",
            episodes=(config.episode,),
            partial=False,
            agent=None,
            clock=config.clock,
            rate=config.rate,
            history=config.history,
            chain=config.chain,
            frames=config.frames,
            fps=config.fps,
            pixel_budget=3072,
            encoding=config.encoding,
            quality=90,
            sampling="presentation",
            seed=config.seed,
            repeat=1,
            prompts=None,
            prompts_digest="",
            reader="strict",
            credit=config.credit,
            credit_timeout_s=config.credit_timeout_ns / 1e9,
            ready_timeout_s=900.0,
            answer_timeout_s=config.answer_timeout_ns / 1e9,
            hang_timeout_s=config.hang_timeout_ns / 1e9,
            drain_timeout_s=config.drain_timeout_ns / 1e9,
        ),
    )


def write_run(folder: Path, simulation: Simulation, queries: int) -> Path:
    """Write what a simulation recorded as a run of one session; returns the journal's path."""
    write_run_file(folder, make_run_file(simulation.session.config, queries))
    return write_journal(folder, simulation)


def write_journal(folder: Path, simulation: Simulation) -> Path:
    """Write what a simulation recorded as one more journal of a run; returns its path."""
    config = simulation.session.config
    path = journal_path(folder, config.episode, config.repeat, config.attempt)
    digest = FIRST_DIGEST
    with path.open("wb") as file:
        for n, (at, event) in enumerate(simulation.events, 1):
            line, digest = encode_line(n, at, event, digest)
            file.write(line)
    return path


def rewrite_journal(path: Path, edit: Edit) -> None:
    """Let ``edit`` change the lines, then number and chain them anew, as a careful forger would."""
    lines: Lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    edit(lines)
    digest = FIRST_DIGEST
    with path.open("wb") as file:
        for n, line in enumerate(lines, 1):
            fields = {**line, "n": n}
            fields.pop("digest")
            body = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
            digest = line_digest(digest, body)
            file.write(body[:-1] + b',"digest":"%s"}\n' % digest.encode())

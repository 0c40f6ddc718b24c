"""``streamsim rescore``: the latency that a run would have had on another machine or under another policy."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from rich.console import Console

from streamsim.errors import RunError, UsageError
from streamsim.events import ChainClosed, FrameSettled
from streamsim.journal.folder import altered_journals, read_run_file, read_sessions
from streamsim.plural import counted
from streamsim.prompts import load_prompts
from streamsim.report.console import say
from streamsim.report.latency_table import print_latency
from streamsim.scoring.latency import DEADLINES_S, latency_figures, withhold_latency
from streamsim.scoring.record import SessionRecord, read_record
from streamsim.scoring.rescore import (
    Change,
    Rescored,
    ServiceProfile,
    make_pool,
    read_recorded,
    rescore_session,
)
from streamsim.text import read_text
from streamsim.writing import describe
from streamsim_protocol.messages import Outcome, Probe

PROFILE_KEYS = ("frame_s", "task_s", "status_s", "cause_s")
MAX_SERVICE_S = 1_000_000
"""Eleven days: no service time that means anything is longer."""


def rescore_run(
    folder: Path, change: Change, *, deadlines_s: Sequence[float] = DEADLINES_S
) -> dict[str, object]:
    """The figures of a run in simulated time, beside those that were recorded.

    ``RunError`` if no session of it ran to its end. Keys: ``run``, ``change``, ``sessions``,
    ``left_out``, ``outcomes``, ``frames``, ``latency``, ``recorded`` (its own latency, or why it is
    withheld), ``drawn`` {frames, probes}, ``censored``, ``altered``
    (``FILE:LINE`` where a journal's chain is broken), ``notices``, those about altered files first.
    """
    run_file = read_run_file(folder)
    journals = read_sessions(folder, run_file)
    found = [read_recorded(journal.events()) for journal in journals]
    recorded = [session for session in found if session is not None]
    altered = altered_journals(folder, journals)
    if not recorded and altered:
        raise RunError(
            f"no session of {str(folder)!r} that could be played again: {next(iter(altered.values()))}"
        )
    if not recorded:
        raise RunError(f"no session of {str(folder)!r} ran to its end: complete it with `run --resume` first")
    pool = make_pool(recorded)
    prompts = load_prompts()
    credit_timeout_ns = round(run_file.config.credit_timeout_s * 1e9)
    rescored = [
        rescore_session(session, pool, change, prompts, credit_timeout_ns=credit_timeout_ns)
        for session in recorded
    ]
    records = [read_record(session.events) for session in rescored]
    own = [read_record(journal.events()) for journal in journals if journal.complete]
    lanes = max(session.started.lanes for session in recorded)
    withheld = withhold_latency(run_file.config.clock, lanes)
    return {
        "run": run_file.run,
        "change": {
            "compute_factor": str(change.factor),
            "deadline_s": None if change.deadline_ns is None else change.deadline_ns / 1e9,
            "frames": change.frames,
            "service_profile": None if change.profile is None else change.profile.name,
        },
        "sessions": len(recorded),
        "left_out": len(journals) - len(recorded),
        "outcomes": _outcomes(rescored),
        "frames": _frames(rescored),
        "latency": latency_figures(_present(records), deadlines_s=deadlines_s),
        "recorded": {"withheld": withheld}
        if withheld
        else latency_figures(_present(own), deadlines_s=deadlines_s),
        "drawn": {
            "frames": sum(session.drawn_frames for session in rescored),
            "probes": sum(session.drawn_probes for session in rescored),
        },
        "censored": sum(session.censored for session in rescored),
        "altered": list(altered),
        "notices": [
            *altered.values(),
            *(journal.fault_notice for journal in journals if journal.fault_notice and not journal.altered),
            *_notices(rescored, len(journals) - len(recorded), lanes),
        ],
    }


def read_profile(path: Path) -> ServiceProfile:
    """A service profile: TOML with ``name``, ``frame_s``, ``task_s``, ``status_s``, ``cause_s`` (seconds)."""
    try:
        table = tomllib.loads(read_text(path))
    except OSError as error:
        raise UsageError(f"cannot read service profile {str(path)!r}: {describe(error)}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"service profile {str(path)!r}: {error}") from error
    times: dict[str, int] = {}
    for key in PROFILE_KEYS:
        value = table.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_SERVICE_S:
            raise UsageError(
                f"service profile {str(path)!r}: {key}: expected seconds from 0 to {MAX_SERVICE_S:,}, "
                f"got {value!r}"
            )
        times[key] = round(value * 1e9)
    unknown = sorted(set(table) - {*PROFILE_KEYS, "name"})
    if unknown:
        raise UsageError(
            f"service profile {str(path)!r}: unknown key {unknown[0]!r}: "
            f"expected name, {', '.join(PROFILE_KEYS)}"
        )
    probes: tuple[Probe, ...] = get_args(Probe)
    return ServiceProfile(
        name=str(table.get("name", path.stem)),
        frame_ns=times["frame_s"],
        answer_ns={probe: times[f"{probe}_s"] for probe in probes},
    )


def print_rescored(figures: dict[str, Any], console: Console) -> None:
    """The figures for people: those that were recorded, and beside them what they would be."""
    altered = len(figures["altered"])
    for notice in figures["notices"][:altered]:
        say(console, f"notice: {notice}")
    change = ", ".join(f"{name} {value}" for name, value in figures["change"].items() if value is not None)
    say(console, f"{counted(figures['sessions'], 'session')} played again in simulated time: {change}")
    for name in ("outcomes", "frames"):
        counts = ", ".join(f"{key} {count}" for key, count in figures[name].items() if count)
        say(console, f"{name}: {counts}")
    print_latency(figures["latency"], console, recorded=figures["recorded"])
    for notice in figures["notices"][altered:]:
        say(console, f"notice: {notice}")


def _present(records: Sequence[SessionRecord | None]) -> list[SessionRecord]:
    return [record for record in records if record is not None]


def _outcomes(rescored: Sequence[Rescored]) -> dict[str, int]:
    outcomes: Counter[str] = Counter(dict.fromkeys(get_args(Outcome), 0))
    for session in rescored:
        outcomes.update(event.outcome for _, event in session.events if isinstance(event, ChainClosed))
    return dict(outcomes)


def _frames(rescored: Sequence[Rescored]) -> dict[str, int]:
    frames: Counter[str] = Counter(processed=0, skipped=0, failed=0)
    for session in rescored:
        frames.update(event.outcome for _, event in session.events if isinstance(event, FrameSettled))
    return dict(frames)


def _notices(rescored: Sequence[Rescored], left_out: int, lanes: int) -> list[str]:
    frames = sum(session.drawn_frames for session in rescored)
    probes = sum(session.drawn_probes for session in rescored)
    censored = sum(session.censored for session in rescored)
    texts = {
        f"{counted(left_out, 'session')} did not run to {_their(left_out)} end: left out": left_out,
        f"{counted(frames, 'frame')} had no recorded service time: drawn from this run's": frames,
        f"{counted(probes, 'probe')} had no recorded service time: drawn from this run's": probes,
        f"{counted(censored, 'turn')} cut off when recorded: a lower bound stands for the time": censored,
        f"recorded with {lanes} concurrent sessions: their service times include each other": lanes > 1,
    }
    return [text for text, count in texts.items() if count]


def _their(count: int) -> str:
    return "its" if count == 1 else "their"

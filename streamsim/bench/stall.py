"""``bench.py stall``: one agent stands still; do the others notice, and does its own latency tell?"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import signal
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

import numpy as np

from streamsim.bench.footage import NOISE_OF_40_KB, PICTURE_SIZE, make_footage
from streamsim.bench.light import LIGHT, LightClients
from streamsim.bench.live import frame_lateness_ns, read_journals
from streamsim.bench.report import Report
from streamsim.bench.serving import serve, start_agent
from streamsim.events import AgentReady, ProbeSent, TurnEnded
from streamsim.journal.read import JournalFile

Kind = Literal["blocked", "stopped"]
KINDS: tuple[Kind, ...] = ("blocked", "stopped")
SLACK_S = 0.2
"""The stall begins so much before its half and ends so much after it: sessions are not quite in phase."""
TOLERANCE_S = 0.1
ASKED_S = (0.5, 4.0)
"""Into each half: one query goes out before credit is exhausted, one falls due after."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How many light sessions, how often, for how long."""
    parser.add_argument("--sessions", type=int, default=20, help="light ones (20)")
    parser.add_argument("--fps", type=float, default=10.0, help="of all sessions (10)")
    parser.add_argument("--stall", type=float, default=5.0, help="seconds, and of each half (5)")
    parser.add_argument("--rounds", type=int, default=5, help="of each kind of stall (5)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="of stall (both)")
    parser.add_argument(
        "--lead", type=float, default=2.0, help="seconds before the first half, twice those between them (2)"
    )
    parser.add_argument("--target", type=float, default=2.0, help="largest ratio of p99 (2)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Half:
    """Release lateness of the light sessions in one half, milliseconds."""

    n: int
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wait:
    """One query to the stalled agent that fell due in the stall; seconds."""

    left_s: float
    from_due_s: float
    from_sent_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    quiet: _Half
    stalled: _Half
    waits: tuple[_Wait, ...]

    @property
    def ratio(self) -> float:
        """p99 with the stall to p99 without."""
        return self.stalled.p99_ms / self.quiet.p99_ms


def measure(args: argparse.Namespace) -> Report:
    """Light sessions beside one stalled agent: release lateness with and without the stall, in one run.

    The light sessions share one process; the stalled agent is a real one. It stands still in
    ``observe`` (blocked: its socket is still read) or is stopped by SIGSTOP (stopped: nothing is read,
    credit runs out). The stall is in the first and in the second half by turns.
    """
    with tempfile.TemporaryDirectory(prefix="streamsim-bench-") as name:
        folder = Path(name)
        # in the lead the decoder, which all share, gets done; in the gap a stalled agent catches up
        gap_s = args.lead / 2
        starts = (args.lead, args.lead + args.stall + gap_s)
        dataset = make_footage(
            folder / "dataset",
            seconds=math.ceil(starts[1] + args.stall + gap_s),
            query_seconds=[start + asked for start in starts for asked in ASKED_S if asked < args.stall],
            episodes=args.sessions + 1,
            size=PICTURE_SIZE,
            noise=NOISE_OF_40_KB,
        )
        parts = []
        for kind in args.kinds:
            rounds = []
            for number in range(args.rounds):
                out = folder / f"{kind}-{number}"
                asyncio.run(_play(dataset, out, kind, starts[number % 2], args))
                rounds.append(_read_round(out, starts, number % 2, args.stall))
            parts.append(_report(kind, rounds, args))
    return Report(
        met=all(part.met for part in parts),
        lines=[line for part in parts for line in part.lines],
        figures={key: value for part in parts for key, value in part.figures.items()},
    )


async def _play(dataset: Path, out: Path, kind: Kind, start_s: float, args: argparse.Namespace) -> None:
    """One round: all sessions begin together, the last lane's agent stalls from ``start_s`` on."""
    begin_s, stall_s = start_s - SLACK_S, args.stall + 2 * SLACK_S
    async with serve(dataset, out, sessions=args.sessions + 1, clock="realtime", fps=args.fps) as server:
        *light, last = server.urls
        with LightClients(light) as clients:
            await asyncio.to_thread(clients.wait_until_greeted)
            if kind == "blocked":
                agent = start_agent(
                    last, "streamsim_agents.workload:Blocked", f"at={begin_s}", f"seconds={stall_s}"
                )
            else:
                agent = start_agent(last, "null")
            try:
                await server.wait_until_ready(args.sessions + 1)
                clients.begin()
                if kind == "stopped":
                    await asyncio.sleep(begin_s)
                    os.kill(agent.pid, signal.SIGSTOP)
                    await asyncio.sleep(stall_s)
                    os.kill(agent.pid, signal.SIGCONT)
                await asyncio.to_thread(clients.finish)
                await server.wait()
            finally:
                agent.kill()
                agent.wait()


def _read_round(out: Path, starts: Sequence[float], stalled: int, length_s: float) -> _Round:
    """``stalled`` is the half, 0 or 1, in which the stall was."""
    journals = read_journals(out)
    light = [journal for journal in journals if _agent(journal) == LIGHT]
    (last,) = (journal for journal in journals if _agent(journal) != LIGHT)
    halves = []
    for start in starts:
        lates = [
            late / 1e6
            for journal in light
            for media_ns, late in frame_lateness_ns(journal)
            if start * 1e9 <= media_ns < (start + length_s) * 1e9
        ]
        p50, p99 = np.percentile(np.array(lates), [50, 99])
        halves.append(_Half(n=len(lates), p50_ms=float(p50), p99_ms=float(p99)))
    end_s = starts[stalled] + length_s + SLACK_S
    waits = _waits(last, starts[stalled], end_s)
    return _Round(quiet=halves[1 - stalled], stalled=halves[stalled], waits=waits)


def _agent(journal: JournalFile) -> str:
    return next(entry.event.agent for entry in journal.entries if isinstance(entry.event, AgentReady))


def _waits(journal: JournalFile, begin_s: float, end_s: float) -> tuple[_Wait, ...]:
    """Task probes that fell due between ``begin_s`` and ``end_s`` of media time, when the stall ended."""
    sent: dict[int, tuple[int, int, int]] = {}
    waits = []
    for entry in journal.entries:
        event = entry.event
        if isinstance(event, ProbeSent) and event.probe == "task" and event.due_wall_ns is not None:
            if begin_s * 1e9 <= event.due_media_ns < end_s * 1e9:
                sent[event.turn] = event.due_media_ns, event.due_wall_ns, entry.at.wall_ns
        elif isinstance(event, TurnEnded) and event.turn in sent:
            due_media_ns, due_wall_ns, sent_wall_ns = sent[event.turn]
            waits.append(
                _Wait(
                    left_s=end_s - due_media_ns / 1e9,
                    from_due_s=(entry.at.wall_ns - due_wall_ns) / 1e9,
                    from_sent_s=(entry.at.wall_ns - sent_wall_ns) / 1e9,
                )
            )
    return tuple(waits)


def _report(kind: Kind, rounds: Sequence[_Round], args: argparse.Namespace) -> Report:
    ratio = median(found.ratio for found in rounds)
    waits = [wait for found in rounds for wait in found.waits]
    # what is left of the stall when a query falls due is the least that its latency can be
    told = bool(waits) and all(wait.from_due_s >= wait.left_s - TOLERANCE_S for wait in waits)
    each = ", ".join(f"{found.quiet.p99_ms:.1f} -> {found.stalled.p99_ms:.1f}" for found in rounds)
    asked = [
        f"due {rank[0].left_s:.1f} s before its end: from due {median(w.from_due_s for w in rank):.2f} s, "
        f"from sent {median(w.from_sent_s for w in rank):.2f} s"
        for rank in zip(*(found.waits for found in rounds), strict=True)
    ]
    return Report(
        met=ratio <= args.target and told,
        lines=[
            f"{kind}: {args.sessions} light sessions at {args.fps:g} FPS beside one agent that is {kind} for "
            f"{args.stall:g} s, n = {rounds[0].stalled.n} releases a half",
            f"  lateness p99, without -> with the stall, ms: {each}",
            f"  ratio, median of {len(rounds)}: {ratio:.2f} (target at most {args.target:g}); p50 "
            f"{median(found.quiet.p50_ms for found in rounds):.2f} -> "
            f"{median(found.stalled.p50_ms for found in rounds):.2f} ms",
            *(f"  the stalled agent's query {text}" for text in asked),
        ],
        figures={
            kind: {
                "ratio": ratio,
                "stall_told_from_due": told,
                "n": rounds[0].stalled.n,
                "quiet_p50_ms": [found.quiet.p50_ms for found in rounds],
                "quiet_p99_ms": [found.quiet.p99_ms for found in rounds],
                "stalled_p50_ms": [found.stalled.p50_ms for found in rounds],
                "stalled_p99_ms": [found.stalled.p99_ms for found in rounds],
                "waits_from_due_s": [wait.from_due_s for wait in waits],
                "waits_from_sent_s": [wait.from_sent_s for wait in waits],
                "left_s": [wait.left_s for wait in waits],
            }
        },
    )

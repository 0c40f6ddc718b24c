"""Events of sessions that never were, as a journal holds them: who was asked what, and said what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamsim.events import (
    AnyEvent,
    ChainClosed,
    ProbeRead,
    ProbeSent,
    QueryPlan,
    SessionStarted,
    TextReceived,
)
from streamsim.scoring.latency import PROBES
from streamsim.testing import tiny_config
from streamsim_protocol.messages import Outcome


def started(ids: Sequence[str], *, options: int = 4, **config: Any) -> SessionStarted:
    """A session in lockstep with choice queries q1, q2, … of these ids, one a second from 1 s."""
    plans = tuple(
        QueryPlan(
            query=f"q{n}",
            id=id,
            kind="choice",
            media_ns=n * 10**9,
            due_media_ns=n * 10**9,
            option_count=options,
        )
        for n, id in enumerate(ids, 1)
    )
    return tiny_config(**{"clock": "lockstep", **config}).to_event(plans)


def chain(query: str, *steps: tuple[str, str], outcome: Outcome | None = "answered") -> list[AnyEvent]:
    """One step per probe: what was said (in two pieces), and the letters that were read from it.

    Turns of qN are 10 N + 1, 2, 3. With ``outcome`` None the chain stays open.
    """
    events: list[AnyEvent] = []
    for place, (probe, (text, letters)) in enumerate(zip(PROBES, steps, strict=False), 1):
        turn, middle = 10 * int(query[1:]) + place, len(text) // 2
        events += [
            ProbeSent(
                query=query,
                probe=probe,
                turn=turn,
                media_ns=0,
                due_media_ns=0,
                due_wall_ns=0,
                text="",
                seq=turn,
            ),
            TextReceived(turn=turn, text=text[:middle]),
            TextReceived(turn=turn, text=text[middle:]),
            ProbeRead(query=query, probe=probe, turn=turn, letters=letters, valid=bool(letters)),
        ]
    if outcome is not None:
        events.append(ChainClosed(query=query, outcome=outcome))
    return events

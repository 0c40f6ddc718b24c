"""A session's events turned into predictions.

Letters come from the journal's ``ProbeRead`` events, or from the raw text read anew by another
reader. A query counts only if its outcome is ``answered``; which queries a run planned, and which
attempt of a session counts, is for the caller to say. This module knows no files and no answer key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from streamsim.episodes.episode import Chain, Status
from streamsim.events import (
    ChainClosed,
    Event,
    Instant,
    ProbeRead,
    ProbeSent,
    QueryPlan,
    SessionEnded,
    SessionStarted,
    TextReceived,
)
from streamsim.reading import CAUSE_COUNT, STATUS_COUNT, Reader, status_of
from streamsim.scoring.answers import LETTERS, Prediction, causes_of
from streamsim_protocol.messages import Outcome, Probe


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadText:
    """What was said to a probe of a choice query (``id`` of the dataset), where no letter could be read.

    ``option_count`` is 0 where neither the journal nor the caller says it.
    """

    id: str
    probe: Probe
    text: str
    option_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAnswers:
    """What one session gives to scoring: a prediction for every query that it planned, in plan order.

    ``completed`` is True when the journal ends with ``SessionEnded(completed)``. ``read`` counts the
    texts that were to be read, per kind of probe, and ``unread`` are those of them without a letter;
    both of choice queries only.
    """

    episode: str
    subset: str
    repeat: int
    attempt: int
    chain: Chain
    completed: bool
    predictions: tuple[Prediction, ...]
    outcomes: tuple[Outcome | None, ...]
    read: Mapping[Probe, int]
    unread: tuple[UnreadText, ...]


@dataclass(slots=True)
class _Heard:
    """What the journal says about the probes of all queries."""

    reads: dict[tuple[str, Probe], ProbeRead] = field(default_factory=dict)
    turns: dict[tuple[str, Probe], int] = field(default_factory=dict)
    texts: dict[int, list[str]] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def text(self, query: str, probe: Probe) -> str | None:
        """The raw text of a probe that was read; None if it was not."""
        if (query, probe) not in self.reads:
            return None
        return "".join(self.texts.get(self.turns[query, probe], ()))


def read_session(
    entries: Iterable[tuple[Instant, Event]],
    *,
    reader: Reader | None = None,
    option_counts: Mapping[str, int] | None = None,
) -> SessionAnswers | None:
    """Predictions of one session; None if its journal holds no ``SessionStarted``.

    With ``reader``, the raw texts are read anew; ``option_counts`` then says by query id (of the
    dataset) how many options each choice query has. A cause that was never asked stays empty.
    """
    start: SessionStarted | None = None
    completed = False
    heard = _Heard()
    for _, event in entries:
        match event:
            case SessionStarted():
                start = event
            case ProbeSent():
                heard.turns[event.query, event.probe] = event.turn
            case TextReceived():
                heard.texts.setdefault(event.turn, []).append(event.text)
            case ProbeRead():
                heard.reads[event.query, event.probe] = event
            case ChainClosed():
                heard.outcomes[event.query] = event.outcome
            case SessionEnded():
                completed = event.reason == "completed"
            case _:
                pass
    if start is None:
        return None
    counts = {plan.id: plan.option_count for plan in start.queries} | dict(option_counts or {})
    if reader is None:
        predictions = tuple(_recorded(plan, heard) for plan in start.queries)
    else:
        predictions = tuple(_reread(plan, heard, reader, counts[plan.id]) for plan in start.queries)
    validity = [
        (plan, probe, valid)
        for plan, prediction in zip(start.queries, predictions, strict=True)
        if plan.kind == "choice"
        for probe, valid in _validity(prediction)
    ]
    return SessionAnswers(
        episode=start.episode,
        subset=start.subset,
        repeat=start.repeat,
        attempt=start.attempt,
        chain=start.chain,
        completed=completed,
        predictions=predictions,
        outcomes=tuple(heard.outcomes.get(plan.query) for plan in start.queries),
        read=Counter(probe for _, probe, _ in validity),
        unread=tuple(
            UnreadText(
                id=plan.id,
                probe=probe,
                text=heard.text(plan.query, probe) or "",
                option_count=counts[plan.id],
            )
            for plan, probe, valid in validity
            if not valid
        ),
    )


def _recorded(plan: QueryPlan, heard: _Heard) -> Prediction:
    def letters(probe: Probe) -> str | None:
        read = heard.reads.get((plan.query, probe))
        return None if read is None else read.letters if read.valid else ""

    return _prediction(plan, heard, letters("task"), letters("status"), letters("cause"))


def _reread(plan: QueryPlan, heard: _Heard, reader: Reader, options: int) -> Prediction:
    task, status, cause = (heard.text(plan.query, probe) for probe in ("task", "status", "cause"))
    return _prediction(
        plan,
        heard,
        None if task is None else reader.choice(task, options) if plan.kind == "choice" else "",
        None if status is None else reader.choice(status, STATUS_COUNT),
        None if cause is None else reader.causes(cause, CAUSE_COUNT),
    )


def _validity(prediction: Prediction) -> Iterator[tuple[Probe, bool]]:
    """The probes whose texts were to be read, and whether they could be."""
    found: dict[Probe, bool | None] = {
        "task": prediction.task_valid,
        "status": prediction.status_valid,
        "cause": prediction.cause_valid,
    }
    yield from ((probe, valid) for probe, valid in found.items() if valid is not None)


def _prediction(
    plan: QueryPlan, heard: _Heard, task: str | None, status: str | None, cause: str | None
) -> Prediction:
    """From letters per probe: None was not read, "" is invalid."""
    said: Status | None = status_of(status) if status else None
    return Prediction(
        id=plan.id,
        answer_index=LETTERS.index(task) if task else None,
        status=said,
        causes=causes_of(cause or ""),
        answered=heard.outcomes.get(plan.query) == "answered",
        task_valid=None if task is None else bool(task),
        status_valid=None if status is None else bool(status),
        cause_valid=None if cause is None else bool(cause),
    )

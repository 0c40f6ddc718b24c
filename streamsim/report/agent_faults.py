"""What an agent did wrong in a run, each kind in one line: raised, said too much, failed without a word.

How a session ended is told elsewhere; here is why a frame or a query failed in one that went on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from streamsim.chain import MAX_TURN_CHARS
from streamsim.events import AgentFailed, AnyEvent, FrameSettled, ProbeSent, TurnClosed, TurnEnded
from streamsim.journal.read import JournalFile
from streamsim.plural import counted
from streamsim.raised import describe_raised

MAX_NAMED = 8


class AgentFaults:
    """Takes the events of a run's journals, one journal after the other."""

    def __init__(self, repeats: int) -> None:
        self._repeats = repeats
        self._queries: dict[int, str] = {}
        self._raised: Counter[tuple[str, str]] = Counter()
        self._first: dict[tuple[str, str], str] = {}
        self._too_long: list[str] = []
        self._failed: list[str] = []
        self._failed_frames: list[str] = []

    def see(self, journal: JournalFile) -> None:
        """All of one session."""
        self._queries.clear()
        for entry in journal.entries:
            self._see(entry.event, journal)

    def _see(self, event: AnyEvent, journal: JournalFile) -> None:
        match event:
            case ProbeSent():
                self._queries[event.turn] = self._name(journal, event.query)
            case AgentFailed():
                self._count(event.method, event.error, journal)
            case FrameSettled(outcome="failed", error=None):
                self._failed_frames.append(self._name(journal, f"frame {event.k}"))
            case FrameSettled(error=str(error)):
                self._count("observe", error, journal)
            case TurnClosed(reason="too_long") if event.turn in self._queries:
                self._too_long.append(self._queries[event.turn])
            case TurnEnded(reason="failed", error=None) if event.turn in self._queries:
                self._failed.append(self._queries[event.turn])
            case TurnEnded(error=str(error)):
                self._count("answer", error, journal)
            case _:
                pass

    def _name(self, journal: JournalFile, what: str) -> str:
        started = journal.started
        repeat = f" of repeat {started.repeat}" if self._repeats > 1 else ""
        return f"{started.episode} {what}{repeat}"

    def _count(self, method: str, traceback: str, journal: JournalFile) -> None:
        kind = (method, describe_raised(traceback))
        self._raised[kind] += 1
        self._first.setdefault(kind, journal.path.name)

    def lines(self) -> Iterator[str]:
        """One line a kind; of what was raised, the most frequent first."""
        for (method, text), count in self._raised.most_common():
            yield (
                f"the agent raised in {method}, {counted(count, 'time')}: {text}; "
                f"traceback in sessions/{self._first[method, text]}"
            )
        if self._too_long:
            were, fail = ("was", "counts") if len(self._too_long) == 1 else ("were", "count")
            yield (
                f"{counted(len(self._too_long), 'answer')} {were} too long "
                f"(over {MAX_TURN_CHARS} characters) and {fail} as failed: {_names(self._too_long)}"
            )
        if self._failed:
            yield (
                f"the agent gave up {counted(len(self._failed), 'answer')} "
                f"without a reason: {_names(self._failed)}"
            )
        if self._failed_frames:
            yield (
                f"the agent failed on {counted(len(self._failed_frames), 'frame')} "
                f"without a reason: {_names(self._failed_frames)}"
            )


def _names(names: list[str]) -> str:
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f", and {more} more" if more > 0 else "")

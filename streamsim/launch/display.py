"""How a run shows itself while it runs: a live table on a terminal, plain lines elsewhere.

All of it goes to standard error, and all of it in the parent's process: drawing never meets the
server's event loop.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from types import TracebackType
from typing import get_args

from rich.console import Console
from rich.live import Live
from rich.table import Table

from streamsim.server.notices import Notice
from streamsim_protocol.messages import Outcome

REFRESH_PER_SECOND = 4
_UNANSWERED = tuple(outcome for outcome in get_args(Outcome) if outcome != "answered")


@dataclass(slots=True)
class _LaneView:
    episode: str = ""
    state: str = "waiting"
    media_ns: int = 0
    queries: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)


class RunDisplay:
    """Takes notices; a context manager, so that the terminal is left as it was found."""

    def __init__(self, console: Console, *, sessions: int, quiet: bool = False) -> None:
        self._console = console
        self._sessions = sessions
        self._quiet = quiet
        self._ended = 0
        self._lanes: dict[int, _LaneView] = {}
        self._live = Live(console=console, refresh_per_second=REFRESH_PER_SECOND, transient=True)

    def __enter__(self) -> RunDisplay:
        if self._console.is_terminal and not self._quiet:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, notice: Notice) -> None:
        """Take one notice."""
        lane = self._lanes.setdefault(notice.lane, _LaneView()) if notice.lane else _LaneView()
        match notice.kind:
            case "session":
                self._lanes[notice.lane] = _LaneView(
                    episode=notice.episode, state="starting", queries=notice.queries
                )
            case "ready":
                lane.state = "playing"
            case "position":
                lane.media_ns = notice.media_ns
            case "outcome":
                lane.outcomes[notice.detail] += 1
            case "ended":
                self._ended += 1
                lane.state = notice.detail
                answers = f"{lane.outcomes['answered']} of {lane.queries} answered{_others(lane.outcomes)}"
                self._line(f"[{self._ended}/{self._sessions}] {lane.episode}: {notice.detail}, {answers}")
            case "failure":
                self._line(f"{lane.episode}: {notice.detail}")
            case "warning":
                self._line(f"warning: {lane.episode}: {notice.detail}")
            case "listening" | "refused" | "failed":
                pass
        if self._live.is_started:
            self._live.update(self._table())

    def _line(self, text: str) -> None:
        if not self._quiet:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for name in ("lane", "episode", "state", "media", "answers"):
            table.add_column(name, no_wrap=True)
        for number, lane in sorted(self._lanes.items()):
            answers = f"{lane.outcomes['answered']}/{lane.queries}{_others(lane.outcomes)}"
            table.add_row(str(number), lane.episode, lane.state, f"{lane.media_ns / 1e9:.0f} s", answers)
        return table


def _others(outcomes: Counter[str]) -> str:
    """What became of the queries that were not answered, as ``, 2 failed``; empty if all were."""
    counts = ((outcomes[outcome], outcome.replace("_", " ")) for outcome in _UNANSWERED)
    return "".join(f", {count} {words}" for count, words in counts if count)

"""An agent that is installed as a plug-in; see pyproject.toml beside it for how it is found."""

from __future__ import annotations

from collections.abc import Iterator

from streamsim_agents import Agent, Frame, Query, SessionInfo, Turn


class Brightness(Agent):
    """Picks the option that names the latest picture's brightness."""

    def __init__(self, *, limit: float = 128.0) -> None:
        """``limit``: mean grey level from which a picture is light."""
        self._limit = limit
        self._word: str | None = None

    def begin(self, session: SessionInfo) -> None:
        self._word = None

    def observe(self, frame: Frame) -> None:
        self._word = "light" if frame.rgb.mean() >= self._limit else "dark"

    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        if query.probe != "task" or self._word is None:
            yield "A"
            return
        fits = [
            letter for letter, option in zip("ABCDEFG", query.options, strict=False) if self._word in option
        ]
        yield fits[0] if fits else "A"

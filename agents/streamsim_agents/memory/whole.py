"""What memories have in common that forget nothing: only what they show is their own."""

from __future__ import annotations

from streamsim_agents.memory.entry import Entry
from streamsim_agents.memory.memory import Memory, State, entries


class Whole(Memory):
    """Keeps every entry; ``read`` is up to the subclass. Storage grows without bound."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def write(self, entry: Entry) -> None:
        """Keep the entry."""
        self._entries.append(entry)

    def state(self) -> State:
        """All entries."""
        return {"entries": tuple(self._entries)}

    def restore(self, state: State) -> None:
        """All entries again."""
        self._entries = entries(state, "entries")

    def clear(self) -> None:
        """No entries."""
        self._entries = []

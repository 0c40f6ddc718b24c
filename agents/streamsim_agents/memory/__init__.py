"""Memories: what an agent keeps of a stream, separate from any model."""

from streamsim_agents.memory.entry import Cue, Entry, Part
from streamsim_agents.memory.memory import Memory
from streamsim_agents.memory.registry import make_memory

__all__ = ["Cue", "Entry", "Memory", "Part", "make_memory"]

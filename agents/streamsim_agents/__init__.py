"""Agents for streamsim: the interface, the runtime that speaks the protocol, and those that ship."""

from streamsim_agents.agent import Agent, Frame, Query, SessionInfo, Turn

__all__ = ["Agent", "Frame", "Query", "SessionInfo", "Turn"]

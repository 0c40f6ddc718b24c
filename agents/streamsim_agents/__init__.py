"""Agents for streamsim: the interface, the runtime that speaks the protocol, and those that ship."""

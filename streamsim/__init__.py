"""streamsim replays recorded episodes as live sessions, for agents that must not see the future."""

__version__ = "0.1.0"

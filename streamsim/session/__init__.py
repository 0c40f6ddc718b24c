"""The rules of one live session, sans I/O: time and messages in, messages and events out."""

from streamsim.session.config import SessionConfig
from streamsim.session.session import Session

__all__ = ["Session", "SessionConfig"]

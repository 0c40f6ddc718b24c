"""What can go wrong on the wire, and how a connection says so.

    ProtocolError
    ├── BadMessage      undecodable, unknown or ill-typed message (close 4001)
    ├── WrongOrder      legal message at the wrong time, or a broken sequence (close 4002)
    ├── VersionMismatch no common protocol version (close 4003)
    ├── MessageTooBig   beyond the negotiated limit (close 1009)
    └── Flood           more messages or late text than any honest peer sends (close 4011)

This module knows no sockets: an adapter closes with ``error.close_code`` and ``error.reason``.
"""

from __future__ import annotations

from enum import IntEnum

MAX_REASON_BYTES = 123
"""RFC 6455 §5.5: a control frame carries 125 bytes, two of them the code."""


class CloseCode(IntEnum):
    """Why a connection was closed; the table in protocol/README.md says what the peer should do."""

    NORMAL = 1000
    GOING_AWAY = 1001
    TOO_BIG = 1009
    FINISHED = 4000
    BAD_MESSAGE = 4001
    WRONG_ORDER = 4002
    VERSION_MISMATCH = 4003
    LANE_BUSY = 4004
    READY_TIMEOUT = 4006
    CREDIT_TIMEOUT = 4008
    HUNG = 4009
    AGENT_FAILED = 4010
    FLOOD = 4011


class ProtocolError(Exception):
    """The peer broke the contract; the connection cannot go on."""

    close_code = CloseCode.BAD_MESSAGE

    @property
    def reason(self) -> str:
        """The text for the close frame, cut to what RFC 6455 lets it carry."""
        return close_reason(str(self))


class BadMessage(ProtocolError):
    """A message that cannot be read as any message of this protocol."""

    close_code = CloseCode.BAD_MESSAGE


class WrongOrder(ProtocolError):
    """A well-formed message that the state machine or the sequence does not allow here."""

    close_code = CloseCode.WRONG_ORDER


class VersionMismatch(ProtocolError):
    """The peers share no version of the protocol."""

    close_code = CloseCode.VERSION_MISMATCH


class MessageTooBig(ProtocolError):
    """A message beyond the limit of its direction."""

    close_code = CloseCode.TOO_BIG


class Flood(ProtocolError):
    """More messages, or more text of a closed turn, than an honest peer has to send."""

    close_code = CloseCode.FLOOD


def close_reason(text: str) -> str:
    """``text`` cut at a character boundary to the 123 bytes a close frame can hold."""
    return text.encode("utf-8")[:MAX_REASON_BYTES].decode("utf-8", "ignore")

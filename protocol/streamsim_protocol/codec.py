"""Messages to bytes and back: one MessagePack map per binary WebSocket message.

Unknown keys are ignored (a newer peer may send more); unknown types and wrong types are refused with
the path of the fault. The only place that knows the encoding.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from streamsim_protocol.errors import BadMessage, MessageTooBig
from streamsim_protocol.messages import (
    MAX_AGENT_MESSAGE_BYTES,
    MAX_SERVER_MESSAGE_BYTES,
    AgentMessage,
    Message,
    ServerMessage,
)

_Decoded = TypeVar("_Decoded")

_encoder = msgspec.msgpack.Encoder()
_server_decoder: msgspec.msgpack.Decoder[ServerMessage] = msgspec.msgpack.Decoder(ServerMessage)
_agent_decoder: msgspec.msgpack.Decoder[AgentMessage] = msgspec.msgpack.Decoder(AgentMessage)

MAX_FAULT_CHARS = 200
"""A fault quotes what the peer sent; this keeps the quotation short."""

_TAG = re.compile(r"Invalid value (?P<value>.*) - at `\$\.type`", re.DOTALL)
_CHOICE = re.compile(r"Invalid enum value (?P<value>.*) - at (?P<path>.*)", re.DOTALL)
_MISSING = re.compile(r"Object missing required field (?P<field>`[^`]+`)(?: - at (?P<path>.*))?")
_EXPECTED = re.compile(
    r"Expected (?P<expected>`[^`]+`(?: of length \d+| [<>]=? \S+)?)"
    r"(?:, got (?P<got>\S+))?(?: - at (?P<path>.*))?"
)
_MALFORMED = re.compile(r"MessagePack data is malformed: (?P<fault>.*)", re.DOTALL)


def encode(message: Message) -> bytes:
    """One message as MessagePack."""
    return _encoder.encode(message)


def decode_server_message(data: bytes | str) -> ServerMessage:
    """What an agent received; ``BadMessage`` or ``MessageTooBig`` say what is wrong and where."""
    return _decode(_server_decoder, data, MAX_SERVER_MESSAGE_BYTES)


def decode_agent_message(data: bytes | str) -> AgentMessage:
    """What the server received; ``BadMessage`` or ``MessageTooBig`` say what is wrong and where."""
    return _decode(_agent_decoder, data, MAX_AGENT_MESSAGE_BYTES)


def _decode(decoder: msgspec.msgpack.Decoder[_Decoded], data: bytes | str, limit_bytes: int) -> _Decoded:
    if isinstance(data, str):
        raise BadMessage("expected a binary message, got a text message")
    if len(data) > limit_bytes:
        raise MessageTooBig(f"expected at most {limit_bytes} bytes, got {len(data)}")
    try:
        return decoder.decode(data)
    except msgspec.DecodeError as error:
        raise BadMessage(describe_fault(str(error))) from error
    except RecursionError:
        raise BadMessage("expected a flat message, got one nested too deeply") from None


def describe_fault(text: str) -> str:
    """msgspec's complaint in this protocol's words: ``expected int, got str at $.seq``."""
    fault = _translate(text)
    return fault if len(fault) <= MAX_FAULT_CHARS else fault[: MAX_FAULT_CHARS - 1] + "…"


def _translate(text: str) -> str:
    if found := _TAG.fullmatch(text):
        return f"unknown message type {found['value']} at $.type"
    if found := _CHOICE.fullmatch(text):
        return f"unknown value {found['value']} at {_plain(found['path'])}"
    if found := _MISSING.fullmatch(text):
        return f"missing key {_plain(found['field'])!r} at {_plain(found['path'] or '$')}"
    if found := _EXPECTED.fullmatch(text):
        got = f", got {_wire_type(found['got'])}" if found["got"] else ""
        return f"expected {_wire_type(found['expected'])}{got} at {_plain(found['path'] or '$')}"
    if found := _MALFORMED.fullmatch(text):
        return f"malformed MessagePack: {found['fault']}"
    return text[:1].lower() + text[1:]


def _wire_type(quoted: str) -> str:
    """A type by MessagePack's name: msgspec says object for a map, null or None for nil."""
    return re.sub(r"\b(null|None)\b", "nil", re.sub(r"\bobject\b", "map", _plain(quoted)))


def _plain(quoted: str) -> str:
    return quoted.replace("`", "")

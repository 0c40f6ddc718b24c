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

_EXPECTED = re.compile(
    r"Expected `(?P<expected>[^`]+)`(?P<bound> [<>]=? \S+)?"
    r"(?:, got `(?P<got>[^`]+)`)?(?: - at `(?P<path>[^`]+)`)?"
)
_INVALID_TAG = re.compile(r"Invalid value (?P<value>.+?) - at `(?P<path>\$\.type)`")
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]+)`(?: - at `(?P<path>[^`]+)`)?")


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


def describe_fault(text: str) -> str:
    """msgspec's complaint in this protocol's words: ``expected int, got str at $.seq``."""
    if found := _INVALID_TAG.search(text):
        return f"unknown message type {found['value']} at {found['path']}"
    if found := _MISSING.search(text):
        return f"missing key {found['field']!r} at {found['path'] or '$'}"
    if found := _EXPECTED.search(text):
        got = f", got {found['got']}" if found["got"] else ""
        return f"expected {found['expected']}{found['bound'] or ''}{got} at {found['path'] or '$'}"
    return (text[:1].lower() + text[1:]).replace(" - at `", " at ").rstrip("`")

"""The codec over all messages that there can be, and over bytes that are none."""

from __future__ import annotations

import math
import types
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgpack
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsim_protocol import messages as wire
from streamsim_protocol.codec import (
    MAX_FAULT_CHARS,
    decode_agent_message,
    decode_server_message,
    describe_fault,
    encode,
)
from streamsim_protocol.errors import BadMessage, CloseCode, MessageTooBig, ProtocolError, close_reason
from streamsim_protocol.states import AGENT_MESSAGES, SERVER_MESSAGES

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
"""Everything but lone surrogates, which UTF-8 cannot write."""


def values_of(annotation: Any) -> st.SearchStrategy[Any]:
    """Every value that a field may have."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        bounds = next(meta for meta in arguments if isinstance(meta, msgspec.Meta))
        assert isinstance(bounds.ge, int) and isinstance(bounds.le, int)
        return st.integers(bounds.ge, bounds.le)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, types.UnionType):
        return st.one_of(*(st.none() if part is type(None) else values_of(part) for part in arguments))
    if origin is dict:
        return st.dictionaries(TEXTS, values_of(arguments[1]), max_size=4)
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values_of(arguments[0]), max_size=4).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, arguments))
    plain: dict[Any, st.SearchStrategy[Any]] = {
        int: st.integers(-(1 << 63), (1 << 63) - 1),
        float: st.floats(allow_nan=False),
        str: TEXTS,
        bytes: st.binary(max_size=300),
        bool: st.booleans(),
    }
    return plain[annotation]


@cache
def messages_of(kind: type[wire.Message]) -> st.SearchStrategy[wire.Message]:
    hints = get_type_hints(kind, include_extras=True)
    return st.builds(kind, **{name: values_of(hints[name]) for name in kind.__struct_fields__})


def any_of(kinds: tuple[type[wire.Message], ...]) -> st.SearchStrategy[wire.Message]:
    return st.sampled_from(kinds).flatmap(messages_of)


def as_map(message: wire.Message) -> dict[str, Any]:
    """The message as MessagePack has it, made without the codec: fields in the order of the contract."""
    fields = {name: getattr(message, name) for name in message.__struct_fields__}
    return {"type": message.__struct_config__.tag} | {
        name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()
    }


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(message=any_of(AGENT_MESSAGES))
def test_agent_messages_survive_and_the_msgpack_package_agrees(message: wire.Message) -> None:
    data = encode(message)
    assert decode_agent_message(data) == message
    assert msgpack.unpackb(data) == as_map(message)
    assert msgpack.packb(as_map(message)) == data


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(message=any_of(SERVER_MESSAGES))
def test_server_messages_survive_and_the_msgpack_package_agrees(message: wire.Message) -> None:
    data = encode(message)
    assert decode_server_message(data) == message
    assert msgpack.unpackb(data) == as_map(message)
    assert msgpack.packb(as_map(message)) == data


@settings(deadline=None)
@given(message=any_of(AGENT_MESSAGES), extra=st.dictionaries(TEXTS, st.none() | st.integers(0, 9) | TEXTS))
def test_unknown_keys_change_nothing(message: wire.Message, extra: dict[str, Any]) -> None:
    known = as_map(message)
    assert decode_agent_message(msgpack.packb({**extra, **known})) == message


@settings(deadline=None)
@given(message=any_of(AGENT_MESSAGES), data=st.data())
def test_a_message_that_is_cut_short_is_refused(message: wire.Message, data: st.DataObject) -> None:
    whole = encode(message)
    with pytest.raises(BadMessage, match="truncated"):
        decode_agent_message(whole[: data.draw(st.integers(0, len(whole) - 1))])


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(message=any_of(AGENT_MESSAGES), data=st.data())
def test_a_spoilt_message_is_read_or_refused_and_nothing_else(
    message: wire.Message, data: st.DataObject
) -> None:
    whole = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = decode_agent_message(bytes(whole))
    except ProtocolError as error:
        assert str(error) and len(str(error)) <= MAX_FAULT_CHARS
    else:
        assert isinstance(read, AGENT_MESSAGES)


@settings(deadline=None)
@given(junk=st.binary(max_size=200).filter(lambda junk: b"type" not in junk))
def test_junk_is_refused_and_nothing_else(junk: bytes) -> None:
    for decode in (decode_agent_message, decode_server_message):
        with pytest.raises(BadMessage):
            decode(junk)


def test_a_figure_that_is_no_number_arrives_as_such() -> None:
    data = msgpack.packb({"type": "stats", "values": {"a": math.nan, "b": math.inf}})
    read = decode_agent_message(data)
    assert isinstance(read, wire.Stats)
    assert math.isnan(read.values["a"]) and read.values["b"] == math.inf


def test_limits_are_those_of_the_contract_and_each_direction_has_its_own() -> None:
    text = wire.Text(turn=1, text="x" * 70_000)
    with pytest.raises(MessageTooBig, match=r"^expected at most 65536 bytes, got 7\d{4}$"):
        decode_agent_message(encode(text))
    probe = wire.ProbeMessage(
        turn=1,
        query="q1",
        order=0,
        kind="open",
        probe="task",
        media_ns=0,
        text=text.text,
        stem="",
        options=(),
    )
    assert decode_server_message(encode(probe)) == probe


def test_a_fault_quotes_the_peer_briefly() -> None:
    data = msgpack.packb({"type": "`n - at `$.seq`" * 500, "seq": 1, "ack": 0})
    with pytest.raises(BadMessage) as caught:
        decode_agent_message(data)
    assert str(caught.value).startswith("unknown message type '`n - at `$.seq``n")
    assert len(str(caught.value)) == MAX_FAULT_CHARS
    assert len(caught.value.reason.encode()) <= 123


@pytest.mark.parametrize(
    ("complaint", "fault"),
    [
        ("Expected `int`, got `str` - at `$.seq`", "expected int, got str at $.seq"),
        ("Expected `int` >= 0 - at `$.turns[3].k`", "expected int >= 0 at $.turns[3].k"),
        ("Expected `object | null`, got `None`", "expected map | nil, got nil at $"),
        ("Expected `str`, got `int` - at `key` in `$.marks`", "expected str, got int at key in $.marks"),
        ("Object missing required field `text` - at `$.a`", "missing key 'text' at $.a"),
        ("A complaint of a later release", "a complaint of a later release"),
    ],
)
def test_complaints_are_put_in_the_words_of_the_contract(complaint: str, fault: str) -> None:
    assert describe_fault(complaint) == fault


@pytest.mark.slow
@settings(deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_close_reason_fits_a_close_frame_and_cuts_between_characters(text: str) -> None:
    reason = close_reason(text)
    assert len(reason.encode()) <= 123
    assert text.startswith(reason)
    if reason != text:
        assert len((reason + text[len(reason)]).encode()) > 123


def test_each_fault_has_its_close_code() -> None:
    codes = {kind.__name__: int(kind.close_code) for kind in ProtocolError.__subclasses__()}
    assert codes == {
        "BadMessage": 4001,
        "WrongOrder": 4002,
        "VersionMismatch": 4003,
        "MessageTooBig": 1009,
        "Flood": 4011,
    }
    assert len({int(code) for code in CloseCode}) == len(CloseCode)

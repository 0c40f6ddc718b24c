"""The contract's text says what the code does: its tables are compared with it, cell by cell."""

from __future__ import annotations

import re
import types
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from streamsim_protocol import messages as wire
from streamsim_protocol.errors import MAX_REASON_BYTES, CloseCode
from streamsim_protocol.states import AGENT_MESSAGES, SERVER_MESSAGES, TRANSITIONS, State

CONTRACT = (Path(__file__).parents[2] / "protocol" / "README.md").read_text(encoding="utf-8")
KINDS = {str(kind.__struct_config__.tag): kind for kind in (*AGENT_MESSAGES, *SERVER_MESSAGES)}


def table_after(heading: str) -> list[list[str]]:
    """The rows of the first table after a line that begins with ``heading``, without its head."""
    lines = CONTRACT.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(heading))
    rows: list[list[str]] = []
    for line in lines[start + 1 :]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif rows or line.startswith("#"):
            break
    return rows[2:]


def type_in_words(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return "uint"
    if origin is Literal:
        return "str: " + ", ".join(f"`{value}`" for value in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join("nil" if part is type(None) else type_in_words(part) for part in arguments)
    if origin is dict:
        return f"map of {type_in_words(arguments[0])} to {type_in_words(arguments[1])}"
    if origin is tuple:
        many = "" if arguments[-1] is Ellipsis else f"{len(arguments)} "
        return f"array of {many}{type_in_words(arguments[0])}"
    return {int: "int", float: "float", str: "str", bytes: "bin", bool: "bool"}[annotation]


def default_in_words(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return ""
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    words = {None: "nil", (): "[]"}
    return f"; default `{words[value] if isinstance(value, tuple | None) else value}`"


@pytest.mark.parametrize("tag", KINDS)
def test_message_table_has_every_key_with_its_type_and_default(tag: str) -> None:
    kind = KINDS[tag]
    hints = get_type_hints(kind, include_extras=True)
    own = [field for field in msgspec.structs.fields(kind) if field.name not in ("seq", "ack")]
    expected = {field.name: type_in_words(hints[field.name]) + default_in_words(field) for field in own}
    sender = "agent" if kind in AGENT_MESSAGES else "server"
    rows = table_after(f"### `{tag}` from the {sender}")
    assert {name.strip("`"): written for name, written, _ in rows} == expected
    assert [name.strip("`") for name, *_ in rows] == list(expected)


def test_contract_has_no_message_that_the_code_has_not() -> None:
    assert set(re.findall(r"^### `(\w+)` from the ", CONTRACT, re.MULTILINE)) == set(KINDS)


def test_table_of_states_is_the_table_of_the_code() -> None:
    written: dict[tuple[State, type[wire.Message]], State] = {}
    for state, *cells in table_after("### States"):
        for cell, direction in zip(cells, (AGENT_MESSAGES, SERVER_MESSAGES), strict=True):
            for item in filter(None, (part.strip() for part in cell.split(","))):
                found = re.fullmatch(r"`(\w+)`(?: → (\w+))?", item)
                assert found is not None, item
                kind = KINDS[found[1]]
                assert kind in direction, f"{found[1]} is not sent in this direction"
                written[State(state), kind] = State(found[2] or state)
    assert written == TRANSITIONS


def test_table_of_close_codes_is_that_of_the_code() -> None:
    rows = table_after("## 11.")
    assert {name: int(code) for code, name, *_ in rows} == {code.name: int(code) for code in CloseCode}
    assert all(when and reaction for *_, when, reaction in rows)


def test_numbers_in_the_text_are_those_of_the_code() -> None:
    limits = {what: int(limit.split()[0].replace(",", "")) for what, limit, _ in table_after("## 12.")[:3]}
    assert limits["a message from the server"] == wire.MAX_SERVER_MESSAGE_BYTES
    assert limits["a message from the agent"] == wire.MAX_AGENT_MESSAGE_BYTES
    assert f"query.media_ns + {wire.VISIBILITY_TOLERANCE_NS}`" in CONTRACT
    assert f"a probe's `media_ns + {wire.VISIBILITY_TOLERANCE_NS}`" in CONTRACT
    assert wire.FIRST_UNPROMPTED_TURN == 2**31 and "any number from 2^31 on" in CONTRACT
    assert f"| close reason | {MAX_REASON_BYTES} bytes |" in CONTRACT
    assert CONTRACT.startswith(f"# {wire.SUBPROTOCOL}:")
    assert wire.VERSION.split(".")[0] == str(wire.MAJOR_VERSION)
    assert f"`{wire.VERSION}` in this text" in CONTRACT
    for name in (wire.LOOP_LAG_P99, wire.LOOP_LAG_MAX):
        assert name.startswith(wire.RUNTIME_STATS) and f"`{name}`" in CONTRACT


def test_example_conversation_counts_as_the_text_says() -> None:
    steps = re.findall(r"^    (?: {41}<-  )?(\d+)/(\d+) (\w+)(.*)$", CONTRACT, re.MULTILINE)
    assert len(steps) == 18
    sent = {"agent": 0, "server": 0}
    for seq, ack, tag, rest in steps:
        sender = "agent" if KINDS[tag] in AGENT_MESSAGES else "server"
        peer = "server" if sender == "agent" else "agent"
        assert int(seq) == sent[sender] + 1
        assert int(ack) == sent[peer]
        sent[sender] += 3 if "…" in rest else 1  # a turn's start, text and end in one line


@pytest.mark.slow
def test_server_settings_in_the_text_are_those_of_the_server() -> None:
    from streamsim.chain import MAX_TURN_CHARS
    from streamsim.launch.options import RunOptions
    from streamsim.server.app import HEARTBEAT_S
    from streamsim.server.driver import HELLO_TIMEOUT_S
    from streamsim.server.lane import FAREWELL_S
    from streamsim.session.handshake import CAPABILITIES
    from streamsim.session.session import FLOOD_ALLOWANCE, FLOOD_PER_MESSAGE

    realtime = RunOptions(dataset=Path("d"), agent=None)
    lockstep = RunOptions(dataset=Path("d"), agent=None, clock="lockstep")
    written = {name: default for name, default, *_ in table_after("**Interrupted.**")}
    assert written == {
        "hello": f"{HELLO_TIMEOUT_S:g} s",
        "ready": f"{realtime.ready_timeout_s:g} s",
        "answer": f"{realtime.answer_timeout:g} s",
        "answer, in `lockstep`": f"{lockstep.answer_timeout:g} s",
        "hang": f"{realtime.hang_timeout_s:g} s",
        "sign of life": "answer + hang",
        "credit": f"{realtime.credit_timeout_s:g} s",
        "drain": f"{realtime.drain_timeout_s:g} s",
        "bye": f"{realtime.drain_timeout_s:g} s; {realtime.hang_timeout_s:g} s with anything unsettled",
    }
    assert f"({realtime.credit} unless told otherwise)" in CONTRACT
    assert (
        f"pings after {HEARTBEAT_S:g} s" in CONTRACT and f"nothing has come {HEARTBEAT_S / 2:g} s" in CONTRACT
    )
    assert f"waits {FAREWELL_S:g} s for it" in CONTRACT
    assert f"| {FLOOD_ALLOWANCE:,} + {FLOOD_PER_MESSAGE} for each message" in CONTRACT
    assert f"| {MAX_TURN_CHARS:,} characters |" in CONTRACT
    assert [row[0].strip("`") for row in table_after("## 3.")] == list(CAPABILITIES)

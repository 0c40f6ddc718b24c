"""The committed vectors: what our codec and the ``msgpack`` package each make of the same bytes."""

from __future__ import annotations

import io
import json
from typing import Any

import msgpack
import pytest
from PIL import Image

from streamsim_protocol import messages as wire
from streamsim_protocol.codec import decode_agent_message, decode_server_message, encode
from streamsim_protocol.errors import ProtocolError, WrongOrder
from streamsim_protocol.states import AGENT_MESSAGES, SERVER_MESSAGES, Connection
from tests.protocol.vectors import VECTORS, read_hex, read_twin

DECODERS = {"server": decode_agent_message, "agent": decode_server_message}
"""By who receives."""


def read_cases(*paths: str) -> list[Any]:
    return [
        pytest.param(path, case, id=f"{path.removesuffix('.json')}: {case['name']}")
        for path in paths
        for case in json.loads((VECTORS / path).read_text(encoding="utf-8"))
    ]


def message_files(receiver: str) -> list[str]:
    return sorted(path.relative_to(VECTORS).as_posix() for path in VECTORS.glob(f"to_{receiver}/*.json"))


def receiver_of(path: str) -> str:
    return "server" if "to_server" in path else "agent"


MESSAGES = read_cases(*message_files("server"), *message_files("agent"))
REFUSED = read_cases("refused/to_server.json", "refused/to_agent.json")


@pytest.mark.parametrize(("path", "case"), MESSAGES)
def test_msgpack_package_reads_the_twin_of_every_vector(path: str, case: dict[str, Any]) -> None:
    assert msgpack.unpackb(read_hex(case["hex"])) == read_twin(case["map"])


@pytest.mark.parametrize(("path", "case"), MESSAGES)
def test_codec_reads_every_vector_as_what_it_means(path: str, case: dict[str, Any]) -> None:
    message = DECODERS[receiver_of(path)](read_hex(case["hex"]))
    meaning = read_twin(case.get("means", case["map"]))
    assert message.__struct_config__.tag == meaning["type"]
    assert {key: _as_sent(getattr(message, key)) for key in meaning if key != "type"} == {
        key: value for key, value in meaning.items() if key != "type"
    }


@pytest.mark.parametrize(("path", "case"), MESSAGES)
def test_codec_writes_as_the_msgpack_package_does(path: str, case: dict[str, Any]) -> None:
    data = read_hex(case["hex"])
    written = encode(DECODERS[receiver_of(path)](data))
    assert written == msgpack.packb(read_twin(case.get("means", case["map"])))
    if "means" not in case:
        assert written == data


def _as_sent(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize(
    ("receiver", "kinds"), [("server", AGENT_MESSAGES), ("agent", SERVER_MESSAGES)], ids=["server", "agent"]
)
def test_every_message_type_has_a_full_and_a_minimal_vector(
    receiver: str, kinds: tuple[type[wire.Message], ...]
) -> None:
    expected = {f"to_{receiver}/{kind.__struct_config__.tag}.json" for kind in kinds}
    assert set(message_files(receiver)) == expected
    for path in expected:
        names = [case["name"] for case in json.loads((VECTORS / path).read_text(encoding="utf-8"))]
        assert len(names) == len(set(names)), path
        assert any("full" in name for name in names), path
        assert any("minimal" in name for name in names), path


def test_pictures_in_vectors_are_pictures() -> None:
    sizes = {}
    for case in json.loads((VECTORS / "to_agent/frame.json").read_text(encoding="utf-8")):
        twin = read_twin(case["map"])
        with Image.open(io.BytesIO(twin["data"])) as picture:
            picture.load()
            sizes[case["name"]] = (picture.size, picture.format == twin["encoding"].upper())
    assert sizes["jpeg, full"] == ((16, 8), True)
    assert sizes["png, minimal"] == ((2, 1), True)


@pytest.mark.parametrize(("path", "case"), REFUSED)
def test_codec_refuses_with_the_path_of_the_fault(path: str, case: dict[str, Any]) -> None:
    data = case["text"] if "text" in case else read_hex(case["hex"])
    if "map" in case:
        assert msgpack.unpackb(data) == read_twin(case["map"])
    with pytest.raises(ProtocolError) as caught:
        DECODERS[receiver_of(path)](data)
    assert (str(caught.value), int(caught.value.close_code)) == (case["detail"], case["close_code"])


@pytest.mark.parametrize(("path", "case"), read_cases("limits.json"))
def test_codec_takes_the_longest_message_and_no_longer_one(path: str, case: dict[str, Any]) -> None:
    data = read_hex(case["hex"])
    assert len(data) == case["size_bytes"]
    decode = DECODERS[case["to"]]
    if "close_code" not in case:
        message = decode(data)
        payload = message.text if isinstance(message, wire.Text) else message.data  # type: ignore[union-attr]
        assert len(payload) == case["hex"][1]["times"]
        return
    with pytest.raises(ProtocolError) as caught:
        decode(data)
    assert (str(caught.value), int(caught.value.close_code)) == (case["detail"], case["close_code"])


@pytest.mark.parametrize(("path", "case"), read_cases("refused/order.json"))
def test_last_message_of_a_conversation_is_refused_by_who_receives_it(
    path: str, case: dict[str, Any]
) -> None:
    ends = {"agent": Connection(), "server": Connection()}
    *legal, last = case["conversation"]
    for step in legal:
        sender, receiver, message = _read_step(step)
        assert ends[sender].stamp(message) == message
        ends[receiver].receive(message)
    _, receiver, message = _read_step(last)
    with pytest.raises(WrongOrder) as caught:
        ends[receiver].receive(message)
    assert (str(caught.value), int(caught.value.close_code)) == (case["detail"], case["close_code"])


def _read_step(step: dict[str, Any]) -> tuple[str, str, wire.Message]:
    sender = step["from"]
    receiver = "agent" if sender == "server" else "server"
    data = read_hex(step["hex"])
    assert msgpack.unpackb(data) == read_twin(step["map"])
    return sender, receiver, DECODERS[receiver](data)

"""Whole conversations from ``protocol/vectors/transcripts`` against the session core: bytes in, bytes out."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest

from streamsim_protocol.errors import CloseCode
from streamsim_protocol.states import AGENT_MESSAGES, SERVER_MESSAGES
from tests.protocol.server_side import Deviation, ServerSide, keep
from tests.protocol.vectors import (
    TRANSCRIPTS,
    Act,
    Step,
    make_transcript,
    pack_anew,
    read_transcripts,
)

ALL = {transcript.name: transcript for transcript in read_transcripts()}
PLAYED = [name for name, transcript in ALL.items() if transcript.session is not None]


@pytest.mark.parametrize("name", PLAYED)
def test_server_plays_its_half_to_the_byte_and_to_the_nanosecond(name: str) -> None:
    transcript = ALL[name]
    server = ServerSide(transcript)
    server.play()
    assert all(frame_ns <= now_ns for frame_ns, now_ns in server.media_at_sending)
    if transcript.faulty != "server":
        assert keep([event for _, event in server.events]) == transcript.kept


# ------------------------------------------------------------------------- a deviation is noticed


def spoil(table: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The same conversation with one thing different, in every way that concerns the server."""
    for index, row in enumerate(table["steps"]):
        for what in ("left out", "earlier", "later", "other bytes") if row.get("from") == "server" else ():
            spoiled = copy.deepcopy(table)
            changed = spoiled["steps"][index]
            if what == "left out":
                del spoiled["steps"][index]
            elif what == "other bytes":
                changed["map"]["ack"] += 1
                changed["hex"] = msgpack.packb({**changed["map"], "data": b""}).hex()
            else:
                changed["at_ns"] += 1 if what == "later" else -1
            yield f"step {index} {what}", spoiled
        if row.get("from") == "agent" and row["map"]["type"] != "ack":
            spoiled = copy.deepcopy(table)
            del spoiled["steps"][index]
            yield f"step {index} of the agent's left out", spoiled
    for key, value in (("code", 4002), ("at_ns", table["close"]["at_ns"] + 1)):
        yield f"close {key}", {**table, "close": {**table["close"], key: value}}


@pytest.mark.parametrize("name", ["realtime-chain", "ticks-scaled", "timed-out-then-answered", "interrupted"])
def test_a_server_that_deviates_anywhere_is_found(name: str) -> None:
    table = ALL[name].table
    spoiled = list(spoil(table))
    assert len(spoiled) > 20
    for what, changed in spoiled:
        with pytest.raises(Deviation):
            ServerSide(make_transcript(name, changed)).play()
            pytest.fail(what)


# --------------------------------------------------------------------------- what there is of them


@pytest.mark.parametrize("name", ALL)
def test_bytes_are_what_their_twins_say(name: str) -> None:
    steps = [step for step in ALL[name].steps if isinstance(step, Step)]
    assert steps or name == "no-hello"
    for index, step in enumerate(steps):
        assert step.map is None or msgpack.packb(step.map) == step.data, f"step {index}"


@pytest.mark.parametrize("name", ALL)
def test_steps_are_in_order_and_complete(name: str) -> None:
    transcript = ALL[name]
    instants = [step.at_ns for step in transcript.steps] + [transcript.close["at_ns"]]
    assert instants == sorted(instants)
    count = {"agent": 0, "server": 0}
    for index, step in enumerate(transcript.steps):
        if isinstance(step, Act) or transcript.is_faulty(index):
            continue
        assert step.map is not None
        count[step.sender] += 1
        assert step.map["seq"] == count[step.sender]
        if step.sender == "server":
            assert step.map["ack"] == count["agent"]
        else:
            assert step.map["ack"] <= count["server"]


def test_packing_anew_changes_nothing() -> None:
    for path in TRANSCRIPTS.glob("*.json"):
        text = path.read_text(encoding="utf-8")
        assert pack_anew(text) == text, path.name


def test_every_type_and_every_close_code_is_there() -> None:
    tags = {step.tag for transcript in ALL.values() for step in transcript.steps if isinstance(step, Step)}
    assert {kind.__struct_config__.tag for kind in (*AGENT_MESSAGES, *SERVER_MESSAGES)} <= tags
    closes = [transcript.close for transcript in ALL.values()]
    assert {close["code"] for close in closes if "code" in close} == set(CloseCode)
    refused = {close["code"] for close in closes if close["by"] == "agent"}
    assert refused == {CloseCode.BAD_MESSAGE, CloseCode.WRONG_ORDER, CloseCode.TOO_BIG}


def test_every_clock_history_policy_and_outcome_is_there() -> None:
    sessions = [transcript.session for transcript in ALL.values() if transcript.session is not None]
    assert {session["clock"] for session in sessions} == {"realtime", "skip", "scaled", "lockstep"}
    assert {session["history"] for session in sessions} == {"frozen", "live"}
    kept = [transcript.kept for transcript in ALL.values() if transcript.kept is not None]
    outcomes = {outcome for table in kept for outcome in table["outcomes"].values()}
    assert outcomes == {"answered", "timed_out", "cancelled", "failed", "disconnected", "not_reached"}
    reasons = {
        step.map["reason"]
        for transcript in ALL.values()
        for step in transcript.steps
        if isinstance(step, Step) and step.map is not None and step.tag == "tick"
    }
    assert reasons == {"start", "hold", "release", "jump", "pause", "resume", "rate", "step"}


def test_files_are_listed_in_the_readme() -> None:
    written = (TRANSCRIPTS.parent / "README.md").read_text(encoding="utf-8")
    assert [name for name in ALL if f"`{name}`" not in written] == []


def test_a_file_is_what_its_parts_are() -> None:
    known = {"about", "session", "prompts", "queries", "samples", "steps", "fault", "close", "kept"}
    for path in TRANSCRIPTS.glob("*.json"):
        table = json.loads(path.read_text(encoding="utf-8"))
        assert {"about", "steps", "close"} <= set(table) <= known, path.name

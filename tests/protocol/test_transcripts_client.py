"""Whole conversations from ``protocol/vectors/transcripts`` against the real runtime and its worker."""

from __future__ import annotations

from typing import Any

import pytest

from streamsim_agents.runtime import SessionRefused
from tests.protocol.client_side import ClientSide, Deviation, order_at_agent
from tests.protocol.vectors import Transcript, read_transcripts

ALL = {transcript.name: transcript for transcript in read_transcripts()}
CONNECTS_AGAIN = (1000, 1001)


@pytest.mark.parametrize("name", ALL)
async def test_client_plays_its_half(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    transcript = ALL[name]
    client = ClientSide(transcript, monkeypatch)
    code = transcript.close.get("code")
    if code == 4000:
        assert await client.play() == 0
        assert client.connections == 1
    elif code in CONNECTS_AGAIN:
        assert await client.play() == (1 if code == 1000 else 0)
        assert client.connections == 2
    else:
        with pytest.raises(SessionRefused) as refused:
            await client.play()
        if transcript.close["by"] == "server":
            assert f"code {code}: as the transcript says" in str(refused.value)
        assert client.connections == 1
    check_agent_saw(client, transcript)


def check_agent_saw(client: ClientSide, transcript: Transcript) -> None:
    """The agent was shown and asked what the messages say, no more and nothing else."""
    messages = [
        step.map for step, faulty in order_at_agent(transcript) if step.map is not None and not faulty
    ]
    sent = {message["k"]: message["data"] for message in messages if message["type"] == "frame"}
    observed = [
        message["k"]
        for message in messages
        if message["type"] == "settled" and message["outcome"] != "skipped"
    ]
    shown = list(client.agent.pictures)
    assert shown[: len(observed)] == observed
    assert all(client.agent.pictures[k] == sent[k] for k in shown)
    probes = {message["turn"]: message for message in messages if message["type"] == "probe"}
    started = [message["turn"] for message in messages if message["type"] == "turn_started"]
    asked = list(client.agent.questions)
    assert asked[: len(started)] == started
    assert len(shown) + len(asked) <= len(observed) + len(started) + 1, "more than one thing was at work"
    for turn, query in client.agent.questions.items():
        probe = probes[turn]
        assert (query.id, query.kind, query.probe, query.text) == (
            probe["query"],
            probe["kind"],
            probe["probe"],
            probe["text"],
        )
        assert (query.stem, list(query.options), query.media_ns) == (
            probe["stem"],
            probe["options"],
            probe["media_ns"],
        )
    closed = {message["turn"]: message["reason"] for message in messages if message["type"] == "turn_closed"}
    for message in messages:
        if message["type"] == "turn_ended" and message["turn"] in started:
            expected = closed[message["turn"]] if message["reason"] == "closed" else None
            assert client.agent.cancelled[message["turn"]] == expected


@pytest.mark.parametrize(("name", "played"), [("lockstep-session", 1), ("interrupted", 0)])
async def test_a_server_that_is_gone_has_no_more_sessions(
    name: str, played: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = ClientSide(ALL[name], monkeypatch, stays=False)
    assert await client.play() == played
    assert client.connections == 1


# ------------------------------------------------------------------------- a deviation is noticed


CHANGES: dict[str, dict[str, Any]] = {
    "hello": {"frames": "latest"},
    "ack": {"ack": 0},
    "ready": {"begin_ns": None},
    "settled": {"outcome": "skipped"},
    "turn_started": {"seen_media_ns": 17},
    "text": {"text": "other words"},
    "turn_ended": {"first_text_ns": None},
    "stats": {"values": {"memory_bytes": 1.0}},
    "bye": {"saved": "a digest"},
}


async def test_a_client_that_says_anything_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """One message at a time is expected to differ in one key."""
    transcript = ALL["lockstep-session"]
    spoiled = []
    for step, _ in order_at_agent(transcript):
        if step.sender == "agent":
            assert step.map is not None
            client = ClientSide(transcript, monkeypatch)
            client.expect_in_place_of(step, CHANGES[step.tag])
            with pytest.raises(Deviation, match=step.tag):
                await client.play()
            spoiled.append(step.tag)
    assert set(spoiled) == set(CHANGES)


async def test_a_client_that_says_too_much_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    client = ClientSide(ALL["nothing-to-show"], monkeypatch)
    client.expect_no("bye")
    with pytest.raises(Deviation, match="at the end the client said"):
        await client.play()


async def test_a_client_that_says_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.protocol.client_side.GUARD_S", 0.05)
    monkeypatch.setattr("streamsim_agents.runtime._SessionLoop._acknowledge", lambda self: None)
    client = ClientSide(ALL["no-ready"], monkeypatch)
    with pytest.raises(Deviation, match="the client said nothing"):
        await client.play()


def test_what_crosses_is_put_in_the_agents_order() -> None:
    """What the agent sent before it received the close comes before the close, at its end."""
    order = [f"{step.sender} {step.tag}" for step, _ in order_at_agent(ALL["late-close-as-turn-starts"])]
    assert order[-8:] == [
        "agent settled",
        "agent turn_started",
        "server turn_closed",
        "server chain_closed",
        "agent turn_ended",
        "server end",
        "agent stats",
        "agent bye",
    ]

"""The ``openai`` agent against a server that fails in all ways we know: a clear line, or another try."""

from __future__ import annotations

import json
import socket

import pytest

from streamsim_agents.chat_client import ChatError
from tests.agents.chat_server import (
    PATIENCE_S,
    AgentFor,
    Serve,
    cut,
    delta,
    event,
    make_query,
    make_turn,
    refuses,
    say,
    says,
    streams,
    stuck,
)

KEY = "sk-secret-1234567890"


def test_too_many_requests_are_tried_again_after_the_time_asked_for(
    serve: Serve, agent_for: AgentFor
) -> None:
    server = serve(refuses(429, Retry_After="0"), refuses(429, Retry_After="0.01"), says("B"))
    agent = agent_for(server)
    assert say(agent) == ["B"]
    assert len(server.asked) == 3
    assert server.asked[0].body == server.asked[2].body
    assert agent.stats()["retries"] == 2


def test_a_wait_longer_than_the_timeout_is_not_begun(serve: Serve, agent_for: AgentFor) -> None:
    server = serve(refuses(429, {"error": {"message": "quota used up"}}, Retry_After="3600"))
    with pytest.raises(
        ChatError, match="429 Too Many Requests: quota used up; the server asks to wait 3600 s"
    ):
        say(agent_for(server))
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504])
def test_a_server_in_trouble_is_asked_again(status: int, serve: Serve, agent_for: AgentFor) -> None:
    server = serve(refuses(status), says("B"))
    assert say(agent_for(server)) == ["B"]
    assert len(server.asked) == 2


def test_tries_are_counted_and_then_given_up(serve: Serve, agent_for: AgentFor) -> None:
    server = serve(refuses(500, "<h1>oh no</h1>"))
    with pytest.raises(ChatError, match=r"500 Internal Server Error: <h1>oh no</h1> \(3 tries\)$"):
        say(agent_for(server, retries=2))
    assert len(server.asked) == 3


def test_a_refused_connection_is_tried_again(serve: Serve, agent_for: AgentFor) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
    agent = agent_for(serve(says("B")), base_url=url, retries=1)
    with pytest.raises(ChatError, match=r"connection failed: .* \(2 tries\)"):
        say(agent)


def test_a_stream_cut_before_any_text_is_asked_again(serve: Serve, agent_for: AgentFor) -> None:
    server = serve(streams(b": hm\n\n", then=cut), says("B"))
    assert say(agent_for(server)) == ["B"]
    assert len(server.asked) == 2


def test_a_stream_cut_in_the_middle_fails_the_answer(serve: Serve, agent_for: AgentFor) -> None:
    server = serve(streams(delta("It is "), then=cut), says("B"))
    pieces = agent_for(server).answer(make_query(), make_turn())
    assert next(pieces) == "It is "
    with pytest.raises(ChatError, match=r"connection failed: .*, after a part of the answer had come"):
        next(pieces)
    assert len(server.asked) == 1


@pytest.mark.parametrize("end", [delta("", "stop"), delta("", "stop") + event(b"[DONE]")])
def test_a_connection_lost_after_the_answers_end_loses_nothing(
    end: bytes, serve: Serve, agent_for: AgentFor
) -> None:
    server = serve(streams(delta("B"), end, then=cut))
    assert say(agent_for(server)) == ["B"]
    assert len(server.asked) == 1


def test_an_error_inside_the_stream_is_told(serve: Serve, agent_for: AgentFor) -> None:
    server = serve(streams(event({"error": {"message": "context too long", "code": 400}})))
    with pytest.raises(ChatError, match="the server broke off with 'context too long'"):
        say(agent_for(server))
    server = serve(streams(event({"error": {"message": "overloaded", "code": 503}})), says("B"))
    assert say(agent_for(server)) == ["B"]


@pytest.mark.parametrize("data", [b"{not json", b'"text"', b"[]", b'{"choices": 3}', b'{"choices": [3]}',
                                  b'{"choices": [{"delta": {"content": 5}}]}'])  # fmt: skip
def test_a_malformed_stream_is_told(data: bytes, serve: Serve, agent_for: AgentFor) -> None:
    server = serve(streams(event(data)))
    with pytest.raises(ChatError, match="expected a chat completion chunk, got"):
        say(agent_for(server))
    assert len(server.asked) == 1


def test_an_event_without_end_is_told(serve: Serve, agent_for: AgentFor) -> None:
    server = serve(streams(*[b"data: " + b"x" * 100_000 + b"\n"] * 12))
    with pytest.raises(ChatError, match="no proper HTTP answer: an event of more than 1048576 characters"):
        say(agent_for(server))


def test_a_wrong_key_is_told_at_once_and_never_shown(
    serve: Serve, agent_for: AgentFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    server = serve(refuses(401, {"error": {"message": f"Incorrect API key provided: {KEY}.\nSee the docs."}}))
    agent = agent_for(server, api_key_env="MY_KEY")
    with pytest.raises(ChatError) as caught:
        say(agent)
    assert str(caught.value) == (
        f"{server.base_url}/chat/completions: 401 Unauthorized: Incorrect API key provided: (key). "
        "See the docs.; check the key in the variable that api_key_env names"
    )
    assert len(server.asked) == 1
    assert server.asked[0].headers["Authorization"] == f"Bearer {KEY}"
    assert KEY not in json.dumps(agent.describe())
    assert KEY not in repr(vars(agent))


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "The model `tiny` does not exist.", "code": 404}},
        {"object": "error", "message": "The model `tiny` does not exist.", "code": 404},
        {"detail": "The model `tiny` does not exist."},
        "The model `tiny` does not exist.",
    ],
)
def test_a_wrong_model_is_told_at_once(body: object, serve: Serve, agent_for: AgentFor) -> None:
    server = serve(refuses(404, body))
    with pytest.raises(
        ChatError, match=r"404 Not Found: The model `tiny` does not exist\.; check model and base_url$"
    ):
        say(agent_for(server))
    assert len(server.asked) == 1


def test_a_bad_request_is_told_in_the_servers_words(serve: Serve, agent_for: AgentFor) -> None:
    server = serve(refuses(400, {"error": {"message": "At most 1 image(s) may be provided" + "!" * 1000}}))
    with pytest.raises(
        ChatError, match=r"400 Bad Request: At most 1 image\(s\) may be provided!+…$"
    ) as caught:
        say(agent_for(server))
    assert len(str(caught.value)) < 450


def test_a_redirect_is_not_followed(serve: Serve, agent_for: AgentFor) -> None:
    elsewhere = serve(says("B"))
    server = serve(refuses(307, Location=elsewhere.base_url + "/chat/completions"))
    with pytest.raises(ChatError, match=r"307 .*; redirects are not followed"):
        say(agent_for(server))
    assert elsewhere.asked == []


def test_a_slow_answer_ends_at_the_timeout(serve: Serve, agent_for: AgentFor) -> None:
    server = serve(stuck)
    with pytest.raises(ChatError, match=r"no whole answer within 0\.05 s$"):
        say(agent_for(server, timeout=0.05))
    assert server.hung_up.wait(PATIENCE_S)


def test_after_a_failure_the_next_probe_is_asked_afresh(serve: Serve, agent_for: AgentFor) -> None:
    server = serve(streams(delta("It"), then=cut), says("B"))
    agent = agent_for(server)
    with pytest.raises(ChatError):
        say(agent)
    assert say(agent) == ["B"]

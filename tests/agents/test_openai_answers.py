"""The ``openai`` agent and all that a real endpoint, or what stands before it, may answer with a 200."""

from __future__ import annotations

import json
import re
import socket
import threading

import pytest
from aiohttp import web

from streamsim_agents.chat_client import ChatError
from tests.agents.chat_server import (
    PATIENCE_S,
    AgentFor,
    Serve,
    brings,
    delta,
    event,
    forever,
    refuses,
    say,
    says,
    streams,
)

PAGE = "<!DOCTYPE html>\n<html><head><title>Chat</title></head></html>"
DONE = event(b"[DONE]")
ADVICE = "base_url must be the address of the API itself, mostly http://host:port/v1"


def body(message: object = None, **more: object) -> str:
    """One whole chat completion."""
    choice = {"index": 0, "message": message or {"role": "assistant", "content": "B"}, **more}
    return json.dumps({"object": "chat.completion", "choices": [choice]})


@pytest.mark.parametrize(
    ("content", "content_type", "beginning"),
    [
        (PAGE, "text/html; charset=utf-8", "text/html: '<!DOCTYPE html> <html><head>"),
        (f"\n {PAGE}", "text/event-stream", "text/event-stream: '<!DOCTYPE html> "),
        ("it works", "text/plain", "text/plain: 'it works'"),
        ('"B"', "application/json", "application/json: '\"B\"'"),
        (b"\x89PNG\r\n\x1a\n", "image/png", "image/png: '\ufffdPNG"),
    ],
)  # fmt: skip
def test_what_is_no_api_is_named_at_once(
    content: str | bytes, content_type: str, beginning: str, serve: Serve, agent_for: AgentFor
) -> None:
    server = serve(brings(content, content_type))
    with pytest.raises(ChatError) as caught:
        say(agent_for(server))
    line = str(caught.value)
    assert line.startswith(f"{server.base_url}/chat/completions: expected a chat completion, got {beginning}")
    assert line.endswith(f"; {ADVICE}")
    assert "\n" not in line
    assert len(server.asked) == 1


def test_a_page_without_end_is_named_by_its_beginning(serve: Serve, agent_for: AgentFor) -> None:
    server = serve(streams(PAGE.encode(), then=forever))
    with pytest.raises(ChatError, match="expected a chat completion, got text/event-stream: '<!DOCTYPE"):
        say(agent_for(server))


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "text/event-stream", "text/html"])
@pytest.mark.parametrize("reason", [{}, {"finish_reason": None}, {"finish_reason": "stop"}])
def test_a_whole_body_is_an_answer(
    reason: dict[str, object], content_type: str, serve: Serve, agent_for: AgentFor
) -> None:
    server = serve(brings("\r\n\r\n" + body(**reason), content_type))  # some keep the line open so
    assert say(agent_for(server)) == ["B"]
    assert len(server.asked) == 1


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "application/octet-stream"])
def test_a_stream_is_known_by_what_it_is(content_type: str, serve: Serve, agent_for: AgentFor) -> None:
    server = serve(brings(delta("B") + delta(None, "stop") + DONE, content_type))
    assert say(agent_for(server)) == ["B"]


def test_a_whole_message_in_a_stream_is_an_answer(serve: Serve, agent_for: AgentFor) -> None:
    server = serve(streams(b"data: " + body().encode() + b"\n\n"))
    assert say(agent_for(server)) == ["B"]


def test_a_last_chunk_that_repeats_the_message_says_nothing_twice(serve: Serve, agent_for: AgentFor) -> None:
    last = {"delta": {}, "message": {"content": "B"}, "finish_reason": "stop"}
    assert say(agent_for(serve(streams(delta("B"), event({"choices": [last]}), DONE)))) == ["B"]


def test_parts_that_are_text_are_said(serve: Serve, agent_for: AgentFor) -> None:
    parts = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "B"},
        {"type": "text", "text": "."},
    ]
    assert say(agent_for(serve(brings(body({"content": parts}), "application/json")))) == ["B."]


@pytest.mark.parametrize("content", ['{"choices": []}', '{"choices": null}', "{}", '{"model": "tiny"}'])
def test_a_body_without_choices_is_one_clear_error(content: str, serve: Serve, agent_for: AgentFor) -> None:
    server = serve(brings(content, "application/json"))
    with pytest.raises(ChatError, match=re.escape(f": the answer has no choices: {content!r}") + "$"):
        say(agent_for(server))
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "content",
    [
        "{not json",
        '{"choices": []}{"choices": []}',
        "[]",
        "[1]",
        '{"choices": 3}',
        '{"choices": {}, "x": ',
        '{"choices": [3]}',
        '{"choices": [{"message": 3}]}',
        '{"choices": [{"message": {"content": 5}}]}',
        '{"choices": [{"message": {"content": ["B"]}}]}',
        '{"choices": [{"message": {"content": [{"type": "text"}]}}]}',
        "[" * 100_000,
    ],
)
def test_a_body_that_is_no_completion_is_told(content: str, serve: Serve, agent_for: AgentFor) -> None:
    server = serve(brings(content, "application/json"))
    with pytest.raises(ChatError, match=r"expected a chat completion, got '") as caught:
        say(agent_for(server))
    assert len(str(caught.value)) < 450
    assert len(server.asked) == 1


def test_a_body_without_end_is_told(serve: Serve, agent_for: AgentFor) -> None:
    server = serve(streams(b"{", *[b" " * 100_000] * 12))
    with pytest.raises(ChatError, match="an answer of more than 1048576 bytes"):
        say(agent_for(server))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ({"error": {"message": "too long", "type": "BadRequestError", "code": 400}}, "too long"),
        ({"error": "too long"}, "too long"),
        ({"error": "too long", "http_status_code": 422}, "too long"),
        ({"object": "error", "message": "too long", "code": 400}, "too long"),
        ({"detail": "too long"}, "too long"),
        ({"choices": [{"delta": {}, "error": {"message": "too long", "code": 400}}]}, "too long"),
        ({"error": {"code": 400}}, "{'code': 400}"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("streamed", [True, False])
def test_an_error_after_a_200_is_told(
    error: object, said: str, streamed: bool, serve: Serve, agent_for: AgentFor
) -> None:
    server = serve(streams(event(error)) if streamed else brings(json.dumps(error), "application/json"))
    with pytest.raises(ChatError, match=re.escape(f": the server broke off with {said!r}") + "$"):
        say(agent_for(server))
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "broken",
    [
        streams(event({"error": {"message": "busy", "code": "503"}})),
        streams(event({"error": {"message": "busy", "type": "server_error", "code": None}})),
        streams(event({"error": {"message": "busy", "type": "tokens", "code": "rate_limit_exceeded"}})),
        streams(event({"error": "busy", "http_status_code": 503})),
        streams(event({"choices": [{"error": {"message": "busy", "code": 502}}]})),
        streams(delta(None, "abort"), DONE),
        streams(event({"choices": [{"delta": {}, "finish_reason": {"type": "abort"}}]})),
        brings(body({"content": "It is"}, finish_reason="error"), "application/json"),
        brings(json.dumps({"error": {"message": "busy", "code": 503}}), "application/json"),
        streams(DONE),
        streams(event({"choices": [], "usage": {}}), DONE),
        brings("", "application/json"),
        brings("\n", "text/event-stream"),
        streams(b'data: {"choi'),
    ],
)
def test_what_may_pass_is_asked_again(broken: object, serve: Serve, agent_for: AgentFor) -> None:
    server = serve(broken, says("B"))
    assert say(agent_for(server)) == ["B"]
    assert len(server.asked) == 2


def test_an_answer_broken_off_by_its_server_is_no_answer(serve: Serve, agent_for: AgentFor) -> None:
    server = serve(streams(delta("It "), delta(None, "abort"), DONE))
    with pytest.raises(
        ChatError, match="the server broke the answer off with finish_reason 'abort', after a part of"
    ):
        say(agent_for(server))


@pytest.mark.parametrize("last", [b"data: [DONE]", b"data: [DONE]\n", b"data:[DONE] \n\n"])
def test_an_end_that_is_not_quite_written_is_an_end(last: bytes, serve: Serve, agent_for: AgentFor) -> None:
    assert say(agent_for(serve(streams(delta("B"), last)))) == ["B"]


def test_what_follows_the_end_is_passed_over(serve: Serve, agent_for: AgentFor) -> None:
    assert say(agent_for(serve(streams(delta("B"), DONE, event(b"{oh"), delta("C"))))) == ["B"]


@pytest.mark.parametrize("end", [delta(None, "stop"), delta(None, "stop") + DONE])
@pytest.mark.slow
def test_a_server_that_finds_no_end_does_not_hold_the_answer_up(
    end: bytes, serve: Serve, agent_for: AgentFor
) -> None:
    server = serve(streams(delta("B"), end, then=forever))
    assert say(agent_for(server, timeout=3600.0)) == ["B"]
    assert server.hung_up.wait(PATIENCE_S)


@pytest.mark.slow
def test_a_refusal_whose_text_never_ends_is_told_by_its_status(serve: Serve, agent_for: AgentFor) -> None:
    async def reply(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=400)
        await response.prepare(request)
        await response.write(b"too ")
        await forever(request)
        return response

    with pytest.raises(ChatError, match=r"400 Bad Request: too$"):
        say(agent_for(serve(reply), timeout=3600.0))


def test_a_refusal_whose_text_is_cut_is_not_asked_again(serve: Serve, agent_for: AgentFor) -> None:
    async def reply(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=401, headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"no such key")
        assert request.transport is not None
        request.transport.close()
        return response

    server = serve(reply)
    with pytest.raises(ChatError, match="401 Unauthorized: no such key; check the key"):
        say(agent_for(server))
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (405, "check model and base_url"),
        (501, "check model and base_url"),
        (413, "show fewer or smaller frames"),
    ],
)
def test_a_refusal_says_what_to_do(status: int, advice: str, serve: Serve, agent_for: AgentFor) -> None:
    server = serve(refuses(status))
    with pytest.raises(ChatError, match=f"{status} .*: no luck; {advice}$"):
        say(agent_for(server))
    assert len(server.asked) == 1


def test_a_refusal_nested_without_end_is_told(serve: Serve, agent_for: AgentFor) -> None:
    server = serve(refuses(400, '{"error":' * 100_000))
    with pytest.raises(ChatError, match="400 Bad Request: "):
        say(agent_for(server))


def test_https_where_plain_http_is_spoken_is_told_at_once(serve: Serve, agent_for: AgentFor) -> None:
    server = serve(says("B"))
    agent = agent_for(server, base_url=server.base_url.replace("http:", "https:"))
    with pytest.raises(
        ChatError, match=r"check whether base_url should begin with http:// or https://"
    ) as caught:
        say(agent)
    assert "tries" not in str(caught.value)


def test_another_protocol_is_told_in_one_line(serve: Serve, agent_for: AgentFor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with listening.accept()[0] as connection:
                connection.sendall(
                    b"\x15\x03\x01\x00\x02\x02\x46"
                )  # a TLS alert, as a server of https says it
                connection.recv(1 << 16)

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        with pytest.raises(ChatError) as caught:
            say(agent_for(serve(says("B")), base_url=url))
        thread.join()
    line = str(caught.value)
    assert line.startswith(f"{url}/chat/completions: no proper HTTP answer: Bad status line")
    assert line.endswith(f"; {ADVICE}")
    assert "\n" not in line


def test_retries_without_a_wait_are_bounded_only_by_their_number(serve: Serve, agent_for: AgentFor) -> None:
    server = serve(refuses(500))
    with pytest.raises(ChatError, match=r"500 .* \(1101 tries\)$"):
        say(agent_for(server, retries=1100, backoff=0.0))
    assert len(server.asked) == 1101

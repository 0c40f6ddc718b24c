"""The ``openai`` agent against a real HTTP server on loopback that speaks the protocol, faults included."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from PIL import Image

from streamsim_agents.agent import Frame, Query, Turn
from streamsim_agents.chat_client import ChatError
from streamsim_agents.openai_api import OpenAI
from streamsim_agents.testing import check_agent, draw_frame, make_session

Reply = Callable[[web.Request], Awaitable[web.StreamResponse]]
KEY = "sk-secret-1234567890"
PATIENCE_S = 20.0


@dataclass
class Asked:
    """One request as the server received it."""

    path: str
    headers: dict[str, str]
    body: Any


class ChatServer:
    """A chat completions endpoint on a thread of its own. It plays ``replies`` in turn, the last one on."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.asked: list[Asked] = []
        self.arrived = threading.Event()
        self.hung_up = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.port = self._run(self._start())
        self.base_url = f"http://127.0.0.1:{self.port}/v1"

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    async def _start(self) -> int:
        application = web.Application(client_max_size=1 << 26)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(Asked(path=request.path, headers=dict(request.headers), body=await request.json()))
        self.arrived.set()
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        try:
            return await reply(request)
        except asyncio.CancelledError:
            self.hung_up.set()
            raise

    def close(self) -> None:
        self._run(self._runner.cleanup())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., ChatServer]]:
    servers: list[ChatServer] = []

    def start(*replies: Reply) -> ChatServer:
        servers.append(ChatServer(*replies))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def agent_for() -> Iterator[Callable[..., OpenAI]]:
    agents: list[OpenAI] = []

    def make(server: ChatServer, **arguments: Any) -> OpenAI:
        agent = OpenAI(**{"base_url": server.base_url, "model": "tiny", "backoff": 0.001, **arguments})
        agent.begin(make_session())
        agents.append(agent)
        return agent

    yield make
    for agent in agents:
        agent.end()


# ------------------------------------------------------------------------------------ what it replies


def event(data: object) -> bytes:
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


def delta(text: str | None, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {} if text is None else {"content": text}, "finish_reason": finish}
    return event({"id": "c1", "object": "chat.completion.chunk", "choices": [choice]})


def streams(*chunks: bytes, then: Callable[[web.Request], Awaitable[None]] | None = None) -> Reply:
    """A stream of these bytes, each a write of its own; ``then`` before the end."""

    async def reply(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if then is not None:
            await then(request)
        await response.write_eof()
        return response

    return reply


def says(*pieces: str) -> Reply:
    """What a sound server sends: a role, the pieces, a reason to finish, usage, the end."""
    role = event(
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
    )
    usage = event({"choices": [], "usage": {"completion_tokens": len(pieces)}})
    return streams(b": hello\n\n", role, *map(delta, pieces), delta(None, "stop"), usage, event(b"[DONE]"))


def refuses(status: int, body: object = None, **headers: str) -> Reply:
    async def reply(request: web.Request) -> web.StreamResponse:
        text = body if isinstance(body, str) else json.dumps(body or {"error": {"message": "no luck"}})
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, text=text, headers=named)

    return reply


async def forever(request: web.Request) -> None:
    await asyncio.Event().wait()


async def stuck(request: web.Request) -> web.StreamResponse:
    await forever(request)
    raise AssertionError


async def cut(request: web.Request) -> None:
    assert request.transport is not None
    request.transport.abort()


# --------------------------------------------------------------------------------------- how to ask


def make_query(text: str = "Where is it?") -> Query:
    return Query(id="q1", kind="choice", probe="task", text=text, stem="", options=("x", "y"), media_ns=0)


def make_turn() -> Turn:
    return Turn(1, media_ns=0, seen_media_ns=None)


def say(agent: OpenAI, turn: Turn | None = None) -> list[str]:
    return list(agent.answer(make_query(), turn or make_turn()))


def cancel_once_arrived(server: ChatServer, turn: Turn) -> threading.Thread:
    def wait_and_cancel() -> None:
        assert server.arrived.wait(PATIENCE_S)
        turn.cancel("timed_out")

    thread = threading.Thread(target=wait_and_cancel)
    thread.start()
    return thread


Serve = Callable[..., ChatServer]
AgentFor = Callable[..., OpenAI]


# ------------------------------------------------------------------------------------------- the job


def test_the_latest_frames_and_the_prompt_are_sent(serve: Serve, agent_for: AgentFor) -> None:
    server = serve(says("B"))
    agent = agent_for(server, frames=2, max_tokens=8, detail="low", system="Be brief.")
    frames = [draw_frame(k) for k in range(4)]
    for frame in frames:
        agent.observe(frame)
    assert say(agent) == ["B"]
    asked = server.asked[0]
    assert asked.path == "/v1/chat/completions"
    assert "Authorization" not in asked.headers
    assert {key: value for key, value in asked.body.items() if key != "messages"} == {
        "model": "tiny",
        "max_tokens": 8,
        "temperature": 0.0,
        "stream": True,
    }
    system, user = asked.body["messages"]
    assert system == {"role": "system", "content": "Be brief."}
    assert user["role"] == "user"
    assert [part["type"] for part in user["content"]] == ["text", "image_url", "text", "image_url", "text"]
    assert [part["text"] for part in user["content"] if part["type"] == "text"] == [
        "2 s",
        "3 s",
        "Where is it?",
    ]
    for part, frame in zip((user["content"][1], user["content"][3]), frames[2:], strict=True):
        head, _, data = part["image_url"]["url"].partition(",")
        assert head == "data:image/jpeg;base64"
        assert base64.b64decode(data) == frame.data
        assert part["image_url"]["detail"] == "low"


def test_a_lossless_frame_is_sent_as_what_it_is(serve: Serve, agent_for: AgentFor) -> None:
    server = serve(says("B"))
    agent = agent_for(server, stamps=False)
    file = io.BytesIO()
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(file, "PNG")
    agent.observe(Frame(k=0, media_ns=0, data=file.getvalue()))
    say(agent)
    content = server.asked[0].body["messages"][0]["content"]
    assert [part["type"] for part in content] == ["image_url", "text"]
    assert content[0]["image_url"] == {
        "url": "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    }


def test_it_can_ask_without_frames_and_with_other_fields(serve: Serve, agent_for: AgentFor) -> None:
    server = serve(says("B"))
    agent = agent_for(server, frames=0, temperature=None, tokens_field="max_completion_tokens", max_tokens=9)
    agent.observe(draw_frame(0))
    say(agent)
    body = server.asked[0].body
    assert body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "Where is it?"}]}]
    assert body["max_completion_tokens"] == 9
    assert "temperature" not in body
    assert "max_tokens" not in body


def test_text_streams_in_as_it_is_sent(serve: Serve, agent_for: AgentFor) -> None:
    release = threading.Event()

    async def wait(request: web.Request) -> None:
        await asyncio.to_thread(release.wait, PATIENCE_S)

    server = serve(streams(delta("The "), delta("answer"), then=wait))
    turn = make_turn()
    pieces = agent_for(server).answer(make_query(), turn)
    assert next(pieces) == "The "  # the server has not finished, and will not before it is let go
    assert next(pieces) == "answer"
    assert "response" in turn.marks
    release.set()
    with pytest.raises(
        ChatError, match="the stream ended before the answer did, after a part of the answer had come"
    ):
        next(pieces)


def test_text_arrives_whole_however_the_bytes_are_cut(serve: Serve, agent_for: AgentFor) -> None:
    stream = delta("答え: ") + delta("B 👍") + delta(None, "stop")
    server = serve(streams(*(stream[at : at + 7] for at in range(0, len(stream), 7))))
    assert "".join(say(agent_for(server))) == "答え: B 👍"


def test_an_end_without_done_is_an_end(serve: Serve, agent_for: AgentFor) -> None:
    server = serve(streams(delta("B", "length")))
    assert say(agent_for(server)) == ["B"]


def test_an_answer_of_no_text_is_silent(serve: Serve, agent_for: AgentFor) -> None:
    thought = event(
        {"choices": [{"delta": {"content": None, "reasoning_content": "hm"}, "finish_reason": None}]}
    )
    server = serve(streams(thought, delta(None, "length"), event(b"[DONE]")))
    assert say(agent_for(server)) == []


def test_a_server_that_does_not_stream_is_understood(serve: Serve, agent_for: AgentFor) -> None:
    async def reply(request: web.Request) -> web.StreamResponse:
        message = {"role": "assistant", "content": "B"}
        return web.json_response({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

    assert say(agent_for(serve(reply))) == ["B"]


def test_connections_are_kept_between_probes(serve: Serve, agent_for: AgentFor) -> None:
    ports: list[int] = []

    async def reply(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        ports.append(request.transport.get_extra_info("peername")[1])
        return await says("B")(request)

    agent = agent_for(serve(reply))
    for _ in range(3):
        assert say(agent) == ["B"]
    assert len(set(ports)) == 1


def test_it_keeps_the_contract(serve: Serve) -> None:
    server = serve(says("B", "."))
    report = check_agent(lambda: OpenAI(base_url=server.base_url, model="tiny", frames=3))
    assert "save and load" in report.checked
    assert server.asked[0].body["messages"][0]["content"] == [
        {"type": "text", "text": "Where is the red square?\n\n(A) On the left\n(B) On the right\n"
         "(C) It cannot be told\n(D) Gone\n\nReply with one letter."}
    ]  # fmt: skip


def test_figures_tell_of_memory_and_requests(serve: Serve, agent_for: AgentFor) -> None:
    server = serve(refuses(503), says("B"))
    agent = agent_for(server, frames=2)
    frames = [draw_frame(k) for k in range(3)]
    for frame in frames:
        agent.observe(frame)
    say(agent)
    assert agent.stats() == {
        "memory_items": 2,
        "memory_bytes": len(frames[1].data) + len(frames[2].data),
        "requests": 1,
        "retries": 1,
    }
    assert agent.describe()["model"] == "tiny"
    assert agent.describe()["endpoint"] == server.base_url + "/chat/completions"


# ---------------------------------------------------------------------------------------------- faults


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


def test_an_error_inside_the_stream_is_told(serve: Serve, agent_for: AgentFor) -> None:
    server = serve(streams(event({"error": {"message": "context too long", "code": 400}})))
    with pytest.raises(ChatError, match="the stream broke off with 'context too long'"):
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


# ---------------------------------------------------------------------------------------------- cancel


def test_a_cancel_before_the_first_byte_hangs_up(serve: Serve, agent_for: AgentFor) -> None:
    server, turn = serve(stuck), make_turn()
    thread = cancel_once_arrived(server, turn)
    assert say(agent_for(server), turn) == []
    assert server.hung_up.wait(PATIENCE_S)
    thread.join()


def test_a_cancel_in_mid_stream_hangs_up(serve: Serve, agent_for: AgentFor) -> None:
    server, turn = serve(streams(delta("It "), then=forever)), make_turn()
    pieces = agent_for(server).answer(make_query(), turn)
    assert next(pieces) == "It "
    turn.cancel("timed_out")
    assert list(pieces) == []
    assert server.hung_up.wait(PATIENCE_S)


def test_closing_the_iterator_hangs_up(serve: Serve, agent_for: AgentFor) -> None:
    server = serve(streams(delta("It "), then=forever))
    pieces = agent_for(server).answer(make_query(), make_turn())
    assert next(pieces) == "It "
    pieces.close()  # type: ignore[attr-defined]
    assert server.hung_up.wait(PATIENCE_S)


def test_a_cancel_ends_the_wait_between_tries(serve: Serve, agent_for: AgentFor) -> None:
    server, turn = serve(refuses(503)), make_turn()
    thread = cancel_once_arrived(server, turn)
    assert say(agent_for(server, backoff=3600.0, timeout=7200.0), turn) == []
    thread.join()


def test_a_turn_that_was_cancelled_before_is_not_asked(serve: Serve, agent_for: AgentFor) -> None:
    server, turn = serve(says("B")), make_turn()
    turn.cancel("timed_out")
    agent = agent_for(server)
    assert say(agent, turn) == []
    assert say(agent) == ["B"]


def test_the_end_of_a_session_closes_everything(serve: Serve, agent_for: AgentFor) -> None:
    server = serve(says("B"))
    agent = agent_for(server)
    before = set(threading.enumerate())
    for _ in range(2):
        say(agent)
        assert {thread.name for thread in set(threading.enumerate()) - before} == {"chat client"}
        agent.end()
        assert set(threading.enumerate()) == before
        agent.begin(make_session())

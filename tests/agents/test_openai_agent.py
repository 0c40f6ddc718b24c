"""The ``openai`` agent against a real HTTP server: what it sends, how it listens, how it hangs up."""

from __future__ import annotations

import asyncio
import base64
import io
import threading

import numpy as np
import pytest
from aiohttp import web
from PIL import Image

from streamsim_agents.agent import Frame, Turn
from streamsim_agents.chat_client import ChatError
from streamsim_agents.openai_api import OpenAI
from streamsim_agents.testing import check_agent, draw_frame, make_session
from tests.agents.chat_server import (
    PATIENCE_S,
    AgentFor,
    ChatServer,
    Serve,
    delta,
    event,
    forever,
    make_query,
    make_turn,
    refuses,
    say,
    says,
    streams,
    stuck,
)


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


def cancel_once_arrived(server: ChatServer, turn: Turn) -> threading.Thread:
    def wait_and_cancel() -> None:
        assert server.arrived.wait(PATIENCE_S)
        turn.cancel("timed_out")

    thread = threading.Thread(target=wait_and_cancel)
    thread.start()
    return thread


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

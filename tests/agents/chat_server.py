"""A chat completions endpoint for tests: a real HTTP server on loopback, sound or faulty as told."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from streamsim_agents.agent import Query, Turn
from streamsim_agents.openai_api import OpenAI

Reply = Callable[[web.Request], Awaitable[web.StreamResponse]]
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


def brings(body: str | bytes, content_type: str) -> Reply:
    """A 200 with this body, whatever it is said to be."""

    async def reply(request: web.Request) -> web.StreamResponse:
        data = body if isinstance(body, bytes) else body.encode()
        return web.Response(body=data, headers={"Content-Type": content_type})

    return reply


async def forever(request: web.Request) -> None:
    await asyncio.Event().wait()


async def stuck(request: web.Request) -> web.StreamResponse:
    await forever(request)
    raise AssertionError


async def cut(request: web.Request) -> None:
    assert request.transport is not None
    request.transport.abort()


def make_query(text: str = "Where is it?") -> Query:
    return Query(id="q1", kind="choice", probe="task", text=text, stem="", options=("x", "y"), media_ns=0)


def make_turn() -> Turn:
    return Turn(1, media_ns=0, seen_media_ns=None)


def say(agent: OpenAI, turn: Turn | None = None) -> list[str]:
    return list(agent.answer(make_query(), turn or make_turn()))


Serve = Callable[..., ChatServer]
AgentFor = Callable[..., OpenAI]

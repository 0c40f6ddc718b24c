"""A chat completions client for one blocking thread: streaming, retries, and a cancel that hangs up.

An event loop on a thread of its own does the talking, so that a cancel closes the request while the
agent's thread waits. Retries are made only while no text has been given out: what was said cannot be
taken back.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import json
import queue
import random
import ssl
import threading
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

import aiohttp

from streamsim_agents.agent import Turn
from streamsim_agents.chat_answer import (
    DONE,
    RETRY_STATUSES,
    NoAnswer,
    excerpt,
    is_entire,
    read_piece,
    said_by_server,
)
from streamsim_agents.sse import EventDecoder, EventTooLong

MAX_BACKOFF_S = 30.0
MAX_DOUBLINGS = 64
"""Further ones change nothing, and would leave the range of a float."""
DRAIN_S = 0.25
"""How long the end of the body may take after the end of the answer."""
REFUSAL_S = 1.0
"""How long the text of a refusal may take after its status."""
MAX_BODY_BYTES = 1 << 20
MAX_BEGINNING_CHARS = 60
_BLANK = b"\xef\xbb\xbf \t\r\n"
ADVICE = "base_url must be the address of the API itself, mostly http://host:port/v1"


class ChatError(Exception):
    """The endpoint gave no answer; one line that says what happened and, if one can, what to do."""


class _TryAgain(Exception):
    """A failure that may pass. ``after_s`` is how long the server asks to wait, None if it does not say."""

    def __init__(self, text: str, after_s: float | None = None) -> None:
        super().__init__(text)
        self.after_s = after_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where to ask and how patiently. Times in seconds; ``timeout_s`` is for one whole answer."""

    url: str
    api_key: str | None = field(repr=False)
    timeout_s: float
    retries: int
    backoff_s: float


class ChatClient:
    """Keeps connections open between requests; ``close`` ends them and the thread."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chat client", daemon=True)
        self._thread.start()
        self._http = asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()

    def ask(self, body: Mapping[str, object], turn: Turn, *, draw: random.Random) -> ChatRequest:
        """Start a request; iterate over what comes back. ``draw`` spreads the waits between retries."""
        return ChatRequest(self._http, self._loop, self._endpoint, body, turn, draw)

    def close(self) -> None:
        """Hang up and end the thread."""
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _open(self) -> aiohttp.ClientSession:
        headers = {"Accept": "text/event-stream, application/json"}
        if self._endpoint.api_key:
            headers["Authorization"] = f"Bearer {self._endpoint.api_key}"
        return aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=None, connect=None))

    async def _shut(self) -> None:
        talks = asyncio.all_tasks() - {asyncio.current_task()}
        for talk in talks:
            talk.cancel()
        await asyncio.gather(*talks, return_exceptions=True)
        await self._http.close()


class ChatRequest:
    """One answer on its way: an iterator of text, with ``retries`` made so far. ``close`` hangs up."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        loop: asyncio.AbstractEventLoop,
        endpoint: Endpoint,
        body: Mapping[str, object],
        turn: Turn,
        draw: random.Random,
    ) -> None:
        self.retries = 0
        self._http = http
        self._endpoint = endpoint
        self._payload = json.dumps(body).encode()
        self._turn = turn
        self._draw = draw
        self._pieces: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._said = False
        self._finished = False
        self._talk: Future[None] = asyncio.run_coroutine_threadsafe(self._talk_to_the_end(), loop)
        self._talk.add_done_callback(lambda _: self._pieces.put(None))
        turn.on_cancel(self._talk.cancel)

    def __iter__(self) -> Iterator[str]:
        while (piece := self._pieces.get()) is not None:
            yield piece
        if not self._talk.cancelled():
            self._talk.result()

    def close(self) -> None:
        """Hang up, if the answer has not ended. It does no harm afterwards."""
        self._talk.cancel()

    # ------------------------------------------------------------------------- on the client's loop

    async def _talk_to_the_end(self) -> None:
        try:
            async with asyncio.timeout(self._endpoint.timeout_s):
                while True:
                    try:
                        return await self._try_once()
                    except _TryAgain as error:
                        await asyncio.sleep(self._wait_s(error))
                    self.retries += 1
        except TimeoutError:
            asked = f", {self.retries} retries included" if self.retries else ""
            raise self._error(f"no whole answer within {self._endpoint.timeout_s:g} s{asked}") from None

    def _wait_s(self, error: _TryAgain) -> float:
        """How long to wait before the next try; ``ChatError`` when there is to be none."""
        if self._said:
            raise self._error(f"{error}, after a part of the answer had come") from error
        if self.retries >= self._endpoint.retries:
            tries = f" ({self.retries + 1} tries)" if self.retries else ""
            raise self._error(f"{error}{tries}") from error
        if error.after_s is not None and error.after_s > self._endpoint.timeout_s:
            raise self._error(
                f"{error}; the server asks to wait {error.after_s:g} s, longer than the timeout"
            )
        return retry_wait_s(self.retries, self._endpoint.backoff_s, error.after_s, self._draw.random())

    async def _try_once(self) -> None:
        headers = {"Content-Type": "application/json"}
        try:
            async with self._http.post(
                self._endpoint.url, data=self._payload, headers=headers, allow_redirects=False
            ) as response:
                self._turn.mark("response")
                if response.status != 200:
                    raise await self._refusal(response)
                await self._listen(response)
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, ConnectionError) as error:
            if self._finished:
                return  # the answer is whole, whatever became of the connection
            text = f"connection failed: {excerpt(str(error)) or type(error).__name__}"
            if isinstance(error, aiohttp.ClientSSLError) and not isinstance(error.os_error, ssl.SSLEOFError):
                raise self._error(f"{text}; check whether base_url should begin with http:// or https://, "
                                  "and the server's certificate") from error  # fmt: skip
            raise _TryAgain(text) from error
        except aiohttp.ClientError as error:
            said = getattr(error, "message", "") or str(error) or type(error).__name__
            raise self._error(f"no proper HTTP answer: {excerpt(said)}; {ADVICE}") from error

    async def _listen(self, response: aiohttp.ClientResponse) -> None:
        """Take what a 200 brings, to the answer's end and a little beyond."""
        began = done = False
        try:
            async with asyncio.timeout(None) as ending, contextlib.aclosing(_events(response)) as events:
                async for event, whole in events:
                    if done:
                        continue
                    if event.strip() == DONE:
                        if not began:
                            raise _TryAgain("the stream ended without an answer")
                        done = self._finished = True
                    elif (piece := read_piece(event, whole=whole)) is not None:
                        began = True
                        if piece.text:
                            self._said = True
                            self._pieces.put(piece.text)
                        self._finished = self._finished or piece.ends
                    if self._finished and ending.when() is None:
                        # only when the body has ended, the connection can be used again
                        ending.reschedule(asyncio.get_running_loop().time() + DRAIN_S)
        except NoAnswer as error:
            raise _TryAgain(str(error)) if error.may_pass else self._error(str(error)) from error
        except TimeoutError:
            if not self._finished:
                raise
            return  # the answer is whole, and its sender cannot find an end
        if not self._finished:
            raise _TryAgain("the stream ended before the answer did")

    async def _refusal(self, response: aiohttp.ClientResponse) -> Exception:
        """What a status other than 200 means: worth another try, or the end."""
        said = said_by_server(await _read_refusal(response))
        text = f"{response.status} {response.reason or ''}".rstrip() + (f": {said}" if said else "")
        if response.status in RETRY_STATUSES:
            return _TryAgain(text, parse_retry_after(response.headers.get("Retry-After"), time.time()))
        if response.status in (401, 403):
            return self._error(f"{text}; check the key in the variable that api_key_env names")
        if response.status in (404, 405, 501):
            return self._error(f"{text}; check model and base_url")
        if response.status == 413:
            return self._error(f"{text}; show fewer or smaller frames")
        if 300 <= response.status < 400:
            where = excerpt(response.headers.get("Location", "nowhere"))
            return self._error(f"{text}; redirects are not followed, give base_url as {where!r} says")
        return self._error(text)

    def _error(self, text: str) -> ChatError:
        """An error that names the endpoint and never the key, even if the server repeats it."""
        key = self._endpoint.api_key
        return ChatError(f"{self._endpoint.url}: " + (text.replace(key, "(key)") if key else text))


async def _events(response: aiohttp.ClientResponse) -> AsyncGenerator[tuple[str, bool], None]:
    """The events of a stream, or the whole body that came in place of one, each with whether it is whole.

    What the body begins with decides, since servers and those between often name another type.
    ``NoAnswer`` for what is neither, such as a page.
    """
    chunks = response.content.iter_any()
    head = b""
    async for chunk in chunks:
        head += chunk
        if head.strip(_BLANK) or len(head) > MAX_BODY_BYTES:
            break
    begins = head.lstrip(_BLANK)
    if not begins:
        raise NoAnswer("the answer was empty", may_pass=True)
    if begins.startswith(b"<"):
        raise _foreign(response, begins)
    if begins.startswith((b"{", b"[")):
        async for chunk in chunks:
            head += chunk
            if len(head) > MAX_BODY_BYTES:
                raise NoAnswer(f"an answer of more than {MAX_BODY_BYTES} bytes")
        yield head.decode("utf-8-sig", "replace"), True
        return
    decoder = EventDecoder()
    events = 0
    try:
        for event in decoder.feed(head):
            events += 1
            yield event, False
        async for chunk in chunks:
            for event in decoder.feed(chunk):
                events += 1
                yield event, False
    except EventTooLong as error:
        raise aiohttp.ClientError(str(error)) from error
    last = decoder.end()
    if last is not None and is_entire(last):
        yield last, False
    elif not events and response.content_type != "text/event-stream":
        raise _foreign(response, begins)


def _foreign(response: aiohttp.ClientResponse, begins: bytes) -> NoAnswer:
    beginning = excerpt(begins[: 4 * MAX_BEGINNING_CHARS].decode("utf-8", "replace"), MAX_BEGINNING_CHARS)
    return NoAnswer(f"expected a chat completion, got {response.content_type}: {beginning!r}; {ADVICE}")


async def _read_refusal(response: aiohttp.ClientResponse) -> str:
    """The body as text, as far as it comes soon: the status has said the most."""
    body = b""
    with contextlib.suppress(TimeoutError, aiohttp.ClientError, ConnectionError):
        async with asyncio.timeout(REFUSAL_S):
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    break
    return body[:MAX_BODY_BYTES].decode("utf-8-sig", "replace")


def retry_wait_s(retries: int, backoff_s: float, after_s: float | None, draw: float) -> float:
    """Seconds to wait before try number ``retries + 2``.

    ``backoff_s`` doubled each time, at most 30 s, of which ``draw`` (0 to 1) takes up to half away so
    that many clients do not come back at once; never less than ``after_s``, which the server asked for.
    """
    wait_s = min(MAX_BACKOFF_S, backoff_s * 2.0 ** min(retries, MAX_DOUBLINGS)) * (1.0 - draw / 2)
    return max(wait_s, after_s or 0.0)


def parse_retry_after(value: str | None, now: float) -> float | None:
    """Seconds that a ``Retry-After`` header asks for (RFC 9110, 10.2.3: a number or a date), else None.

    ``now`` is Unix time.
    """
    if value is None:
        return None
    with contextlib.suppress(ValueError):
        return max(0.0, float(value))
    with contextlib.suppress(ValueError, OverflowError):
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - now)
    return None

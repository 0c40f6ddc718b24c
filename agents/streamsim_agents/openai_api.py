"""The ``openai`` agent: any endpoint that speaks OpenAI's chat completions (vLLM, SGLang, hosted).

It keeps the latest pictures and sends them with each probe, as data URLs. Nothing leaves the machine
but to the address that the user names, and redirects are not followed. This module knows nothing of
any particular model.
"""

from __future__ import annotations

import base64
import json
import os
import random
from collections import deque
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from streamsim_agents.agent import Agent, Frame, Query, SessionInfo, Turn
from streamsim_agents.chat_client import ChatClient, Endpoint

PNG_MAGIC = b"\x89PNG"
MAX_WAIT_S = 86_400
LIMITS: Mapping[str, tuple[int, int]] = {
    "frames": (0, 10_000),
    "max_tokens": (1, 1_000_000),
    "retries": (0, 10_000),
    "backoff": (0, MAX_WAIT_S),
}
"""From where to where numbers may go: what no endpoint takes, and what would never end, is a slip."""
PATH = "/chat/completions"


class OpenAI(Agent):
    """Asks a chat completions endpoint about the latest frames; works with vLLM, SGLang and hosted APIs.

    Arguments:
        base_url: the endpoint as its clients take it, http://host/v1 or https://host/v1
        model: the model's name at the endpoint
        api_key_env: the environment variable that holds the key; none sends no key
        frames: how many of the latest frames are shown, 0 for the text alone
        stamps: say each frame's time in seconds before it
        system: a system message to begin with
        max_tokens: longest answer, in tokens
        tokens_field: the name under which the endpoint takes that limit
        temperature: of the endpoint's sampling; none leaves it to the endpoint
        detail: the endpoint's level of detail for pictures; none leaves it to the endpoint
        timeout: seconds for one whole answer, retries included
        retries: how often a request that failed is tried again
        backoff: seconds before the first retry, doubled for each further one
    """

    def __init__(
        self,
        *,
        base_url: str,
        model: str,
        api_key_env: str | None = None,
        frames: int = 8,
        stamps: bool = True,
        system: str | None = None,
        max_tokens: int = 64,
        tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens",
        temperature: float | None = 0.0,
        detail: Literal["auto", "low", "high"] | None = None,
        timeout: float = 60.0,
        retries: int = 4,
        backoff: float = 0.5,
    ) -> None:
        self.check_arguments(
            base_url=base_url,
            api_key_env=api_key_env,
            frames=frames,
            max_tokens=max_tokens,
            timeout=timeout,
            retries=retries,
            backoff=backoff,
        )
        self._endpoint = Endpoint(
            url=base_url.rstrip("/") + PATH,
            api_key=os.environ[api_key_env] if api_key_env else None,
            timeout_s=timeout,
            retries=retries,
            backoff_s=backoff,
        )
        self._options: dict[str, object] = {"model": model, tokens_field: max_tokens, "stream": True}
        if temperature is not None:
            self._options["temperature"] = temperature
        self._model = model
        self._system = system
        self._stamps = stamps
        self._detail = detail
        self._frames: deque[Frame] = deque(maxlen=frames)
        self._draw = random.Random(0)
        self._client: ChatClient | None = None
        self._requests = 0
        self._retries = 0

    @classmethod
    def check_arguments(cls, **arguments: Any) -> None:
        """Refuse what no request could be made with."""
        _check_address(arguments.get("base_url", "http://localhost"))
        variable = arguments.get("api_key_env")
        key = os.environ.get(variable) if variable else None
        if variable and not key:
            raise ValueError(
                f"api_key_env: the environment variable {variable!r} is not set: put the key there"
            )
        if key and not (key.isascii() and key.isprintable()):
            raise ValueError(
                f"api_key_env: expected a key of printable ASCII in the variable {variable!r}, got others too"
            )
        for name, (least, most) in LIMITS.items():
            if name in arguments and not least <= arguments[name] <= most:
                raise ValueError(f"{name}: expected from {least} to {most}, got {arguments[name]}")
        if not 0 < arguments.get("timeout", 1) <= MAX_WAIT_S:
            expected = f"expected more than 0 seconds and at most {MAX_WAIT_S}"
            raise ValueError(f"timeout: {expected}, got {arguments['timeout']}")

    def begin(self, session: SessionInfo) -> None:
        """Forget the frames; connections are opened when they are needed."""
        self._frames.clear()
        self._draw = random.Random(session.seed)
        self._requests = self._retries = 0

    def observe(self, frame: Frame) -> None:
        """Keep the frame, as it came, among the latest."""
        self._frames.append(frame)

    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        """Send the latest frames and the prompt; yield the text as it streams in.

        ``ChatError`` where the endpoint gives no answer. A cancel closes the request at once.
        """
        if self._client is None:
            self._client = ChatClient(self._endpoint)
        request = self._client.ask(self.build_body(query), turn, draw=self._draw)
        self._requests += 1
        try:
            yield from request
        finally:
            request.close()
            self._retries += request.retries

    def end(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def save(self, folder: Path) -> None:
        """Keep the frames: their files, and an index of times."""
        index = [{"k": frame.k, "media_ns": frame.media_ns} for frame in self._frames]
        for frame in self._frames:
            (folder / f"{frame.k}.frame").write_bytes(frame.data)
        (folder / "index.json").write_text(json.dumps(index), encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Take the frames that ``save`` kept."""
        self._frames.clear()
        for entry in json.loads((folder / "index.json").read_text(encoding="utf-8")):
            data = (folder / f"{entry['k']}.frame").read_bytes()
            self._frames.append(Frame(k=entry["k"], media_ns=entry["media_ns"], data=data))

    def stats(self) -> dict[str, float]:
        """Frames kept and their bytes; requests and retries of this session."""
        return {
            "memory_items": float(len(self._frames)),
            "memory_bytes": float(sum(len(frame.data) for frame in self._frames)),
            "requests": float(self._requests),
            "retries": float(self._retries),
        }

    def describe(self) -> dict[str, str]:
        """The model's name and the address it is asked at."""
        return {"model": self._model, "endpoint": self._endpoint.url, "aiohttp": version("aiohttp")}

    def build_body(self, query: Query) -> Mapping[str, object]:
        """The request's JSON: each frame after its time, then the prompt, in one user message."""
        content: list[dict[str, object]] = []
        for frame in self._frames:
            if self._stamps:
                content.append(
                    {"type": "text", "text": f"{frame.seconds:.3f}".rstrip("0").rstrip(".") + " s"}
                )
            kind = "png" if frame.data.startswith(PNG_MAGIC) else "jpeg"
            url = f"data:image/{kind};base64,{base64.b64encode(frame.data).decode('ascii')}"
            image = {"url": url} if self._detail is None else {"url": url, "detail": self._detail}
            content.append({"type": "image_url", "image_url": image})
        content.append({"type": "text", "text": query.text})
        messages: list[dict[str, object]] = [{"role": "user", "content": content}]
        if self._system is not None:
            messages.insert(0, {"role": "system", "content": self._system})
        return {**self._options, "messages": messages}


def _check_address(base_url: str) -> None:
    """``ValueError`` for an address to which no request could go, or not the one that is meant."""
    expected = f"base_url: expected http://host/v1 or https://host/v1, got {base_url!r}"
    try:
        parts = urlsplit(base_url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{expected}: {str(error).lower()}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or any(map(str.isspace, base_url)):
        raise ValueError(expected)
    if port == 0:
        raise ValueError(f"{expected}: nobody listens at port 0")
    if parts.username or parts.password:
        raise ValueError("base_url: give the key by api_key_env, not inside the address")
    if parts.query or parts.fragment:
        raise ValueError("base_url: expected an address without ? and #; a key is given by api_key_env")
    if parts.path.rstrip("/").endswith(PATH):
        raise ValueError(f"base_url: give the address without {PATH}, which is added to it")
    try:
        parts.hostname.encode("idna")
    except UnicodeError:
        raise ValueError(f"{expected}: this is no host's name") from None

"""What a chat endpoint says in one event of its stream, or in one whole body: text, an end, or a failure.

Understood are the shapes in which OpenAI's servers and their many likenesses write it. This module knows
no sockets.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DONE = "[DONE]"
MAX_EXCERPT_CHARS = 300
RETRY_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_RETRY_TYPES = frozenset({"server_error", "overloaded_error", "rate_limit_error", "rate_limit_exceeded"})
_BROKEN_OFF = frozenset({"abort", "error"})
"""Reasons to finish by which servers say that the answer is not whole."""
_UNREADABLE = (ValueError, TypeError, AttributeError, LookupError, RecursionError)


class NoAnswer(Exception):
    """What came is no part of an answer. ``may_pass``: another try may bring one."""

    def __init__(self, text: str, *, may_pass: bool = False) -> None:
        super().__init__(text)
        self.may_pass = may_pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of an answer; ``ends``: nothing of it follows."""

    text: str
    ends: bool


def read_piece(data: str, *, whole: bool) -> Piece | None:
    """The part of an answer in an event's data, or in a ``whole`` body; None where there is none in it.

    A whole body, or a whole message in an event, is the answer to its end, whether it gives a reason to
    finish or not. ``NoAnswer`` for an error, and for what is no chat completion.
    """
    try:
        found = json.loads(data)
        if failure := _failure(found):
            raise failure
        choices = found.get("choices") or []
        if not choices:
            if whole:
                raise NoAnswer(f"the answer has no choices: {excerpt(data)!r}")
            return None  # usage, or nothing
        choice = choices[0]
        if failure := _failure(choice):
            raise failure
        delta, message = choice.get("delta"), choice.get("message")
        said = message if delta is None or (whole and message) else delta
        text = _text(None if said is None else said.get("content"))
        reason = choice.get("finish_reason")  # some servers send "" until the end
        kind = reason.get("type") if isinstance(reason, dict) else reason
        broken_off = kind in _BROKEN_OFF
        complete = whole or (delta is None and message is not None)
    except _UNREADABLE:
        expected = "chat completion" if whole else "chat completion chunk"
        raise NoAnswer(f"expected a {expected}, got {excerpt(data)!r}") from None
    if broken_off:
        raise NoAnswer(f"the server broke the answer off with finish_reason {kind!r}", may_pass=True)
    return Piece(text=text, ends=complete or bool(reason))


def is_entire(data: str) -> bool:
    """Whether an event that no empty line ended was written to its end all the same."""
    if data.strip() == DONE:
        return True
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def said_by_server(text: str) -> str:
    """The message in an error's body, in whichever of the usual shapes it comes."""
    with contextlib.suppress(ValueError, RecursionError):
        text = _message(json.loads(text))
    return excerpt(text)


def excerpt(text: str, limit: int = MAX_EXCERPT_CHARS) -> str:
    """``text`` on one line, its beginning if it is long."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[:limit] + "…"


def _text(content: object) -> str:
    """What ``content`` says: a text, nothing, or parts of which some are text and others thoughts."""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") == "text")
    if content is not None and not isinstance(content, str):
        raise TypeError
    return content or ""


def _failure(found: Mapping[str, Any]) -> NoAnswer | None:
    """The error that a chunk, a body or a choice tells of after a 200."""
    error = found.get("error")
    if not error and "choices" not in found and (found.get("object") == "error" or "detail" in found):
        error = found
    if not error:
        return None
    details = error if isinstance(error, dict) else found
    said = [details.get(key) for key in ("code", "status", "http_status_code")]
    statuses = {int(value) for value in map(str, said) if value.isdecimal()}
    kinds = {str(details.get(key)) for key in ("code", "type")}
    may_pass = bool(statuses & RETRY_STATUSES or kinds & _RETRY_TYPES)
    return NoAnswer(f"the server broke off with {excerpt(_message(error))!r}", may_pass=may_pass)


def _message(found: Any) -> str:
    while isinstance(found, dict):
        found = next(
            (found[key] for key in ("error", "message", "detail", "msg") if found.get(key)), str(found)
        )
    return str(found)

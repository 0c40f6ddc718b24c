"""What the ``openai`` agent takes and refuses, and how long it waits between tries."""

from __future__ import annotations

import random

import pytest

from streamsim_agents.chat_client import parse_retry_after, retry_wait_s
from streamsim_agents.registry import AgentArgumentError, make_agent


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "m"}, "agent 'openai' needs --agent-arg base_url=…"),
        ({"base_url": "http://h/v1"}, "agent 'openai' needs --agent-arg model=…"),
        (
            {"base_url": "localhost:8000", "model": "m"},
            "base_url: expected http://host/v1 or https://host/v1",
        ),
        ({"base_url": "http://me:pw@h/v1", "model": "m"}, "base_url: give the key by api_key_env"),
        (
            {"base_url": "http://h/v1", "model": "m", "api_key_env": "NO_SUCH_VARIABLE"},
            "api_key_env: the environment variable 'NO_SUCH_VARIABLE' is not set",
        ),
        ({"base_url": "http://h/v1", "model": "m", "frames": "-1"}, "frames: expected 0 or more, got -1"),
        ({"base_url": "http://h/v1", "model": "m", "timeout": "0"}, "timeout: expected more than 0 seconds"),
        ({"base_url": "http://h/v1", "model": "m", "key": "x"}, "agent 'openai' has no argument 'key'"),
    ],
)
def test_arguments_that_cannot_work_are_refused(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(AgentArgumentError) as caught:
        make_agent("openai", arguments)
    assert message in str(caught.value)


def test_waits_grow_and_are_spread() -> None:
    assert [retry_wait_s(retries, 0.5, None, 0.0) for retries in range(4)] == [0.5, 1.0, 2.0, 4.0]
    assert retry_wait_s(20, 0.5, None, 0.0) == 30.0
    assert retry_wait_s(2, 0.5, None, 1.0) == 1.0
    draws = random.Random(1)
    assert all(1.0 <= retry_wait_s(2, 0.5, None, draws.random()) <= 2.0 for _ in range(100))


def test_the_server_may_ask_for_a_longer_wait_but_not_a_shorter() -> None:
    assert retry_wait_s(0, 0.5, 7.0, 0.0) == 7.0
    assert retry_wait_s(3, 0.5, 1.0, 0.0) == 4.0


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("120", 120.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("Fri, 31 Dec 1999 23:59:59 GMT", 59.0),  # RFC 9110's own example date
        ("Fri, 31 Dec 1999 23:58:00 GMT", 0.0),
        ("soon", None),
        ("", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(header: str | None, seconds: float | None) -> None:
    assert parse_retry_after(header, now=946_684_740.0) == seconds  # 1999-12-31 23:59:00 UTC

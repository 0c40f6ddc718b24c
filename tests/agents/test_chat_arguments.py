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
        (
            {"base_url": "http://h/v1", "model": "m", "frames": "-1"},
            "frames: expected from 0 to 10000, got -1",
        ),
        ({"base_url": "http://h/v1", "model": "m", "timeout": "0"}, "timeout: expected more than 0 seconds"),
        ({"base_url": "http://h/v1", "model": "m", "key": "x"}, "agent 'openai' has no argument 'key'"),
    ],
)
def test_arguments_that_cannot_work_are_refused(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(AgentArgumentError) as caught:
        make_agent("openai", arguments)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("base_url", "problem"),
    [
        ("http://127.0.0.1:99999/v1", ": port out of range 0-65535"),
        ("http://127.0.0.1:eighty/v1", ": port could not be cast to integer value as 'eighty'"),
        ("http://127.0.0.1:0/v1", ": nobody listens at port 0"),
        ("http://[::1/v1", ": invalid ipv6 url"),
        ("http:///v1", ""),
        ("http://:8000/v1", ""),
        ("http:127.0.0.1/v1", ""),
        ("ftp://h/v1", ""),
        ("ws://h:8000/v1", ""),
        ("", ""),
        ("http://h /v1", ""),
        ("http://h/v1\n", ""),
        ("http://a..b/v1", ": this is no host's name"),
        (f"http://{'a' * 64}/v1", ": this is no host's name"),
    ],
)
def test_an_address_that_no_request_could_go_to_is_refused(base_url: str, problem: str) -> None:
    with pytest.raises(AgentArgumentError) as caught:
        make_agent("openai", {"base_url": base_url, "model": "m"})
    expected = f"base_url: expected http://host/v1 or https://host/v1, got {base_url!r}{problem}"
    assert str(caught.value) == f"agent 'openai': {expected}"


@pytest.mark.parametrize("tail", ["?api-version=1", "#top", "/chat/completions", "/chat/completions/"])
def test_an_address_that_is_not_the_apis_own_is_refused(tail: str) -> None:
    with pytest.raises(AgentArgumentError, match="without"):
        make_agent("openai", {"base_url": f"http://h/v1{tail}", "model": "m"})


@pytest.mark.parametrize(
    "base_url", ["http://h", "https://h:65535/v1/", "http://[::1]:80/v1", "http://bücher.example/v1"]
)
def test_addresses_that_are_good(base_url: str) -> None:
    agent = make_agent("openai", {"base_url": base_url, "model": "m"})
    assert agent.describe()["endpoint"] == base_url.rstrip("/") + "/chat/completions"


@pytest.mark.parametrize("key", ["sk-1\n", "sk 1\t", "sk-“1”"])
def test_a_key_that_no_header_carries_is_refused_and_not_shown(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", key)
    with pytest.raises(AgentArgumentError, match="api_key_env: expected a key of printable ASCII") as caught:
        make_agent("openai", {"base_url": "http://h/v1", "model": "m", "api_key_env": "MY_KEY"})
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("frames", ("0", "10000"), ("10001", "9" * 400)),
        ("max_tokens", ("1", "1000000"), ("0", "1000001")),
        ("retries", ("0", "10000"), ("-1", "10001", "9" * 400)),
        ("backoff", ("0", "86400"), ("-0.1", "86401", "1e300")),
        ("timeout", ("0.001", "86400"), ("-1", "86401", "1e300")),
    ],
)
def test_numbers_have_bounds(name: str, good: tuple[str, ...], bad: tuple[str, ...]) -> None:
    for value in good:
        make_agent("openai", {"base_url": "http://h/v1", "model": "m", name: value})
    for value in bad:
        with pytest.raises(AgentArgumentError, match=f"^agent 'openai': {name}: expected "):
            make_agent("openai", {"base_url": "http://h/v1", "model": "m", name: value})


def test_waits_grow_and_are_spread() -> None:
    assert [retry_wait_s(retries, 0.5, None, 0.0) for retries in range(4)] == [0.5, 1.0, 2.0, 4.0]
    assert retry_wait_s(20, 0.5, None, 0.0) == 30.0
    assert retry_wait_s(2, 0.5, None, 1.0) == 1.0
    assert [retry_wait_s(retries, 0.0, None, 0.0) for retries in (1_023, 1_024, 10_000)] == [0.0, 0.0, 0.0]
    assert retry_wait_s(10_000, 1e-9, None, 0.0) == 30.0
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
        ("Fri, 31 Dec 99999999 23:59:59 GMT", None),
        ("nan", 0.0),
        ("", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(header: str | None, seconds: float | None) -> None:
    assert parse_retry_after(header, now=946_684_740.0) == seconds  # 1999-12-31 23:59:00 UTC

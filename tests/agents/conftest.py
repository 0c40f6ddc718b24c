"""Fixtures of the agents' tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:  # so that these tests share `tests.agents.…` however pytest was called
    sys.path.insert(0, str(ROOT))

from streamsim_agents.openai_api import OpenAI  # noqa: E402
from streamsim_agents.testing import make_session  # noqa: E402
from tests.agents.chat_server import ChatServer, Reply  # noqa: E402


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

"""``serve`` and ``join`` by hand, other interpreters, repeats, and the choice of what is played."""

from __future__ import annotations

import re
import shutil
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from streamsim.events import SessionStarted
from streamsim.journal.compare import canonical_lines
from streamsim.journal.folder import read_last_attempts
from tests.end_to_end.harness import Simulator, read_sessions

pytestmark = pytest.mark.slow


def test_two_agents_join_by_hand(simulator: Simulator, one_clip: Path) -> None:
    server = simulator.start(
        *("serve", one_clip, "--out", "run", "--json", "--limit", 4, "--sessions", 2, "--clock", "lockstep")
    )
    first, second = simulator.read_urls(server, 2)
    assert server.stderr is not None
    assert server.stderr.readline() == f"  streamsim join '{second}' --agent NAME\n"
    assert first.split("?")[0].endswith("/v1/lanes/1") and second.split("?")[0].endswith("/v1/lanes/2")
    agents = [
        simulator.start("join", first, "--agent", "random"),
        simulator.start("join", second, "--agent", "abstain", "--memory-dir", "memory"),
    ]
    # each hears that there is no more to play, and leaves content
    left = [simulator.finish(agent) for agent in agents]
    assert [agent.code for agent in left] == [0, 0]
    said = [re.fullmatch(r"streamsim join: played (\d) sessions?\n", agent.err) for agent in left]
    assert sum(int(counted[1]) for counted in said if counted) == 4, left
    done = simulator.finish(server)
    assert done.code == 0, done.err
    assert done.report["outcomes"]["answered"] == 16
    assert len(read_sessions(simulator.folder / "run")) == 4


@pytest.mark.parametrize(("host", "here"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("::1", "[::1]")])
def test_addresses_that_agents_elsewhere_may_use(
    simulator: Simulator, one_clip: Path, host: str, here: str
) -> None:
    if ":" in host and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    server = simulator.start(
        *("serve", one_clip, "--host", host, "--out", "run", "--limit", 1, "--clock", "lockstep")
    )
    (url,) = simulator.read_urls(server, 1)
    assert urlsplit(url).netloc == f"{here}:{urlsplit(url).port}"
    assert server.stderr is not None
    assert server.stderr.readline() == f"  streamsim join '{url}' --agent NAME\n"
    if host != "::1":
        elsewhere = url.replace(here, socket.gethostname())
        assert server.stderr.readline().startswith("on another host (")
        assert server.stderr.readline() == f"  streamsim join '{elsewhere}' --agent NAME\n"
    assert simulator.call("join", url, "--agent", "null").code == 0
    assert simulator.finish(server).code == 0


def has_ipv6() -> bool:
    """Whether one can listen on the loopback address of IPv6."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_one_agent_plays_what_two_lanes_were_meant_for(simulator: Simulator, one_clip: Path) -> None:
    server = simulator.start(
        *("serve", one_clip, "--out", "run", "--json", "--limit", 3, "--sessions", 2, "--clock", "lockstep")
    )
    urls = simulator.read_urls(server, 2)
    agent = simulator.call("join", urls[1], "--agent", "null")
    assert agent.code == 0, agent.err
    done = simulator.finish(server)
    assert (done.code, done.report["complete"]) == (0, 3)


def test_joining_what_is_not_there(simulator: Simulator, one_clip: Path) -> None:
    server = simulator.start("serve", one_clip, "--out", "run", "--json", "--limit", 1, "--clock", "lockstep")
    (url,) = simulator.read_urls(server, 1)
    address, _, token = url.partition("?")
    refused_by = "the server refused: "
    cases = (
        (
            f"{address}?token=wrong",
            "null",
            f"{refused_by}expected the token of this run: use the address that was printed",
        ),
        (f"{address[:-1]}7?{token}", "null", f"{refused_by}expected a lane from 1 to 1, got 7"),
        (
            f"{address[:-1]}x?{token}",
            "null",
            f"{refused_by}nothing is played at this path: use the address that was printed",
        ),
        (url, "nul", "no agent 'nul': did you mean 'null'"),
        (
            "ws://127.0.0.1:1/v1/lanes/1?token=t",
            "null",
            "no server at 127.0.0.1:1: start one with streamsim serve",
        ),
        ("http://127.0.0.1:1", "null", "expected a ws:// or wss:// address, got 'http://127.0.0.1:1'"),
    )
    joins = simulator.call_together(*(("join", where, "--agent", agent) for where, agent, _ in cases))
    for refused, (_, _, shown) in zip(joins, cases, strict=True):
        assert refused.code == 2
        assert refused.err.startswith(f"streamsim join: {shown}")
        assert refused.err.count("\n") == 1
    # none of them cost the session
    assert simulator.call("join", url, "--agent", "null").code == 0
    assert simulator.finish(server).code == 0


def test_repeats_and_another_interpreter(simulator: Simulator, one_clip: Path) -> None:
    done = simulator.call(
        *("run", one_clip, "--out", "run", "--json", "--limit", 2, "--repeat", 2, "--clock", "lockstep"),
        *("--agent", "random", "--agent-python", sys.executable, "--sessions", 2),
    )
    assert done.code == 0, done.err
    report = done.report
    assert (report["sessions"], report["complete"], report["queries"]) == (4, 4, 16)
    journals = {
        (journal.started.episode, journal.started.repeat): journal
        for journal in read_last_attempts(simulator.folder / "run")
    }
    assert set(journals) == {("e00", 1), ("e00", 2), ("e01", 1), ("e01", 2)}
    seeds = {event.seed for journal in journals.values() for event in [journal.started]}
    assert len(seeds) == 4  # each repeat of each episode draws anew
    stories = [
        [line for _, line in canonical_lines(journals["e00", repeat].entries)[1:]] for repeat in (1, 2)
    ]
    assert stories[0] != stories[1]
    first = journals["e00", 1].started
    assert isinstance(first, SessionStarted) and first.attempt == 1


def test_what_is_played(simulator: Simulator, tiny: Path) -> None:
    # a dataset that lacks the video of its middle episode
    dataset = simulator.folder / "dataset"
    shutil.copytree(tiny, dataset)
    (dataset / "public" / "videos" / "3.mp4").unlink()
    run = ("run", dataset, "--agent", "null", "--json", "--dry-run", "--out", "run")

    choices = {
        (): [],
        ("--available",): ["tiny-2", "tiny-4"],
        ("--limit", "1"): ["tiny-2"],
        ("--episode", "tiny-4", "--episode", "tiny-2"): ["tiny-2", "tiny-4"],
    }
    refused, *plans = simulator.call_together(*((*run, *choice) for choice in choices))
    assert refused.code == 2 and refused.err.count("\n") == 1
    assert "tiny-3" in refused.err and "--available plays what is there" in refused.err
    for planned, episodes in zip(plans, list(choices.values())[1:], strict=True):
        assert planned.code == 0, planned.err
        sessions = planned.report["sessions"]
        assert [session["episode"] for session in sessions] == episodes
        assert [query["seconds"] for query in sessions[0]["queries"]][:3] == [0.0, 1.0, 1.0]
    assert not (simulator.folder / "run").exists()  # a dry run leaves nothing

    played = simulator.call(*run[:-3], "--out", "run", "--available", "--clock", "lockstep")
    assert played.code == 0, played.err
    assert played.report["outcomes"]["answered"] == 8
    assert any("partial: 8 of 12 queries" in notice for notice in played.report["scores"]["notices"])

"""What ``join`` says and gives as its exit code when a session does not come to its end.

The agent sends the signal itself, in the middle of an answer, so nothing here depends on time.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.harness import Simulator, read_sessions

pytestmark = pytest.mark.slow

AGENT = ("--agent", "agent_that_signals:Agent", "--agent-arg")


def serve(simulator: Simulator, dataset: Path, limit: int) -> tuple[subprocess.Popen[str], str]:
    server = simulator.start(
        *("serve", dataset, "--out", "run", "--json", "--limit", limit, "--fps", 2, "--clock", "lockstep")
    )
    (url,) = simulator.read_urls(server, 1)
    return server, url


@pytest.mark.parametrize(("session", "played"), [(1, "played 0 sessions"), (2, "played 1 session")])
@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_a_server_that_is_stopped(
    simulator: Simulator, one_clip: Path, signal: str, session: int, played: str
) -> None:
    server, url = serve(simulator, one_clip, 3)
    arguments = (f"name={signal}", "--agent-arg", f"pid={server.pid}", "--agent-arg", f"session={session}")
    joined = simulator.call("join", url, *AGENT, *arguments)
    assert joined.code == 1, joined.err
    # a server that ends at once may take its last word, the close code, along
    known = f"{played}, 1 was broken off by the server: it was stopped"
    unknown = f"the connection to the server was lost; {played}, 1 was broken off"
    assert joined.err in (f"streamsim join: {known}\n", f"streamsim join: {unknown}\n")
    simulator.finish(server)


def test_a_server_that_is_killed(simulator: Simulator, one_clip: Path) -> None:
    server, url = serve(simulator, one_clip, 2)
    arguments = ("name=SIGKILL", "--agent-arg", f"pid={simulator.find_process('streamsim.server')}")
    joined = simulator.call("join", url, *AGENT, *arguments)
    assert (joined.code, joined.err) == (
        1,
        "streamsim join: the connection to the server was lost; played 0 sessions, 1 was broken off\n",
    )
    simulator.finish(server)


@pytest.mark.parametrize(
    ("session", "tally"),
    [(1, "played 0 sessions, 1 was broken off"), (2, "played 1 session, 1 was broken off")],
)
def test_join_that_is_interrupted(simulator: Simulator, one_clip: Path, session: int, tally: str) -> None:
    server, url = serve(simulator, one_clip, session)
    joined = simulator.call("join", url, *AGENT, "name=SIGINT", "--agent-arg", f"session={session}")
    assert (joined.code, joined.err) == (130, f"streamsim join: interrupted; {tally}\n")
    done = simulator.finish(server)
    assert (done.code, done.report["complete"]) == (1, session - 1)


def test_an_agent_that_is_given_no_session(simulator: Simulator, one_clip: Path) -> None:
    """A second agent of a lane is told so, and that it has played nothing."""
    server, url = serve(simulator, one_clip, 1)
    arguments = ("name=SIGSTOP", "--agent-arg", "session=1")
    first = simulator.start("join", url, *AGENT, *arguments)
    os.waitid(os.P_PID, first.pid, os.WSTOPPED)
    second = simulator.call("join", url, "--agent", "null")
    assert second.code == 1
    assert second.err == (
        "streamsim join: connection closed with code 4004: lane 1 has an agent already; played 0 sessions\n"
    )
    first.kill()
    simulator.finish(first)
    simulator.finish(server)


def test_the_logs_of_a_run_that_is_stopped_say_nothing_of_joining(
    simulator: Simulator, one_clip: Path
) -> None:
    mark = simulator.folder / "signalled"
    done = simulator.call(
        *("run", one_clip, "--out", "run", "--limit", 2, "--fps", 2, "--clock", "lockstep", "--json"),
        *("--agent", "agents_for_tests:Signalling", "--agent-arg", "where=task"),
        *("--agent-arg", "signal=SIGINT", "--agent-arg", f"mark={mark}"),
    )
    assert done.code == 130, done.err
    log = (simulator.folder / "run" / "logs" / "lane-1.log").read_text(encoding="utf-8")
    assert log == ""
    assert len(read_sessions(simulator.folder / "run")) == 1

"""A real server against clients that break the contract: close codes, HTTP refusals, and what is journalled.

One server serves one lane for all these tests; each breach costs one session and never the server.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgpack
import pytest
from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from streamsim.events import ChainClosed, FrameSent, LateTextReceived, SessionEnded, TextReceived
from streamsim.journal.read import JournalFile, read_journal
from streamsim.journal.verify import verify_run
from tests.end_to_end.dataset_for_tests import write_noise
from tests.end_to_end.harness import GUARD_S, Simulator, events_of, read_sessions

pytestmark = pytest.mark.slow

FPS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A running server: the addresses of its lanes and its run folder."""

    urls: list[str]
    run: Path

    @property
    def url(self) -> str:
        """The lane that these tests use."""
        return self.urls[0]

    def session(self, back: int = 0) -> JournalFile:
        """The session that was played last, or so many before it; episodes are played in order."""
        return sorted(read_sessions(self.run).items())[-1 - back][1]


@dataclass(slots=True)
class RawClient:
    """A client of a hundred lines less: numbers its messages and knows nothing else of the contract."""

    socket: ClientConnection
    sent: int = 0
    received: int = 0
    heard: list[dict[str, Any]] = field(default_factory=list)
    seen_media_ns: int | None = None

    def send(self, kind: str, **keys: object) -> None:
        """Send one message with the right numbers, unless ``keys`` has others."""
        self.sent += 1
        message = {"type": kind, "seq": self.sent, "ack": self.received, **keys}
        self.socket.send(msgpack.packb(message))

    def receive(self) -> dict[str, Any]:
        """The next message."""
        data = self.socket.recv(timeout=GUARD_S)
        message: dict[str, Any] = msgpack.unpackb(data)
        self.received = message["seq"]
        if message["type"] == "frame":
            self.seen_media_ns = message["media_ns"]
        self.heard.append(message)
        return message

    def hello(self) -> dict[str, Any]:
        """Say hello and take the welcome."""
        self.send("hello", versions=[1], agent="raw")
        welcome = self.receive()
        assert welcome["type"] == "welcome"
        return welcome

    def begin(self) -> None:
        """Go as far as the first frame and the first probe, which is due at 0 s."""
        self.hello()
        self.send("ready")
        assert self.receive()["type"] == "frame"
        self.send("settled", k=0, outcome="processed")
        assert self.receive()["turn"] == 1

    def closed(self) -> tuple[int, str]:
        """Read to the end; the close code and the last error message."""
        try:
            while True:
                self.receive()
        except ConnectionClosed as end:
            assert end.rcvd is not None, "cut off without a close frame"
            errors = [message for message in self.heard if message["type"] == "error"]
            assert [message["code"] for message in errors] in ([], [end.rcvd.code])
            return end.rcvd.code, errors[0]["detail"] if errors else end.rcvd.reason


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, one_clip: Path) -> Iterator[Served]:
    """``streamsim serve`` with two lanes, waiting for clients."""
    simulator = Simulator(tmp_path_factory.mktemp("served"))
    process = simulator.start(
        *("serve", one_clip, "--out", "run", "--json", "--sessions", 2, "--fps", FPS, "--credit", 4),
    )
    urls = simulator.read_urls(process, 2)
    with dial(urls[1]) as other:
        other.hello()  # this session goes no further, and its decoded clip serves those of the first lane
        yield Served(urls=urls, run=simulator.folder / "run")
    process.terminate()
    done = simulator.finish(process)
    assert done.code == 143
    assert done.report["early_releases"] == 0
    assert simulator.processes() == {}
    assert verify_run(simulator.folder / "run").offence is None


@contextlib.contextmanager
def dial(url: str, subprotocol: str | None = "streamsim.v1") -> Iterator[RawClient]:
    """Connect without a word."""
    offered = [Subprotocol(subprotocol)] if subprotocol else None
    with connect(url, subprotocols=offered, compression=None, proxy=None, max_size=None) as socket_:
        yield RawClient(socket_)


# ------------------------------------------------------------------------------ the contract broken

TOO_BIG = b"\0" * (64 * 1024 + 1)

BREACHES: dict[str, tuple[list[object], int, str]] = {
    "version": (
        [{"type": "hello", "seq": 1, "ack": 0, "versions": [9], "agent": "raw"}],
        4003,
        "expected protocol version 1, got [9]",
    ),
    "text": (["hello"], 4001, "expected a binary message, got a text message"),
    "garbage": ([b"\xc1\xff\x00garbage"], 4001, "malformed"),
    "empty": ([b""], 4001, ""),
    "unknown_type": ([{"type": "shout", "seq": 1, "ack": 0}], 4001, "unknown message type 'shout' at $.type"),
    "wrong_type": (
        [{"type": "hello", "seq": "1", "ack": 0, "versions": [1], "agent": "raw"}],
        4001,
        "expected int, got str at $.seq",
    ),
    "missing_key": (
        [{"type": "hello", "seq": 1, "ack": 0, "versions": [1]}],
        4001,
        "missing key 'agent' at $",
    ),
    "ready_first": ([{"type": "ready", "seq": 1, "ack": 0}], 4002, "unexpected 'ready' while opening"),
    "skipped_seq": (
        [{"type": "hello", "seq": 2, "ack": 0, "versions": [1], "agent": "raw"}],
        4002,
        "expected seq 1, got 2",
    ),
    "ack_of_the_future": (
        [{"type": "hello", "seq": 1, "ack": 5, "versions": [1], "agent": "raw"}],
        4002,
        "expected ack from 0 to 0, got 5",
    ),
}


@pytest.mark.parametrize("breach", BREACHES)
def test_breach_while_opening(served: Served, breach: str) -> None:
    items, code, detail = BREACHES[breach]
    with dial(served.url) as client:
        for item in items:
            client.socket.send(item if isinstance(item, str | bytes) else msgpack.packb(item))
        got, text = client.closed()
    assert (got, detail in text) == (code, True), text
    welcome_next(served)
    check_refused(served, "protocol_error", back=1)
    ended = served.session(back=1).ended
    assert ended is not None
    assert text in ended.detail


def test_message_that_is_too_big_before_the_session(served: Served) -> None:
    """The connection is closed at once, whether its session has begun by then or not."""
    with dial(served.url) as client:
        client.socket.send(TOO_BIG)
        assert client.closed()[0] == 1009
    welcome_next(served)


def test_message_that_is_too_big_while_playing(served: Served) -> None:
    with dial(served.url) as client:
        client.begin()
        client.socket.send(TOO_BIG)
        assert client.closed()[0] == 1009
    welcome_next(served)
    check_refused(served, "protocol_error", back=1, q1="disconnected")
    ended = served.session(back=1).ended
    assert ended is not None
    assert "expected at most 65536 bytes" in ended.detail


@pytest.mark.parametrize(
    ("kind", "keys", "detail"),
    [
        ("ready", {}, "unexpected 'ready' while playing"),
        ("hello", {"versions": [1], "agent": "raw"}, "unexpected 'hello' while playing"),
        ("bye", {}, "unexpected 'bye' while playing"),
        ("settled", {"k": 7, "outcome": "processed"}, "frame 7 was never sent"),
        ("text", {"turn": 1, "text": "A"}, "text for turn 1, which is not open"),
        ("turn_started", {"turn": 99, "seen_media_ns": None}, "turn 99 was never given out"),
        ("turn_ended", {"turn": 1, "reason": "finished"}, "without having been closed"),
    ],
)
def test_breach_while_playing(served: Served, kind: str, keys: dict[str, object], detail: str) -> None:
    with dial(served.url) as client:
        client.begin()
        client.send(kind, **keys)
        code, text = client.closed()
    assert (code, detail in text) == (4002, True), text
    check_refused(served, "protocol_error", q1="disconnected")


def test_flood_of_messages(served: Served) -> None:
    with dial(served.url) as client:
        client.begin()
        with pytest.raises(ConnectionClosed):
            for number in range(1_000_000):
                client.send("working", active=bool(number % 2))
        assert client.closed()[0] == 4011
    check_refused(served, "protocol_error", q1="disconnected")
    assert served.session().path.stat().st_size < 1_000_000


@pytest.mark.parametrize("text", ["", "A" * 1000])
def test_flood_of_text_that_does_not_count(served: Served, text: str) -> None:
    """Empty pieces never make a turn too long, and late ones come after it was closed."""
    with dial(served.url) as client:
        client.begin()
        client.send("turn_started", turn=1, seen_media_ns=client.seen_media_ns)
        with pytest.raises(ConnectionClosed):
            for _ in range(1_000_000):
                client.send("text", turn=1, text=text)
        assert client.closed()[0] == 4011
    journal = served.session()
    check_refused(served, "protocol_error", q1="failed" if text else "disconnected")
    said = sum(len(event.text) for _, event in events_of(journal, TextReceived))
    assert said <= 256 * 1024
    assert len(list(events_of(journal, LateTextReceived))) < 3_000


def test_silence_instead_of_hello(simulator: Simulator, one_clip: Path) -> None:
    process = simulator.start("serve", one_clip, "--out", "run", "--json", "--limit", 1, "--ready-timeout", 1)
    (url,) = simulator.read_urls(process, 1)
    with dial(url) as client:
        assert client.closed() == (4006, "the agent did not say hello in time")
    done = simulator.finish(process)
    assert done.code == 1
    check_refused(Served(urls=[url], run=simulator.folder / "run"), "ready_timeout")


def test_client_that_goes_before_its_session_begins(simulator: Simulator, one_clip: Path) -> None:
    process = simulator.start(
        "serve", one_clip, "--out", "run", "--json", "--limit", 1, "--clock", "lockstep"
    )
    (url,) = simulator.read_urls(process, 1)
    with dial(url) as client:
        client.socket.socket.shutdown(socket.SHUT_RDWR)  # its video is not even decoded yet
    agent = simulator.call("join", url, "--agent", "null")
    assert agent.code == 0, agent.err
    done = simulator.finish(process)
    assert (done.code, done.report["complete"]) == (0, 1)


def test_connection_that_is_cut(served: Served) -> None:
    with dial(served.url) as client:
        client.begin()
        client.socket.socket.shutdown(socket.SHUT_RDWR)
    welcome_next(served)
    check_refused(served, "disconnected", back=1, q1="disconnected")


def test_good_client_gets_nothing_early_by_its_own_clock(served: Served) -> None:
    arrived_ns = {}
    with dial(served.url) as client:
        client.hello()
        ready_ns = time.monotonic_ns()
        client.send("ready")
        while (message := client.receive())["type"] != "end":
            match message["type"]:
                case "frame":
                    arrived_ns[message["k"]] = time.monotonic_ns()
                    client.send("settled", k=message["k"], outcome="processed")
                case "probe":
                    client.send("turn_started", turn=message["turn"], seen_media_ns=client.seen_media_ns)
                    client.send("text", turn=message["turn"], text="A")
                    client.send("turn_ended", turn=message["turn"], reason="finished")
        client.send("bye")
        assert client.closed()[0] == 1000
    assert sorted(arrived_ns) == list(range(2 * FPS))
    for k, at_ns in arrived_ns.items():
        assert at_ns - ready_ns >= k * 1_000_000_000 // FPS
    journal = served.session()
    assert journal.complete
    assert [event.k for _, event in events_of(journal, FrameSent)] == list(range(2 * FPS))
    outcomes = [event.outcome for _, event in events_of(journal, ChainClosed)]
    assert outcomes == ["answered"] * 4


def welcome_next(served: Served) -> None:
    """The server is there for the next client, which it gives the next session."""
    with dial(served.url) as client:
        client.hello()


def check_refused(served: Served, reason: str, *, back: int = 0, **outcomes: str) -> None:
    """The session so many ``back`` ended for ``reason``; queries not named were never reached."""
    journal = served.session(back)
    assert journal.fault is None and isinstance(journal.ended, SessionEnded)
    assert journal.ended.reason == reason
    expected = {f"q{number}": "not_reached" for number in range(1, 5)} | outcomes
    assert {event.query: event.outcome for _, event in events_of(journal, ChainClosed)} == expected


# -------------------------------------------------------------------------------- before the contract


@pytest.mark.parametrize("subprotocol", [None, "streamsim.v9", "streamsim.watch.v1"])
def test_other_subprotocol(served: Served, subprotocol: str | None) -> None:
    before = len(read_sessions(served.run))
    with dial(served.url, subprotocol) as client:
        code, text = client.closed()
    assert (code, "expected subprotocol 'streamsim.v1'" in text) == (4003, True)
    assert len(read_sessions(served.run)) == before  # it cost no session


def test_second_agent_on_a_busy_lane(served: Served) -> None:
    with dial(served.url) as first:
        first.hello()
        with dial(served.url) as second:
            assert second.closed() == (4004, "lane 1 has an agent already")
        first.send("ready")
        assert first.receive()["type"] == "frame"  # undisturbed


@pytest.mark.parametrize(
    ("change", "headers", "status"),
    [
        ({"query": "token=wrong"}, {}, 401),
        ({"query": ""}, {}, 401),
        ({}, {"Origin": "http://localhost:8000"}, 403),
        ({}, {"Origin": "null"}, 403),
        ({}, {"Host": "evil.example"}, 403),
        ({}, {"Host": "evil.example:{port}"}, 403),
        ({}, {"Host": "[::1"}, 403),
        ({}, {"Host": "a]b"}, 403),
        ({"path": "/v1/lanes/9"}, {}, 404),
        ({"path": "/v1/lanes/0"}, {}, 404),
        ({"path": "/v1/lanes/x"}, {}, 404),
        ({"path": "/"}, {}, 404),
        ({}, {"Connection": "close", "Upgrade": "none"}, 400),
    ],
)
def test_refused_over_http(
    served: Served, change: dict[str, str], headers: dict[str, str], status: int
) -> None:
    address = urlsplit(served.url)
    path = change.get("path", address.path) + "?" + change.get("query", address.query)
    plain = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol": "streamsim.v1",
    }
    assert address.hostname and address.port
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=GUARD_S)
    changed = {name: value.replace("{port}", str(address.port)) for name, value in headers.items()}
    connection.request("GET", path, headers=plain | changed)
    answer = connection.getresponse()
    assert answer.status == status
    assert "token" not in answer.read().decode().replace("expected the token of this run", "")
    connection.close()


def test_bytes_that_are_no_http(served: Served) -> None:
    address = urlsplit(served.url)
    with socket.create_connection((address.hostname, address.port), timeout=GUARD_S) as raw:
        raw.sendall(b"\x00\xff\xfe garbage\r\n\r\n")
        assert raw.recv(65536).startswith(b"HTTP/1.")
    welcome_next(served)


def test_a_request_of_endless_length_is_no_error_of_the_server(simulator: Simulator, one_clip: Path) -> None:
    out = simulator.folder / "endless"
    run = simulator.start("serve", one_clip, "--limit", 1, "--clock", "lockstep", "--out", out)
    (url,) = simulator.read_urls(run, 1)
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=GUARD_S) as raw:
        raw.sendall(b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n")
        assert raw.recv(65536).split()[1] == b"400"
    joined = simulator.call("join", url, "--agent", "null")
    assert joined.code == 0
    done = simulator.finish(run)
    assert done.code == 0 and "error of its own" not in done.err
    assert not (out / "logs" / "server.log").exists()


def test_client_that_reads_nothing_is_cut_off(simulator: Simulator, tmp_path: Path) -> None:
    """More than half a megabyte is to go out when the session is given up: the server drops it."""
    process = simulator.start(
        *("serve", write_noise(tmp_path / "noise"), "--out", "run", "--repeat", 2),
        *("--encoding", "png", "--answer-timeout", 0.3, "--hang-timeout", 0.3),
    )
    (url,) = simulator.read_urls(process, 1)
    address = parse_uri(url)
    protocol = ClientProtocol(address, subprotocols=[Subprotocol("streamsim.v1")])
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.settimeout(GUARD_S)
        raw.connect((address.host, address.port))
        protocol.send_request(protocol.connect())
        raw.sendall(b"".join(protocol.data_to_send()))
        while protocol.state is State.CONNECTING:
            protocol.receive_data(raw.recv(1024))
        hello = {"type": "hello", "seq": 1, "ack": 0, "versions": [1], "agent": "deaf"}
        for message in (hello, {"type": "ready", "seq": 2, "ack": 0}):
            protocol.send_binary(msgpack.packb(message))
        raw.sendall(b"".join(protocol.data_to_send()))
        assert process.stderr is not None
        while "[1/2] noise: hung" not in process.stderr.readline():
            assert process.poll() is None
        while not welcome_if_free(url):  # the lane is free once its connection is closed
            continue
        received = 0
        with contextlib.suppress(ConnectionResetError):
            while data := raw.recv(1 << 16):
                received += len(data)
    done = simulator.finish(process)
    assert done.code == 1
    journal = read_journal(simulator.folder / "run" / "sessions" / "noise.1.1.jsonl")
    (sent,) = (event for _, event in events_of(journal, FrameSent))
    assert received < sent.size_bytes - 100_000
    assert sent.size_bytes > 500_000


def welcome_if_free(url: str) -> bool:
    """Say hello; whether the lane was free to hear it."""
    with dial(url) as client:
        try:
            client.hello()
        except ConnectionClosed as end:
            assert end.rcvd is not None and end.rcvd.code == 4004
            return False
    return True

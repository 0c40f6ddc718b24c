"""Plays the server's half of a transcript to the real runtime and worker, over a real WebSocket.

The agent is scripted: every call of its methods waits until the transcript has come to what it is to
do, so that nothing depends on how fast anybody is. A message of the agent's was sent after it had
received the server's messages up to its ``ack`` and no more: that gives the order at the agent's end.
"""

from __future__ import annotations

import asyncio
import queue
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from streamsim_agents.agent import Agent, Frame, Query, SessionInfo, Turn
from streamsim_agents.runtime import Runtime, SessionRefused
from streamsim_protocol import messages as wire
from streamsim_protocol.states import Connection
from tests.protocol.vectors import Step, Transcript, read_twin

GUARD_S = 3.0
"""Nothing waits longer: what does not come in this time does not come."""
STOP: dict[str, Any] = {"type": "stop"}
"""Told to an agent that still waits when its connection is gone."""
DURATIONS = ("begin_ns", "waited_ns", "service_ns", "first_text_ns")


class Deviation(AssertionError):
    """The client did something else than the transcript says."""


class ScriptedAgent(Agent):
    """Does what it is told, message by message: ``tell`` from any thread."""

    def __init__(self, hello: dict[str, Any]) -> None:
        self.frames = hello["frames"]
        self._libraries = hello["libraries"]
        self._orders: queue.Queue[dict[str, Any]] = queue.Queue()
        self._figures: dict[str, float] = {}
        self._changed = threading.Condition()
        self._resting = False
        self._info: SessionInfo | None = None
        self.pictures: dict[int, bytes] = {}
        """What it was shown."""
        self.questions: dict[int, Query] = {}
        """What it was asked, by turn."""
        self.cancelled: dict[int, str | None] = {}
        """Turns that it knows to be cancelled when it ends them, and why."""

    def tell(self, order: dict[str, Any]) -> None:
        """What to do next, in the words of the message that is to come of it."""
        if order["type"] == "working":
            assert self._info is not None
            self._info.declare_working(order["active"])
        else:
            self._orders.put(order)

    def wait_for_frame(self, k: int) -> None:
        """Return when frame ``k`` is being observed."""
        with self._changed:
            if not self._changed.wait_for(lambda: k in self.pictures, GUARD_S):
                raise Deviation(f"frame {k} was not observed")

    def wait_at_rest(self) -> None:
        """Return when the agent has done all that it was told, and waits in the middle of a call."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._resting and self._orders.empty(), GUARD_S):
                raise Deviation("the agent was not called again")

    def describe(self) -> dict[str, str]:
        return dict(self._libraries)

    def begin(self, session: SessionInfo) -> None:
        self._info = session
        self._take("ready")

    def observe(self, frame: Frame) -> None:
        with self._changed:
            self.pictures[frame.k] = frame.data
            self._changed.notify_all()
        order = self._take("settled")
        assert order.get("k", frame.k) == frame.k, f"frame {frame.k} is observed in place of {order['k']}"
        if order.get("outcome") == "failed":
            raise RuntimeError("observe")

    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        self.questions[turn.id] = query
        while True:
            order = self._take("text", "turn_ended")
            if order["type"] == "text":
                yield order["text"]
                continue
            if order.get("reason") == "closed":
                assert turn.wait(GUARD_S), "the turn was not cancelled"
            self.cancelled[turn.id] = turn.reason
            if order.get("dropped_chars"):
                yield "x" * order["dropped_chars"]
            for name in order.get("marks", ()):
                turn.mark(name)
            self._figures = order.get("figures", {})
            if order.get("reason") == "failed":
                raise RuntimeError("answer")
            return

    def stats(self) -> dict[str, float]:
        return self._figures

    def end(self) -> None:
        if self._take("bye", "failed")["type"] == "failed":
            raise RuntimeError("end")

    def _take(self, *kinds: str) -> dict[str, Any]:
        self._rest(True)
        try:
            order = self._orders.get(timeout=GUARD_S)
        finally:
            self._rest(False)
        if order["type"] == "failed" and order["phase"] in ("load", "begin"):
            raise RuntimeError(order["phase"])
        if order is STOP:
            self._orders.put(STOP)
            return {"type": kinds[-1]}
        assert order["type"] in kinds, f"the agent was called for {kinds} in place of {order}"
        return order

    def _rest(self, resting: bool) -> None:
        with self._changed:
            self._resting = resting
            self._changed.notify_all()


class ClientSide:
    """The client's half, to be compared with the transcript step by step."""

    def __init__(
        self, transcript: Transcript, monkeypatch: pytest.MonkeyPatch, *, stays: bool = True
    ) -> None:
        """``stays``: the server is still there after the session, to say that there is nothing more."""
        self._transcript = transcript
        self._stays = stays
        self._stop_listening: Callable[[], None] = lambda: None
        self._steps = order_at_agent(transcript)
        hello = next((step.map for step, _ in self._steps if step.tag == "hello"), None)
        self._hello = hello or {"frames": "all", "libraries": {}, "agent": "scripted"}
        self.agent = ScriptedAgent(self._hello)
        self._expected: dict[int, dict[str, Any]] = {}
        self._unexpected = ""
        self.connections = 0
        self._heard = 0
        self._news = asyncio.Event()
        self._fault: BaseException | None = None
        side = self

        class WatchedConnection(Connection):
            """Tells what the runtime has received; it handles that before it gives the loop away."""

            def receive(self, message: wire.Message) -> None:
                super().receive(message)
                side._heard = self.received
                side._news.set()

        monkeypatch.setattr("streamsim_agents.runtime.Connection", WatchedConnection)
        monkeypatch.setattr("streamsim_agents.runtime.IDLE_GRACE_S", 4 * GUARD_S)

    def expect_in_place_of(self, step: Step, change: dict[str, Any]) -> None:
        """Expect another message than the transcript's, to see whether that would be noticed."""
        assert step.map is not None
        self._expected[step.map["seq"]] = {**step.map, **change}

    def expect_no(self, tag: str) -> None:
        """Expect no message of this type, to see whether one would be noticed."""
        self._unexpected = tag

    async def play(self) -> int:
        """Play all of it; how many sessions the runtime played, or ``SessionRefused`` as it raised it."""
        async with serve(
            self._serve,
            "127.0.0.1",
            0,
            subprotocols=[Subprotocol(wire.SUBPROTOCOL)],
            compression=None,
            max_size=None,
        ) as server:
            port = server.sockets[0].getsockname()[1]
            self._stop_listening = lambda: server.close(close_connections=False)
            runtime = Runtime(f"ws://127.0.0.1:{port}/", self._make_agent, name=self._hello["agent"])
            try:
                return await runtime.run()
            finally:
                if self._fault is not None:
                    raise self._fault

    def _make_agent(self) -> Agent:
        for step, _ in self._steps:
            if step.map is not None and step.tag == "failed" and step.map["phase"] == "load":
                raise RuntimeError("load")
        return self.agent

    # --------------------------------------------------------------------------- the server's half

    async def _serve(self, socket: ServerConnection) -> None:
        self.connections += 1
        if self.connections > 1:
            await socket.close(4000, "no more sessions")
            return
        try:
            await self._converse(socket)
            await self._close(socket)
        except BaseException as fault:  # noqa: BLE001 - raised again by ``play``
            self._fault = fault
        finally:
            self.agent.tell(STOP)

    async def _converse(self, socket: ServerConnection) -> None:
        received = 0
        for number, (step, faulty) in enumerate(self._steps):
            where = f"message {number} ({step.tag})"
            if step.sender == "agent":
                if faulty or step.tag == self._unexpected:
                    continue  # a right client does not say it
                received += 1
                self._give_orders(number, step)
                self._compare(where, step, await _receive(socket, where))
                if step.tag in ("turn_started", "text"):  # a worker that is behind would find itself closed
                    await asyncio.to_thread(self.agent.wait_at_rest)
                continue
            await self._until_at_work(number, step.at_ns)
            if faulty and self._transcript.faulty == "server":
                await socket.send(step.data)
            else:
                await socket.send(_acknowledge(step, received) if faulty else step.data)
                await self._until_heard(step, where)

    async def _until_at_work(self, number: int, at_ns: int) -> None:
        """Wait until the worker has taken up the frame that it is at by then: no message tells of that."""
        sent = {step.map["k"] for step, _ in self._steps[:number] if step.map and step.tag == "frame"}
        for step, faulty in self._steps[number:]:
            message = step.map
            if faulty or message is None or step.tag != "settled" or message["outcome"] == "skipped":
                continue
            if message["k"] in sent and step.at_ns - message["service_ns"] < at_ns:
                await asyncio.to_thread(self.agent.wait_for_frame, message["k"])

    async def _until_heard(self, step: Step, where: str) -> None:
        """Wait until the runtime has handled the message: what it says from then on knows of it."""
        assert step.map is not None
        try:
            async with asyncio.timeout(GUARD_S):
                while self._heard < step.map["seq"]:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise Deviation(f"{where}: the client did not take it") from None

    async def _close(self, socket: ServerConnection) -> None:
        close = self._transcript.close
        match close["by"]:
            case "network":
                socket.transport.abort()
            case "server":
                if self._transcript.faulty is None and close["code"] != 1001:
                    await _expect_silence(socket)
                if not self._stays:
                    self._stop_listening()
                await socket.close(close["code"], "as the transcript says")
            case _:
                with pytest.raises(ConnectionClosed):
                    async with asyncio.timeout(GUARD_S):
                        while True:
                            await socket.recv()
                if socket.close_code != close["code"]:
                    raise Deviation(f"the client closed with {socket.close_code}, expected {close['code']}")

    # --------------------------------------------------------------------------- the agent's half

    def _give_orders(self, number: int, step: Step) -> None:
        """Let the agent do what the message tells of, where it takes an agent to do it."""
        message = step.map
        assert message is not None
        match message:
            case {"type": "settled", "outcome": "skipped"} | {"type": "failed", "phase": "load"}:
                pass
            case {"type": "turn_ended", "reason": "closed"} if not self._was_started(number, message["turn"]):
                pass
            case {"type": "turn_ended"} if self._steps[number - 1][0].tag != "stats":
                self.agent.tell(message)
            case {"type": "bye"} if self._failed_before(number):
                pass
            case {"type": "stats", "values": values} if any(name.startswith("runtime.") for name in values):
                if self._steps[number + 1][0].tag == "bye" and not self._failed_before(number):
                    self.agent.tell({"type": "bye"})
            case {"type": "stats", "values": values}:  # an agent is asked for them as its turn ends
                ended = self._steps[number + 1][0].map
                assert ended is not None
                self.agent.tell({**ended, "figures": values})
            case {"type": "ready" | "settled" | "text" | "working" | "failed"}:
                self.agent.tell(message)

    def _was_started(self, number: int, turn: int) -> bool:
        return any(
            step.map is not None and step.tag == "turn_started" and step.map["turn"] == turn
            for step, _ in self._steps[:number]
        )

    def _failed_before(self, number: int) -> bool:
        return any(step.tag == "failed" for step, _ in self._steps[:number])

    def _compare(self, where: str, step: Step, data: bytes) -> None:
        said = msgpack.unpackb(data)
        assert step.map is not None
        expected = self._expected.get(step.map["seq"], step.map)
        if expected["type"] == "hello":  # what else a client understands is its own affair
            needed = _used_capabilities(self._transcript)
            if not needed <= set(said["capabilities"]):
                raise Deviation(f"{where}: the client named {said['capabilities']}, expected {needed}")
            said["capabilities"] = expected["capabilities"]
        if mask(said) != mask(expected):
            raise Deviation(f"{where}: the client said {mask(said)}, expected {mask(expected)}")


def order_at_agent(transcript: Transcript) -> list[tuple[Step, bool]]:
    """The messages in the agent's order, each with whether it belongs to the breach.

    Turns of an agent's own are left out, and what is numbered after them moves up: the runtime's
    agents speak when they are asked.
    """
    mine: list[tuple[Step, bool]] = []
    theirs: list[tuple[Step, bool]] = []
    spoken = [0]
    """By how many of the agent's messages were sent: how many of these are left."""
    for index, step in enumerate(transcript.steps):
        if not isinstance(step, Step):
            continue
        faulty = transcript.is_faulty(index)
        if step.sender == "server":
            theirs.append((step if faulty else _renumber(step, ack=spoken[-1]), faulty))
        elif faulty:
            mine.append((step, faulty))
        elif step.map is not None and step.map.get("turn", 0) >= wire.FIRST_UNPROMPTED_TURN:
            spoken.append(spoken[-1])
        else:
            spoken.append(spoken[-1] + 1)
            mine.append((_renumber(step, seq=spoken[-1]), faulty))
    ordered: list[tuple[Step, bool]] = []
    for number, (step, faulty) in enumerate(theirs, start=1):
        while mine and not mine[0][1] and mine[0][0].map is not None and mine[0][0].map["ack"] < number:
            ordered.append(mine.pop(0))
        ordered.append((step, faulty))
    return ordered + mine


def mask(message: dict[str, Any]) -> dict[str, Any]:
    """A message without what no two runs have in common: the lengths of durations, texts of tracebacks."""
    masked = dict(message)
    for name in DURATIONS:
        if masked.get(name) is not None:
            masked[name] = _duration(masked[name])
    if masked["type"] == "turn_ended":
        masked["marks"] = {name: _duration(mark) for name, mark in masked["marks"].items()}
    if masked["type"] == "stats":
        masked["values"] = {
            name: "a duration" if name.startswith("runtime.") and value >= 0 else value
            for name, value in masked["values"].items()
        }
    if masked.get("error") is not None:
        text = masked["error"]
        assert isinstance(text, str) and text.startswith("Traceback")
        masked["error"] = re.findall(r"^\w+Error: \w+$", text, re.MULTILINE)
    return masked


def _duration(value: object) -> str:
    return "a duration" if type(value) is int and value >= 0 else f"no duration: {value!r}"


def _renumber(step: Step, **numbers: int) -> Step:
    assert step.map is not None
    message = {**step.map, **numbers}
    return replace(step, map=message, data=msgpack.packb(message))


def _acknowledge(step: Step, received: int) -> bytes:
    """The server's word on a breach, acknowledging only what this client has said."""
    assert step.map is not None
    data: bytes = msgpack.packb({**step.map, "ack": min(step.map["ack"], received)})
    return data


def _used_capabilities(transcript: Transcript) -> set[str]:
    welcome = next(
        (step.map for step in transcript.steps if isinstance(step, Step) and step.tag == "welcome"), None
    )
    return set() if welcome is None else set(read_twin(welcome["capabilities"]))


async def _receive(socket: ServerConnection, where: str) -> bytes:
    try:
        async with asyncio.timeout(GUARD_S):
            data = await socket.recv()
    except TimeoutError:
        raise Deviation(f"{where}: the client said nothing") from None
    except ConnectionClosed as closed:
        raise Deviation(f"{where}: the client was gone: {closed}") from None
    if not isinstance(data, bytes):
        raise Deviation(f"{where}: the client said text: {data!r}")
    return data


async def _expect_silence(socket: ServerConnection) -> None:
    """Whatever the client has said by now it has said before it answers this ping."""
    await (await socket.ping())
    try:
        async with asyncio.timeout(0):
            data = await socket.recv()
    except TimeoutError:
        return
    raise Deviation(f"at the end the client said {data!r}")


__all__ = ["GUARD_S", "ClientSide", "Deviation", "SessionRefused", "mask", "order_at_agent"]

"""A whole client, made from protocol/README.md alone: `python examples/raw_client.py URL`."""

import sys
from contextlib import suppress
from itertools import count
from typing import Any

import msgpack
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect


def play(socket: ClientConnection) -> None:
    """One session: settle every frame, answer every probe with A; ``ConnectionClosed`` ends it."""
    numbers, received, frozen, chain, seen_media_ns = count(1), 0, False, None, None
    waiting: list[dict[str, Any]] = []

    def say(kind: str, **keys: Any) -> None:
        socket.send(msgpack.packb({"type": kind, "seq": next(numbers), "ack": received, **keys}))

    say("hello", versions=[1], agent="raw_client")
    while True:
        message = msgpack.unpackb(socket.recv())
        kind, received = message["type"], message["seq"]
        if kind == "welcome":
            frozen = message["history"] == "frozen"
            say("ready")
        elif kind in ("frame", "probe"):
            say("ack")
            waiting.append(message)
        elif kind == "chain_closed" and message["query"] == chain:
            chain = None
        elif kind == "turn_closed" and any(item.get("turn") == message["turn"] for item in waiting):
            waiting = [item for item in waiting if item.get("turn") != message["turn"]]
            say("turn_ended", turn=message["turn"], reason="closed")
        # by arrival; under frozen history nothing but an open chain's own probes is taken
        while item := next((item for item in waiting if chain in (None, item.get("query"))), None):
            waiting.remove(item)
            if item["type"] == "frame":
                seen_media_ns = item["media_ns"]
                say("settled", k=item["k"], outcome="processed")
            else:
                chain = item["query"] if frozen else None
                say("turn_started", turn=item["turn"], seen_media_ns=seen_media_ns)
                say("text", turn=item["turn"], text="A")
                say("turn_ended", turn=item["turn"], reason="finished")
        if kind == "end":
            say("bye")


if __name__ == "__main__":
    code = 1000
    options: Any = {"subprotocols": ["streamsim.v1"], "compression": None, "ping_timeout": 90, "proxy": None}
    while code == 1000:  # a connection is a session; 4000 says that there are no more
        with connect(sys.argv[1], **options) as socket, suppress(ConnectionClosed):
            play(socket)
        code = socket.close_code or 1006
    sys.exit(code != 4000)

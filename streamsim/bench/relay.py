"""Stands between a server and one agent process and writes down every byte before it passes it on.

    relay.py FOLDER PYTHON ARGUMENTS...

Started in the place of the agent's interpreter (``run --agent-python``): where ``ARGUMENTS`` hold a
``ws://`` address, the agent is started with this relay's own address instead; other calls pass through.
What is written down is what left the server, whatever became of the agent: when the server dies, the
agent is killed as it would be without a relay, and what still is on its way is read to the end. Per
connection ``PID-N.server`` holds the server's bytes, ``PID-N.agent`` the agent's. A script with nothing
but the standard library, so that it starts in no time; it knows neither WebSocket nor our messages.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

_PR_SET_PDEATHSIG = 1
DRAIN_TIMEOUT_S = 10.0


class Relay:
    """One agent process and its connections, one after the other."""

    def __init__(self, folder: Path, server: tuple[str, int]) -> None:
        self._folder = folder
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._readers: list[threading.Thread] = []

    def start(self) -> None:
        """Take connections from now on."""
        threading.Thread(target=self._accept, daemon=True).start()

    def drain(self) -> None:
        """Return when all that the server sent is written down."""
        for reader in self._readers:
            reader.join(DRAIN_TIMEOUT_S)

    def _accept(self) -> None:
        number = 0
        while True:
            agent, _ = self._listener.accept()
            number += 1
            try:
                server = socket.create_connection(self._server)
            except OSError:
                agent.close()
                continue
            for end in (agent, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            name = self._folder / f"{os.getpid()}-{number}"
            from_server = threading.Thread(target=_pass_on, args=(server, agent, f"{name}.server"))
            from_agent = threading.Thread(target=_pass_on, args=(agent, server, f"{name}.agent"), daemon=True)
            self._readers.append(from_server)
            from_server.start()
            from_agent.start()


def _pass_on(source: socket.socket, target: socket.socket, log: str) -> None:
    """Copy until the source ends; whoever does not take it any more does not stop the log."""
    with open(log, "wb", buffering=0) as file:  # noqa: PTH123 - a path that is text already
        try:
            while data := source.recv(1 << 16):
                file.write(data)
                with contextlib.suppress(OSError):
                    target.sendall(data)
        except OSError:
            pass  # reset: the peer was killed
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def main() -> int:
    """Relay one agent; its exit code, or 128 + 9 once the server has died."""
    folder, python, *arguments = sys.argv[1:]
    places = [index for index, argument in enumerate(arguments) if argument.startswith("ws://")]
    if not places:
        os.execv(python, [python, *arguments])
    url = urlsplit(arguments[places[0]])
    relay = Relay(Path(folder), (url.hostname or "", url.port or 80))
    arguments[places[0]] = urlunsplit(url._replace(netloc=f"127.0.0.1:{relay.port}"))
    relay.start()
    parent = os.getppid()
    with subprocess.Popen([python, *arguments]) as agent:
        signal.signal(signal.SIGUSR1, lambda *_: agent.kill())
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1, 0, 0, 0)
        if os.getppid() != parent:  # it died in between
            agent.kill()
        code = agent.wait()
    relay.drain()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())

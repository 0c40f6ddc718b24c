"""HTTP around the lanes: one port, one WebSocket route per lane, nothing for browsers.

A page in a browser must not be able to drive a local server, so requests that carry an Origin are
refused, as are those whose Host is a name that could have been rebound to this machine.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import socket
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from streamsim.server.agent_socket import AgentSocket
from streamsim.server.lane import Lane
from streamsim_protocol import messages as wire
from streamsim_protocol.errors import CloseCode

SOCKET_BUFFER_BYTES = 64 << 10
WRITER_LIMIT_BYTES = 1 << 30
"""Beyond what credit lets into a connection: sending never waits, the credit window does."""
HEARTBEAT_S = 180.0
"""A ping goes out after this much silence; half of it later the connection counts as lost (90 s)."""


def build_app(lanes: list[Lane], *, token: str, host: str) -> web.Application:
    """The application: ``/v1/lanes/N?token=T`` for agents."""
    app = web.Application(client_max_size=1 << 16)

    async def play(request: web.Request) -> web.StreamResponse:
        check_request(request, token=token, host=host)
        number = int(request.match_info["number"])
        if not 1 <= number <= len(lanes):
            raise web.HTTPNotFound(text=f"expected a lane from 1 to {len(lanes)}, got {number}\n")
        answer = web.WebSocketResponse(
            protocols=(wire.SUBPROTOCOL,),
            compress=False,
            max_msg_size=wire.MAX_AGENT_MESSAGE_BYTES + 1,  # aiohttp refuses from here on, not beyond
            writer_limit=WRITER_LIMIT_BYTES,
            heartbeat=HEARTBEAT_S,
        )
        await answer.prepare(request)
        shrink_buffers(request)
        if answer.ws_protocol != wire.SUBPROTOCOL:
            offered = request.headers.get("Sec-WebSocket-Protocol", "none")
            reason = f"expected subprotocol {wire.SUBPROTOCOL!r}, got {offered!r}"
            await AgentSocket(answer).close(CloseCode.VERSION_MISMATCH, reason)
            return answer
        async with AgentSocket(answer).reading() as agent:
            await lanes[number - 1].attach(agent)
        return answer

    app.router.add_get(r"/v1/lanes/{number:\d{1,6}}", play)
    return app


def ignore_bad_requests() -> None:
    """A request that is no HTTP is its sender's fault: it is answered, and is no error of ours."""
    logging.getLogger("aiohttp.server").addFilter(_is_ours)


def _is_ours(record: logging.LogRecord) -> bool:
    fault = record.exc_info[1] if record.exc_info else None
    return not isinstance(fault, HttpProcessingError)


def check_request(request: web.Request, *, token: str, host: str) -> None:
    """Refuse browsers, rebound names and strangers; raises the HTTP error."""
    origin = request.headers.get("Origin")
    if origin is not None:
        raise web.HTTPForbidden(text=f"expected no Origin, got {origin!r}: this port is not for web pages\n")
    if not is_host_allowed(request.host, host):
        raise web.HTTPForbidden(
            text=f"expected this machine's address or name as Host, got {request.host!r}\n"
        )
    given = request.query.get("token", "")
    if not hmac.compare_digest(given.encode(), token.encode()):
        raise web.HTTPUnauthorized(text="expected the token of this run: use the address that was printed\n")


def is_host_allowed(header: str, bound: str) -> bool:
    """An IP literal, localhost, this machine's own name, or the name that was bound."""
    try:
        name = urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in {"localhost", socket.gethostname().lower(), socket.getfqdn().lower(), bound.lower()}
    return True


def shrink_buffers(request: web.Request) -> None:
    """Keep what the kernel holds small: what was sent is then soon what has arrived, both ways."""
    raw = request.get_extra_info("socket")
    if raw is not None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)

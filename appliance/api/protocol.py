"""One HTTP connection: how long it may dawdle, and errors in our shape before there is a request. Not here: routes."""

import asyncio
import contextlib
import socket
from typing import Any

from aiohttp import web

from appliance.api.errors import BadHttp, error_response, public
from appliance.api.sse import STALL_S
from engine.errors import ColibriError

FIRST_REQUEST_S = 30.0
"""A connection that has not sent a whole request head by then is closed."""
LIMITS: dict[str, Any] = {
    "keepalive_timeout": 75.0, "access_log": None, "lingering_time": 10.0, "max_line_size": 8190,
    "max_field_size": 16380,
}  # fmt: skip
WRITE_BUFFER = 64 * 1024
"""Bytes of a stream that wait in this process; a writer is held up above that."""
SEND_BUFFER = 128 * 1024
"""Bytes that wait in the kernel (Linux doubles it), which would else take megabytes for each client that sleeps."""
# After these the kernel gives up a peer that has vanished, in seconds: idle, between probes; and probes.
KEEPIDLE_S, KEEPINTVL_S, KEEPCNT = 30, 10, 3


class Connection(web.RequestHandler):
    """aiohttp's handler with the kernel's patience set, and without plain text errors."""

    __slots__ = ("_first",)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
                # Data that a client does not take for STALL_S ends the connection, also while nothing new is written.
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(STALL_S * 1000))
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPIDLE_S)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPINTVL_S)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPCNT)
        if isinstance(transport, asyncio.WriteTransport):
            transport.set_write_buffer_limits(high=WRITE_BUFFER)
        self._first = asyncio.get_running_loop().call_later(FIRST_REQUEST_S, self._dawdled)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._first.cancel()
        super().connection_lost(exc)

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """What goes out when there is no request yet, or when a handler let something through."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer is under way already; the connection ends instead")
        error: ColibriError
        if status < 500:
            error = BadHttp("this is not HTTP/1.1 as this server reads it; check the request line and the headers")
        else:
            error = public(exc or RuntimeError(), "a request without an id")
        response = error_response(error)
        response.set_status(status)
        response.headers["Server"] = "colibri"
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """A body that cannot be decoded was refused already and is met again when its rest is read; others are logged
        as `public` does, without a message."""
        fault = kw.get("exc_info")
        if isinstance(fault, BaseException) and not isinstance(fault, web.RequestPayloadError):
            public(fault, "a connection")

    def _dawdled(self) -> None:
        if self._request_count == 0 and self.transport is not None:
            self.transport.abort()

"""HTTP/1.1 and nothing else on a web port, over hypercorn.

hypercorn also speaks HTTP/2 without TLS and WebSocket, to clients that ask for it in a header or in their first bytes.
No resource needs them, and broken frames of either end in internal errors. A request for another protocol is answered
in this one, as RFC 9110 (7.8) allows.
"""

from __future__ import annotations

from typing import Any

import h11
import trio
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.typing import ConnectionState
from hypercorn.utils import parse_socket_addr

_UPGRADE = b"upgrade"
_FINAL = 200
"""Lowest status of an answer that is not followed by another one to the same request."""


class Answers:
    """Counts of the answers of a site, by the first digit of their status; read by the metrics."""

    def __init__(self) -> None:
        self.by_digit = dict.fromkeys((2, 3, 4, 5), 0)

    def note(self, status: int) -> None:
        """Count an answer."""
        self.by_digit[status // 100] += 1


class Parser(h11.Connection):
    """Parser of the requests of one connection.

    h11 raises what it finds wrong from a frame that refers to it: a cycle, with the frames of the whole call. The
    collector of a server looks at old objects rarely, so the frames of refused requests would fill its memory.
    """

    def next_event(self) -> Any:
        try:
            return super().next_event()
        except h11.RemoteProtocolError as error:
            raise error.with_traceback(None)  # noqa: B904 - it is the same error


class Http1(H11Protocol):
    """Protocol of one connection."""

    answers: Answers

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.connection = Parser(h11.SERVER, max_incomplete_event_size=self.config.h11_max_incomplete_size)

    async def _check_protocol(self, event: Any) -> None:
        """Change to no other protocol."""

    async def _create_stream(self, request: Any) -> None:
        headers = [(name, value) for name, value in request.headers if name != _UPGRADE]
        if len(headers) < len(request.headers):
            made = {"method": request.method, "target": request.target, "http_version": request.http_version}
            request = type(request)(headers=headers, **made)
        await super()._create_stream(request)

    async def _send_h11_event(self, event: Any) -> None:
        if (status := getattr(event, "status_code", 0)) >= _FINAL:
            self.answers.note(status)
        await super()._send_h11_event(event)


class WebConnection(TCPServer):
    """Service of one connection, from its handshake to its end. The stream says whether it `is_tls`."""

    answers: Answers

    async def run(self) -> None:
        stream: Any = self.stream
        protocol: Any = None
        if stream.is_tls:
            try:
                await stream.do_handshake()
            except trio.BrokenResourceError:
                return
        try:
            own = stream.socket
            client, server = (parse_socket_addr(own.family, each()) for each in (own.getpeername, own.getsockname))
            async with TaskGroup() as group:
                self._task_group = group
                state = ConnectionState(self.state)
                protocol = Http1(
                    self.app, self.config, self.context, group, state, stream.is_tls, client, server, self.protocol_send
                )
                protocol.answers = self.answers
                self.protocol = protocol
                await self.idle_task.restart(group, self._idle_timeout)
                await self._read_data()
        except OSError:
            pass  # the connection is gone
        finally:
            await self._close()
            if protocol is not None:  # they refer to each other: see Parser
                protocol.stream = None
                del self.protocol

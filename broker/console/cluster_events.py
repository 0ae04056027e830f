"""Server-sent events of the cluster pages: an answer that is asked for again, and sent when it changed.

    event: data         the answer, as JSON
    event: problem      {"reason": ...}: it cannot be given now; the stream goes on
    : still here        a comment, so that proxies keep the connection

A stream ends after STREAM_S, and its page connects again: a page that was left open does not hold a connection of a
stopping broker for ever. At most STREAMS_MAX are served at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import trio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from broker.admin.errors import AdminError, OverloadedError
from broker.errors import BrokerError
from broker.slices import run_through
from quire.metadata.errors import MetadataError
from quire.service.web.json_steps import encoding

STREAM_S: Final = 600.0
STREAMS_MAX: Final = 100
QUIET_S: Final = 15.0
ASK_S: Final = 30.0

Ask = Callable[[], Awaitable[Any]]
"""Return the answer of this moment; None: nothing new. Raises BrokerError, AdminError, MetadataError."""


class Streams:
    """Count of the streams of one server."""

    def __init__(self) -> None:
        self.open = 0

    def make(self, ask: Ask, every_s: float) -> EventStream:
        """Return a stream that asks every `every_s` seconds. Raises OverloadedError if there are too many."""
        if self.open >= STREAMS_MAX:
            raise OverloadedError(f"{self.open} pages follow this broker, the maximum; close some, or retry later")
        return EventStream(ask, every_s, self)


class EventStream(Response):
    """One stream, which ends with its client."""

    media_type = "text/event-stream"

    def __init__(self, ask: Ask, every_s: float, streams: Streams) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._ask = ask
        self._every_s = every_s
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._streams.open += 1
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_until_gone, receive, nursery.cancel_scope, name="page gone")
                    with trio.move_on_after(STREAM_S):
                        await self._send_all(send)
                    nursery.cancel_scope.cancel()
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._streams.open -= 1

    async def _send_all(self, send: Send) -> None:
        before, sent_at = b"", trio.current_time()
        while True:
            event = await self._event()
            if event is not None and event != before:
                before, sent_at = event, trio.current_time()
                await send({"type": "http.response.body", "body": event, "more_body": True})
            elif trio.current_time() - sent_at >= QUIET_S:
                sent_at = trio.current_time()
                await send({"type": "http.response.body", "body": b": still here\n\n", "more_body": True})
            await trio.sleep(self._every_s)

    async def _event(self) -> bytes | None:
        try:
            with trio.fail_after(ASK_S):
                value = await self._ask()
        except trio.TooSlowError:
            return await _encoded(b"problem", {"reason": f"no answer within {ASK_S:g} s"})
        except (BrokerError, AdminError, MetadataError) as error:
            return await _encoded(b"problem", {"reason": str(error) or type(error).__name__})
        return None if value is None else await _encoded(b"data", value)


async def _encoded(name: bytes, value: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name, await run_through(encoding(value)))


async def _until_gone(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()

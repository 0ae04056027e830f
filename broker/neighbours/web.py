"""Limits of requests to the web port: a middleware behind authentication.

A request above the limits of its role or address is answered 429, as is one that makes a topic too many.
"""

from __future__ import annotations

import re
from typing import Final

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from broker.errors import NotAllowedError
from broker.neighbours.neighbours import Neighbours

MAKES_TOPIC: Final = re.compile(r"/admin/v2/(?:non-)?persistent/[^/]+/[^/]+/[^/]+(?:/partitions)?")
"""Paths at which PUT makes a topic."""


class RequestLimits:
    """Middleware that counts each request for its role and its address."""

    def __init__(self, app: ASGIApp, neighbours: Neighbours) -> None:
        self._app = app
        self._neighbours = neighbours

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client, principal = scope.get("client"), scope.get("principal")
        neighbour = self._neighbours.meet(f"{client[0]}:{client[1]}" if client else "")
        if principal is not None:
            neighbour.join(principal.subject)
        neighbour.take_request()
        try:
            reason = "there are too many requests of its role or address" if neighbour.is_over(publishes=False) else ""
            if not reason and scope["method"] == "PUT" and MAKES_TOPIC.fullmatch(scope["path"]):
                try:
                    neighbour.make_topic()
                except NotAllowedError as error:
                    reason = str(error)
            if reason:
                await JSONResponse({"reason": reason}, status_code=429)(scope, receive, send)
            else:
                await self._app(scope, receive, send)
        finally:
            neighbour.give_request()
            neighbour.log_out()

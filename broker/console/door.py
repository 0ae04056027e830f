"""The console's door: a middleware before authentication, which serves its files and follows redirects for its pages.

    GET /                   307 to /console/ for a browser, which accepts text/html; else 404
    GET /console            307 to /console/
    GET /console/...        a file, without credentials: files are the same for everybody and hold no data
    header Quire-Console    on a request to /admin/ or /console/api/: a 307 is followed here

Everything else passes, and is authenticated and authorized as the admin REST is.

Redirects: a page may connect to its own origin only (Content-Security-Policy), and the owner of a topic has another.
So this broker repeats a redirected request, with the Authorization header it came with and no other credentials: the
owner decides again, and no page gets more than by following the redirect. A client certificate cannot be handed on.

Cross-site requests: the console uses no cookies, so a foreign page has no credentials to ride on. With authentication
off, /console/api/ refuses what browsers mark as sent by another site (Sec-Fetch-Site).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import trio
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from broker.console.assets import BASE, Asset, load
from broker.console.relay import FORWARDED_BYTES_MAX, Relay

POLICY: Final = "; ".join(
    (
        "default-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "object-src 'none'",
    )
)
"""Content-Security-Policy: everything comes from this origin; no script or style stands in the page, no data: URL."""
_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
MARK: Final = b"quire-console"
"""Header of the requests of the console's pages."""
API: Final = "/console/api/"
_RELAYED: Final = ("/admin/", API)
_FOREIGN: Final = ("cross-site", "same-site")


class ConsoleDoor:
    """Middleware of a site with a console."""

    def __init__(self, app: ASGIApp, relay: Relay, assets: Mapping[str, Asset] | None = None) -> None:
        self._app = app
        self._relay = relay
        self._assets = load() if assets is None else assets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path, reading = scope["path"], scope["method"] in ("GET", "HEAD")
        asset = self._assets.get(path) if reading else None
        if asset is not None:
            await _file(asset, _header(scope, b"if-none-match"))(scope, receive, send)
        elif reading and (path == "/console" or (path == "/" and "text/html" in _header(scope, b"accept"))):
            await Response(status_code=307, headers={"Location": BASE})(scope, receive, send)
        elif path.startswith(API) and _header(scope, b"sec-fetch-site") in _FOREIGN:
            text = "the console answers its own pages only, not those of another site"
            await JSONResponse({"reason": text}, status_code=403)(scope, receive, send)
        elif path.startswith(_RELAYED) and _header(scope, MARK):
            await self._follow(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _follow(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request here, and where it is redirected to if it is."""
        body, location, whole = bytearray(), "", False

        async def reading() -> Message:
            nonlocal whole
            message = await receive()
            if message["type"] == "http.request":
                whole = not message.get("more_body", False)
                if len(body) <= FORWARDED_BYTES_MAX:
                    body.extend(message.get("body", b""))
            return message

        async def watching(message: Message) -> None:
            nonlocal location
            if message["type"] == "http.response.start" and message["status"] == 307:
                location = {name.lower(): value for name, value in message["headers"]}.get(b"location", b"").decode()
            if not location:
                await send(message)

        await self._app(scope, reading, watching)
        if not location:
            return
        # A handler may redirect before it reads the body.
        with trio.move_on_after(self._relay.deadline_s):
            while not whole and len(body) <= FORWARDED_BYTES_MAX and (await reading())["type"] == "http.request":
                pass
        authorization = _header(scope, b"authorization")
        answer = await self._relay.request(scope["method"], location, bytes(body), authorization)
        await answer(scope, receive, send)


def _file(asset: Asset, known: str) -> Response:
    headers = {**_HEADERS, "ETag": asset.tag}
    if known == asset.tag:
        return Response(status_code=304, headers=headers)
    return Response(asset.body, media_type=asset.media_type, headers=headers)


def _header(scope: Scope, name: bytes) -> str:
    """Return the first value of a header; "" if there is none."""
    for key, value in scope["headers"]:
        if key.lower() == name:
            return str(value.decode("latin-1"))
    return ""

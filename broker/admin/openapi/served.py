"""GET /openapi.json: the description of all that the web port serves, the web port's own resources included.

It needs the credentials that any other call needs, and no permission: it shows nothing of what is stored. Made with the
first request, in short steps, and kept.
"""

from __future__ import annotations

import json
from functools import partial

import trio
from starlette.responses import Response

from broker.admin.openapi.document import Json, document, operations
from broker.admin.requests import AdminCall
from quire.distribution import installed_version

PATH = "/openapi.json"
_encode = partial(json.dumps, separators=(",", ":"))


class Description:
    """The handler, with the text it has made."""

    def __init__(self) -> None:
        self._text = b""

    async def get(self, call: AdminCall) -> Response:
        """Return this document."""
        if not self._text:
            found: list[tuple[str, str, Json]] = []
            for each in operations(call.request.app.routes):
                found.append(each)
                await trio.lowlevel.checkpoint()
            made = document(installed_version(), found)
            paths: list[str] = []
            for path, each in made.pop("paths").items():
                paths.append(f"{_encode(path)}:{_encode(each)}")
                await trio.lowlevel.checkpoint()
            self._text = f'{_encode(made)[:-1]},"paths":{{{",".join(paths)}}}}}'.encode()
        return Response(self._text, media_type="application/json")

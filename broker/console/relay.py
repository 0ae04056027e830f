"""Requests of the console's pages that this broker repeats at the broker to which it would redirect them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import trio
from starlette.responses import JSONResponse, Response

from broker.ownership.http_client import HttpAnswer, request
from quire.world.doors import Network

if TYPE_CHECKING:
    from quire.world.tls_sides import ClientTls

REDIRECTS_MAX: Final = 5
FORWARDED_BYTES_MAX: Final = 1 << 20
"""Maximum bytes of a body that is repeated: a schema."""
AT_ONCE_MAX: Final = 50
"""Repeated requests at a time; another one is answered with 429."""


class Caller:
    """Headers of the request that is repeated, in place of this broker's own credentials."""

    def __init__(self, authorization: str) -> None:
        self._authorization = authorization

    async def headers(self) -> dict[str, str]:
        """Return them."""
        await trio.lowlevel.checkpoint()
        return {"Authorization": self._authorization} if self._authorization else {}


class Relay:
    """Repeats requests at other brokers."""

    def __init__(self, network: Network, tls: ClientTls | None = None, *, deadline_s: float = 60.0) -> None:
        """`deadline_s`: for a request, its further redirects included. `tls`: this broker's as a client."""
        self._network = network
        self._tls = tls
        self.deadline_s = deadline_s
        self._under_way = 0

    async def request(self, method: str, url: str, body: bytes, authorization: str) -> Response:
        """Return the answer of the broker at `url`, or of one to which that redirects; 502 or 504 without one."""
        if len(body) > FORWARDED_BYTES_MAX:
            return _failed(413, f"the body is too large to be handed on; at most {FORWARDED_BYTES_MAX} bytes")
        if self._under_way >= AT_ONCE_MAX:
            return _failed(429, f"{self._under_way} requests are at other brokers, the maximum; retry later")
        try:
            value = json.loads(body) if body else None
        except ValueError as error:
            return _failed(400, f"the body is not JSON: {error}")
        self._under_way += 1
        try:
            with trio.fail_after(self.deadline_s):
                for _ in range(REDIRECTS_MAX):
                    found = await request(self._network, method, url, value, own=Caller(authorization), tls=self._tls)
                    if found.status != 307 or not found.location:
                        return _answered(found)
                    url = found.location
        except trio.TooSlowError:
            return _failed(504, f"the broker that serves this did not answer within {self.deadline_s:g} s")
        except OSError as error:
            return _failed(502, f"the broker that serves this cannot be reached: {error}")
        finally:
            self._under_way -= 1
        return _failed(502, "the brokers redirect to each other; retry when the topic has settled")


def _answered(found: HttpAnswer) -> Response:
    media_type = "application/json" if found.body else None
    return Response(found.body, status_code=found.status, media_type=media_type)


def _failed(status: int, text: str) -> Response:
    return JSONResponse({"reason": text}, status_code=status)

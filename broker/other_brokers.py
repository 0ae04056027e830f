"""The owners of topics that are not ours, asked over their admin REST: what is done to a partitioned topic as a whole is done
by one broker, and each partition by its owner.

One connection per request, HTTP/1.1; a redirect (307) is followed, for owners change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

import h11
import trio

from broker.errors import BrokerError, ServiceNotReadyError
from quire.service.log import get_logger
from quire.wire.pulsar.names import TopicName
from quire.world.doors import Network, Stream

log = get_logger(__name__)

REDIRECTS_MAX = 5
REQUEST_S = 30.0
"""For one request, its redirects included."""
ANSWER_BYTES_MAX = 16 << 20
_CHUNK = 64 << 10

Errors = Mapping[int, type[BrokerError]]
"""What a status means where it is asked; anything else that is no success is ServiceNotReadyError."""
NO_ERRORS: Errors = MappingProxyType({})


class Found(Protocol):
    """Of an owner that was looked up."""

    @property
    def web_url(self) -> str: ...


class Owners(Protocol):
    """What is used of Ownership."""

    async def lookup(self, name: TopicName, *, authoritative: bool) -> Found: ...


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    location: str
    body: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.body) if self.body else None
        except ValueError:
            return None


class OtherBrokers:
    """Every call raises ServiceNotReadyError, beside what `errors` says."""

    def __init__(self, ownership: Owners, network: Network) -> None:
        self._ownership = ownership
        self._network = network

    async def owner(self, name: TopicName) -> str | None:
        """The web URL of the broker to ask about a topic; None: this one. BrokerError, as a lookup."""
        found = await self._ownership.lookup(name, authoritative=False)
        return None if getattr(found, "mine", False) else found.web_url

    async def ask(
        self,
        web_url: str,
        method: str,
        name: TopicName,
        resource: str,
        *,
        body: object = None,
        errors: Errors = NO_ERRORS,
    ) -> Any:
        """The JSON that the owner of a topic answers at `resource`, such as `/internalStats?metadata=true`."""
        path = f"/admin/v2/persistent/{name.namespace_path}/{quote(name.local, safe='')}{resource}"
        return await self.call(web_url, method, path, body=body, errors=errors)

    async def call(
        self, web_url: str, method: str, path: str, *, body: object = None, errors: Errors = NO_ERRORS
    ) -> Any:
        """The same for any path."""
        url = f"{web_url}{path}"
        try:
            with trio.fail_after(REQUEST_S):
                for _ in range(REDIRECTS_MAX):
                    answer = await self._request(url, method, body)
                    if answer.status != 307 or not answer.location:
                        return _judged(answer, url, errors)
                    url = answer.location
        except (OSError, h11.ProtocolError, trio.TooSlowError) as error:
            raise ServiceNotReadyError(f"the broker at {web_url} does not answer: {error or 'too slow'}") from error
        raise ServiceNotReadyError(f"{method} {url}: redirected too often")

    async def _request(self, url: str, method: str, body: object) -> Answer:
        parts = urlsplit(url)
        data = b"" if body is None else json.dumps(body).encode()
        headers = [
            ("Host", parts.netloc),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(data))),
            ("Connection", "close"),
        ]
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        stream = await self._network.connect(parts.hostname or "", parts.port or 80)
        try:
            http = h11.Connection(h11.CLIENT)
            await _send(stream, http.send(h11.Request(method=method, target=target, headers=headers)))
            await _send(stream, http.send(h11.Data(data)) if data else b"")
            await _send(stream, http.send(h11.EndOfMessage()))
            return await _answer(stream, http)
        finally:
            stream.close()


def _judged(answer: Answer, url: str, errors: Errors) -> Any:
    if answer.status in (200, 204):
        return answer.json()
    found = answer.json()
    text = found.get("reason") if isinstance(found, dict) else None
    error = errors.get(answer.status, ServiceNotReadyError)
    raise error(str(text) if text else f"{url}: status {answer.status}")


async def _send(stream: Stream, data: bytes | None) -> None:
    rest = memoryview(data or b"")
    while rest:
        taken = stream.send_nowait((rest,))
        rest = rest[taken:]
        if not taken:
            await stream.wait_writable()


async def _answer(stream: Stream, http: h11.Connection) -> Answer:
    buffer = bytearray(_CHUNK)
    status, location = 0, ""
    body = bytearray()
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            size = await stream.receive_into(memoryview(buffer))
            http.receive_data(bytes(buffer[:size]))
        elif isinstance(event, h11.Response):
            status = event.status_code
            location = next((value.decode("latin-1") for name, value in event.headers if name == b"location"), "")
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > ANSWER_BYTES_MAX:
                raise OSError("its answer is too long")
        elif isinstance(event, h11.EndOfMessage):
            return Answer(status, location, bytes(body))
        elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
            raise OSError("it closed the connection")

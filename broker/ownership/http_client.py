"""HTTP/1.1 as a broker asks it of another: one connection per request, no redirects followed, answers read whole."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import h11

from quire.world.doors import Network, Stream

ANSWER_BYTES_MAX = 16 << 20
_CHUNK = 64 << 10


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a server, whatever its status."""

    status: int
    location: str
    """Target of a redirect; empty if there is none."""
    body: bytes

    def json(self) -> Any:
        """Return the decoded body; None if there is none, or it is not JSON."""
        try:
            return json.loads(self.body) if self.body else None
        except ValueError:
            return None


async def request(network: Network, method: str, url: str, body: object = None) -> Answer:
    """Ask, with `body` as JSON. OSError if there is no answer, or none that makes sense. The caller sets the deadline."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 80
    except ValueError as error:
        raise OSError(f"{url} is not a URL") from error
    if not host:
        raise OSError(f"{url} names no server")
    data = b"" if body is None else json.dumps(body).encode()
    headers = [
        ("Host", parts.netloc),
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(data))),
        ("Connection", "close"),
    ]
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    stream = await network.connect(host, port)
    try:
        http = h11.Connection(h11.CLIENT)
        await send(stream, http.send(h11.Request(method=method, target=target, headers=headers)) or b"")
        await send(stream, (http.send(h11.Data(data)) or b"") if data else b"")
        await send(stream, http.send(h11.EndOfMessage()) or b"")
        return await _answer(stream, http)
    except h11.ProtocolError as error:
        raise OSError(f"{url}: {error}") from error
    finally:
        stream.close()


async def send(stream: Stream, data: bytes) -> None:
    """All of it, however slowly the other side takes it. OSError."""
    rest = memoryview(data)
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

"""Requests that no client sends, for a web port: broken HTTP, hostile paths, bodies of any JSON; by a seed.

    python -m tests.support.fuzzed_requests http://127.0.0.1:8080 --count 1000000

Each connection has some whole requests at once, and one that may break HTTP. The server itself counts what it answers
(`quire_web_answers_total`), the refusals of its parser included.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import ssl
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import trio
import typer

from quire.service.programs.command_line import run_command
from tests.support import web
from tests.support.fuzzed_paths import HOSTILE, NAMES, ends

CONNECTIONS = 16
BATCH_MAX = 12
"""Requests that a connection sends at once."""
ANSWERED_S = 60.0
"""Deadline of the answers to a batch. A server that does not keep it is stuck."""

_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
_STATUS_BYTES = 13
"""Length of what the expression matches."""


class Requests:
    """Source of requests; the same seed makes the same ones."""

    def __init__(self, seed: int, document: Mapping[str, Any]) -> None:
        self.random = random.Random(seed)
        self._operations = [
            (path, method.upper(), operation)
            for path, each in document["paths"].items()
            for method, operation in each.items()
            if path != "/admin/v2/brokers/health"  # writes and reads a message each time
            if ends(operation)
        ]
        self._kinds = (
            (self.operation, 60),
            (self.anything, 8),
            (self.broken_line, 6),
            (self.broken_headers, 6),
            (self.two_lengths, 4),
            (self.chunks, 5),
            (self.upgrade, 2),
            (self.mutated, 6),
            (self.garbage, 3),
        )

    def one(self) -> bytes:
        """Return one request, or what begins like one."""
        kinds, weights = zip(*self._kinds, strict=True)
        [kind] = self.random.choices(kinds, weights)
        made: bytes = kind()
        return made

    def path(self, pattern: str) -> str:
        """Return a path of a pattern, whose parts are known or hostile."""

        def part(found: re.Match[str]) -> str:
            if self.random.random() < 0.7:
                return self.random.choice(NAMES.get(found[1], ("1", "x", "0")))
            return self.random.choice(HOSTILE)

        return re.sub(r"\{(\w+)\}", part, pattern)

    def operation(self) -> bytes:
        """Return a whole request of a known operation."""
        pattern, method, operation = self.random.choice(self._operations)
        path = self.path(pattern)
        query = "&".join(
            f"{each['name']}={self.random.choice(('true', '1', '-1', 'x', '', '%00', '%ff', '0', '9' * 30))}"
            for each in operation["parameters"]
            if each["in"] == "query" and self.random.random() < 0.4
        )
        body = self.body(operation) if "requestBody" in operation or self.random.random() < 0.05 else b""
        return self.request(method, f"{path}{'?' if query else ''}{query}", body)

    def request(self, method: str, target: str, body: bytes = b"", *headers: str) -> bytes:
        kind = self.random.choice(("application/json", "application/json", "text/plain", ""))
        lines = [f"{method} {target} HTTP/1.1", "Host: x", *headers]
        if body:
            lines += [f"Content-Length: {len(body)}", *([f"Content-Type: {kind}"] if kind else [])]
        return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape") + body

    def body(self, operation: Mapping[str, Any]) -> bytes:
        roll = self.random.random()
        if roll < 0.1:
            return self.random.choice(
                (b"{", b"[" * 5000, b'"\\ud800"', b"\xff\xfe", b"1e999", b"NaN", b"9" * 5000, b"[1,]")
            )
        schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        value = self.of_schema(schema) if roll < 0.7 else self.value()
        return json.dumps(value, ensure_ascii=self.random.random() < 0.5).encode("utf-8", "replace")

    def of_schema(self, schema: Mapping[str, Any]) -> Any:
        """Return a value of a schema, with mistakes in it now and then."""
        if not schema or self.random.random() < 0.06:
            return self.value()
        if "anyOf" in schema:
            return self.of_schema(self.random.choice(schema["anyOf"]))
        if "enum" in schema:
            return self.random.choice(schema["enum"])
        kind = schema.get("type")
        if kind == "integer":
            low, high = schema["minimum"], schema["maximum"]
            return self.random.choice((low, high, low - 1, high + 1, 0, 1, 2, self.random.randint(low, high)))
        if kind == "object":
            found = {name: self.of_schema(each) for name, each in schema.get("properties", {}).items()}
            return {name: each for name, each in found.items() if self.random.random() < 0.85}
        if kind == "array":
            return [self.of_schema(schema["items"]) for _ in range(self.random.randrange(4))]
        return {"boolean": True, "number": 0.5, "null": None}.get(str(kind), "x")

    def value(self, depth: int = 0) -> Any:
        """Return any JSON value."""
        roll = self.random.randrange(9 if depth < 3 else 7)
        if roll == 7:
            return [self.value(depth + 1) for _ in range(self.random.randrange(4))]
        if roll == 8:
            return {self.random.choice(("a", "", "\0", "ledgerId", "\u2028", "é")): self.value(depth + 1)}
        return (
            None,
            True,
            -1,
            1 << 70,
            1.5e300,
            "x",
            self.random.choice(("", "\0", "earliest", "\U0001f600", "a" * 5000)),
        )[roll]

    # Below HTTP

    def anything(self) -> bytes:
        method = self.random.choice(("GET", "PUT", "OPTIONS", "TRACE", "CONNECT", "PATCH", "HEAD", "get", "G" * 300))
        target = self.random.choice(
            (
                "*",
                "/",
                "//",
                "/admin",
                "/admin/v2/../v2/tenants",
                "/%2e%2e/etc/passwd",
                "http://x/admin/v2/tenants",
                "http://[::1",
                "/admin/v2/persistent/public/default/a/../../../tenants",
                "/status.html/../admin/v2/tenants",
                "/metrics;/../admin/v2/tenants",
                "/quire/loggers/",
                "/admin/v2/tenants/",
                "/admin/v2//tenants",
                "/admin%2fv2/tenants",
                "/" + self.random.choice(HOSTILE),
                "/openapi.json/x?" + "q=1&" * 500,
            )
        )
        return self.request(method, target)

    def broken_line(self) -> bytes:
        return self.random.choice(
            (
                b"GET\r\n\r\n",
                b"GET / HTTP/9.9\r\n\r\n",
                b"GET / HTTP/1.0\r\n\r\n",
                b"GET  /  HTTP/1.1\r\nHost: x\r\n\r\n",
                b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
                b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
                b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
                b"\r\n\r\n\r\nGET /status.html HTTP/1.1\r\nHost: x\r\n\r\n",
                b"GET /status.html HTTP/1.1\nHost: x\n\n",
                b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
                b"GET /status.html HTTP/1.1\r\nHo",
                b"GET /status.html",
                b"\x16\x03\x01\x02\x00\x01\x00",
                b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\nGET / HTTP/1.1\r\n\r\n",
            )
        )

    def broken_headers(self) -> bytes:
        header = self.random.choice(
            (
                b"X",
                b": x",
                b"X : y",
                b" X: folded",
                b"X: a\r\n b",
                b"X: \x00",
                b"X\xff: y",
                b"X: " + b"y" * 80_000,
                b"\r\n".join(b"X%d: y" % each for each in range(2000)),
                b"Host: y",
                b"Expect: 100-continue",
                b"Expect: 200-maybe",
                b"Connection: close, keep-alive, upgrade",
                b"Authorization: Bearer \xff\xff",
                b"Authorization: Basic !!!!",
                b"Authorization: Basic",
                b"X-Pulsar-ListenerName: \xe9",
                b"Accept-Encoding: gzip;q=99999",
                b"Range: bytes=0-0,1-1,-9",
            )
        )
        return b"GET /admin/v2/clusters HTTP/1.1\r\nHost: x\r\n" + header + b"\r\n\r\n"

    def two_lengths(self) -> bytes:
        inner = b"GET /admin/v2/tenants HTTP/1.1\r\nHost: x\r\n\r\n"
        lengths = self.random.choice(
            (
                b"Content-Length: 3\r\nTransfer-Encoding: chunked",
                b"Transfer-Encoding: chunked\r\nContent-Length: 3",
                b"Content-Length: 3\r\nContent-Length: 4",
                b"Content-Length: 3, 3",
                b"Content-Length: -1",
                b"Content-Length: +3",
                b"Content-Length: 0x3",
                b"Content-Length: 3 ",
                b"Content-Length: 99999999999999999999999999",
                b"Content-Length:\t3",
                b"Transfer-Encoding: gzip, chunked",
                b"Transfer-Encoding: chunked, identity",
                b"Transfer-Encoding: xchunked",
                b"Transfer-Encoding:\x0bchunked",
                b"Transfer-Encoding : chunked",
            )
        )
        return b"PUT /admin/v2/tenants/t HTTP/1.1\r\nHost: x\r\n" + lengths + b"\r\n\r\n0\r\n\r\n" + inner

    def chunks(self) -> bytes:
        body = self.random.choice(
            (
                b"3\r\nabc\r\n0\r\n\r\n",
                b"3;x=y\r\nabc\r\n0\r\n\r\n",
                b"3;" + b"x" * 70_000 + b"\r\nabc\r\n0\r\n\r\n",
                b"ffffffffffffffff\r\nabc",
                b"fffffffffffffffffffffffffffff\r\n",
                b"-3\r\nabc\r\n0\r\n\r\n",
                b"0x3\r\nabc\r\n0\r\n\r\n",
                b" 3\r\nabc\r\n0\r\n\r\n",
                b"3\nabc\n0\n\n",
                b"3\r\nabcd\r\n0\r\n\r\n",
                b"\r\n",
                b"1\r\n{\r\n" * 300 + b"0\r\n\r\n",
                b"0\r\nX: y\r\n\r\n",
                b"0\r\nContent-Length: 9\r\n\r\n",
                b"2710\r\n" + b"9" * 10_000 + b"\r\n" * 1,
            )
        )
        return b"PUT /admin/v2/tenants/t HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + body

    def upgrade(self) -> bytes:
        noise = self.random.randbytes(self.random.randrange(60))
        frame = bytes((0, 0, len(noise), self.random.randrange(12), self.random.randrange(256), 0, 0, 0, 1)) + noise
        return self.random.choice(
            (
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0" + frame * 3,
                b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n" + noise,
                b"GET /status.html HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
                b"HTTP2-Settings: "
                + self.random.choice((b"AAMAAABkAAQAAP__", b"!", b"", b"AAAA"))
                + b"\r\n\r\n"
                + frame,
                b"GET /status.html HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
                b"GET /admin/v2/tenants HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n" + noise,
                b"GET /admin/v2/tenants HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            )
        )

    def mutated(self) -> bytes:
        """Return a whole request with some bytes changed, taken out or repeated."""
        data = bytearray(self.operation())
        for _ in range(self.random.randrange(1, 5)):
            at = self.random.randrange(len(data))
            roll = self.random.randrange(3)
            if roll == 0:
                data[at] = self.random.randrange(256)
            elif roll == 1:
                del data[at : at + self.random.randrange(1, 20)]
            else:
                data[at:at] = data[at : at + self.random.randrange(1, 50)]
            if not data:
                break
        return bytes(data)

    def garbage(self) -> bytes:
        return self.random.randbytes(self.random.randrange(1, 400))

    def batch(self) -> tuple[list[bytes], bytes]:
        """Return whole requests for one connection, and one more that may break HTTP: nothing behind it is read."""
        return [self.operation() for _ in range(self.random.randrange(BATCH_MAX))], self.one()


async def send(
    host: str, port: int, source: Requests, count: int, *, tls: ssl.SSLContext | None = None
) -> Counter[str]:
    """Send at least `count` requests over some connections at a time. Return how many answers there were by status, and
    `sent`, `connections`.

    Raises trio.TooSlowError if the server does not answer."""
    found: Counter[str] = Counter()

    async def work() -> None:
        while found["sent"] < count:
            whole, last = source.batch()
            found["sent"] += len(whole) + 1
            found["connections"] += 1
            with trio.fail_after(ANSWERED_S):
                found.update(await _exchange(host, port, whole, last, tls))

    async with trio.open_nursery() as nursery:
        for _ in range(CONNECTIONS):
            nursery.start_soon(work)
    return found


async def _exchange(
    host: str, port: int, whole: Sequence[bytes], last: bytes, tls: ssl.SSLContext | None
) -> Counter[str]:
    """Send whole requests at once and read their answers; then send the last one and close the connection: with TLS at
    once, else after what the server answers."""
    tcp = await trio.open_tcp_stream(host, port)
    stream: trio.abc.Stream = tcp
    if tls is not None:
        stream = trio.SSLStream(tcp, tls, server_hostname=host, https_compatible=True)
    answers = _Answers()
    async with stream:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stream.send_all, b"".join(whole))
                while len(answers.found) < len(whole) and (chunk := await stream.receive_some(1 << 16)):
                    answers.take(chunk)
            await stream.send_all(last)
            if tls is None:
                await tcp.send_eof()
                while chunk := await stream.receive_some(1 << 16):
                    answers.take(chunk)
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the server has refused something and closed the connection
    return Counter(answers.found)


class _Answers:
    """Statuses of the final answers in what a server sends. (No body of an answer has such a line.)"""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._rest = b""

    def take(self, chunk: bytes | bytearray) -> None:
        text = self._rest + chunk
        end = 0
        for each in _STATUS.finditer(text):
            end = each.end()
            if each[1] >= b"200":
                self.found.append(each[1].decode())
        self._rest = text[max(end, len(text) - _STATUS_BYTES) :]


def prepare(url: str) -> None:
    """Make what `NAMES` names, as far as requests before have deleted it."""
    topics = f"{url}/admin/v2/persistent/public/default"
    for path, body in (
        (f"{url}/admin/v2/tenants/public", {"allowedClusters": ["standalone"]}),
        (f"{url}/admin/v2/namespaces/public/default", {}),
        (f"{topics}/a", {}),
        (f"{topics}/p/partitions", 2),
        (f"{topics}/a/subscription/s", "earliest"),
        (f"{topics}/p/subscription/s", "earliest"),
    ):
        found = web.request("PUT", path, json=body, timeout=60)
        assert found.status_code in (204, 409, 412), f"PUT {path}: {found.status_code} {found.text}"


def served(url: str) -> int:
    """Return the number of answers that a web port has counted."""
    lines = web.get(f"{url}/metrics", timeout=60).text.splitlines()
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith("quire_web_answers_total{"))


def main() -> int:
    """Run the command line; return the exit code."""
    return run_command(fuzz, name="python -m tests.support.fuzzed_requests", text="Send requests and print progress.")


def fuzz(
    url: Annotated[str, typer.Argument(help="A web port without TLS, such as http://127.0.0.1:8080.")],
    count: Annotated[int, typer.Option()] = 1_000_000,
    seed: Annotated[int, typer.Option()] = 1,
    step: Annotated[int, typer.Option(help="Requests between two lines.")] = 10_000,
    pid: Annotated[int | None, typer.Option(help="The server, whose memory is shown.")] = None,
    tls: Annotated[
        int | None, typer.Option(help="Port with TLS of the same server, which is sent every other step.")
    ] = None,
) -> int:
    """Send requests and print progress."""
    host, port = url.rpartition("/")[2].rsplit(":", 1)
    document = web.get(f"{url}/openapi.json", timeout=60).json()
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    total, before, begun = Counter[str](), served(url), time.monotonic()
    for number in range(math.ceil(count / step)):
        prepare(url)
        source = Requests(seed + number, document)
        to = tls if tls is not None and number % 2 else int(port)
        total += trio.run(partial(send, host, to, source, step, tls=context if to == tls else None))
        memory = f" rss_mb={rss_mb(pid):.0f}" if pid else ""
        counted = served(url) - before
        print(f"{time.monotonic() - begun:.0f} s: counted={counted}{memory} {dict(sorted(total.items()))}", flush=True)
    return 0


def rss_mb(pid: int) -> float:
    """Return the memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


if __name__ == "__main__":
    sys.exit(main())

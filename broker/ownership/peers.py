"""Requests to other brokers: check whether they answer, ask one to take a bundle, or to release one.

A broker that was killed still has its nodes until its session ends, and one that hangs does for longer: clients are
only sent to one that has just answered a CONNECT. What it answers does not matter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, urlsplit

import trio
from google.protobuf.message import DecodeError

from broker.ownership import urls
from broker.ownership.bundles import Bundle
from broker.ownership.config import OwnershipOptions
from broker.ownership.http_client import HttpAnswer, request
from broker.ownership.own_credentials import CLIENT_NAME, OwnCredentials
from broker.ownership.urls import Urls
from quire.service.log import get_logger
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.frames import PROTOCOL_VERSION, encode
from quire.wire.pulsar.names import TopicName
from quire.world.doors import Network, Stream
from quire.world.streams import send_all

if TYPE_CHECKING:
    from quire.world.tls_sides import ClientTls

log = get_logger(__name__)

ANSWER_MAX = 64 << 10
"""Maximum bytes read of an answer."""
KNOWN_MAX = 1000
"""Maximum number of brokers whose last answer is remembered."""

T = TypeVar("T")


class Peers:
    """Peers of this broker, asked over connections of one request each."""

    def __init__(
        self,
        network: Network,
        options: OwnershipOptions,
        tls: ClientTls | None = None,
        own: OwnCredentials | None = None,
    ) -> None:
        """Take the doors. `tls`: of this broker as a client, which then prefers the ports with TLS of others; None:
        they are asked without, and those that have no other ports are not reached. `own`: its credentials."""
        self._network = network
        self._tls = tls
        self._options = options
        self._own = own
        self._known: dict[str, tuple[bool, float]] = {}
        """Last answer of each, and the time until which it is valid."""
        self._asking: dict[str, trio.Event] = {}

    def url_of(self, broker: Urls) -> str:
        """Return the URL at which this broker asks another one."""
        return urls.broker_url(broker, tls=self._tls is not None)

    async def answers(self, broker_url: str) -> bool:
        """Return whether the broker at a URL answers, now or a moment ago. Concurrent callers share one
        probe."""
        while (asking := self._asking.get(broker_url)) is not None:
            await asking.wait()
        if (known := self.known(broker_url)) is not None:
            return known
        self._asking[broker_url] = trio.Event()
        try:
            answers = await self._ask(broker_url, b"", _first) is not None
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            good_s, bad_s = self._options.probe_good_s, self._options.probe_again_s
            self._known[broker_url] = answers, trio.current_time() + (good_s if answers else bad_s)
            return answers
        finally:
            self._asking.pop(broker_url).set()

    def known(self, broker_url: str) -> bool | None:
        """Return a recent result of `answers`; None: ask."""
        answers, until = self._known.get(broker_url, (False, float("-inf")))
        return answers if until > trio.current_time() else None

    async def offer(self, broker_url: str, bundle: Bundle) -> str | None:
        """Ask a broker to take a bundle without an owner, by a lookup that leaves the choice to it.

        Return the URL of the broker that has the bundle by its answer: its own if it took it. None without such an
        answer."""
        lookup = pb.BaseCommand(type=pb.BaseCommand.LOOKUP)
        lookup.lookupTopic.topic = topic_in(bundle).full
        lookup.lookupTopic.request_id = 1
        lookup.lookupTopic.authoritative = True
        answer = await self._ask(broker_url, encode(lookup), _lookup_answer)
        if answer is None:
            return None
        found = answer.lookupTopicResponse
        url = found.brokerServiceUrlTls if urls.is_tls(broker_url) else found.brokerServiceUrl
        return url if found.response == found.Connect else None

    async def unload(self, broker: Urls, bundle: Bundle, destination: str) -> bool:
        """Ask the owner of a bundle, by its REST, to hand it to the broker `destination`; return whether it did."""
        path = f"/admin/v2/namespaces/{bundle.namespace}/{bundle.range}/unload"
        return await self._put(broker, f"{path}?destinationBroker={quote(destination, safe='')}")

    async def split(self, broker: Urls, bundle: Bundle, algorithm: str) -> bool:
        """Ask the owner of a bundle, by its REST, to split it; return whether it did."""
        path = f"/admin/v2/namespaces/{bundle.namespace}/{bundle.range}/split"
        return await self._put(broker, f"{path}?unload=false&splitAlgorithmName={algorithm}")

    async def _put(self, broker: Urls, path: str) -> bool:
        url = f"{urls.web_url(broker, tls=self._tls is not None)}{path}"
        answer: HttpAnswer | None = None
        try:
            with trio.move_on_after(self._options.unload_timeout_s):
                answer = await request(self._network, "PUT", url, own=self._own, tls=self._tls)
        except OSError as error:
            log.debug("another broker does not answer", url=url, reason=str(error))
        if answer is None or not 200 <= answer.status < 300:
            log.warning("request to another broker failed", url=url, status=answer and answer.status)
            return False
        return True

    async def _ask(self, broker_url: str, asked: bytes, read: Callable[[Stream], Awaitable[T | None]]) -> T | None:
        """Send CONNECT and `asked`, and read the answer; None without a valid one."""
        try:
            parts = urlsplit(broker_url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if not host or not port:
            return None
        stream: Stream | None = None
        try:
            with trio.move_on_after(self._options.probe_timeout_s):
                stream = await self._connect(broker_url, host, port)
                if self._own is None:
                    await send_all(stream, _HELLO + asked)
                else:
                    # Where credentials are checked, nothing may follow CONNECT before its answer.
                    await send_all(stream, await self._own.connect())
                    if asked:
                        await _first(stream)
                        await send_all(stream, asked)
                return await read(stream)
        except OSError as error:
            log.debug("another broker does not answer", url=broker_url, reason=str(error))
        finally:
            if stream is not None:
                stream.close()
        return None

    async def _connect(self, broker_url: str, host: str, port: int) -> Stream:
        if not urls.is_tls(broker_url):
            return await self._network.connect(host, port)
        if self._tls is None:
            raise OSError(f"{broker_url} needs brokerClientTlsEnabled=true")
        return await self._tls.connect(self._network, host, port)


def topic_in(bundle: Bundle) -> TopicName:
    """Return a topic name whose place is in the bundle; the topic need not exist."""
    names = (
        TopicName("persistent", bundle.namespace.tenant, bundle.namespace.namespace, f"__bundle-{number}")
        for number in count()
    )
    return next(name for name in names if bundle.has(name))


_HELLO = encode(
    pb.BaseCommand(
        type=pb.BaseCommand.CONNECT,
        connect=pb.CommandConnect(client_version=CLIENT_NAME, protocol_version=PROTOCOL_VERSION),
    )
)


async def _frame(stream: Stream, received: bytearray) -> bytes | None:
    """Return the next command's bytes; None at the end, or if it is too large. `received` keeps the remainder."""
    chunk = memoryview(bytearray(4096))
    while len(received) < 8 or len(received) < 4 + int.from_bytes(received[:4], "big"):
        if len(received) > ANSWER_MAX:
            return None
        size = await stream.receive_into(chunk)
        if size == 0:
            return None
        received += chunk[:size]
    command = bytes(received[8 : 8 + int.from_bytes(received[4:8], "big")])
    del received[: 4 + int.from_bytes(received[:4], "big")]
    return command


async def _first(stream: Stream) -> bytes | None:
    return await _frame(stream, bytearray())


async def _lookup_answer(stream: Stream) -> pb.BaseCommand | None:
    received = bytearray()
    while (data := await _frame(stream, received)) is not None:
        try:
            command = pb.BaseCommand.FromString(data)
        except DecodeError:
            return None
        if command.type == pb.BaseCommand.LOOKUP_RESPONSE:
            return command
    return None

"""All connections of a client, one per broker, and the lookup of a topic's broker."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import trio

from quire.client import commands
from quire.client.connection import Connection
from quire.client.errors import ClientError, ClosedError, ConnectionLostError, ServerRefusedError
from quire.client.options import ClientOptions
from quire.client.service_url import Address, parse_service_url
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.doors import Stream, World

if TYPE_CHECKING:
    from quire.world.tls_sides import ClientTls

log = logging.getLogger(__name__)

REDIRECTS_MAX = 20


class _Slot:
    """A connection that is being made, or was made."""

    __slots__ = ("connection", "error", "ready")

    def __init__(self) -> None:
        self.ready = trio.Event()
        self.connection: Connection | None = None
        self.error: ClientError | None = None


class Connections:
    """Connections of a client, made on first use in tasks of `nursery`, and dropped when they end."""

    def __init__(
        self,
        world: World,
        options: ClientOptions,
        nursery: trio.Nursery,
        service: tuple[Address, ...],
        *,
        tls: ClientTls | None = None,
    ) -> None:
        """Take the doors. `tls`: for addresses with TLS; None: it is made of the options when it is needed."""
        self._world = world
        self._options = options
        self._nursery = nursery
        self._service = service
        self._turn = 0
        self._slots: dict[tuple[Address, str], _Slot] = {}
        self._closed = False
        self._tls = tls

    def close(self) -> None:
        """Refuse new connections; existing ones end with the nursery."""
        self._closed = True

    async def of_service(self) -> Connection:
        """Return a connection to one of the addresses of the service URL, the last that worked first.

        Raises ConnectionLostError, ServerRefusedError."""
        return await self._to_service("")

    async def of_topic(self, topic: str) -> Connection:
        """Return a connection to the broker that owns `topic`: one lookup, with its redirects.

        Raises ConnectionLostError, ServerRefusedError."""
        connection = await self.of_service()
        authoritative = False
        for _ in range(REDIRECTS_MAX):
            ask = partial(commands.lookup, topic=topic, authoritative=authoritative)
            answer = (await connection.request(ask)).lookupTopicResponse
            broker = _address_of(answer, tls=self._service[0].tls)
            if answer.response == pb.CommandLookupTopicResponse.Connect:
                if answer.proxy_through_service_url:
                    return await self._to_service(str(broker))
                return await self._to(broker, "")
            authoritative = answer.authoritative
            connection = await self._to(broker, "")
        raise ServerRefusedError(pb.ServiceNotReady, f"more than {REDIRECTS_MAX} redirects of the lookup")

    async def _to_service(self, proxy_to: str) -> Connection:
        try:
            return await self._to(self._service[self._turn % len(self._service)], proxy_to)
        except ConnectionLostError:
            self._turn += 1
            raise

    async def _to(self, address: Address, proxy_to: str) -> Connection:
        key = (address, proxy_to)
        slot = self._slots.get(key)
        if slot is None:
            if self._closed:
                raise ClosedError("the client is closed")
            slot = self._slots[key] = _Slot()
            self._nursery.start_soon(self._run, key, slot, name=f"connection to {address}")
        await slot.ready.wait()
        if slot.error is not None:
            raise slot.error
        assert slot.connection is not None, "a slot that is ready has a connection or an error"
        return slot.connection

    async def _run(self, key: tuple[Address, str], slot: _Slot) -> None:
        address, proxy_to = key
        slot.error = ClosedError("the client is closed")
        try:
            with trio.fail_after(self._options.connect_timeout_s):
                stream = await self._connect(address)
            connection = slot.connection = Connection(stream, self._options, self._world.offload)

            def ready() -> None:
                slot.error = None
                slot.ready.set()

            await connection.serve(proxy_to, ready)
            slot.error = connection.error
        except OSError as error:
            slot.error = ConnectionLostError(f"cannot connect to {address}: {error}")
        except trio.TooSlowError:
            slot.error = ConnectionLostError(f"no connection to {address} within {self._options.connect_timeout_s:g} s")
        finally:
            del self._slots[key]
            slot.ready.set()

    async def _connect(self, address: Address) -> Stream:
        network = self._world.network
        if not address.tls:
            return await network.connect(address.host, address.port)
        if self._tls is None:
            self._tls = await self._open_tls()
        return await self._tls.connect(network, address.host, address.port)

    async def _open_tls(self) -> ClientTls:
        # Imported here, because most clients do not need it.
        from quire.world.real_tls import TlsFiles
        from quire.world.tls_sides import ClientTls

        make = partial(TlsFiles, self._options.tls, server_side=False)
        try:
            files = await self._world.offload.run(make, name="tls files")
        except ValueError as error:
            raise OSError(f"the options of TLS cannot be used: {error}") from error
        return ClientTls(files, self._world.offload, on_broken=partial(log.warning, "files of TLS not used: %s"))


def _address_of(answer: pb.CommandLookupTopicResponse, *, tls: bool) -> Address:
    """Return the address in an answer. A client of a service with TLS never connects without it."""
    try:
        return parse_service_url(answer.brokerServiceUrlTls if tls else answer.brokerServiceUrl)[0]
    except ValueError as error:
        raise ServerRefusedError(pb.ServiceNotReady, f"the lookup returned an invalid address: {error}") from None

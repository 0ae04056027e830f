"""The ledger client with Quire's bookie: in process and over the network, on simulated hosts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trio

from bookie.bookie import Bookie
from bookie.server import serve_client
from bookie.sessions.authentication import OfferedAuthentication, Passwords
from bookie.sessions.session import BookieSession
from bookie.sessions.start_tls import OfferedTls
from quire.ledger.bookies.authentication import BookieCredentials
from quire.ledger.bookies.link import BookieLink
from quire.ledger.bookies.link_local import LocalLink
from quire.ledger.bookies.link_tcp import tcp_links
from quire.ledger.client import LedgerClient
from quire.ledger.errors import LedgerFencedError, NoSuchEntryError
from quire.ledger.opening import open_ledger_client
from quire.metadata.ledgers import BlockLedgerIds, LedgerManager
from quire.metadata.local.memory import MemoryTree
from quire.service.password_files import read_users
from quire.service.serve import serve_connections
from quire.wire.bookkeeper import v2
from quire.world.doors import World
from quire.world.real_tls import TlsFiles
from quire.world.tls_sides import ClientTls, ServerTls
from tests.support.certificates import Authority
from tests.support.credentials import USERS
from tests.unit.bookie.build import cluster, opened
from tests.unit.ledger.fake_bookie import Confirmations, begun, payloads
from tests.unit.ledger.reads import read_all

Connect = Callable[[str], BookieLink]


@asynccontextmanager
async def in_process(world: World, bookie: Bookie) -> AsyncIterator[tuple[Connect, str]]:
    yield lambda bookie_id: LocalLink(partial(BookieSession, bookie)), "bookie:1"


@asynccontextmanager
async def over_the_network(world: World, bookie: Bookie) -> AsyncIterator[tuple[Connect, str]]:
    listener = await world.network.listen("127.0.0.1", 0)
    host, port = listener.address
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(
            partial(serve_connections, listener, partial(serve_client, bookie), stop=stop, grace_s=1, name="bookie")
        )
        yield tcp_links(world.network, nursery), f"{host}:{port}"
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def over_tls(world: World, bookie: Bookie) -> AsyncIterator[tuple[Connect, str]]:
    with TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        side = ServerTls(TlsFiles(authority.server(), server_side=True), world.offload, refresh_s=inf)
        tls = ClientTls(TlsFiles(authority.client(), server_side=False), world.offload, refresh_s=inf)
    listener = await world.network.listen("127.0.0.1", 0)
    serve = partial(serve_client, bookie, tls=OfferedTls(side, 10, required=True))
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve_connections, listener, serve, stop=trio.Event(), grace_s=1, name="bookie"))
        port = listener.address[1]
        yield tcp_links(world.network, nursery, tls=tls), f"localhost:{port}"
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def with_passwords(world: World, bookie: Bookie) -> AsyncIterator[tuple[Connect, str]]:
    listener = await world.network.listen("127.0.0.1", 0)
    host, port = listener.address
    asked = OfferedAuthentication(Passwords(read_users(USERS.encode())))
    serve = partial(serve_client, bookie, authentication=asked)
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve_connections, listener, serve, stop=trio.Event(), grace_s=1, name="bookie"))
        known = BookieCredentials("admin", "123456")
        yield tcp_links(world.network, nursery, credentials=known), f"{host}:{port}"
        nursery.cancel_scope.cancel()


Way = Callable[[World, Bookie], AbstractAsyncContextManager[tuple[Connect, str]]]


@pytest.fixture(params=[in_process, over_the_network, over_tls, with_passwords])
async def clients(request: pytest.FixtureRequest, world: World) -> AsyncIterator[tuple[LedgerClient, LedgerClient]]:
    """Open two clients of one bookie, by each way."""
    way: Way = request.param
    tree = MemoryTree()
    store = await cluster(tree, world)
    ledgers = LedgerManager(store, ids=BlockLedgerIds(store), rng=world.rng)
    async with opened(world, tree) as bookie, way(world, bookie) as (connect, bookie_id):
        make = partial(open_ledger_client, world, ledgers, connect, lambda: [bookie_id])
        async with make() as one, make() as two:
            yield one, two


async def test_what_is_confirmed_is_read_back(clients) -> None:
    client, _ = clients
    writer = await client.create(password=b"secret")
    seen = Confirmations(writer)
    expected: list[bytes] = []
    for first in range(0, 200, 20):
        run = payloads(first, first + 19)
        run[3], run[7] = b"big" * v2.JOIN_MAX, b"b" * v2.LENT_MAX
        expected += run
        assert writer.append(run) == first
    await seen.until(199)
    assert seen.payloads == expected
    assert [bytes(each) for each in await writer.read(198, 199, size_max=10**6)] == expected[198:]
    await writer.close()
    reader = await client.open(writer.ledger_id, password=b"secret", recover=False)
    assert await read_all(reader) == expected
    with pytest.raises(NoSuchEntryError):
        await reader.read(200, 200, size_max=100)


async def test_recovery_fences_the_writer_and_keeps_what_it_confirmed(clients) -> None:
    one, two = clients
    writer, seen = await begun(one, entries=50)
    writer.append(payloads(50, 99))
    reader = await two.open(writer.ledger_id, recover=True)
    assert 49 <= seen.last <= reader.last_entry_id <= 99
    assert await read_all(reader) == payloads(0, reader.last_entry_id)
    if not seen.errors:
        writer.append(payloads(100, 100))
    assert isinstance(await seen.until_failed(), LedgerFencedError)
    assert seen.last <= reader.last_entry_id


async def test_an_empty_ledger_is_recovered_as_empty_and_its_writer_fenced(clients) -> None:
    one, two = clients
    writer, seen = await begun(one)
    reader = await two.open(writer.ledger_id, recover=True)
    assert (reader.last_entry_id, reader.length) == (-1, 0)
    writer.append(payloads(0, 0))
    assert isinstance(await seen.until_failed(), LedgerFencedError)


async def test_a_client_recovers_a_ledger_that_it_still_writes_itself(clients) -> None:
    client, _ = clients
    writer, _ = await begun(client, entries=10)
    writer.append(payloads(10, 19))
    reader = await client.open(writer.ledger_id, recover=True)
    assert reader.last_entry_id >= 9
    assert await read_all(reader) == payloads(0, reader.last_entry_id)

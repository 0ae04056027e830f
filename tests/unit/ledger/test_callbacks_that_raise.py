"""An exception in a callback for entries, answers or deadlines ends a server in order, wherever it is raised."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from quire.ledger.bookies.deadlines import DeadlineWheel
from quire.ledger.bookies.link_tcp import TcpLink
from quire.ledger.client import LedgerClient
from quire.ledger.context import Afterwards
from quire.servers.errors import InternalError
from quire.servers.process import end_at_fault
from quire.world.doors import World
from quire.world.faults import Faults
from quire.world.outbox import Outbox, Turn
from quire.world.unwrap import leaves
from tests.unit.ledger.fake_bookie import FakeCluster, payloads

ENDS = "internal error, the server ends"


def boom(*_: object) -> None:
    raise KeyError("confirmed")


@asynccontextmanager
async def server(faults: Faults, *, where: str) -> AsyncIterator[trio.Nursery]:
    """Run a server that ends with exactly one fault, whose place is `where`."""
    error: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end_at_fault, faults)
            await trio.testing.wait_all_tasks_blocked()
            yield nursery
            await trio.sleep(60)
            nursery.cancel_scope.cancel()
    except ExceptionGroup as group:
        (error,) = leaves(group)
    assert isinstance(error, InternalError)
    assert isinstance(error.__cause__, KeyError)
    assert where in str(error)


@asynccontextmanager
async def with_client(where: str) -> AsyncIterator[tuple[FakeCluster, LedgerClient]]:
    cluster = FakeCluster(4)
    async with server(cluster.faults, where=where), cluster.client(add_timeout_s=5) as client:
        yield cluster, client
        await trio.sleep(60)


@pytest.mark.expect_error(ENDS)
async def test_what_hears_of_confirmations_may_be_wrong() -> None:
    async with with_client("callback for confirmed entries of ledger 0: KeyError('confirmed')") as (_, client):
        writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        writer.on_confirmed = boom
        writer.append(payloads(0, 4))


@pytest.mark.expect_error(ENDS)
async def test_so_may_what_hears_of_them_after_a_change_of_the_ensemble() -> None:
    async with with_client("callback for confirmed entries of ledger 0") as (cluster, client):
        writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=3)
        cluster.bookies[writer.metadata.fragments[0].bookies[0]].stop()
        writer.on_confirmed = boom
        writer.append(payloads(0, 4))


@pytest.mark.expect_error(ENDS)
async def test_so_may_what_hears_of_the_end_of_a_writer() -> None:
    async with with_client("callback for the end of the writer of ledger 0") as (cluster, client):
        writer = await client.create(ensemble_size=4, write_quorum=4, ack_quorum=4)
        writer.on_failed = boom
        cluster.every(hung=True)
        writer.append(payloads(0, 4))


async def test_without_a_server_the_exception_goes_its_way() -> None:
    async def test() -> None:
        cluster = FakeCluster(1)
        async with cluster.client() as client:
            writer = await client.create()
            writer.on_confirmed = boom
            writer.append(payloads(0, 4))
            await trio.sleep(60)

    with pytest.raises(ExceptionGroup) as raised:
        await test()
    assert [type(each) for each in leaves(raised.value)] == [KeyError]


@pytest.mark.seeded(3)
@pytest.mark.expect_error(ENDS)
async def test_a_connection_to_a_bookie_reports_what_its_answers_cause(world: World) -> None:
    listener = await world.network.listen("127.0.0.1", 0)
    async with server(world.faults, where="cause: KeyError") as nursery:
        link = TcpLink(world.network, nursery, "{}:{}".format(*listener.address), faults=world.faults)
        link.set_receiver(boom)
        stream = await listener.accept()
        data = b"\0\0\0\4\0\0\0\0"
        while data := data[stream.send_nowait([data]) :]:
            await stream.wait_writable()


@pytest.mark.expect_error(ENDS)
async def test_so_do_a_deadline_a_late_call_and_the_end_of_a_pass() -> None:
    class Late:
        def tick(self, now: int) -> bool:
            raise KeyError("confirmed")

    class Box(Outbox):
        def __init__(self) -> None:
            pass

        def flush(self) -> None:
            raise KeyError("confirmed")

    faults = Faults()
    async with server(faults, where="deadlines") as nursery:
        wheel = DeadlineWheel(1.0, faults)
        nursery.start_soon(wheel.run)
        wheel.watch(Late())
    faults = Faults()
    async with server(faults, where="deferred call of a ledger") as nursery:
        afterwards = Afterwards(faults)
        nursery.start_soon(afterwards.run)
        afterwards.call(boom)
    faults = Faults()
    async with server(faults, where="the end of a pass") as nursery:
        turn = Turn()
        turn.faults = faults
        nursery.start_soon(turn.run)
        turn.mark(Box())
    faults = Faults()
    async with server(faults, where="the end of a pass"):
        turn = Turn()
        turn.faults = faults
        turn.working = True  # the pass of a connection, which is not the cause, and continues
        turn.mark(Box())
        turn.flush()

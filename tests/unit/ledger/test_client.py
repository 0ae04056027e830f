from __future__ import annotations

import pytest
import trio

from quire.ledger import LedgerClient
from quire.ledger.errors import LedgerError, NoSuchLedgerError, NotEnoughBookiesError
from quire.metadata.errors import BadVersionError
from quire.metadata.ledgers import LedgerState
from quire.metadata.store import Create, Put
from quire.wire.bookkeeper.entry import DigestType
from tests.support.refusals import raises
from tests.unit.ledger.fake_bookie import Confirmations, FakeCluster, begun, payloads


@pytest.mark.bookies(5)
async def test_a_ledger_is_created_with_what_was_asked_for(cluster: FakeCluster, client: LedgerClient) -> None:
    writer = await client.create(
        ensemble_size=4,
        write_quorum=3,
        ack_quorum=2,
        digest_type=DigestType.HMAC,
        password=b"secret",
        custom_metadata=[("application", b"pulsar")],
    )
    metadata = await cluster.metadata(writer.ledger_id)
    assert metadata == writer.metadata
    assert (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum) == (4, 3, 2)
    assert metadata.state is LedgerState.OPEN
    assert (metadata.digest_type, metadata.password) == (DigestType.HMAC, b"secret")
    assert metadata.custom_metadata == (("application", b"pulsar"),)
    assert len(set(metadata.fragments[0].bookies)) == 4


@pytest.mark.bookies(1)
async def test_the_callers_ops_are_stored_with_the_ledger_or_neither_is(cluster: FakeCluster, client: LedgerClient):
    writer = await client.create(also=lambda ledger_id: [Create(path="/list", value=b"%d" % ledger_id)])
    node = await cluster.store.get("/list")
    assert node is not None
    assert node.value == b"%d" % writer.ledger_id
    with pytest.raises(BadVersionError) as raised:
        await client.create(also=lambda ledger_id: [Put(path="/list", value=b"", version=7)])
    assert raised.value.index == 1
    assert [each async for each in cluster.ledgers.ledger_ids()] == [writer.ledger_id]


@pytest.mark.bookies(2)
async def test_too_few_bookies_leave_no_trace_in_the_metadata(cluster: FakeCluster, client: LedgerClient) -> None:
    await raises(NotEnoughBookiesError, client.create(ensemble_size=3, write_quorum=2, ack_quorum=2))
    assert [each async for each in cluster.ledgers.ledger_ids()] == []


@pytest.mark.bookies(1)
async def test_a_deleted_ledger_is_gone_and_may_be_deleted_again(client: LedgerClient) -> None:
    writer = await client.create()
    await client.delete(writer.ledger_id)
    await client.delete(writer.ledger_id)
    await raises(NoSuchLedgerError, client.open(writer.ledger_id, recover=False))
    await raises(NoSuchLedgerError, writer.close())


async def test_writers_share_the_links_and_get_their_own_answers(cluster: FakeCluster, client: LedgerClient) -> None:
    writers = [await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2) for _ in range(4)]
    seen = [Confirmations(writer) for writer in writers]
    for number, writer in enumerate(writers):
        writer.append(payloads(0, number))
    for number, each in enumerate(seen):
        await each.until(number)
        assert each.payloads == payloads(0, number)
    assert all(len(bookie.links) == 1 for bookie in cluster.bookies.values())


async def test_the_end_of_the_client_is_quiet() -> None:
    cluster = FakeCluster(1)
    cluster.bookie.hold = True
    async with cluster.client() as client:
        writer, seen = await begun(client)
        writer.append(payloads(0, 3))
    cluster.bookie.release()
    writer.append(payloads(4, 4))
    assert (seen.ranges, seen.errors) == ([], [])
    assert cluster.bookie.links[1:] == [], "no new link"


async def test_what_the_block_of_a_client_raises_is_raised_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with FakeCluster(1).client():
            raise ZeroDivisionError


async def test_many_ledgers_may_be_recovered_at_once(cluster: FakeCluster, client: LedgerClient) -> None:
    async with cluster.client() as dead:
        ids = []
        for _ in range(10):
            writer, _ = await begun(dead, (3, 2, 2), entries=21)
            ids.append(writer.ledger_id)
    ends = []

    async def recover(ledger_id: int) -> None:
        ends.append((await client.open(ledger_id, recover=True)).last_entry_id)

    async with trio.open_nursery() as nursery:
        for ledger_id in ids:
            nursery.start_soon(recover, ledger_id)
    assert ends == [20] * 10


def test_every_error_of_the_package_is_a_ledger_error() -> None:
    from quire.ledger import errors

    classes = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    assert len(classes) > 10
    assert all(issubclass(each, LedgerError) for each in classes)

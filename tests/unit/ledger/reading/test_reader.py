from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from quire.ledger import LedgerClient
from quire.ledger.errors import (
    DigestMismatchError,
    IncorrectParameterError,
    LedgerReadError,
    LedgerUnauthorizedError,
    NoSuchEntryError,
)
from quire.ledger.read_config import ReadConfig
from quire.ledger.reading.reader import open_entries
from quire.metadata.ledgers import Fragment
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Digest, DigestType
from quire.wire.bookkeeper.run import Run
from quire.wire.bookkeeper.v2 import Rc
from tests.support.refusals import raises
from tests.unit.ledger.fake_bookie import FakeCluster, begun, payloads, total
from tests.unit.ledger.reads import read_all, written

QUORUMS = [(1, 1, 1), (3, 3, 2), (3, 2, 2), (5, 3, 2)]


@pytest.mark.parametrize("quorum", QUORUMS)
@pytest.mark.parametrize("digest", list(DigestType))
@pytest.mark.bookies(5)
async def test_a_closed_ledger_is_read_as_written(client, quorum, digest):
    reader = await written(client, quorum, 40, digest_type=digest)
    assert reader.closed
    assert (reader.last_entry_id, reader.length) == (39, total(0, 39))
    assert await read_all(reader) == payloads(0, 39)
    assert [bytes(each) for each in await reader.read(5, 9, size_max=1 << 20)] == payloads(5, 9)


@pytest.mark.parametrize("quorum", QUORUMS)
@pytest.mark.bookies(5)
async def test_a_read_is_bounded_in_bytes_but_brings_at_least_one_entry(client, quorum):
    reader = await written(client, quorum, 40)
    assert [bytes(each) for each in await reader.read(3, 39, size_max=1)] == payloads(3, 3)
    some = await reader.read(3, 39, size_max=300)
    assert len(some) > 1
    assert sum(map(len, some)) <= 300
    assert await read_all(reader, size_max=100) == payloads(0, 39)


async def test_many_entries_are_read_by_one_request_where_every_bookie_has_them_all(cluster, client):
    reader = await written(client, (3, 3, 2), 40)
    await reader.read(0, 39, size_max=1 << 20)
    requests = [each for bookie in cluster.bookies.values() for each in bookie.requests]
    assert [each for each in requests if isinstance(each, v2.ReadRequest)] == []
    assert len([each for each in requests if isinstance(each, v2.BatchReadRequest)]) == 1


@pytest.mark.bookies(1)
async def test_entries_past_the_end_are_not_read(client: LedgerClient) -> None:
    reader = await written(client, (1, 1, 1), 5)
    await raises(NoSuchEntryError, reader.read(5, 9, size_max=100))
    assert len(await reader.read(0, 9, size_max=10**6)) == 5


@pytest.mark.parametrize("fault", ["stopped", "hung", "empty", "damaged", "swapped", "truncated", "refusing"])
@pytest.mark.parametrize("quorum", [(3, 3, 2), (3, 2, 2)])
async def test_one_bad_bookie_is_passed_over(quorum: tuple[int, int, int], fault: str) -> None:
    for index in range(3):
        cluster = FakeCluster(3)
        async with cluster.client() as client:
            reader = await written(client, quorum, 20)
            cluster.members(reader)[index].fail(fault, reader.ledger_id)
            assert await read_all(reader) == payloads(0, 19)


@pytest.mark.parametrize(
    ("faults", "kind"),
    [
        (["empty", "empty", "empty"], NoSuchEntryError),
        (["empty", "stopped", "empty"], LedgerReadError),
        (["empty", "refusing", "empty"], LedgerReadError),
        (["empty", "hung", "empty"], LedgerReadError),
        (["stopped", "damaged", "empty"], DigestMismatchError),
        (["damaged", "refusing", "hung"], DigestMismatchError),
        (["swapped", "empty", "empty"], DigestMismatchError),
    ],
)
@pytest.mark.parametrize("batch_reads", [True, False])
async def test_the_final_error_says_missing_only_if_nothing_worse_was_seen(faults, kind, batch_reads):
    for rotation in range(3):
        cluster = FakeCluster(3)
        async with cluster.client() as client:
            reader = await written(client, (3, 3, 2), 20)
            for index, bookie in enumerate(cluster.members(reader)):
                bookie.batch_reads = batch_reads
                bookie.fail(faults[(index + rotation) % 3], reader.ledger_id)
            with pytest.raises(kind) as raised:
                await reader.read(0, 19, size_max=1 << 20)
            assert type(raised.value) is kind


@pytest.mark.bookies(1)
async def test_a_wrong_password_is_said_to_be_one(cluster: FakeCluster, client: LedgerClient) -> None:
    reader = await written(client, (1, 1, 1), 3)
    cluster.bookie.refuse = lambda request: Rc.UNAUTHORIZED
    await raises(LedgerUnauthorizedError, reader.read(0, 2, size_max=100))


@pytest.mark.parametrize("quorum", [(3, 3, 2), (3, 2, 2)])
async def test_damage_in_the_middle_of_a_run_costs_no_good_entry(cluster, client, quorum):
    reader = await written(client, quorum, 20)
    for bookie in cluster.bookies.values():
        if 7 in bookie.entries[reader.ledger_id]:
            bookie.damage(reader.ledger_id, 7)
    assert [bytes(each) for each in await reader.read(2, 19, size_max=1 << 20)] == payloads(2, 6)
    await raises(DigestMismatchError, reader.read(7, 19, size_max=1 << 20))
    assert [bytes(each) for each in await reader.read(8, 19, size_max=1 << 20)] == payloads(8, 19)


@pytest.mark.parametrize("batch_reads", [True, False])
async def test_a_busy_bookie_is_asked_again(batch_reads: bool) -> None:
    cluster = FakeCluster(1)
    bookie = cluster.bookie
    bookie.batch_reads = batch_reads
    async with cluster.client(read_timeout_s=3) as client:
        reader = await written(client, (1, 1, 1), 1)
        answers = [Rc.TOO_MANY_REQUESTS] * 4
        bookie.refuse = lambda request: answers.pop() if answers else None
        assert await read_all(reader) == payloads(0, 0)
        bookie.refuse = lambda request: Rc.TOO_MANY_REQUESTS
        began = trio.current_time()
        await raises(LedgerReadError, read_all(reader))
        assert 2 < trio.current_time() - began <= 3


async def test_a_bookie_without_batch_reads_is_read_entry_by_entry(cluster: FakeCluster, client: LedgerClient) -> None:
    reader = await written(client, (3, 3, 2), 20)
    cluster.every(batch_reads=False)
    assert await read_all(reader) == payloads(0, 19)


@pytest.mark.bookies(1, read_timeout_s=3)
async def test_a_hung_bookie_delays_a_read_by_its_timeout_and_is_then_given_up(cluster, client):
    bookie = cluster.bookie
    reader = await written(client, (1, 1, 1), 3)
    bookie.hung = True
    began = trio.current_time()
    await raises(LedgerReadError, reader.read(0, 2, size_max=100))
    assert 3 <= trio.current_time() - began < 4
    bookie.hung = False
    assert await read_all(reader) == payloads(0, 2)


@pytest.mark.bookies(2)
async def test_a_read_crosses_no_fragment_and_each_is_read_from_its_own_bookies(cluster, client):
    writer, seen = await begun(client, entries=5)
    first = writer.metadata.fragments[0].bookies[0]
    cluster.bookies[first].refuse = lambda request: Rc.READ_ONLY if isinstance(request, Run) else None
    await seen.write(5, 9)
    await writer.close()
    reader = await client.open(writer.ledger_id, recover=False)
    assert len(reader.metadata.fragments) == 2
    assert [bytes(each) for each in await reader.read(2, 9, size_max=10**6)] == payloads(2, 4)
    asked = cluster.bookies[first].requests[-1]
    assert isinstance(asked, v2.BatchReadRequest)
    assert asked.count_max == 3, "what a bookie of the old ensemble has beyond its fragment is of no interest"
    assert await read_all(reader) == payloads(0, 9)


def test_payloads_are_views_of_the_response() -> None:
    digest = Digest(DigestType.CRC32C)
    entry = digest.seal(7, 0, -1, 3, b"abc") + b"abc"
    [payload] = open_entries(digest, 7, 0, [memoryview(entry)])
    assert payload.obj is entry


# --- other calls of applications


@pytest.mark.parametrize("quorum", QUORUMS)
@pytest.mark.bookies(5)
async def test_a_range_is_read_whole_or_not_at_all(client: LedgerClient, quorum: tuple[int, int, int]) -> None:
    reader = await written(client, quorum, 300)
    assert [bytes(each) for each in await reader.read(0, 299)] == payloads(0, 299)
    assert [bytes(each) for each in await reader.read(7, 7)] == payloads(7, 7)
    await raises(NoSuchEntryError, reader.read(290, 300))
    for first, last in ((-1, 3), (4, 3)):
        await raises(IncorrectParameterError, reader.read(first, last))


@pytest.mark.parametrize("quorum", QUORUMS)
@pytest.mark.bookies(5)
async def test_a_batch_is_bounded_in_entries_and_bytes(client: LedgerClient, quorum: tuple[int, int, int]) -> None:
    reader = await written(client, quorum, 40)
    assert [bytes(each) for each in await reader.batch_read(5, 3)] == payloads(5, 7)
    assert [bytes(each) for each in await reader.batch_read(38, 10)] == payloads(38, 39)
    assert [bytes(each) for each in await reader.batch_read(5, 3, 1)] == payloads(5, 5)
    await raises(IncorrectParameterError, reader.batch_read(5, 0))


async def test_what_is_not_confirmed_can_be_read_from_an_open_ledger_only(cluster: FakeCluster, client: LedgerClient):
    writer, _ = await begun(client, (3, 3, 2), entries=5)
    reader = await client.open_no_recovery(writer.ledger_id)
    assert reader.last_entry_id == -1
    await raises(NoSuchEntryError, reader.read(0, 4))
    assert [bytes(each) for each in await reader.read_unconfirmed(0, 4)] == payloads(0, 4)
    await raises(NoSuchEntryError, reader.read_unconfirmed(0, 5))
    await writer.close()
    beyond = cluster.bookie.entries[writer.ledger_id]
    beyond[5] = beyond[4]
    closed = await client.open(writer.ledger_id, recover=False)
    await raises(NoSuchEntryError, closed.read_unconfirmed(0, 5))


async def test_reading_tells_how_far_an_open_ledger_is_confirmed() -> None:
    for protocol in ("v2", "v3"):
        cluster = FakeCluster(3)
        async with cluster.client() as client, cluster.client(protocol=protocol) as reading:
            writer, seen = await begun(client, (3, 3, 2))
            for entry_id in range(10):
                await seen.write(entry_id, entry_id)
                if entry_id == 4:
                    reader = await reading.open_no_recovery(writer.ledger_id)
            assert reader.last_entry_id == 3
            await reader.read_unconfirmed(4, 6)
            assert reader.last_entry_id == (5 if protocol == "v2" else 8), "its own LAC; with v3 the bookie's"


@pytest.mark.bookies(2)
async def test_a_read_that_fails_looks_for_the_ledger_where_a_repair_has_put_it(cluster, client):
    reader = await written(client, (1, 1, 1), 20)
    [old] = cluster.members(reader)
    [new] = [each for each in cluster.bookies.values() if each is not old]
    new.entries[reader.ledger_id] = old.entries[reader.ledger_id]
    moved = replace(reader.metadata, fragments=(Fragment(0, (new.bookie_id,)),))
    old.stop()
    await raises(LedgerReadError, reader.read(0, 19))
    await cluster.ledgers.write(reader.ledger_id, moved, 1)
    assert [bytes(each) for each in await reader.read(0, 19)] == payloads(0, 19)
    assert reader.metadata == moved
    await client.delete(reader.ledger_id)
    new.stop()
    await raises(LedgerReadError, reader.read(0, 19))


@pytest.mark.bookies(reads=ReadConfig(batch_reads=False))
async def test_batches_can_be_switched_off(cluster: FakeCluster, client: LedgerClient) -> None:
    reader = await written(client, (3, 3, 2), 20)
    assert await read_all(reader) == payloads(0, 19)
    requests = [each for bookie in cluster.bookies.values() for each in bookie.requests]
    assert not [each for each in requests if isinstance(each, v2.BatchReadRequest)]


async def test_with_version_3_everything_is_read_entry_by_entry() -> None:
    cluster = FakeCluster(3)
    async with cluster.client() as client, cluster.client(protocol="v3") as reading:
        ledger_id = (await written(client, (3, 3, 2), 200)).ledger_id
        reader = await reading.open(ledger_id, recover=False)
        assert [bytes(each) for each in await reader.read(0, 199)] == payloads(0, 199)

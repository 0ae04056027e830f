from __future__ import annotations

import random

import pytest
import trio

from quire.ledger import LedgerClient
from quire.ledger.errors import (
    DuplicateEntryError,
    EntryTooLargeError,
    IncorrectParameterError,
    LedgerClosedError,
    LedgerFencedError,
)
from quire.metadata.ledgers import LedgerState
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import read_header
from tests.support.refusals import raises, refuses
from tests.unit.ledger.fake_bookie import Confirmations, FakeCluster, payloads, total
from tests.unit.ledger.reads import read_all


async def test_entries_in_any_order_of_their_ids_are_confirmed_in_the_order_of_their_ids() -> None:
    for seed in range(8):
        rng = random.Random(seed)
        cluster = FakeCluster(5, seed=seed)
        async with cluster.client() as client:
            size, write, ack = rng.choice([(1, 1, 1), (3, 3, 2), (3, 2, 2), (5, 3, 2)])
            writer = await client.create_adv(ensemble_size=size, write_quorum=write, ack_quorum=ack)
            seen = Confirmations(writer)
            starts = list(range(0, 40, 4))
            rng.shuffle(starts)
            for first in starts:
                writer.append(first, payloads(first, first + 3))
                if rng.random() < 0.3:
                    await trio.sleep(0.01)
            await seen.until(39)
            assert (seen.payloads, seen.confirmed) == (payloads(0, 39), list(range(40)))
            assert writer.length == total(0, 39)
            await writer.close()
            assert await read_all(await client.open(writer.ledger_id, recover=False)) == payloads(0, 39)


async def test_a_gap_holds_up_everything_behind_it(client: LedgerClient) -> None:
    writer = await client.create_adv(ensemble_size=3, write_quorum=3, ack_quorum=2)
    seen = Confirmations(writer)
    writer.append(0, payloads(0, 1))
    writer.append(3, payloads(3, 5))
    await trio.sleep(100)
    assert seen.ranges == [(0, 1)]
    assert (writer.last_pushed, writer.last_confirmed) == (5, 1)
    assert writer.error is None, "the bookies have acknowledged all they were sent"
    await writer.write(2, payloads(2, 2)[0])
    assert (seen.last, seen.payloads) == (5, payloads(0, 5))
    assert writer.pending_bytes == 0


@pytest.mark.bookies(1)
async def test_an_id_given_twice_is_refused_and_nothing_of_its_run_is_sent(cluster: FakeCluster, client: LedgerClient):
    [bookie] = cluster.bookies.values()
    writer = await client.create_adv()
    seen = Confirmations(writer)
    writer.append(0, payloads(0, 2))
    await seen.until(2)
    writer.append(5, payloads(5, 6))
    for first, count in ((1, 1), (2, 2), (4, 2), (6, 1)):
        with pytest.raises(DuplicateEntryError) as raised:
            writer.append(first, [b"again"] * count)
        assert raised.value.code == -22
    assert sorted(bookie.entries[writer.ledger_id]) == [0, 1, 2, 5, 6]
    writer.append(3, payloads(3, 4))
    await seen.until(6)


async def test_what_is_no_run_of_entries_is_refused(client: LedgerClient) -> None:
    writer = await client.create_adv()
    refuses(IncorrectParameterError, lambda: writer.append(-1, [b"entry"]))
    refuses(IncorrectParameterError, lambda: writer.append(0, []))
    with pytest.raises(IncorrectParameterError, match="9223372036854775806 is the highest"):
        writer.append(v2.ID_MAX, [b"the last one", b"one too many"])
    refuses(EntryTooLargeError, lambda: writer.append(0, [bytes(v2.FRAME_MAX)]))
    await writer.write(0, b"the id is free still")


async def test_a_ledger_with_a_gap_is_closed_and_recovered_before_it(client: LedgerClient) -> None:
    for way in ("close", "recovery"):
        writer = await client.create_adv(ensemble_size=3, write_quorum=3, ack_quorum=2)
        seen = Confirmations(writer)
        writer.append(4, payloads(4, 6))
        writer.append(0, payloads(0, 2))
        await seen.until(2)
        if way == "close":
            await writer.close()
            assert [type(error) for error in seen.errors] == [LedgerClosedError]
            assert [bytes(each) for each in writer.sealed(0, 9)] == payloads(4, 6)
        reader = await client.open(writer.ledger_id, recover=True)
        assert (reader.metadata.state, reader.last_entry_id) == (LedgerState.CLOSED, 2)
        assert await read_all(reader) == payloads(0, 2)


async def test_recovery_keeps_the_lengths_that_entries_came_with(cluster: FakeCluster, client: LedgerClient) -> None:
    """Lengths do not grow with the ids here: a rewritten copy must be the same, byte for byte except its LAC."""
    writer = await client.create_adv(ensemble_size=3, write_quorum=3, ack_quorum=2)
    cluster.hold()
    for entry_id in (3, 0, 2, 1, 4):
        writer.append(entry_id, payloads(entry_id, entry_id))
    for bookie in cluster.bookies.values():
        bookie.hold = False
    bookie = cluster.bookie
    before = {each: read_header(entry).length for each, entry in bookie.entries[writer.ledger_id].items()}
    assert before[3] < before[0] < before[2] < before[1] < before[4]
    cluster.bookies["bookie1:3181"].entries.clear()
    reader = await client.open(writer.ledger_id, recover=True)
    assert await read_all(reader) == payloads(0, 4)
    for each in cluster.bookies.values():
        entries = each.entries[writer.ledger_id]
        assert {entry_id: read_header(entry).length for entry_id, entry in entries.items()} == before


@pytest.mark.parametrize("quorum", [(3, 3, 2), (3, 2, 2), (4, 3, 3)])
@pytest.mark.bookies(6, add_timeout_s=5)
async def test_a_replaced_bookie_gets_the_entries_beyond_a_gap_too(quorum, cluster, client):
    size, write, ack = quorum
    writer = await client.create_adv(ensemble_size=size, write_quorum=write, ack_quorum=ack)
    seen = Confirmations(writer)
    writer.append(0, payloads(0, 3))
    writer.append(8, payloads(8, 12))
    await seen.until(3)
    cluster.bookies[writer.metadata.fragments[0].bookies[0]].stop()
    writer.append(4, payloads(4, 7))
    await seen.until(12)
    await writer.close()
    assert writer.metadata.fragments[1].first_entry_id == 4
    members = cluster.members(writer, 1)
    for entry_id in range(4, 13):
        copies = [each for each in members if entry_id in each.entries.get(writer.ledger_id, {})]
        assert len(copies) == write, f"entry {entry_id}"


@pytest.mark.bookies(4, add_timeout_s=8)
async def test_an_entry_that_fills_a_gap_has_its_own_time_to_be_acknowledged(cluster, client):
    writer = await client.create_adv(ensemble_size=3, write_quorum=3, ack_quorum=3)
    seen = Confirmations(writer)
    ensemble = cluster.members(writer)
    writer.append(5, payloads(5, 9))
    await trio.sleep(7.5)
    for bookie in ensemble:
        bookie.hold = True
    writer.append(0, payloads(0, 4))
    await trio.sleep(5)
    for bookie in ensemble:
        bookie.hold = False
        bookie.release()
    await seen.until(9)
    assert len(writer.metadata.fragments) == 1, "nobody was too slow"
    ensemble[1].hung = True
    writer.append(12, payloads(12, 13))
    await trio.sleep(20)
    assert len(writer.metadata.fragments) == 2, "a bookie is too slow with an entry beyond a gap"


@pytest.mark.bookies(1)
async def test_a_fenced_advanced_writer_is_dead(client: LedgerClient) -> None:
    writer = await client.create_adv(ledger_id=4711)
    await writer.write(0, b"entry")
    reader = await client.open(4711, recover=True)
    assert reader.last_entry_id == 0
    await raises(LedgerFencedError, writer.write(1, b"too late"))

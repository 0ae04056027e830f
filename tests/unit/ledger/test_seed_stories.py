"""Two scenarios of ledgers that the sources of this project describe."""

from __future__ import annotations

import pytest
import trio

from quire.ledger.errors import LedgerFencedError
from quire.ledger.striping import Striping
from quire.metadata.ledgers import LedgerState
from quire.wire.bookkeeper.entry import read_header
from tests.unit.ledger.fake_bookie import FakeBookie, FakeCluster, begun, payloads, total
from tests.unit.ledger.reads import read_all


@pytest.mark.parametrize("reached", [0, 1, 2, 3])
async def test_broker_1_dies_with_entry_3_outstanding_and_broker_2_recovers_the_ledger(reached: int) -> None:
    """Broker 1 appends to ledger x. At T0 its LAC is 2, and entry 3 was sent and has no answer yet: it is outstanding.
    In a split brain, broker 2 takes the topic over. It finds ledger x open and recovers it: it reads the highest LAC,
    fences broker 1, which abandons the topic as soon as it continues, reads entries from there until none of the
    bookies has one, and closes the ledger at the last. Then broker 2 opens a new ledger and writes.

    `reached` is the number of the three bookies that had entry 3 at that time.
    """
    cluster = FakeCluster(3)
    async with cluster.client() as broker_1, cluster.client() as broker_2:
        ledger_x, seen_1 = await begun(broker_1, (3, 3, 3), entries=3)
        bookies = cluster.members(ledger_x)
        for bookie in bookies[reached:]:
            bookie.hung = True
        for bookie in bookies:
            bookie.hold = True
        ledger_x.append(payloads(3, 3))
        assert (ledger_x.last_confirmed, ledger_x.last_pushed) == (2, 3), "entry 3 is outstanding"
        for bookie in bookies:
            bookie.hung = bookie.hold = False

        assert (await cluster.metadata(ledger_x.ledger_id)).state is LedgerState.OPEN
        recovered = await broker_2.open(ledger_x.ledger_id, recover=True)

        assert all(ledger_x.ledger_id in bookie.fenced for bookie in bookies)
        metadata = await cluster.metadata(ledger_x.ledger_id)
        assert metadata.state is LedgerState.CLOSED
        # An unconfirmed entry may be kept or dropped; but it is kept if all have it, and dropped if none has it.
        last = metadata.last_entry_id
        assert last in {0: {2}, 1: {2, 3}, 2: {2, 3}, 3: {3}}[reached]
        assert await read_all(recovered) == payloads(0, last)
        if last == 3:
            assert all(3 in bookie.entries[ledger_x.ledger_id] for bookie in bookies), "written back to all"

        ledger_x.append(payloads(4, 4))
        assert isinstance(await seen_1.until_failed(), LedgerFencedError)
        assert seen_1.last == 2, "broker 1 was told nothing more"
        await ledger_x.close()
        assert await cluster.metadata(ledger_x.ledger_id) == metadata

        ledger_y = await broker_2.create(ensemble_size=3, write_quorum=3, ack_quorum=3)
        assert await ledger_y.write(b"broker 2 goes on") == 0


async def test_5_3_2_stripes_the_records_over_the_nodes_as_they_are_drawn() -> None:
    """openLedger(5, 3, 2): five nodes, three copies, two answers. Record 1 is on nodes 1-3, record 2 on 2-4, record 3
    on 3-5, record 4 on 4, 5 and 1, and so on in turn. The drawing numbers records and nodes from 1. Entries and
    ensemble indices begin at 0, and entry 0 begins at index 0, so record r is entry r - 1.
    """
    drawn = {1: {1, 2, 3}, 2: {2, 3, 4}, 3: {3, 4, 5}, 4: {4, 5, 1}, 5: {5, 1, 2}, 6: {1, 2, 3}}
    cluster = FakeCluster(5)
    async with cluster.client() as client:
        writer, seen = await begun(client, (5, 3, 2))
        nodes = dict(enumerate(cluster.members(writer), 1))
        await seen.write(0, 5)
        for record, where in drawn.items():
            found = {number for number, node in nodes.items() if record - 1 in node.entries[writer.ledger_id]}
            assert found == where, f"record {record}"
            assert {index + 1 for index in Striping(5, 3).write_set(record - 1)} == where

        # Two answers of three confirm, and a record can be read although two of its nodes are lost.
        for node in nodes.values():
            node.hold = True
        writer.append(payloads(6, 6))
        nodes[2].release()
        assert seen.last == 5
        nodes[4].release()
        await seen.until(6)
        for node in nodes.values():
            node.hold = False
        reader = await client.open(writer.ledger_id, recover=True)
        nodes[1].stop()
        nodes[2].stop()
        assert await read_all(reader) == payloads(0, 6)


@pytest.mark.bookies(6)
async def test_node_5_dies_and_node_x_takes_its_place_from_the_next_record_on(cluster, client):
    """The second drawing: node 5 is lost; in the metadata, node 6 replaces it from here on."""
    writer, seen = await begun(client, (5, 3, 2), entries=10)
    before = writer.metadata.fragments[0].bookies
    [node_x] = [each for each in cluster.bookies if each not in before]
    cluster.hold()
    writer.append(payloads(10, 19))
    cluster.bookies[before[4]].stop()
    await trio.sleep(1)
    for bookie in cluster.bookies.values():
        bookie.hold = False
        bookie.release()
    await seen.until(19)
    first, second = (await cluster.metadata(writer.ledger_id)).fragments
    assert (first.first_entry_id, first.bookies) == (0, before)
    assert (second.first_entry_id, second.bookies) == (10, (*before[:4], node_x))
    await writer.close()
    of_x = sorted(cluster.bookies[node_x].entries[writer.ledger_id])
    assert of_x == [entry_id for entry_id in range(10, 20) if 4 in Striping(5, 3).write_set(entry_id)]
    assert await read_all(await client.open(writer.ledger_id, recover=False)) == payloads(0, 19)


async def test_a_broker_killed_in_the_middle_of_a_recovery_leaves_it_to_the_next() -> None:
    """Recovery is repeatable: whatever one has written and fenced, the next one begins again and closes the ledger."""
    for requests in (1, 4, 8, 12, 16, 20):
        cluster = FakeCluster(3)
        async with cluster.client() as broker_1:
            writer, _ = await begun(broker_1, (3, 3, 2), entries=5)
            cluster.hold()
            writer.append(payloads(5, 30))
            cluster.hold(False)
        count = 0

        bookies = list(cluster.bookies.values())

        def hang_later(request: object, limit: int = requests, bookies: list[FakeBookie] = bookies) -> None:
            nonlocal count
            count += 1
            for bookie in bookies:
                bookie.hung = count >= limit

        for bookie in bookies:
            bookie.refuse = hang_later
        async with cluster.client() as broker_2:
            with trio.move_on_after(3) as killed:
                await broker_2.open(writer.ledger_id, recover=True)
        assert killed.cancelled_caught, requests
        assert (await cluster.metadata(writer.ledger_id)).state is LedgerState.IN_RECOVERY
        cluster.every(hung=False, refuse=lambda request: None)
        async with cluster.client() as broker_3:
            reader = await broker_3.open(writer.ledger_id, recover=True)
            assert await read_all(reader) == payloads(0, 30)
            for bookie in cluster.bookies.values():
                lengths = [read_header(bookie.entries[writer.ledger_id][each]).length for each in range(31)]
                assert lengths == [total(0, each) for each in range(31)]

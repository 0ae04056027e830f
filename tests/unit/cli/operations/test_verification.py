"""Reads of every copy, on bookies in memory."""

from __future__ import annotations

import pytest

from quire.cli.operations.verification import EXAMPLES_MAX, Verifier
from quire.ledger.reading.copies import CopyFault
from quire.ledger.striping import Striping
from quire.metadata.ledgers import LedgerState
from quire.wire.bookkeeper.v2 import Rc
from tests.unit.ledger.fake_bookie import FakeCluster, payloads, write


@pytest.mark.parametrize("quorums", [(1, 1, 1), (3, 3, 2), (3, 2, 2), (5, 3, 2)])
@pytest.mark.parametrize("count", [0, 1, 2, 150])
async def test_each_copy_that_there_should_be_is_read_once(quorums, count):
    cluster = FakeCluster(5)
    async with cluster.client() as client:
        ledger_id, _ = await write(client, count, quorums=quorums)
        moved: list[int] = []
        report = await Verifier(client).verify(ledger_id, moved.append)
        assert report.good
        assert report.state is LedgerState.CLOSED
        assert report.totals.copies == sum(moved) == count * quorums[1]


async def test_each_bad_copy_is_found_wherever_it_is_and_told_with_its_bookie():
    cluster = FakeCluster(3)
    async with cluster.client() as client:
        ledger_id, _ = await write(client, 50, quorums=(3, 2, 2))
        metadata = await cluster.metadata(ledger_id)
        members = metadata.fragments[0].bookies
        striping = Striping(3, 2)
        for entry_id in range(50):
            for index in striping.write_set(entry_id):
                bookie = cluster.bookies[members[index]]
                copy = bookie.entries[ledger_id].pop(entry_id)
                report = await Verifier(client).verify(ledger_id)
                bookie.entries[ledger_id][entry_id] = copy
                assert report.bad_counts == {members[index]: 1}
                [bad] = report.bad[members[index]]
                assert (bad.entry_id, bad.fault) == (entry_id, CopyFault.MISSING)
                assert (report.totals.bad_ledgers, report.totals.bad_copies, report.totals.copies) == (1, 1, 99)
        assert (await Verifier(client).verify(ledger_id)).good


async def test_every_way_to_be_bad_is_counted_and_who_does_not_answer_is_bad_with_all_it_has():
    cluster = FakeCluster(4)
    async with cluster.client(read_timeout_s=1.0) as client:
        ledger_id, _ = await write(client, 20, quorums=(4, 4, 3))
        metadata = await cluster.metadata(ledger_id)
        missing, damaged, failing, down = cluster.of(metadata.fragments[0].bookies)
        missing.entries.pop(ledger_id)
        damaged.damage(ledger_id, 7)
        failing.refuse = lambda request: Rc.IO
        down.stop()
        report = await Verifier(client).verify(ledger_id)
        assert report.totals.faults == {"missing": 20, "damaged": 1, "unreadable": 20, "unreachable": 20}
        assert report.totals.bad_copies == 61
        assert report.totals.copies == 19
        assert len(report.bad[missing.bookie_id]) == EXAMPLES_MAX
        told = report.to_json()["badCopies"]
        assert {each["bookie"]: each["count"] for each in told} == report.bad_counts
        assert f"1 bad copies on {damaged.bookie_id}, first entry 7: damaged" in "\n".join(report.lines())


async def test_of_an_open_ledger_what_a_member_does_not_have_yet_is_told_apart_and_damage_is_not():
    cluster = FakeCluster(3)
    async with cluster.client() as client:
        writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        ledger_id = writer.ledger_id
        for last in (49, 50):  # the last entry tells the bookies that the others are confirmed
            writer.append(payloads(writer.last_pushed + 1, last))
            await writer.wait_confirmed(last)
        metadata = await cluster.metadata(ledger_id)
        first, second, _ = cluster.of(metadata.fragments[0].bookies)
        assert (await Verifier(client).verify(ledger_id)).totals.copies == 3 * 50
        first.entries[ledger_id].pop(49)
        report = await Verifier(client).verify(ledger_id)
        assert report.good
        assert report.totals.open_ledgers == 1
        assert report.totals.faults == {"open": 1}
        second.damage(ledger_id, 0)
        report = await Verifier(client).verify(ledger_id)
        assert report.bad_counts == {second.bookie_id: 1}
        assert (await cluster.metadata(ledger_id)).state is LedgerState.OPEN


async def test_a_ledger_that_was_deleted_is_no_news():
    cluster = FakeCluster(3)
    async with cluster.client() as client:
        ledger_id, _ = await write(client, 5)
        await client.delete(ledger_id)
        report = await Verifier(client).verify(ledger_id)
        assert report.good
        assert report.state is None
        assert report.totals.ledgers == 0

"""Auto recovery as a whole, with real bookies: lost copies of ledgers of every kind are made again."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import trio

from autorecovery.service import first_cause
from quire.ledger.errors import LedgerClosedError, LedgerFencedError
from quire.metadata.errors import MetadataUnavailableError, SessionExpiredError
from quire.metadata.ledgers import LedgerState
from tests.support.waiting import until
from tests.unit.autorecovery.live import (
    CONFIG,
    all_copies_are_good,
    bookie_stops,
    client_of,
    damage,
    is_closed,
    marks_of,
    nobody_names,
    nothing_is_marked,
    recovering,
    write,
)
from tests.unit.cli.shell.build import with_bookies
from tests.unit.ledger.fake_bookie import payloads

pytestmark = pytest.mark.seeded


async def test_all_ledgers_of_a_lost_bookie_are_back_at_full_quorums() -> None:
    async with with_bookies(count=5) as cluster, client_of(cluster) as client:
        ledgers = {await write(client, 60, quorums=each): 60 for each in [(3, 3, 2), (3, 2, 2), (2, 2, 1)] * 4}
        ledgers |= {await write(client, 1): 1, await write(client, 0): 0}
        async with recovering(cluster) as stats:
            await bookie_stops(cluster, "b2")
            await until(partial(nobody_names, client, "b2", ledgers))
            await until(nothing_is_marked(cluster))
            assert stats.worker.ledgers > 0
        for ledger_id, count in ledgers.items():
            await all_copies_are_good(cluster, client, ledger_id, count)


async def test_an_open_ledger_whose_writer_replaces_the_bookie_itself_is_not_fenced() -> None:
    async with with_bookies(count=5) as cluster, client_of(cluster) as client:
        writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2, password=b"secret")
        await writer.write(b"one")
        lost = writer.metadata.fragments[0].bookies[0]
        async with recovering(cluster) as stats:
            await bookie_stops(cluster, lost)
            await until(lambda: stats.worker.deferred > 0)
            await writer.write(b"two")

            async def is_repaired() -> bool:
                fragments = (await client.read_metadata(writer.ledger_id)).fragments
                return len(fragments) == 2 and not any(lost in each.bookies for each in fragments)

            await until(is_repaired)
            await until(nothing_is_marked(cluster))
        assert (await client.read_metadata(writer.ledger_id)).state is LedgerState.OPEN
        await writer.write(b"three")
        await writer.close()


@pytest.mark.parametrize("count", [0, 30])
async def test_an_open_ledger_of_a_silent_writer_is_closed_after_the_grace_period_and_repaired(count: int) -> None:
    async with with_bookies(count=4) as cluster, client_of(cluster) as client:
        writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2, password=b"secret")
        if count:
            writer.append(payloads(0, count - 1))
            await writer.wait_confirmed(count - 1)
        lost = writer.metadata.fragments[0].bookies[0]
        async with recovering(cluster):
            began = trio.current_time()
            await bookie_stops(cluster, lost)
            await until(partial(is_closed, client, writer.ledger_id))
            assert trio.current_time() - began >= CONFIG.open_ledger_grace_period_ms / 1000
            await until(nothing_is_marked(cluster))
        await all_copies_are_good(cluster, client, writer.ledger_id, count)
        with pytest.raises((LedgerFencedError, LedgerClosedError)):
            await writer.write(b"late")


async def test_a_writer_is_not_fenced_once_auto_recovery_was_disabled() -> None:
    async with with_bookies(count=4) as cluster, client_of(cluster) as client:
        writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2, password=b"secret")
        await writer.write(b"one")
        async with recovering(cluster) as stats:
            await bookie_stops(cluster, writer.metadata.fragments[0].bookies[0])
            await until(lambda: stats.worker.deferred > 0)
            await marks_of(cluster).disable()
            await trio.sleep(60)
            assert (await client.read_metadata(writer.ledger_id)).state is LedgerState.OPEN
            await marks_of(cluster).enable()
            await until(partial(is_closed, client, writer.ledger_id))


async def test_several_workers_share_the_ledgers() -> None:
    async with with_bookies(count=5) as cluster, client_of(cluster) as client:
        ledgers = [await write(client, 20) for _ in range(60)]
        async with (
            recovering(cluster) as one,
            recovering(cluster, name="ar2") as two,
            recovering(cluster, name="ar3") as three,
        ):
            await bookie_stops(cluster, "b1")
            await until(partial(nobody_names, client, "b1", ledgers))
            await until(nothing_is_marked(cluster))
            shares = [each.worker.ledgers for each in (one, two, three)]
        assert min(shares) > 0.2 * sum(shares), shares
        for ledger_id in ledgers:
            await all_copies_are_good(cluster, client, ledger_id, 20)


async def test_while_it_is_disabled_nothing_is_copied() -> None:
    async with with_bookies(count=4) as cluster, client_of(cluster) as client:
        ledger_id = await write(client, 20)
        before = await client.read_metadata(ledger_id)
        lost = before.fragments[0].bookies[0]
        marks = marks_of(cluster)
        await marks.disable()
        await marks.mark(ledger_id, [lost])
        async with recovering(cluster):
            await bookie_stops(cluster, lost)
            await trio.sleep(60)
            assert await client.read_metadata(ledger_id) == before
            await marks.enable()
            await until(nothing_is_marked(cluster))
        await all_copies_are_good(cluster, client, ledger_id, 20)


async def test_the_mark_of_a_deleted_ledger_goes() -> None:
    async with with_bookies() as cluster, client_of(cluster) as client:
        ledger_id = await write(client, 5)
        await client.delete(ledger_id)
        await marks_of(cluster).mark(ledger_id, ["b1"])
        async with recovering(cluster, auditor=False):
            await until(nothing_is_marked(cluster))


async def test_the_auditors_check_finds_a_damaged_copy_and_a_worker_mends_it() -> None:
    async with with_bookies() as cluster, client_of(cluster) as client:
        ledger_id = await write(client, 20)
        await damage(client, ledger_id, "b1", 7)
        copies = client.copies(ledger_id, await client.read_metadata(ledger_id))
        config = replace(CONFIG, ledger_check_interval_s=3600, verification_percentage=100)
        async with recovering(cluster, config):

            async def all_good() -> bool:
                return await copies.bad_copies("b1", range(20), count_max=1) == []

            assert not await all_good()
            await until(all_good)
            await until(nothing_is_marked(cluster))
        await all_copies_are_good(cluster, client, ledger_id, 20)


def test_a_lost_session_is_told_before_what_follows_from_it() -> None:
    lost = SessionExpiredError("gone")
    group = ExceptionGroup("", [MetadataUnavailableError("away"), ExceptionGroup("", [lost])])
    assert first_cause(group) is lost

"""Bookies of a cluster lose data and get it back from the others, with real processes on a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from quire.ledger import LedgerClient, open_client
from quire.wire.bookkeeper.v2 import Rc
from quire.world.real import real_world
from tests.support.bookie_process import BookieProcess
from tests.support.bookies import BookieCluster, cluster, sees
from tests.support.stories.payloads import check, has, payload, rc_of_read
from tests.support.zookeeper import until

pytestmark = [pytest.mark.cluster, pytest.mark.real_clock]
CHECKED = {"dataIntegrityChecking": "true", "dataIntegrityStampMissingCookies": "true", "gcWaitTime": 1000}
ENTRIES = 300


@pytest.fixture
def bookies(tmp_path: Path) -> Iterator[BookieCluster]:
    with cluster(tmp_path, 3, CHECKED) as made:
        yield made


async def written(client: LedgerClient, *, close: bool) -> int:
    writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    writer.append([payload(number) for number in range(ENTRIES)])
    await writer.wait_confirmed(ENTRIES - 1)
    if close:
        await writer.close()
    return writer.ledger_id


async def has_all(bookie: BookieProcess, ledger_ids: list[int]) -> bool:
    return all(
        [await has(bookie, each, entry_id) for each in ledger_ids for entry_id in (0, ENTRIES // 2, ENTRIES - 1)]
    )


async def test_an_emptied_bookie_comes_back_with_all_its_copies(bookies: BookieCluster) -> None:
    async with open_client(real_world(), bookies.uri) as client:
        await until(partial(sees, client, 3), "all are seen")
        ledger_ids = [await written(client, close=True), await written(client, close=False)]
        victim, other, _ = bookies.bookies
        victim.lose_for_good()
        other.kill()  # what is lost cannot be copied in full, and an open ledger cannot be closed
        victim.start()
        assert {rc_of_read(victim, ledger_ids[1], entry_id) for entry_id in (0, ENTRIES - 1, -1)} == {
            Rc.UNKNOWN_LEDGER_STATE
        }
        other.start()
        await until(partial(has_all, victim, ledger_ids), "all copies are back")
        for ledger_id in ledger_ids:
            await check(client, ledger_id, ENTRIES)
    # Everything is on its disk, and a kill is no loss.
    victim.kill()
    victim.start()
    assert await has_all(victim, ledger_ids)
    assert rc_of_read(victim, ledger_ids[0], ENTRIES) == Rc.NO_ENTRY


@pytest.fixture
def unjournaled(tmp_path: Path) -> Iterator[BookieCluster]:
    with cluster(tmp_path, 3, CHECKED | {"journalWriteData": "false", "flushInterval": 600_000}) as made:
        yield made


async def test_without_a_journal_of_entries_a_killed_bookie_denies_nothing_and_gets_its_copies_back(
    unjournaled: BookieCluster,
) -> None:
    async with open_client(real_world(), unjournaled.uri) as client:
        await until(partial(sees, client, 3), "all are seen")
        ledger_ids = [await written(client, close=True), await written(client, close=False)]
        victim, other, _ = unjournaled.bookies
        await until(partial(has_all, victim, ledger_ids), "the slowest copies have arrived")
        assert other.stop() == 0, "a stop writes everything to the entry log"
        victim.kill()
        victim.start()
        assert "it was not shut down, with journalWriteData=false" in victim.log()
        for entry_id in (0, ENTRIES - 1, ENTRIES):
            assert rc_of_read(victim, ledger_ids[1], entry_id) == Rc.UNKNOWN_LEDGER_STATE
        other.start()
        await until(partial(has_all, victim, ledger_ids), "all copies are back")
        for ledger_id in ledger_ids:
            await check(client, ledger_id, ENTRIES)

"""Covers quire/ledger/client_metrics.py and client_stats.py, and what the client counts in them."""

from __future__ import annotations

import re

import pytest
import trio
import trio.testing

from quire.ledger import LedgerClient
from quire.ledger.client_metrics import register_ledger_client
from quire.ledger.errors import LedgerClosedError, NoSuchLedgerError, NotEnoughBookiesError
from quire.metadata.ledgers import LedgerState
from quire.service.metrics import Metrics
from quire.wire.bookkeeper.v2 import Rc
from tests.support.refusals import raises
from tests.unit.ledger.fake_bookie import FakeCluster, begun, payloads
from tests.unit.ledger.reads import read_all, written


class Shown:
    """The exposed metrics of a client, with "x" before their names."""

    def __init__(self, client: LedgerClient, cluster: str | None = None) -> None:
        self._metrics = Metrics()
        register_ledger_client(self._metrics, lambda: client.stats, "x", cluster=cluster)
        self.text()  # as a scrape: adds are timed from now on

    def text(self) -> str:
        return self._metrics.exposition().decode()

    def __call__(self, name: str, labels: str = "") -> float:
        found = re.search(rf"^x_{name}{re.escape(labels)} (\S+)$", self.text(), re.MULTILINE)
        assert found is not None, (name, labels)
        return float(found[1])

    def counts(self, name: str) -> tuple[float, float]:
        """Return the numbers of operations that succeeded and failed."""
        return self(f"{name}_count", '{success="true"}'), self(f"{name}_count", '{success="false"}')


async def test_a_ledger_from_its_creation_to_its_deletion_is_counted(client: LedgerClient) -> None:
    shown = Shown(client)
    reader = await written(client, (3, 2, 2), 20)
    await read_all(reader)
    await client.delete(reader.ledger_id)
    await raises(NoSuchLedgerError, client.recover(reader.ledger_id))
    assert shown.counts("LEDGER_CREATE") == shown.counts("LEDGER_OPEN") == shown.counts("LEDGER_DELETE") == (1, 0)
    assert shown.counts("ADD_ENTRY") == (20, 0)
    assert shown.counts("READ_ENTRY")[0] >= 1
    assert shown("NUM_PENDING_ADD") == shown("READ_ENTRY_DM") == shown("SPECULATIVE_READ_COUNT") == 0
    assert shown.counts("bookie_watcher_NEW_ENSEMBLE_TIME") == (1, 0)
    for bookie_id in reader.metadata.fragments[0].bookies:
        assert shown("LEDGER_ENSEMBLE_BOOKIE_DISTRIBUTION", f'{{bookie="{bookie_id}"}}') == 1
    await raises(NotEnoughBookiesError, client.create(ensemble_size=9))
    assert shown.counts("LEDGER_CREATE") == (1, 1)


async def test_adds_are_not_timed_before_something_exposes_them(client: LedgerClient) -> None:
    await written(client, (3, 3, 2), 5)
    assert sum(client.stats.adds.good.counts) == 0
    assert not client.stats.times_adds
    shown = Shown(client)
    await written(client, (3, 3, 2), 5)
    assert shown.counts("ADD_ENTRY") == (5, 0)


@pytest.mark.bookies(3)
async def test_pending_adds_are_shown_and_fail_when_the_writer_closes(cluster: FakeCluster, client: LedgerClient):
    shown = Shown(client)
    writer, seen = await begun(client, (3, 3, 3))
    writer.append(payloads(0, 2))
    await seen.until(2)
    cluster.hold()
    writer.append(payloads(3, 6))
    assert shown("NUM_PENDING_ADD") == 4
    await writer.close()
    assert isinstance(await seen.until_failed(), LedgerClosedError)
    assert shown("NUM_PENDING_ADD") == 0
    assert shown.counts("ADD_ENTRY") == (3, 4)


@pytest.mark.bookies(4)
async def test_an_ensemble_change_and_the_entries_that_the_failed_bookie_lacks_are_counted(cluster, client) -> None:
    shown = Shown(client)
    writer, seen = await begun(client, (3, 3, 2))
    slow, *_ = cluster.members(writer)
    slow.hold = True
    writer.append(payloads(0, 9))
    await seen.until(9)
    slow.down = True
    slow.lose_links()
    writer.append(payloads(10, 10))
    await seen.until(10)
    assert (shown("NUM_ENSEMBLE_CHANGE"), shown("ADD_ENTRY_UR")) == (1, 10)
    assert shown.counts("bookie_watcher_REPLACE_BOOKIE_TIME") == (1, 0)


@pytest.mark.parametrize("batches", [True, False])
async def test_damaged_copies_and_reads_asked_for_twice_are_counted(cluster, client, batches: bool) -> None:
    shown = Shown(client)
    cluster.every(batch_reads=batches)
    reader = await written(client, (3, 3, 2), 6)
    for bookie in cluster.bookies.values():
        bookie.damage(reader.ledger_id, 0)
    await raises(Exception, reader.read(0, 0))
    assert shown("READ_ENTRY_DM") == 3
    assert shown.counts("READ_ENTRY") == (0, 1)
    first = cluster.bookies[reader.metadata.fragments[0].bookies[0]]
    for bookie in cluster.bookies.values():
        bookie.hung = bookie is first
    for _ in range(8):  # one of them asks the bookie that hangs first
        await reader.read(1, 5)
        reader = await client.open(reader.ledger_id, recover=False)
    assert shown("SPECULATIVE_READ_COUNT") > 0


async def test_a_recovery_is_counted_with_the_entries_that_it_reads_and_writes(cluster, client) -> None:
    shown = Shown(client)
    writer, seen = await begun(client, (3, 3, 2))
    writer.append(payloads(0, 4))
    await seen.until(4)
    reader = await client.open(writer.ledger_id, recover=True)
    assert reader.metadata.state is LedgerState.CLOSED
    assert shown.counts("LEDGER_RECOVER") == (1, 0)
    for part in ("READ", "ADD"):
        assert shown(f"LEDGER_RECOVER_{part}_ENTRIES_sum", '{success="true"}') == 5
    cluster.every(refuse=lambda request: Rc.IO)
    other, _ = await begun(client, (3, 3, 2))
    await raises(Exception, client.recover(other.ledger_id))
    assert shown.counts("LEDGER_RECOVER") == (1, 1)


async def test_reads_of_an_open_ledger_count_the_last_adds_confirmed_that_are_news(client: LedgerClient) -> None:
    shown = Shown(client)
    writer, seen = await begun(client, (3, 3, 2))
    writer.append(payloads(0, 0))
    await seen.until(0)
    reader = await client.open_no_recovery(writer.ledger_id)
    writer.append(payloads(1, 4))
    await seen.until(4)
    await reader.read_last_confirmed()
    await reader.read_last_confirmed()
    assert shown.counts("READ_LAC") == (3, 0)
    assert (shown("LAC_UPDATE_HITS"), shown("LAC_UPDATE_MISSES")) == (1, 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader.wait_for_next)
        await trio.testing.wait_all_tasks_blocked()
        await seen.write(5, 6)
        await seen.write(7, 7)
    assert shown.counts("READ_LAST_CONFIRMED_AND_ENTRY") == (1, 0)


@pytest.mark.bookies(3, explicit_lac_interval_s=1.0)
async def test_forces_and_explicit_lacs_are_timed(cluster: FakeCluster, client: LedgerClient) -> None:
    shown = Shown(client)
    writer, seen = await begun(client, (3, 3, 2))
    writer.append(payloads(0, 4))
    await seen.until(4)
    await writer.force()
    cluster.every(force_rc=Rc.IO)
    await raises(Exception, writer.force())
    assert shown.counts("FORCE") == (1, 1)
    await trio.sleep(3)
    assert shown.counts("WRITE_LAC") == (1, 0)


async def test_a_broker_has_the_label_cluster(client: LedgerClient) -> None:
    lines = [line for line in Shown(client, "c").text().splitlines() if not line.startswith("#")]
    assert lines
    assert all('cluster="c"' in line for line in lines)

from __future__ import annotations

from dataclasses import replace

import trio

from managed_ledger.config import LogConfig, LogConfigSource
from managed_ledger.managed_ledger import ManagedLedger
from quire.metadata.errors import MetadataUnavailableError
from tests.unit.managed_ledger.cluster import CONFIG, NAME, Cluster, numbered, publish


async def nearly_full(cluster: Cluster, log: ManagedLedger) -> None:
    """Append nine entries of ten: the next ledger exists, and is only named as to be deleted."""
    await publish(log, *numbered(0, 9))
    await trio.sleep(0.5)
    assert cluster.ledgers.listed() == {0, 1}
    listed = await cluster.stored_list()
    assert ([one.ledger_id for one in listed.ledgers], listed.deleting) == ([0], (1,))


async def test_a_ledger_ahead_that_cannot_be_taken_into_the_list_is_taken_by_the_next_try(cluster, log):
    await nearly_full(cluster, log)
    session = cluster.stores[0]

    async def away() -> None:
        session.point = None
        raise MetadataUnavailableError("away")

    session.point = away
    assert await publish(log, *numbered(9, 3)) == [(0, 9), (1, 0), (1, 1)]
    assert session.point is None


async def test_appends_at_a_roll_do_not_wait_for_a_ledger_to_be_made(cluster: Cluster) -> None:
    waits = []
    for ahead in (True, False):
        async with cluster.broker() as factory:
            log = await factory.open(f"{NAME}-{ahead}")
            there = 9 if ahead else 8
            await publish(log, *numbered(0, there))
            await trio.sleep(0.5)
            cluster.ledgers.delay_s = 1.0
            begun = trio.current_time()
            await publish(log, *numbered(there, 11 - there))
            waits.append(trio.current_time() - begun)
            cluster.ledgers.delay_s = 0.0
    assert [round(wait, 1) for wait in waits] == [1.0, 3.0], "a second to close a ledger, two to make one"


async def test_the_configuration_of_a_log_is_asked_anew_at_each_ledger_and_one_made_ahead_by_another_is_not_used(
    cluster: Cluster,
) -> None:
    now = [LogConfig.of(CONFIG)]

    async def config_of(name: str) -> LogConfigSource:
        return lambda: now[0]

    async with cluster.broker(config_of=config_of) as factory:
        log = await factory.open(NAME)
        cursor = await log.open_cursor("sub", initial="earliest")
        await nearly_full(cluster, log)
        now[0] = replace(now[0], ensemble_size=3, write_quorum=3, ack_quorum=2)
        await publish(log, *numbered(9, 3))
        await trio.sleep(0.5)
        quorums = {ledger_id: stored.quorums for ledger_id, stored in cluster.ledgers.stored.items()}
        assert quorums == {0: (1, 1, 1), 2: (3, 3, 2)}
        cursor.ack_individual([log.first_position()])
        await cursor.wait_persisted()
        assert cluster.ledgers.stored[3].quorums == (3, 3, 2)


async def test_the_retention_of_a_log_is_asked_anew_at_each_trim(cluster: Cluster) -> None:
    now = [LogConfig.of(CONFIG)]

    async def config_of(name: str) -> LogConfigSource:
        return lambda: now[0]

    async with cluster.broker(config_of=config_of, retention_check_s=5) as factory:
        log = await factory.open(NAME)
        await publish(log, *numbered(0, 25))
        await trio.sleep(20)
        assert len(log.ledgers) == 3
        now[0] = replace(now[0], retention_minutes=0, retention_mb=0)
        await trio.sleep(10)
        assert [one.ledger_id for one in log.ledgers] == [2]
        assert cluster.ledgers.listed() == {2}

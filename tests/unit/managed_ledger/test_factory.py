from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import trio

from managed_ledger.config import LogConfig, LogConfigSource
from managed_ledger.errors import ManagedLedgerUnavailableError, NoSuchManagedLedgerError
from managed_ledger.factory import ManagedLedgerFactory
from managed_ledger.managed_ledger import ManagedLedger
from managed_ledger.stored_list import log_path
from quire.ledger.position import Position
from quire.metadata.errors import MetadataUnavailableError
from tests.unit.managed_ledger.cluster import CONFIG, NAME, Cluster, in_cluster, numbered, publish, read_all
from tests.unit.managed_ledger.fake_ledgers import fake_world


def test_who_opens_at_the_same_time_gets_the_same_log() -> None:
    async def test(cluster: Cluster) -> None:
        async with cluster.broker() as factory:
            cluster.ledgers.delay_s = 0.1
            found: list[ManagedLedger] = []

            async def open_it() -> None:
                found.append(await factory.open(NAME))

            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(open_it)
            assert len({id(log) for log in found}) == 1
            assert cluster.ledgers.listed() == {0}

    in_cluster(test)


def test_a_failed_open_leaves_the_way_free() -> None:
    async def test(cluster: Cluster) -> None:
        async with cluster.broker() as factory:
            cluster.ledgers.failures["create"] = [MetadataUnavailableError("away")]
            with pytest.raises(ManagedLedgerUnavailableError):
                await factory.open(NAME)
            await factory.open(NAME)

    in_cluster(test)


def test_an_open_during_a_close_waits_for_it() -> None:
    async def test(cluster: Cluster) -> None:
        async with cluster.broker() as factory:
            log = await factory.open(NAME)
            cursor = await log.open_cursor("sub", initial="earliest")
            await publish(log, *numbered(0, 5))
            cursor.ack_individual([Position(0, 0)])
            cluster.ledgers.delay_s = 0.5
            async with trio.open_nursery() as nursery:
                nursery.start_soon(log.close)
                await trio.sleep(0.1)
                again = await factory.open(NAME)
            assert again is not log
            assert again.cursors["sub"].mark_delete == Position(0, 0)
            assert await read_all(again) == numbered(0, 5)

    in_cluster(test)


def test_a_deleted_log_leaves_nothing() -> None:
    async def test(cluster: Cluster) -> None:
        async with cluster.broker() as factory:
            log = await factory.open(NAME)
            cursor = await log.open_cursor("sub", initial="earliest")
            await publish(log, *numbered(0, 25))
            cursor.ack_individual([Position(0, 3)])
            await cursor.wait_persisted()
            await factory.delete(NAME)
            assert cluster.ledgers.listed() == set()
            assert await cluster.metadata.get(log_path(NAME)) is None
            with pytest.raises(NoSuchManagedLedgerError):
                await factory.delete(NAME)
            assert await read_all(await factory.open(NAME)) == []

    in_cluster(test)


def test_a_delete_that_was_interrupted_can_be_ended() -> None:
    async def test(cluster: Cluster) -> None:
        async with cluster.broker() as factory:
            await publish(await factory.open(NAME), *numbered(0, 25))
            cluster.ledgers.failures["delete"] = [MetadataUnavailableError("away")]
            with pytest.raises(ManagedLedgerUnavailableError):
                await factory.delete(NAME)
            await factory.delete(NAME)
            assert cluster.ledgers.listed() == set()

    in_cluster(test)


def test_many_logs_live_side_by_side_and_close_together() -> None:
    async def test(cluster: Cluster) -> None:
        names = [f"t/n/persistent/{number}" for number in range(20)]
        async with cluster.broker() as factory:
            for name in names:
                log = await factory.open(name)
                await log.open_cursor("sub")
                await publish(log, name.encode())
            cluster.ledgers.delay_s = 1
            start = trio.current_time()
            await factory.close()
            assert trio.current_time() - start < 5
            assert factory.managed_ledgers == {}

    in_cluster(test)


def test_a_log_is_opened_with_what_is_said_of_it_by_name() -> None:
    async def test(cluster: Cluster) -> None:
        asked: list[str] = []

        async def config_of(name: str) -> LogConfigSource | None:
            asked.append(name)
            return partial(replace, LogConfig.of(CONFIG), ensemble_size=3, write_quorum=3, ack_quorum=2)

        async with trio.open_nursery() as nursery:
            factory = ManagedLedgerFactory(
                fake_world(), cluster.metadata, cluster.ledgers, CONFIG, nursery, config_of=config_of
            )
            log = await factory.open(NAME)
            assert await factory.open(NAME) is log
            assert set(asked) == {NAME}
            assert cluster.ledgers.stored[0].quorums == (3, 3, 2)
            nursery.cancel_scope.cancel()

    in_cluster(test)

"""Topics of Apache Pulsar, in a real ZooKeeper and in Quire's bookies under their own ledger ids, taken over by Quire's
managed ledgers over TCP. tests/golden/test_pulsar_takeover.py checks the details.

"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import trio

from cursors.config import CursorConfig
from managed_ledger.config import ManagedLedgerConfig
from managed_ledger.factory import ManagedLedgerFactory, open_factory
from managed_ledger.writing.state import State
from quire.ledger import open_client
from quire.ledger.opening import open_client_on
from quire.wire.pulsar.names import decode_name
from quire.world.real import real_world
from tests.cluster.pulsar_load import load
from tests.golden.pulsar_files import MOMENTS, cursor_nodes, logs, stored_running
from tests.golden.takeover import entries_of
from tests.support.bookies import BookieCluster, cluster
from tests.support.zookeeper import opened
from tests.unit.managed_ledger.cluster import publish, read_all

pytestmark = pytest.mark.cluster

CONFIG = ManagedLedgerConfig(
    ensemble_size=2,
    write_quorum=2,
    ack_quorum=2,
    age_min_minutes=0,
    entries_max=10,
    retention_minutes=-1,
    retention_mb=-1,
)


@pytest.fixture
def bookies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BookieCluster]:
    with cluster(tmp_path_factory.mktemp("bookies"), 2) as made:
        yield made


@asynccontextmanager
async def broker(bookies: BookieCluster) -> AsyncIterator[ManagedLedgerFactory]:
    """Open the managed ledgers of one broker, with a session, connections and random numbers of its own."""
    world, chroot = real_world(), bookies.root.removesuffix("/ledgers")
    cursors = CursorConfig(ensemble_size=2, write_quorum=2, ack_quorum=2)
    async with (
        opened(bookies.zookeeper.config(chroot)) as store,
        open_client_on(world, store) as client,
        open_factory(world, store, client, CONFIG, cursors) as factory,
    ):
        yield factory


@pytest.mark.real_clock
@pytest.mark.parametrize("moment", MOMENTS)
async def test_every_topic_is_taken_over_in_turn_by_two_brokers_with_all_its_messages_and_subscriptions(
    bookies: BookieCluster, moment: str
) -> None:
    chroot = bookies.root.removesuffix("/ledgers")
    async with opened(bookies.zookeeper.config(chroot)) as store, open_client(real_world(), bookies.uri) as client:
        await load(moment, store, client)
    for turn in range(2):
        async with broker(bookies) as factory:
            async with trio.open_nursery() as nursery:
                for name in logs(moment):
                    nursery.start_soon(factory.open, name)
            for name in logs(moment):
                log = await factory.open(name)
                ours = [b"ours"] * turn if log.state is not State.TERMINATED else []
                assert await read_all(log) == [*entries_of(moment, name), *ours]
                names = {decode_name(cursor) for of, cursor in cursor_nodes(moment) if of == name}
                assert set(log.cursors) == names
                for subscription, cursor in log.cursors.items():
                    stored = stored_running(name, subscription)
                    if subscription not in ("__compaction", "delayed"):
                        assert (cursor.mark_delete, cursor.ack_ranges()) == (
                            stored.mark_delete,
                            list(stored.ranges.ranges()),
                        )
                if log.state is not State.TERMINATED:
                    await publish(log, b"ours")

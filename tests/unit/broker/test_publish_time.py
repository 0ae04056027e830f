from __future__ import annotations

from broker.publish_time import first_published_at
from quire.ledger.position import LATEST, Position
from tests.unit.broker.peers import entry
from tests.unit.managed_ledger.cluster import NAME, Cluster, in_cluster, publish


def test_an_entry_is_found_by_time_with_few_reads_however_many_ledgers_there_are() -> None:
    async def test(cluster: Cluster) -> None:
        async with cluster.broker(entries_max=2) as factory:
            log = await factory.open(NAME)
            ids = await publish(log, *[entry(b"m", publish_time=1000 + 10 * number) for number in range(601)])
            assert len(log.ledgers) > 300
            for number in (0, 1, 2, 300, 301, 599, 600):
                for early_ms in (0, 9):
                    before = log.ledger_reads
                    found = await first_published_at(log, 1000 + 10 * number - early_ms)
                    assert found == Position(*ids[number])
                    assert log.ledger_reads - before <= 12
            assert await first_published_at(log, 0) == Position(*ids[0])
            assert await first_published_at(log, 1 << 62) == LATEST

    in_cluster(test)

from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from autorecovery.auditing.bookie_index import BookieIndex, read_index
from quire.metadata.errors import MetadataUnavailableError
from quire.metadata.ledger_metadata import Fragment
from tests.unit.autorecovery.cluster import Cluster, closed


def test_a_bookie_is_named_by_every_fragment_it_is_in() -> None:
    index = BookieIndex()
    index.add(7, replace(closed("b1", "b2"), fragments=(Fragment(0, ("b1", "b2")), Fragment(5, ("b3", "b2")))))
    index.add(3, closed("b1", "b3", length=5))
    assert sorted(index.bookies) == ["b1", "b2", "b3"]
    assert [index.count(each) for each in ("b1", "b2", "b3", "b4")] == [2, 1, 2, 0]
    assert [index.bytes_of(each) for each in ("b1", "b2", "b4")] == [1005, 1000, 0]
    assert list(index.of(["b2", "b1"]).items()) == [(3, ("b1",)), (7, ("b1", "b2"))]
    assert index.of(["b4"]) == {}


async def test_the_metadata_of_every_ledger_is_read_once(cluster: Cluster, nursery: trio.Nursery) -> None:
    await cluster.make(50, "b1", "b2")
    await cluster.ledgers.manager.delete(20)
    index = await read_index(cluster.ledgers, at_once=8)
    assert (index.ledgers, index.count("b1"), cluster.ledgers.reads) == (49, 49, 49)


async def test_an_index_that_cannot_be_made_whole_is_not_made(cluster: Cluster, nursery: trio.Nursery) -> None:
    await cluster.make(5, "b1", "b2")

    async def fail() -> None:
        if cluster.ledgers.reads == 3:
            raise MetadataUnavailableError("away")

    cluster.ledgers.before_read = fail
    with pytest.raises(MetadataUnavailableError):
        await read_index(cluster.ledgers, at_once=2)

"""quire.metadata.times, and that a store measures its operations"""

from __future__ import annotations

import pytest
import trio

from quire.metadata.errors import NoNodeError
from quire.metadata.local.rocksdb import open_store
from quire.metadata.store import Create
from quire.metadata.times import MetadataTimes
from quire.world.doors import World


def counts(times: MetadataTimes) -> dict[tuple[str, ...], tuple[int, float]]:
    """Return number and sum of what was observed, by operation and status, where there is any."""
    found = {tuple(labels[1:]): (sum(each.counts), each.total) for labels, each in times.all()}
    return {labels: value for labels, value in found.items() if value[0]}


async def test_each_operation_is_timed_by_its_kind_and_its_end() -> None:
    times = MetadataTimes()
    with times.of("get"):
        await trio.sleep(0.004)

    async def fail() -> None:
        with times.of("put"):
            await trio.sleep(2)
            raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        await fail()
    found = {tuple(labels): each for labels, each in times.all()}
    assert found["metadata-store", "get", "success"].counts[2] == 1, "above 3 ms, at most 5"
    assert found["metadata-store", "put", "fail"].counts[-1] == 1, "above the last bound"
    assert {labels: round(total) for labels, (_, total) in counts(times).items()} == {
        ("get", "success"): 4,
        ("put", "fail"): 2000,
    }


async def test_a_store_times_writes_and_deletions_and_counts_the_bytes_that_it_writes(world: World) -> None:
    store = await open_store(world, "/metadata")
    try:
        await store.create("/a", b"12345")
        await store.put("/a", b"123", 0)
        await store.multi([Create(path="/b", value=b"12")])
        await store.get("/a")  # (from memory, which takes no time)
        await store.delete("/a")
        with pytest.raises(NoNodeError):
            await store.delete("/a")
    finally:
        await store.aclose()
    assert {labels: number for labels, (number, _) in counts(store.times).items()} == {
        ("put", "success"): 3,
        ("del", "success"): 1,
        ("del", "fail"): 1,
    }
    assert store.times.put_bytes == 10

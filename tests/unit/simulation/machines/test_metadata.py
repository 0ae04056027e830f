from __future__ import annotations

import random

import trio

from quire.metadata.errors import MetadataUnavailableError
from quire.metadata.store import Kind
from simulation import Universe
from simulation.machines.metadata import HostMetadata, WatchedTree
from tests.support.refusals import raises


def host_metadata(tree: WatchedTree, *, late: float = 0.0) -> HostMetadata:
    return HostMetadata(tree, random.Random(1), session_timeout_s=2.0, late=late, latency_max_s=1.0)


async def test_every_change_is_told_with_its_value_when_it_happens(universe: Universe) -> None:
    changes: list[tuple[str, bytes | None]] = []
    tree = WatchedTree(lambda path, value: changes.append((path, value)))
    metadata = host_metadata(tree)
    await metadata.create("/a", b"1")
    await metadata.put("/a", b"2", 0)
    await metadata.delete("/a")
    assert [change for change in changes if change[0] == "/a"] == [("/a", b"1"), ("/a", b"2"), ("/a", None)]


async def test_a_host_goes_on_with_a_new_session_and_its_watches_tell_so(universe: Universe) -> None:
    tree = WatchedTree(lambda path, value: None)
    metadata = host_metadata(tree)
    await metadata.create("/mine", kind=Kind.EPHEMERAL)
    watch = metadata.watch("/mine")
    metadata.disconnect()
    await raises(MetadataUnavailableError, metadata.get("/mine"))
    await trio.sleep(3)
    metadata.reconnect()
    assert (await watch.next()).path == "/mine"
    assert await metadata.get("/mine") is None
    assert metadata.sessions == 2
    assert not metadata.expired.is_set()


async def test_a_session_that_is_ended_by_the_service_leaves_the_outcome_open_once(universe: Universe) -> None:
    metadata = host_metadata(WatchedTree(lambda path, value: None))
    metadata.expire()
    await raises(MetadataUnavailableError, metadata.create("/a"))
    await metadata.create("/a")


async def test_an_event_may_come_long_after_the_change(universe: Universe) -> None:
    tree = WatchedTree(lambda path, value: None)
    watch = host_metadata(tree, late=1.0).watch("/a")
    await host_metadata(tree).create("/a")
    begun = trio.current_time()
    await watch.next()
    assert trio.current_time() - begun > 0.002

"""A bookie is registered in its present mode while it runs."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from bookie.bookie import Bookie
from bookie.registration import stay_registered
from quire.metadata import bookies
from quire.metadata.bookies import BookieServiceInfo, Endpoint
from quire.metadata.errors import MetadataUnavailableError, NodeExistsError
from quire.metadata.local.memory import MemoryStore, MemoryTree
from tests.unit.bookie.build import CONFIG

INFO = BookieServiceInfo(endpoints=(Endpoint(host="h", port=1),))


@pytest.fixture
async def store(bookie: Bookie, tree: MemoryTree, nursery: trio.Nursery) -> MemoryStore:
    """The session in which the bookie is registered."""
    store = MemoryStore(tree)
    await nursery.start(partial(stay_registered, store, bookie, INFO, wait_s=2.0))
    return store


async def places(store: MemoryStore) -> tuple[list[str], list[str]]:
    await trio.sleep(1)
    return await bookies.available(store), await bookies.readonly(store)


ME = [CONFIG.bookie_id]


async def test_it_moves_between_writable_and_read_only_and_is_never_in_both(bookie: Bookie, store: MemoryStore) -> None:
    assert await places(store) == (ME, [])
    for _ in range(3):
        bookie.set_read_only(True)
        assert await places(store) == ([], ME)
        bookie.set_read_only(False)
        assert await places(store) == (ME, [])


async def test_while_it_moves_it_is_always_in_one_of_them(bookie: Bookie, store: MemoryStore) -> None:
    bookie.set_read_only(True)
    for _ in range(20):
        assert CONFIG.bookie_id in [*await bookies.available(store), *await bookies.readonly(store)]


@pytest.mark.bookie(force_read_only=True)
async def test_a_bookie_that_starts_read_only_is_registered_so_and_stays_so(bookie: Bookie, store: MemoryStore) -> None:
    assert await places(store) == ([], ME)
    bookie.set_read_only(False)
    assert bookie.read_only
    assert await places(store) == ([], ME)


async def test_a_node_that_somebody_deleted_is_made_again(tree: MemoryTree, store: MemoryStore) -> None:
    await MemoryStore(tree).delete(bookies.registration_path(CONFIG.bookie_id))
    assert await places(store) == (ME, [])


async def test_a_bookie_that_turns_read_only_while_the_service_is_away_goes_on_and_moves_when_it_is_back(
    bookie: Bookie, tree: MemoryTree, store: MemoryStore
) -> None:
    other = MemoryStore(tree)
    store.disconnect()
    bookie.set_read_only(True)
    assert await places(other) == (ME, [])
    bookie.set_read_only(False)
    await trio.sleep(3)
    bookie.set_read_only(True)
    await trio.sleep(3)
    store.reconnect()
    await trio.sleep(2)
    assert await places(other) == ([], ME)


async def test_a_service_that_cannot_be_reached_at_the_start_is_an_error(bookie: Bookie, tree: MemoryTree) -> None:
    store = MemoryStore(tree)
    store.disconnect()
    with pytest.RaisesGroup(MetadataUnavailableError, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(stay_registered, store, bookie, INFO, wait_s=2.0))


async def test_a_name_that_another_session_keeps_is_an_error_after_the_wait(bookie: Bookie, tree: MemoryTree) -> None:
    await bookies.register(MemoryStore(tree), CONFIG.bookie_id, INFO)
    begin = trio.current_time()
    with pytest.RaisesGroup(NodeExistsError, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(stay_registered, MemoryStore(tree), bookie, INFO, wait_s=2.0))
    assert trio.current_time() - begin >= 2

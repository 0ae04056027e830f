"""`open_client_on` and `open_client`, over the network of the simulator: bookies are found by their registrations."""

from __future__ import annotations

import pytest
import trio

from quire.ledger import LedgerConfig, PlacementConfig, open_client, open_client_on
from quire.ledger.errors import NotEnoughBookiesError, PlacementPolicyError
from quire.metadata import bookies
from quire.metadata.errors import InvalidConnectStringError, NoNodeError, UnsupportedLayoutError
from quire.metadata.layouts import LONG_HIERARCHICAL
from quire.metadata.ledgers import initialize_layout
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.world.doors import World
from tests.unit.ledger.reads import read_all
from tests.unit.ledger.served_bookie import BOOKIE_ID, a_bookie


async def test_a_client_finds_bookies_by_what_they_registered_and_ids_in_the_originals_sequence(world: World) -> None:
    async with a_bookie(world, MemoryTree()) as store:
        async with open_client_on(world, store) as client:
            writer = await client.create()
            assert writer.metadata.fragments[0].bookies == (BOOKIE_ID,)
            assert [await writer.write(each) for each in (b"one", b"two")] == [0, 1]
            await writer.close()
            assert await read_all(await client.open(writer.ledger_id, recover=False)) == [b"one", b"two"]
            assert (writer.ledger_id, (await client.create()).ledger_id) == (0, 1)
        assert await store.children("/ledgers/idgen") == [], "made and deleted"


@pytest.mark.seeded(2)
async def test_a_bookie_that_has_gone_is_not_chosen(world: World) -> None:
    async with a_bookie(world, MemoryTree()) as store, open_client_on(world, store) as client:
        await bookies.unregister(store, BOOKIE_ID)
        await trio.sleep(1)
        with pytest.raises(NotEnoughBookiesError):
            await client.create()


@pytest.mark.seeded(3)
async def test_a_cluster_that_is_not_there_or_laid_out_otherwise_is_refused_plainly(world: World) -> None:
    store = MemoryStore(MemoryTree())
    with pytest.raises(NoNodeError, match="never initialised"):
        async with open_client_on(world, store):
            raise AssertionError("opened")
    await initialize_layout(store, rng=world.rng, layout=LONG_HIERARCHICAL)
    with pytest.raises(UnsupportedLayoutError, match="longhierarchical"):
        async with open_client_on(world, store, layout="hierarchical"):
            raise AssertionError("opened")
    async with open_client_on(world, store) as client:
        assert [each async for each in client.list_ledgers()] == []


@pytest.mark.seeded(4)
async def test_a_policy_that_is_not_known_is_refused_when_the_client_is_opened(world: World) -> None:
    async with a_bookie(world, MemoryTree()) as store:
        config = LedgerConfig(placement=PlacementConfig(policy="alphabetical"))
        with pytest.raises(PlacementPolicyError, match="alphabetical"):
            async with open_client_on(world, store, config):
                raise AssertionError("opened")


@pytest.mark.seeded(5)
async def test_what_the_block_raises_is_raised_as_it_is(world: World) -> None:
    async with a_bookie(world, MemoryTree()) as store:
        with pytest.raises(ZeroDivisionError):
            async with open_client_on(world, store):
                raise ZeroDivisionError


@pytest.mark.seeded(6)
async def test_a_uri_that_is_none_is_refused_before_anything_is_connected(world: World) -> None:
    for uri in ("zk+round://host/ledgers", "zk+hierarchical://host", "zk+hierarchical://host:port/ledgers"):
        with pytest.raises(InvalidConnectStringError):
            async with open_client(world, uri):
                raise AssertionError("opened")

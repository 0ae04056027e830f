from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import patch

import pytest
import trio

from quire.ledger import LedgerClient
from quire.ledger.bookies.health import UNREACHABLE_S
from quire.ledger.bookies.link_local import LocalLink
from quire.ledger.errors import (
    BookieUnavailableError,
    ClientClosedError,
    IncorrectParameterError,
    LedgerExistsError,
    NotEnoughBookiesError,
)
from quire.ledger.writing.creation import PROBE_S
from quire.metadata.errors import BadVersionError, MetadataUnavailableError
from quire.metadata.ledgers import BlockLedgerIds, LedgerManager
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import Op, Put
from tests.support.refusals import raises
from tests.unit.ledger.fake_bookie import FakeCluster


@pytest.mark.parametrize("quorum", [(2, 3, 2), (3, 2, 3), (3, 3, 0), (0, 0, 0), (3, -1, -1)])
@pytest.mark.bookies(5)
async def test_quorums_that_make_no_sense_are_refused(client: LedgerClient, quorum: tuple[int, int, int]) -> None:
    size, write, ack = quorum
    for create in (client.create, client.create_adv):
        with pytest.raises(IncorrectParameterError, match="E >= Qw >= Qa > 0") as raised:
            await create(ensemble_size=size, write_quorum=write, ack_quorum=ack)
        assert raised.value.code == -14
    assert [each async for each in client.list_ledgers()] == []


async def test_custom_metadata_has_each_name_once(client: LedgerClient) -> None:
    await raises(IncorrectParameterError, client.create(custom_metadata=[("name", b"a"), ("name", b"b")]), "twice")


@pytest.mark.parametrize("ledger_id", [0, 7, 1 << 31, (1 << 63) - 2])
@pytest.mark.bookies(1)
async def test_a_ledger_may_have_an_id_of_the_callers_choice_once(cluster, client, ledger_id):
    writer = await client.create(ledger_id=ledger_id)
    assert writer.ledger_id == ledger_id
    assert await cluster.metadata(ledger_id) == writer.metadata
    with pytest.raises(LedgerExistsError) as raised:
        await client.create_adv(ledger_id=ledger_id)
    assert raised.value.code == -20
    await client.delete(ledger_id)
    assert (await client.create_adv(ledger_id=ledger_id)).ledger_id == ledger_id


@pytest.mark.parametrize("ledger_id", [-1, (1 << 63) - 1, 1 << 63])
async def test_what_is_no_ledger_id_is_refused(ledger_id: int, client: LedgerClient) -> None:
    for create in (client.create, client.create_adv):
        await raises(IncorrectParameterError, create(ledger_id=ledger_id), "0 to 9223372036854775806 are")


async def test_a_generated_id_goes_round_one_that_was_chosen_by_hand(client: LedgerClient) -> None:
    await client.create(ledger_id=1)
    assert [(await client.create()).ledger_id for _ in range(3)] == [0, 2, 3]


@pytest.mark.bookies(1)
async def test_ops_of_the_caller_fail_a_ledger_of_a_chosen_id_as_any(cluster: FakeCluster, client: LedgerClient):
    await cluster.store.create("/list")
    with pytest.raises(BadVersionError) as raised:
        await client.create(ledger_id=5, also=lambda _: [Put(path="/list", value=b"", version=7)])
    assert raised.value.index == 1
    assert [each async for each in client.list_ledgers()] == []


class LostReplies(MemoryStore):
    """The first write takes effect, but its answer is lost."""

    lost = 0

    async def multi(self, ops: Sequence[Op]) -> list[str]:
        paths = await super().multi(ops)
        if not self.lost:
            self.lost = 1
            raise MetadataUnavailableError("the answer was lost")
        return paths


async def test_a_ledger_whose_creation_was_not_answered_is_recognised_by_its_token(cluster: FakeCluster) -> None:
    store = LostReplies(MemoryTree())
    async with cluster.client(ledgers=LedgerManager(store, ids=BlockLedgerIds(store), rng=cluster.rng)) as client:
        writer = await client.create(ledger_id=9)
    assert (store.lost, writer.ledger_id) == (1, 9)


@pytest.mark.bookies(1)
async def test_a_closed_client_makes_no_ledger(client: LedgerClient) -> None:
    client.close()
    await raises(ClientClosedError, client.create())
    assert [each async for each in client.list_ledgers()] == []


async def test_ledgers_are_listed_in_the_order_of_their_ids_from_any_on(client: LedgerClient) -> None:
    for ledger_id in (12345, 3, 1 << 40, 10_000):
        await client.create(ledger_id=ledger_id)
    assert [each async for each in client.list_ledgers()] == [3, 10_000, 12345, 1 << 40]
    assert [each async for each in client.list_ledgers(10_000)] == [10_000, 12345, 1 << 40]
    await client.delete(12345)
    assert [each async for each in client.list_ledgers(10_001)] == [1 << 40]


@pytest.mark.bookies(4)
async def test_a_new_ledger_goes_without_who_could_not_be_reached_a_moment_ago_if_there_are_others(cluster, client):
    gone = next(iter(cluster.bookies))
    client._context.health.failed(gone, BookieUnavailableError("refused"))
    for _ in range(20):
        writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        assert gone not in writer.metadata.fragments[0].bookies
    writer = await client.create(ensemble_size=4, write_quorum=3, ack_quorum=2)
    assert gone in writer.metadata.fragments[0].bookies, "it is better than no ledger"
    await trio.sleep(UNREACHABLE_S)
    ensembles = [(await client.create(ensemble_size=3)).metadata.fragments[0].bookies for _ in range(20)]
    assert any(gone in each for each in ensembles)


async def test_while_too_few_bookies_answer_no_metadata_is_made_however_many_are_registered() -> None:
    cluster = FakeCluster(4)
    with patch.object(cluster, "available", lambda: list(cluster.bookies)):
        async with cluster.client() as client:
            before = await client.create(ensemble_size=4, write_quorum=3, ack_quorum=2)
            gone = cluster.of(before.metadata.fragments[0].bookies[:2])
            await before.write(b"0")
            for bookie in gone:
                bookie.stop()
            before.append([b"1"])
            await trio.sleep(1)
            for _ in range(20):
                with pytest.raises(NotEnoughBookiesError, match="registered, and cannot be reached: bookie"):
                    await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
                await trio.sleep(1)
            assert [each async for each in client.list_ledgers()] == [before.ledger_id]
            gone[0].down = False
            writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
            assert gone[1].bookie_id not in writer.metadata.fragments[0].bookies
            await writer.write(b"0")


async def test_a_bookie_in_doubt_that_hangs_is_waited_for_shortly(cluster: FakeCluster, client: LedgerClient) -> None:
    hung = next(iter(cluster.bookies.values()))
    hung.hung = True
    client._context.health.failed(hung.bookie_id, BookieUnavailableError("refused"))
    began = trio.current_time()
    await raises(NotEnoughBookiesError, client.create(ensemble_size=3, write_quorum=3, ack_quorum=2), hung.bookie_id)
    assert trio.current_time() - began == pytest.approx(PROBE_S, abs=0.1)
    assert [each async for each in client.list_ledgers()] == []


@pytest.mark.bookies(4)
async def test_a_bookie_that_a_recovery_could_not_reach_is_in_none_of_the_ledgers_that_follow(cluster, client):
    before = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
    gone = before.metadata.fragments[0].bookies[0]
    cluster.bookies[gone].lose_links()
    with patch.object(cluster.bookies[gone], "connect", refuse):
        await client.open(before.ledger_id, recover=True)
        after = [await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2) for _ in range(20)]
    assert all(gone not in each.metadata.fragments[0].bookies for each in after), "registered as it still is"


def refuse() -> LocalLink:
    raise BookieUnavailableError("refused")

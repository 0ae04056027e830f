"""Writes of the list without an answer, whose outcome cannot be read at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio

from managed_ledger.config import LogConfig
from managed_ledger.errors import ManagedLedgerFencedError
from managed_ledger.ledger_list import LedgerList, decode
from managed_ledger.stored_list import StoredList, log_path
from quire.metadata.errors import MetadataUnavailableError
from tests.support.nodes import node_at
from tests.support.refusals import raises
from tests.unit.managed_ledger.cluster import CONFIG, NAME, Cluster, Session

Step = Callable[[StoredList], Awaitable[object]]


def closed(stored: StoredList) -> LedgerList:
    return stored.value.closed(stored.value.ledgers[-1].ledger_id, entries=3, size=30, now_ms=1)


async def make_first(stored: StoredList) -> object:
    return await stored.new_ledger(stored.value)


async def make_next(stored: StoredList) -> object:
    return await stored.new_ledger(closed(stored))


async def make_ahead(stored: StoredList) -> object:
    return await stored.ledger_ahead()


async def open_ahead(stored: StoredList) -> None:
    await stored.open_ahead(closed(stored), stored.value.deleting[-1])


async def put(stored: StoredList) -> None:
    await stored.put(stored.value.also_deleting([77]))


class Owner:
    """A list on its own metadata session."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.session = Session(cluster.tree)
        self.stored = StoredList(self.session, cluster.ledgers, lambda: LogConfig.of(CONFIG), NAME)

    async def _lose(self) -> None:
        self.session.point = None
        self.session.disconnect()
        raise MetadataUnavailableError("no answer came")

    async def _lose_later(self) -> None:
        self.session.point = self._lose

    async def do_unheard(self, step: Step, *, happens: bool) -> None:
        """Do the write; the answer and the connection are lost."""
        if step in (open_ahead, put):
            self.session.point = self._lose_later if happens else self._lose
        else:  # the ledgers do the write, the list checks its outcome
            self.session.disconnect()
            if happens:
                self.cluster.ledgers.failures["created"] = [MetadataUnavailableError("no answer came")]
            else:
                self.cluster.ledgers.store.disconnect()
        async with self.stored.held():
            await raises(MetadataUnavailableError, step(self.stored))

    def come_back(self) -> None:
        self.session.reconnect()
        self.cluster.ledgers.store.reconnect()

    async def do(self, step: Step) -> None:
        async with self.stored.held():
            await step(self.stored)

    async def check(self) -> None:
        """Check that the stored list equals the known one, and names every existing ledger."""
        node = await node_at(self.cluster.metadata, log_path(NAME))
        assert (decode(node.value), node.version) == (self.stored.value, self.stored.version)
        named = {info.ledger_id for info in self.stored.value.ledgers} | {*self.stored.value.deleting}
        assert self.cluster.ledgers.listed() <= named


@pytest.mark.parametrize("happens", [False, True], ids=["not done", "done"])
@pytest.mark.parametrize("step", [make_first, make_next, make_ahead, open_ahead, put])
async def test_a_write_that_nothing_was_learned_of_is_looked_for_before_the_next(
    step: Step, happens: bool, cluster: Cluster
) -> None:
    owner = Owner(cluster)
    if step is not make_first:
        await owner.do(make_first)
    if step is open_ahead:
        await owner.do(make_ahead)
    await owner.do_unheard(step, happens=happens)
    await raises(MetadataUnavailableError, owner.do(step))
    owner.come_back()
    await owner.do(step)
    await owner.check()


async def test_a_ledger_made_ahead_can_be_opened_once_more_if_nobody_heard_that_it_was(cluster: Cluster) -> None:
    owner = Owner(cluster)
    await owner.do(make_first)
    await owner.do(make_ahead)
    await owner.do_unheard(open_ahead, happens=True)
    owner.come_back()
    async with owner.stored.held():
        assert [info.ledger_id for info in owner.stored.value.ledgers] == [0]
        assert list(owner.stored.value.deleting) == [1]
        await open_ahead(owner.stored)
    assert [info.ledger_id for info in owner.stored.value.ledgers] == [0, 1]
    assert list(owner.stored.value.deleting) == []
    await owner.check()


@pytest.mark.parametrize("step", [open_ahead, put])
async def test_a_write_whose_caller_went_away_is_no_other_owners(step: Step, cluster: Cluster) -> None:
    owner = Owner(cluster)
    await owner.do(make_first)
    await owner.do(make_ahead)

    async def hang() -> None:
        await trio.sleep_forever()

    async def hang_later() -> None:
        owner.session.point = hang

    owner.session.point = hang_later
    with trio.move_on_after(1) as scope:
        await owner.do(step)
    assert scope.cancelled_caught
    owner.session.point = None
    await owner.do(step)
    await owner.check()


@pytest.mark.parametrize("step", [make_next, put])
@pytest.mark.parametrize("happens", [False, True], ids=["not done", "done"])
async def test_another_owners_write_is_not_taken_for_ours(step: Step, happens: bool, cluster: Cluster) -> None:
    owner, other = Owner(cluster), Owner(cluster)
    await owner.do(make_first)
    await owner.do_unheard(step, happens=happens)
    cluster.ledgers.store.reconnect()
    await other.stored.read()
    await other.do(partial(StoredList.new_ledger, closed=other.stored.value))
    owner.come_back()
    await raises(ManagedLedgerFencedError, owner.do(step))

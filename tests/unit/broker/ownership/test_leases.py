"""The leases that a broker follows."""

from __future__ import annotations

from functools import partial

import pytest

from broker.ownership import leases
from broker.ownership.bundles import even
from broker.ownership.lease import LeaseState
from broker.ownership.peers import topic_in
from tests.support.waiting import until
from tests.unit.broker.ownership.cluster import NAMESPACE, Cluster


async def test_no_more_are_followed_than_the_bound_and_what_is_held_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster
) -> None:
    monkeypatch.setattr(leases, "LEASES_MAX", 2)
    [a] = await cluster.start_many("a")
    held, *others = even(NAMESPACE, 4).all()
    assert (await a.lookup(topic_in(held))).mine
    for bundle in others:
        lease = await a.ownership.leases.get(bundle)
        assert lease.state is LeaseState.NONE
        await until(partial(getattr, lease, "idle"))
    assert [a.ownership.leases.find(bundle) is None for bundle in (held, *others)] == [False, True, True, False]
    assert a.ownership.owned() == [held]


async def test_a_lease_that_was_just_asked_for_is_followed_even_if_no_other_can_be_forgotten(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster
) -> None:
    monkeypatch.setattr(leases, "LEASES_MAX", 1)
    [a] = await cluster.start_many("a")
    held, other, *_ = even(NAMESPACE, 4).all()
    assert (await a.lookup(topic_in(held))).mine
    lease = await a.ownership.leases.get(other)
    assert a.ownership.leases.find(other) is lease
    assert a.ownership.owned() == [held]

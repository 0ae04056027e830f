"""The leases that a broker follows."""

from __future__ import annotations

import pytest
import trio

from broker.ownership import leases
from broker.ownership.bundles import even
from broker.ownership.lease import LeaseState
from broker.ownership.peers import topic_in
from tests.unit.broker.ownership.cluster import NAMESPACE, Cluster, in_cluster


def test_no_more_are_followed_than_the_bound_and_what_is_held_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASES_MAX", 2)

    async def test(cluster: Cluster) -> None:
        [a] = await cluster.start_many("a")
        held, *others = even(NAMESPACE, 4).all()
        assert (await a.lookup(topic_in(held))).mine
        for bundle in others:
            assert (await a.ownership.leases.get(bundle)).state is LeaseState.NONE
            await trio.sleep(0.1)  # it is looked at once more
        assert [a.ownership.leases.find(bundle) is None for bundle in (held, *others)] == [False, True, True, False]
        assert a.ownership.owned() == [held]

    in_cluster(test)

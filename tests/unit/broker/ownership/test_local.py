"""Ownership with a single broker."""

from __future__ import annotations

import pytest
import trio

from broker.ownership.bundles import even
from broker.ownership.errors import NoSuchBundleError
from broker.ownership.local import OwnEverything, Owning
from broker.ownership.lookup import Connect
from quire.wire.pulsar.names import NamespaceName, TopicName
from tests.support.refusals import raises

TOPIC = TopicName.parse("orders")
BUNDLE = even(NamespaceName("public", "default"), 1).all()[0]


@pytest.mark.real_clock
async def test_everything_is_its_own_and_it_never_waits() -> None:
    ownership: Owning = OwnEverything("pulsar://a:1", "http://a:2")
    with trio.CancelScope() as scope:
        scope.cancel()  # anything that waits would be cancelled
        assert ownership.owns(TOPIC)
        for authoritative in (False, True):
            found = await ownership.lookup(TOPIC, authoritative=authoritative)
            assert found == Connect("pulsar://a:1", "http://a:2", mine=True)
        await ownership.check(TOPIC)
        await ownership.release_all()
        assert ownership.owned() == []
        assert ownership.bundle_of(TOPIC) is None
    assert not scope.cancelled_caught
    for change in (ownership.unload, ownership.split):
        await raises(NoSuchBundleError, change(BUNDLE))

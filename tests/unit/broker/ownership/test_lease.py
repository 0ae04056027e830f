"""The node of one bundle: taken, kept over lost sessions, lost to others, released."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from broker.ownership.bundles import even
from broker.ownership.errors import BundlesChangedError
from broker.ownership.lease import Lease, LeaseState
from broker.ownership.values import Owner, encode_owner
from quire.metadata.errors import MetadataUnavailableError
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import Check, Kind
from quire.wire.pulsar.names import NamespaceName
from simulation.machines.metadata import HostMetadata
from tests.support.nodes import node_at
from tests.support.refusals import raises
from tests.support.waiting import until

BUNDLE = even(NamespaceName("public", "default"), 4).all()[1]
A = Owner(broker_url="pulsar://a:6650", web_url="http://a:8080")
B = Owner(broker_url="pulsar://b:6650", web_url="http://b:8080")


class Scene:
    """Open a lease of broker A, which is being followed, and a session of another process."""

    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.metadata = HostMetadata(self.tree, random.Random(1), session_timeout_s=3.0, late=0.0, latency_max_s=0.002)
        self.other = MemoryStore(self.tree, session_timeout_s=3.0)
        self.lost: list[Lease] = []
        self.lease = Lease(self.metadata, BUNDLE, A, recheck_s=30.0, fresh_s=0.5, on_lost=self.lost.append)

    async def value(self) -> bytes | None:
        node = await self.other.get(BUNDLE.path)
        return None if node is None else node.value

    async def other_takes(self, owner: Owner = B) -> None:
        await self.other.create(BUNDLE.path, encode_owner(owner), kind=Kind.EPHEMERAL, make_parents=True)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.tree.run)
        nursery.start_soon(scene.lease.run)
        yield scene
        nursery.cancel_scope.cancel()


async def test_a_free_bundle_is_taken_and_given_up_again(scene: Scene) -> None:
    assert await scene.lease.acquire([])
    assert await scene.value() == encode_owner(A)
    assert await scene.lease.ensure()
    await scene.lease.release()
    assert await scene.value() is None
    assert scene.lease.state is LeaseState.NONE
    assert not await scene.lease.ensure()
    assert scene.lost == []


async def test_a_bundle_of_another_is_not_taken_and_its_owner_is_known(scene: Scene) -> None:
    await scene.other_takes()
    assert not await scene.lease.acquire([])
    assert scene.lease.owner == B
    await scene.lease.release()
    assert await scene.value() == encode_owner(B)


async def test_a_node_of_the_process_before_us_is_replaced_without_waiting_for_its_session(scene: Scene) -> None:
    await scene.other_takes(A)
    await until(lambda: scene.lease.known)
    assert scene.lease.owner is None
    before = trio.current_time()
    assert await scene.lease.acquire([])
    assert trio.current_time() - before < 1
    scene.tree.expire(scene.other.session)
    await trio.sleep(5)
    node = await node_at(scene.metadata, BUNDLE.path)
    assert node.mine


async def test_nothing_is_taken_if_what_was_checked_does_not_hold(scene: Scene) -> None:
    await scene.other.create("/policies", b"1")
    for check in (Check(path="/policies", version=1), Check(path="/none", version=0)):
        await raises(BundlesChangedError, scene.lease.acquire([check]))
    assert await scene.value() is None
    assert await scene.lease.acquire([Check(path="/policies", version=0)])


async def test_a_session_that_expired_is_no_loss_if_nobody_was_quicker(scene: Scene) -> None:
    await scene.lease.acquire([])
    scene.metadata.disconnect()
    await trio.sleep(10)
    assert await scene.value() is None
    assert scene.lease.state is LeaseState.ACTIVE
    scene.metadata.reconnect()
    await trio.sleep(1)
    assert await scene.value() == encode_owner(A)
    assert scene.lease.state is LeaseState.ACTIVE
    assert scene.lost == []


async def test_another_value_of_another_session_is_a_loss_as_soon_as_it_is_seen(scene: Scene) -> None:
    await scene.lease.acquire([])
    scene.metadata.disconnect()
    await trio.sleep(10)
    await scene.other_takes()
    assert scene.lost == []
    scene.metadata.reconnect()
    await until(lambda: bool(scene.lost), within=1)
    assert scene.lease.state is LeaseState.NONE
    assert scene.lease.owner == B
    assert await scene.value() == encode_owner(B)


async def test_a_node_that_somebody_deleted_is_made_again(scene: Scene) -> None:
    await scene.lease.acquire([])
    await scene.other.delete(BUNDLE.path)
    await trio.sleep(0.1)
    assert await scene.value() == encode_owner(A)


async def test_a_lease_is_believed_for_a_moment_and_then_looked_at(scene: Scene) -> None:
    await scene.lease.acquire([])
    scene.metadata.disconnect()
    assert await scene.lease.ensure()
    await trio.sleep(0.6)
    await raises(MetadataUnavailableError, scene.lease.ensure())
    assert scene.lease.state is LeaseState.ACTIVE


async def test_a_broker_that_slept_looks_before_it_believes(scene: Scene) -> None:
    """The clock advanced while the process was suspended: only the present value of the node counts."""
    await scene.lease.acquire([])
    await scene.other.delete(BUNDLE.path)
    await scene.other_takes()
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, MockClock)
    clock.jump(60)
    assert not await scene.lease.ensure()
    assert len(scene.lost) == 1


async def test_while_it_is_unloaded_the_node_says_so(scene: Scene) -> None:
    await scene.lease.acquire([])
    assert await scene.lease.disable()
    assert await scene.value() == encode_owner(Owner(broker_url=A.broker_url, web_url=A.web_url, disabled=True))
    assert not await scene.lease.ensure()
    assert not await scene.lease.disable()
    await scene.lease.release()
    assert await scene.value() is None


async def test_a_bundle_that_could_not_be_given_up_is_when_the_service_is_back(scene: Scene) -> None:
    await scene.lease.acquire([])
    scene.metadata.disconnect()
    await scene.lease.release()
    assert scene.lease.state is LeaseState.NONE
    scene.metadata.reconnect()
    await trio.sleep(1)
    assert await scene.value() is None


@pytest.mark.parametrize("delay_ms", range(6))
async def test_a_lost_answer_leaves_no_node_that_nobody_holds(delay_ms: int, scene: Scene) -> None:
    async def cut() -> None:
        await trio.sleep(delay_ms / 1000)
        scene.metadata.disconnect()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cut)
        try:
            await scene.lease.acquire([])
        except MetadataUnavailableError:
            pass
    held = scene.lease.state is LeaseState.ACTIVE
    scene.metadata.reconnect()
    await trio.sleep(1)
    assert await scene.value() == (encode_owner(A) if held else None)
    assert await scene.lease.acquire([])


async def test_a_node_that_cannot_be_read_is_nobody_s_to_take(scene: Scene) -> None:
    await scene.other.create(BUNDLE.path, b"{", kind=Kind.EPHEMERAL, make_parents=True)
    assert not await scene.lease.acquire([])
    assert scene.lease.owner is not None
    assert scene.lease.owner.disabled

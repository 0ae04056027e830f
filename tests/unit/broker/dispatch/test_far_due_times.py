"""Due times of delayed messages that are not kept in memory, and are read again from the log."""

from __future__ import annotations

import pytest
import trio

from broker.dispatch.delayed import delays as delays_module
from broker.dispatch.delayed.index import DelayedIndex
from managed_ledger.errors import ManagedLedgerReadError
from quire.ledger.position import Position
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.unit.broker.fakes import EPOCH_MS, LEDGER, delivered, in_s, on_stage

SHARED = pb.CommandSubscribe.Shared
KEY_SHARED = pb.CommandSubscribe.Key_Shared

both = pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])


@pytest.fixture
def small_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few due times are kept in memory: others are read again."""
    monkeypatch.setattr(delays_module, "DelayedIndex", lambda: DelayedIndex(16, bucket_max=4))


@pytest.mark.usefixtures("small_index")
@both
async def test_times_that_are_not_in_memory_are_read_again(kind: pb.CommandSubscribe.SubType) -> None:
    async with on_stage(kind) as stage:
        consumer = stage.join(permits=1000)
        due = {}
        for number in range(200):
            seconds = 20 + number * 37 % 200
            due[b"%d" % number] = EPOCH_MS + round(trio.current_time() + seconds) * 1000
            stage.publish(b"%d" % number, deliver_at_time=due[b"%d" % number])
        assert stage.subscription.delayed == 200
        assert stage.subscription._delays._index.near_count <= 16
        found: dict[bytes, int] = {}
        for _ in range(2300):
            await trio.sleep(0.1)
            for payload in delivered(consumer):
                assert payload not in found
                found[payload] = EPOCH_MS + round(trio.current_time() * 1000)
        assert found.keys() == due.keys()
        assert all(-1000 <= found[each] - due[each] <= 1200 for each in due)


@pytest.mark.usefixtures("small_index")
async def test_a_failed_read_of_times_is_tried_again() -> None:
    async with on_stage(SHARED) as stage:
        consumer = stage.join(permits=1000)
        stage.publish(*[b"%d" % number for number in range(100)], **in_s(5))
        assert stage.subscription.delayed == 100
        stage.log.cold = True
        got: list[bytes] = []
        answered = 0
        for step in range(400):
            await trio.sleep(0.1)
            for read in stage.log.reads[answered:]:
                answered += 1
                if step < 100 and answered % 2:
                    read.error = ManagedLedgerReadError("bookie gone")
                read.arrived.set()
            got += delivered(consumer)
        assert sorted(got, key=int) == [b"%d" % number for number in range(100)]


@pytest.mark.usefixtures("small_index")
async def test_entries_trimmed_before_their_time_are_given_up() -> None:
    async with on_stage(SHARED) as stage:
        consumer = stage.join(permits=1000)
        stage.publish(*[b"%d" % number for number in range(100)], **in_s(5))
        stage.log.trimmed = 60
        stage.subscription.cursor.skip_to(Position(LEDGER, 59))
        stage.log.cold = True
        got: list[bytes] = []
        for _ in range(300):
            await trio.sleep(0.1)
            for read in stage.log.reads:
                read.arrived.set()
            got += delivered(consumer)
        assert stage.subscription.delayed == 0
        assert len(got) == 40
        assert set(got) == {b"%d" % number for number in range(60, 100)}

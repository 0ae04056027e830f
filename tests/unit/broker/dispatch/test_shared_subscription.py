"""Shared and Key_Shared over a log whose reads the test holds."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from broker.dispatch.consumer import Consumer
from broker.dispatch.policies.redelivery import NOTHING_WAITS
from broker.dispatch.subscription import Subscription
from cursors.errors import InvalidAckError
from managed_ledger.errors import ManagedLedgerReadError
from quire.ledger.position import Position
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.outbox import Turn
from tests.support.waiting import until
from tests.unit.broker.fakes import LEDGER, Stage, counts, delivered, on_stage

SHARED = pb.CommandSubscribe.Shared
KEY_SHARED = pb.CommandSubscribe.Key_Shared


def keys_of(stage: Stage, *consumers: Consumer[Subscription]) -> list[str]:
    """Return a key of its own for each consumer."""
    policy = stage.subscription._policy
    found: dict[Consumer[Subscription] | None, str] = {}
    for number in range(1000):
        key = f"k{number}"
        owner = policy._owner(policy.hash_of(key.encode())).consumer
        found.setdefault(owner, key)
    return [found[consumer] for consumer in consumers]


def has_read(stage: Stage, count: int) -> bool:
    return len(stage.log.reads) == count


async def test_a_failed_read_is_tried_again_after_a_pause() -> None:
    async with on_stage(SHARED, cold=True) as stage:
        consumer = stage.join()
        stage.publish(b"0")
        stage.subscription.flow(consumer, 10)
        for number in range(3):
            await until(partial(has_read, stage, number + 1))
            stage.log.reads[number].error = ManagedLedgerReadError("bookie gone")
            stage.log.reads[number].arrived.set()
        started = trio.current_time()
        await until(lambda: len(stage.log.reads) == 4)
        assert trio.current_time() - started > 0.3
        stage.log.reads[3].arrived.set()
        await trio.testing.wait_all_tasks_blocked()
        assert delivered(consumer) == [b"0"]


async def test_a_bad_id_among_acks_leaves_nothing_held_of_the_good_ones() -> None:
    async with on_stage(SHARED) as stage:
        first, second = stage.join("a"), stage.join("b")
        stage.subscription.flow(first, 10)
        positions = stage.publish(b"0", b"1")
        with pytest.raises(InvalidAckError):
            stage.subscription.ack_individual(first, [*positions, Position(LEDGER, 99)], [(Position(7, 0), (1,))])
        assert stage.subscription.unacked_of(first) == 0
        assert stage.subscription._unacked == 0
        stage.subscription.flow(second, 10)
        stage.subscription.remove_consumer(first)
        assert delivered(second) == []


async def test_a_key_waits_until_its_former_owner_has_acknowledged() -> None:
    async with on_stage(KEY_SHARED) as stage:
        first = stage.join("a", permits=100)
        keys = [f"k{number}" for number in range(20)]
        old = [stage.publish(b"old", partition_key=key)[0] for key in keys]
        delivered(first)
        second = stage.join("b", permits=100)
        for key in keys:
            stage.publish(b"new", partition_key=key)
        assert delivered(second) == []
        stage.subscription.ack_individual(second, old, [])  # by any consumer
        stage.subscription.pump()
        assert len(delivered(second)) + len(delivered(first)) == 20


def chunks(stage: Stage, uuid: str, count: int, *wanted: int) -> list[bytes]:
    """Publish chunks of one message: all of them, unless some are given."""
    payloads = []
    for number in wanted or range(count):
        payloads.append(b"%s-%d" % (uuid.encode(), number))
        stage.publish(payloads[-1], uuid=uuid, chunk_id=number, num_chunks_from_msg=count)
    return payloads


async def test_the_chunks_of_a_message_stay_with_one_consumer() -> None:
    async with on_stage(SHARED, round_robin_batch_max=1) as stage:
        consumers = [stage.join() for _ in range(3)]
        for consumer in consumers:
            stage.subscription.flow(consumer, 1000)
        for number in range(30):
            chunks(stage, f"a{number}", 3, 0)
            chunks(stage, f"b{number}", 2, 0)
            stage.publish(b"plain")
            chunks(stage, f"a{number}", 3, 1, 2)
            chunks(stage, f"b{number}", 2, 1)
        got = [delivered(consumer) for consumer in consumers]
        assert sum(map(len, got)) == 30 * 6
        assert sum(payload == b"plain" for each in got for payload in each) == 30
        for number in range(30):
            for uuid, count in ((f"a{number}", 3), (f"b{number}", 2)):
                whole = [b"%s-%d" % (uuid.encode(), index) for index in range(count)]
                assert sum([each for each in payloads if each in whole] == whole for payloads in got) == 1
        assert all(got), "each has its part"
        assert not stage.subscription._policy._chunked, "nothing is kept of messages that are through"


async def test_the_chunks_of_a_consumer_that_leaves_go_together_to_another() -> None:
    async with on_stage(SHARED, round_robin_batch_max=1) as stage:
        first = stage.join(permits=2)
        chunks(stage, "m", 3)
        assert delivered(first) == [b"m-0", b"m-1"]
        others = [stage.join(), stage.join()]
        for other in others:
            stage.subscription.flow(other, 2)
        assert [delivered(other) for other in others] == [[], []]
        stage.subscription.remove_consumer(first)
        [(rest, got)] = [(other, got) for other in others if (got := counts(other))]
        assert got == [(b"m-0", 1), (b"m-1", 1)]
        stage.subscription.flow(rest, 1)
        assert delivered(rest) == [b"m-2"]


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED, pb.CommandSubscribe.Exclusive])
@pytest.mark.parametrize("messages", [1, 100, 1000])
async def test_no_more_is_read_than_is_given(kind: Any, messages: int) -> None:
    """Send permits as a client with a queue of 1000 does: first for all of it, then repeatedly for half of it."""
    async with on_stage(kind, cold=True, unacked_messages_per_consumer_max=0) as stage:
        consumer = stage.join()
        stage.publish(*[b"x"] * 200, num_messages_in_batch=messages)
        entries = 0
        stage.subscription.flow(consumer, 1000)
        for _ in range(1000):
            if entries == 200:
                break
            await trio.testing.wait_all_tasks_blocked()
            for held in stage.log.reads:
                held.arrived.set()
            await trio.testing.wait_all_tasks_blocked()
            entries += (got := len(delivered(consumer)))
            if not got:
                stage.subscription.flow(consumer, 500)
        assert sum(held.given for held in stage.log.reads) <= 200 + 20, (
            "twenty, while the size of batches was not known"
        )


async def test_one_permit_at_a_time_reads_one_entry_at_a_time() -> None:
    async with on_stage(SHARED) as stage:
        consumer = stage.join()
        stage.publish(*[b"%d" % number for number in range(200)])
        for number in range(200):
            stage.subscription.flow(consumer, 1)
            assert delivered(consumer) == [b"%d" % number]
        assert stage.log.cached == 200


async def test_a_pump_costs_the_same_whatever_waits_for_other_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(KEY_SHARED) as stage:
        x, y = stage.join("x"), stage.join("y")
        [key_y] = keys_of(stage, y)
        policy = stage.subscription._policy
        theirs = [
            key for number in range(4000) if policy._owner(policy.hash_of((key := f"t{number}").encode())).consumer is x
        ]
        stage.subscription.flow(y, 1)
        for key in theirs[:1500]:
            stage.publish(b"x", partition_key=key)
        for _ in range(20):
            stage.publish(b"y", partition_key=key_y)
        assert len(stage.subscription._replay) == 1500
        asked: list[int] = []
        replay = stage.subscription._replay

        def group_of(key_hash: int) -> Any:
            asked.append(key_hash)
            return policy.group_of(key_hash)

        monkeypatch.setattr(replay, "_group_of", group_of)
        stage.log.cached = 0
        for _ in range(10):
            stage.subscription.flow(y, 1)
        assert len(delivered(y)) == 11
        assert len(asked) <= 40
        assert stage.log.cached <= 20
        stage.subscription.flow(x, 2000)
        assert len(delivered(x)) == 1500


async def test_entries_that_wait_for_a_busy_consumer_are_not_read_at_the_bookies_again() -> None:
    async with on_stage(KEY_SHARED, cold=True) as stage:
        stage.log.keeps = True
        x, y = stage.join("x"), stage.join("y")
        keys = keys_of(stage, x, y)
        for number in range(40):
            stage.publish(b"%d" % number, partition_key=keys[number % 2])
        got: dict[Consumer[Subscription], list[bytes]] = {x: [], y: []}
        for turn in range(40):
            consumer = x if turn < 20 else y  # y has no permits until x has everything
            stage.subscription.flow(consumer, 1)
            while not (some := delivered(consumer)):
                await trio.testing.wait_all_tasks_blocked()
                for held in stage.log.reads:
                    held.arrived.set()
            got[consumer] += some
        assert got == {x: [b"%d" % number for number in range(0, 40, 2)], y: [b"%d" % n for n in range(1, 40, 2)]}
        assert not any(held.replay for held in stage.log.reads)
        assert sum(held.given for held in stage.log.reads) == 40


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
async def test_the_next_read_starts_in_the_pass_that_has_no_work_left(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_off: list[Any] = []
    monkeypatch.setattr(Turn, "later", lambda turn, work: put_off.append(work))
    async with on_stage(kind, cold=True, unacked_messages_per_consumer_max=0) as stage:
        consumer = stage.join()
        stage.publish(*[b"x"] * 100)
        stage.subscription.flow(consumer, 60)
        for number in range(2):
            await until(partial(has_read, stage, number + 1))
            stage.turn.left = 1  # no work is left when the answer is worked on
            stage.log.reads[number].arrived.set()
        await until(lambda: stage.subscription.permits_of(consumer) == 0)
        assert not put_off
        stage.log.cold = False
        stage.turn.left = 0
        stage.subscription.flow(consumer, 10)
        assert len(put_off) == 1, "entries of the cache are worked on in another pass"


async def test_what_an_aborted_transaction_frees_is_delivered_as_it_is_read() -> None:
    async with on_stage(SHARED, cold=True) as stage:
        consumer = stage.join(permits=10)
        positions = stage.publish(b"0", b"1")
        await until(partial(has_read, stage, 1))
        stage.log.reads[0].arrived.set()
        await trio.testing.wait_all_tasks_blocked()
        assert delivered(consumer) == [b"0", b"1"]
        stage.subscription.hold_in_transaction(consumer, positions)
        stage.subscription.deliver_again(positions)
        for entry_id, payload in enumerate((b"0", b"1")):
            for _ in range(3):  # the entry is read for its key, and to be delivered
                await trio.testing.wait_all_tasks_blocked()
                for read in stage.log.reads:
                    if read.first == entry_id:
                        read.arrived.set()
            await trio.testing.wait_all_tasks_blocked()
            assert delivered(consumer) == [payload]


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
async def test_a_subscription_that_no_consumer_uses_has_no_redelivery_of_its_own(kind: Any) -> None:
    async with on_stage(kind) as stage:
        assert stage.subscription._replay is NOTHING_WAITS
        consumer = stage.join()
        stage.publish(b"0", b"1")
        stage.subscription.flow(consumer, 10)
        stage.subscription.redeliver(consumer, [])
        stage.subscription.pump()
        assert delivered(consumer) == [b"0", b"1", b"0", b"1"]
        stage.subscription.ack_individual(consumer, [Position(LEDGER, 0), Position(LEDGER, 1)], [])
        stage.subscription.remove_consumer(consumer)
        assert stage.subscription._replay is NOTHING_WAITS
        again = stage.join("again")
        stage.publish(b"2")
        stage.subscription.flow(again, 10)
        assert delivered(again) == [b"2"]


async def test_redelivery_counts_outlive_the_last_consumer() -> None:
    async with on_stage(SHARED) as stage:
        consumer = stage.join()
        stage.publish(b"0")
        for _ in range(2):
            stage.subscription.flow(consumer, 1)
            stage.subscription.redeliver(consumer, [])
        stage.subscription.remove_consumer(consumer)
        again = stage.join("again")
        stage.subscription.flow(again, 1)
        assert counts(again) == [(b"0", 2)]


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
async def test_a_count_that_was_stored_is_delivered_although_nothing_waits(kind: Any) -> None:
    async with on_stage(kind) as stage:
        [first, _] = stage.publish(b"0", b"1")
        stage.subscription.cursor.redeliveries.increment(first)  # before the topic was loaded
        consumer = stage.join(permits=10)
        assert counts(consumer) == [(b"0", 1), (b"1", 0)]


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
async def test_a_consumer_to_which_nothing_is_delivered_again_needs_no_redelivery(kind: Any) -> None:
    async with on_stage(kind) as stage:
        consumer = stage.join(permits=10)
        stage.publish(b"0", b"1")
        assert delivered(consumer) == [b"0", b"1"]
        assert stage.subscription._replay is NOTHING_WAITS
        stage.subscription.redeliver(consumer, [])
        assert stage.subscription._replay is not NOTHING_WAITS

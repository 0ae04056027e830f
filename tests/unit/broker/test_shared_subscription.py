"""Shared and Key_Shared over a log whose reads the test holds back."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from broker.consumer import Consumer
from cursors.errors import InvalidAckError
from managed_ledger.errors import ManagedLedgerReadError
from quire.ledger.position import Position
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.unit.broker.fakes import LEDGER, Stage, counts, delivered, on_stage
from tests.unit.managed_ledger.fake_ledgers import until

SHARED = pb.CommandSubscribe.Shared
KEY_SHARED = pb.CommandSubscribe.Key_Shared


def keys_of(stage: Stage, *consumers: Consumer) -> list[str]:
    """For each consumer a key that is its."""
    policy = stage.subscription._policy
    found: dict[Consumer | None, str] = {}
    for number in range(1000):
        key = f"k{number}"
        owner = policy._owner(policy.hash_of(key.encode())).consumer
        found.setdefault(owner, key)
    return [found[consumer] for consumer in consumers]


def test_a_late_replay_read_does_not_overtake_what_was_unblocked_meanwhile() -> None:
    """0 and 2 are of a key whose owner has no permits, 1 of another's. 1 is asked for again, and read together with 2, which
    follows it. While that read is on its way the owner of 0 and 2 gets permits: 0 has to come first."""

    async def test(stage: Stage) -> None:
        x, y = stage.join("x"), stage.join("y")
        key_x, key_y = keys_of(stage, x, y)
        for payload, key in ((b"0", key_x), (b"1", key_y), (b"2", key_x)):
            stage.publish(payload, partition_key=key)
        stage.subscription.flow(y, 3)
        await until(lambda: len(stage.log.reads) == 1)
        stage.log.reads[0].arrived.set()
        await trio.testing.wait_all_tasks_blocked()
        assert delivered(y) == [b"1"]
        stage.subscription.redeliver(y, [])
        stage.subscription.flow(y, 5)
        await until(lambda: len(stage.log.reads) == 2)
        late = stage.log.reads[1]
        assert (late.first, late.replay) == (1, True)
        assert late.count > 1, "the run has to include entry 2, or this test shows nothing"
        stage.subscription.flow(x, 10)
        late.arrived.set()
        await until(lambda: len(stage.log.reads) == 3)
        assert delivered(x) == []
        stage.log.reads[2].arrived.set()
        await trio.testing.wait_all_tasks_blocked()
        assert delivered(x) == [b"0", b"2"]
        assert delivered(y) == [b"1"]

    on_stage(KEY_SHARED, test, cold=True)


def test_a_read_that_was_under_way_when_the_cursor_was_rewound_is_dropped() -> None:
    async def test(stage: Stage) -> None:
        consumer = stage.join()
        stage.publish(b"0", b"1")
        stage.subscription.flow(consumer, 10)
        await until(lambda: len(stage.log.reads) == 1)
        stage.subscription.rewind()
        stage.subscription.pump()
        stage.log.reads[0].arrived.set()
        await until(lambda: len(stage.log.reads) == 2)
        assert delivered(consumer) == []
        stage.log.reads[1].arrived.set()
        await trio.testing.wait_all_tasks_blocked()
        assert delivered(consumer) == [b"0", b"1"]

    on_stage(SHARED, test, cold=True)


def has_read(stage: Stage, count: int) -> bool:
    return len(stage.log.reads) == count


def test_a_failed_read_is_tried_again_after_a_pause() -> None:
    async def test(stage: Stage) -> None:
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

    on_stage(SHARED, test, cold=True)


def test_a_read_that_comes_after_its_entries_were_acknowledged_does_not_move_the_cursor_back() -> None:
    async def test(stage: Stage) -> None:
        consumer = stage.join()
        positions = stage.publish(*[b"%d" % number for number in range(20)])
        stage.subscription.flow(consumer, 100)
        await until(lambda: len(stage.log.reads) == 1)
        stage.subscription.ack_individual(consumer, positions, [])
        assert stage.subscription.cursor.read_position == Position(LEDGER, 20)
        stage.log.reads[0].arrived.set()
        await trio.testing.wait_all_tasks_blocked()
        assert delivered(consumer) == []
        assert stage.subscription.cursor.read_position == Position(LEDGER, 20)

    on_stage(SHARED, test, cold=True, read_batch_entries_max=5)


def test_a_bad_id_among_acks_leaves_nothing_held_of_the_good_ones() -> None:
    async def test(stage: Stage) -> None:
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

    on_stage(SHARED, test)


def test_what_a_consumer_held_is_delivered_again_with_a_count_and_acks_of_others_count() -> None:
    async def test(stage: Stage) -> None:
        leaving, staying = stage.join(), stage.join()
        stage.subscription.flow(leaving, 10)
        positions = stage.publish(b"0", b"1", b"2", b"3")
        assert counts(leaving) == [(b"0", 0), (b"1", 0), (b"2", 0), (b"3", 0)]
        stage.subscription.ack_individual(leaving, positions[1:2], [])
        stage.subscription.ack_individual(staying, positions[2:3], [])
        stage.subscription.flow(staying, 10)
        stage.subscription.remove_consumer(leaving)
        assert counts(staying) == [(b"0", 1), (b"3", 1)]
        stage.subscription.redeliver(staying, positions[3:])
        stage.subscription.pump()
        assert counts(staying) == [(b"3", 2)]

    on_stage(SHARED, test)


def test_a_consumer_with_too_much_unacknowledged_gets_more_at_half_of_the_limit() -> None:
    async def test(stage: Stage) -> None:
        consumer = stage.join()
        stage.subscription.flow(consumer, 4)
        positions = stage.publish(*[b"%d" % number for number in range(10)])
        assert len(delivered(consumer)) == 4
        stage.subscription.flow(consumer, 100)
        assert delivered(consumer) == []
        assert consumer.blocked
        stage.subscription.ack_individual(consumer, positions[:1], [])
        stage.subscription.pump()
        assert delivered(consumer) == []
        stage.subscription.ack_individual(consumer, positions[1:2], [])
        stage.subscription.pump()
        assert len(delivered(consumer)) == 6
        assert consumer.blocked

    on_stage(SHARED, test, unacked_messages_per_consumer_max=4)


def test_a_subscription_with_too_much_unacknowledged_goes_on_at_half_of_the_limit() -> None:
    async def test(stage: Stage) -> None:
        first, second = stage.join(), stage.join()
        stage.subscription.flow(first, 4)
        positions = stage.publish(*[b"%d" % number for number in range(10)])
        assert len(delivered(first)) == 4
        stage.subscription.flow(second, 100)
        assert delivered(second) == []
        stage.subscription.ack_individual(first, positions[:2], [])
        stage.subscription.pump()
        assert len(delivered(second)) == 6

    on_stage(SHARED, test, unacked_messages_per_subscription_max=4)


def test_permits_are_those_of_messages_still_wanted_of_a_batch() -> None:
    async def test(stage: Stage) -> None:
        consumer = stage.join()
        [batch] = stage.publish(b"batch", num_messages_in_batch=10)
        stage.subscription.ack_individual(consumer, [], [(batch, (0b11,))])
        stage.publish(b"next")
        stage.subscription.flow(consumer, 3)
        assert delivered(consumer) == [b"batch", b"next"]
        assert stage.subscription.permits_of(consumer) == 0

    for kind in (SHARED, KEY_SHARED):
        on_stage(kind, test)


def test_a_dead_or_full_connection_is_passed_over() -> None:
    async def test(stage: Stage) -> None:
        full, dead, good = stage.join("a"), stage.join("b"), stage.join("c")
        connections: list[Any] = [full.connection, dead.connection]
        connections[0].output_below_bound = False
        connections[1].closed = True
        for consumer in (full, dead, good):
            stage.subscription.flow(consumer, 100)
        stage.publish(*[b"%d" % number for number in range(50)])
        assert len(delivered(good)) == 50
        assert delivered(full) == delivered(dead) == []
        connections[0].output_below_bound = True
        stage.publish(*[b"%d" % number for number in range(50)])
        assert delivered(full)

    on_stage(SHARED, test)


def test_an_entry_whose_metadata_makes_no_sense_is_delivered_and_holds_nobody_up() -> None:
    async def test(stage: Stage) -> None:
        consumer = stage.join()
        stage.subscription.flow(consumer, 10)
        stage.log.add(b"")
        stage.log.entries[-1] = b"\x0e\x01\0\0\0\0\0\0\0\x03\xff\xff\xffgarbage"
        stage.publish(b"after")
        assert delivered(consumer)[-1] == b"after"

    for kind in (SHARED, KEY_SHARED, pb.CommandSubscribe.Exclusive, pb.CommandSubscribe.Failover):
        on_stage(kind, test)


def test_a_key_waits_until_its_former_owner_has_acknowledged() -> None:
    async def test(stage: Stage) -> None:
        first = stage.join("a")
        stage.subscription.flow(first, 100)
        keys = [f"k{number}" for number in range(20)]
        old = [stage.publish(b"old", partition_key=key)[0] for key in keys]
        delivered(first)
        second = stage.join("b")
        stage.subscription.flow(second, 100)
        for key in keys:
            stage.publish(b"new", partition_key=key)
        assert delivered(second) == []
        stage.subscription.ack_individual(second, old, [])  # by whom does not matter
        stage.subscription.pump()
        assert len(delivered(second)) + len(delivered(first)) == 20

    on_stage(KEY_SHARED, test)


def test_new_entries_are_not_read_without_end_while_their_keys_are_blocked() -> None:
    async def test(stage: Stage) -> None:
        x, y = stage.join("x"), stage.join("y")
        key_x, key_y = keys_of(stage, x, y)
        stage.subscription.flow(y, 1000)
        stage.publish(*[b"x"] * 500, partition_key=key_x)
        stage.publish(b"y", partition_key=key_y)
        assert len(stage.subscription._replay) <= 20 + 10
        assert delivered(y) == []
        stage.subscription.flow(x, 1000)
        assert len(delivered(x)) == 500
        assert delivered(y) == [b"y"]

    on_stage(
        KEY_SHARED,
        test,
        key_shared_lookahead_per_consumer=10,
        key_shared_lookahead_per_subscription=20,
        read_batch_entries_max=10,
    )

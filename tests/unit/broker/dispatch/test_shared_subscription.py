"""Shared and Key_Shared over a log whose reads the test holds."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from broker.dispatch.consumer import Consumer
from broker.dispatch.subscription import Subscription
from cursors.errors import InvalidAckError
from managed_ledger.errors import ManagedLedgerReadError
from quire.ledger.position import Position
from quire.wire.pulsar import PulsarApi_pb2 as pb
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


async def test_a_late_replay_read_does_not_overtake_what_was_unblocked_meanwhile() -> None:
    """Entries 0 and 2 have a key whose consumer has no permits, entry 1 has another's.

    Entry 1 is requested again, and read together with 2, which follows it. During that read the consumer of 0 and 2
    gets permits: 0 must be delivered first."""
    async with on_stage(KEY_SHARED, cold=True) as stage:
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


async def test_a_read_that_was_under_way_when_the_cursor_was_rewound_is_dropped() -> None:
    async with on_stage(SHARED, cold=True) as stage:
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


async def test_a_read_that_comes_after_its_entries_were_acknowledged_does_not_move_the_cursor_back() -> None:
    async with on_stage(SHARED, cold=True, read_batch_entries_max=5) as stage:
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


async def test_what_a_consumer_held_is_delivered_again_with_a_count_and_acks_of_others_count() -> None:
    async with on_stage(SHARED) as stage:
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


async def test_a_consumer_with_too_much_unacknowledged_gets_more_at_half_of_the_limit() -> None:
    async with on_stage(SHARED, unacked_messages_per_consumer_max=4) as stage:
        consumer = stage.join(permits=4)
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


async def test_a_subscription_with_too_much_unacknowledged_goes_on_at_half_of_the_limit() -> None:
    async with on_stage(SHARED, unacked_messages_per_subscription_max=4) as stage:
        first, second = stage.join(), stage.join()
        stage.subscription.flow(first, 4)
        positions = stage.publish(*[b"%d" % number for number in range(10)])
        assert len(delivered(first)) == 4
        stage.subscription.flow(second, 100)
        assert delivered(second) == []
        stage.subscription.ack_individual(first, positions[:2], [])
        stage.subscription.pump()
        assert len(delivered(second)) == 6


async def test_permits_are_those_of_messages_still_wanted_of_a_batch() -> None:
    async def test(stage: Stage) -> None:
        consumer = stage.join()
        [batch] = stage.publish(b"batch", num_messages_in_batch=10)
        stage.subscription.ack_individual(consumer, [], [(batch, (0b11,))])
        stage.publish(b"next")
        stage.subscription.flow(consumer, 3)
        assert delivered(consumer) == [b"batch", b"next"]
        assert stage.subscription.permits_of(consumer) == 0

    for kind in (SHARED, KEY_SHARED):
        async with on_stage(kind) as stage:
            await test(stage)


async def test_a_dead_or_full_connection_is_passed_over() -> None:
    async with on_stage(SHARED) as stage:
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


async def test_new_entries_are_not_read_without_end_while_their_keys_are_blocked() -> None:
    async with on_stage(
        KEY_SHARED,
        key_shared_lookahead_per_consumer=10,
        key_shared_lookahead_per_subscription=20,
        read_batch_entries_max=10,
    ) as stage:
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


@pytest.mark.parametrize("cold", [False, True])
async def test_a_chunk_waits_for_the_consumer_of_the_first_ones_and_holds_up_nothing_else(cold: bool) -> None:
    async with on_stage(SHARED, cold=cold) as stage:

        async def read() -> None:
            for _ in range(20):
                await trio.testing.wait_all_tasks_blocked()
                for held in stage.log.reads:
                    held.arrived.set()

        first, second = stage.join(), stage.join()
        stage.subscription.flow(first, 1)
        chunks(stage, "m", 3, 0)
        await read()
        assert delivered(first) == [b"m-0"]
        stage.subscription.flow(second, 100)
        chunks(stage, "m", 3, 1, 2)
        stage.publish(b"x", b"y")
        await read()
        assert delivered(second) == [b"x", b"y"]
        stage.subscription.flow(first, 1)
        await read()
        assert delivered(first) == [b"m-1"]
        stage.subscription.flow(first, 10)
        await read()
        assert delivered(first) == [b"m-2"]
        assert stage.subscription.cursor.backlog() == 5


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


async def test_redelivered_chunks_go_to_one_consumer_in_order() -> None:
    async with on_stage(SHARED, round_robin_batch_max=1) as stage:
        one, two = stage.join(), stage.join()
        stage.subscription.flow(one, 3)
        whole = chunks(stage, "m", 3)
        assert delivered(one) == whole
        stage.subscription.flow(one, 100)
        stage.subscription.flow(two, 100)
        stage.subscription.redeliver(one, [])
        stage.subscription.pump()
        assert sorted([delivered(one), delivered(two)]) == [[], whole]
        assert len(stage.subscription._replay) == 0


async def test_acks_of_part_of_a_batch_count_down_what_is_held() -> None:
    """Otherwise a consumer that is processing a part of each batch is blocked permanently."""

    async def test(stage: Stage) -> None:
        subscription = stage.subscription
        consumer = stage.join()
        other = stage.join() if subscription.kind == SHARED else consumer  # its acks count as well
        subscription.flow(consumer, 50)
        positions = stage.publish(*[b"batch"] * 10, num_messages_in_batch=10)
        assert len(delivered(consumer)) == 5
        subscription.flow(consumer, 50)
        assert subscription.unacked_of(consumer) == 50
        assert consumer.blocked
        for number, position in enumerate(positions[:5]):
            subscription.ack_individual(other if number else consumer, [], [(position, (1 << 9,))])
            subscription.ack_individual(consumer, [], [(position, (-1,))])
        assert (subscription.unacked_of(consumer), subscription._unacked) == (5, 5)
        subscription.pump()
        assert len(delivered(consumer)) == 5
        assert subscription._unacked == 55
        for position in positions:
            subscription.ack_individual(consumer, [], [(position, (0,))])
        assert (subscription.unacked_of(consumer), subscription._unacked) == (0, 0)

    for kind in (SHARED, KEY_SHARED):
        async with on_stage(kind, unacked_messages_per_consumer_max=50) as stage:
            await test(stage)


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


@pytest.mark.parametrize("cold", [False, True])
async def test_entries_that_were_trimmed_are_not_waited_for(cold: bool) -> None:
    """Only a non-durable subscription can lose its entries."""

    async def test(stage: Stage) -> None:
        async def read() -> None:
            for _ in range(10):
                await trio.testing.wait_all_tasks_blocked()
                for held in stage.log.reads:
                    held.arrived.set()

        subscription = stage.subscription
        consumer = stage.join()
        subscription.flow(consumer, 5)
        stage.publish(*[b"%d" % number for number in range(5)])
        await read()
        assert len(delivered(consumer)) == 5
        subscription.redeliver(consumer, [])
        stage.log.trimmed = 3
        subscription.cursor.skip_to(Position(LEDGER, 2))
        subscription.flow(consumer, 100)
        stage.publish(b"new")
        await read()
        assert delivered(consumer) == [b"3", b"4", b"new"]
        assert len(stage.log.reads) < 10

    for kind in (SHARED, KEY_SHARED):
        async with on_stage(kind, cold=cold) as stage:
            await test(stage)


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


async def test_consumers_of_a_lower_priority_get_what_those_of_a_higher_one_have_no_permits_for() -> None:
    async with on_stage(SHARED) as stage:
        low, first, second = stage.join("low", priority=1), stage.join("a"), stage.join("b")
        for consumer, permits in ((low, 100), (first, 3), (second, 3)):
            stage.subscription.flow(consumer, permits)
        stage.publish(*[b"%d" % number for number in range(10)])
        assert [len(delivered(each)) for each in (first, second, low)] == [3, 3, 4]
        stage.subscription.flow(second, 100)
        stage.publish(b"10", b"11")
        assert [len(delivered(each)) for each in (first, second, low)] == [0, 2, 0]

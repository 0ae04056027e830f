"""Delayed messages of Shared and Key_Shared over a log whose reads the test holds, under a clock that jumps."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from broker.dispatch.delayed import delays as delays_module
from quire.ledger.position import EARLIEST, Position
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.unit.broker.fakes import LEDGER, counts, delivered, finish, in_s, on_stage

SHARED = pb.CommandSubscribe.Shared
KEY_SHARED = pb.CommandSubscribe.Key_Shared
EXCLUSIVE = pb.CommandSubscribe.Exclusive
FAILOVER = pb.CommandSubscribe.Failover

both = pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])


@both
async def test_a_message_is_delivered_when_it_is_due_and_not_before(kind: pb.CommandSubscribe.SubType) -> None:
    async with on_stage(kind) as stage:
        consumer = stage.join()
        stage.subscription.flow(consumer, 100)
        stage.publish(b"later", **in_s(30))
        stage.publish(b"now")
        assert delivered(consumer) == [b"now"]
        assert stage.subscription.delayed == 1
        await trio.sleep(28.9)
        assert delivered(consumer) == []
        await trio.sleep(2.2)
        assert delivered(consumer) == [b"later"]
        assert stage.subscription.delayed == 0
        assert stage.subscription.unacked_of(consumer) == 2


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER])
async def test_exclusive_and_failover_deliver_at_once(kind: pb.CommandSubscribe.SubType) -> None:
    async with on_stage(kind) as stage:
        consumer = stage.join()
        stage.subscription.flow(consumer, 100)
        stage.publish(b"later", **in_s(30))
        assert delivered(consumer) == [b"later"]
        assert stage.subscription.delayed == 0


async def test_a_batch_is_delayed_as_a_whole() -> None:
    async with on_stage(SHARED) as stage:
        consumer = stage.join()
        stage.subscription.flow(consumer, 100)
        stage.publish(b"batch", num_messages_in_batch=3, **in_s(5))
        assert delivered(consumer) == []
        await trio.sleep(6.1)
        assert delivered(consumer) == [b"batch"]
        assert stage.subscription.unacked_of(consumer) == 3


async def test_messages_come_in_the_order_of_their_times() -> None:
    async with on_stage(SHARED) as stage:
        consumer = stage.join()
        stage.subscription.flow(consumer, 100)
        for seconds in (9, 3, 6, 12):
            stage.publish(b"%d" % seconds, **in_s(seconds))
        found = []
        for _ in range(14):
            await trio.sleep(1)
            found.append(delivered(consumer))
        assert [each for each in found if each] == [[b"3"], [b"6"], [b"9"], [b"12"]]


async def test_one_that_is_due_sooner_than_the_one_waited_for_is_in_time() -> None:
    async with on_stage(SHARED) as stage:
        consumer = stage.join()
        stage.subscription.flow(consumer, 100)
        stage.publish(b"60", **in_s(60))
        await trio.sleep(1)
        stage.publish(b"3", **in_s(3))
        await trio.sleep(4.1)
        assert delivered(consumer) == [b"3"]


async def test_without_strictness_a_message_may_be_early_by_a_tick_and_with_it_never_is() -> None:
    for strict, early in ((False, [b"soon"]), (True, [])):
        async with on_stage(SHARED, delayed_strict=strict) as stage:
            consumer = stage.join()
            stage.subscription.flow(consumer, 100)
            stage.publish(b"soon", **in_s(0.9))
            assert delivered(consumer) == early
            await trio.sleep(2)
            assert delivered(consumer) == [b"soon"][len(early) :]


async def test_the_tick_of_the_policy_counts() -> None:
    async with on_stage(SHARED, delayed_tick_ms=20_000) as stage:
        consumer = stage.join()
        stage.subscription.flow(consumer, 100)
        stage.publish(b"soon", **in_s(19))
        assert delivered(consumer) == [b"soon"]


async def test_nothing_waits_where_delayed_delivery_is_off() -> None:
    async with on_stage(SHARED, delayed_delivery=False) as stage:
        consumer = stage.join()
        stage.subscription.flow(consumer, 100)
        stage.publish(b"later", **in_s(30))
        assert delivered(consumer) == [b"later"]


async def test_what_waits_is_delivered_when_delayed_delivery_is_switched_off() -> None:
    async with on_stage(SHARED) as stage:
        consumer = stage.join()
        stage.subscription.flow(consumer, 100)
        stage.publish(b"later", **in_s(3600))
        assert delivered(consumer) == []
        stage.delayed_delivery = stage.delayed_delivery._replace(active=False)
        await trio.sleep(delays_module.SLEEP_MAX_S + 1)
        assert delivered(consumer) == [b"later"]


@both
async def test_any_number_of_delayed_messages_does_not_keep_what_is_due_behind_them(
    kind: pb.CommandSubscribe.SubType,
) -> None:
    async with on_stage(kind) as stage:
        count = 30_000  # above the look-ahead, and above all bounds of unacknowledged messages of one read
        stage.publish(*[b"later"] * count, **in_s(3600))
        stage.publish(b"now")
        consumer = stage.join()
        stage.subscription.flow(consumer, 1)
        assert delivered(consumer) == [b"now"]
        assert stage.subscription.delayed == count
        assert stage.log.cached < 1.2 * count, "each is read once"
        assert stage.log.cache_reads < count / 100, "they are not read one by one, though there is one permit"


@both
async def test_reading_through_delayed_messages_leaves_the_loop_to_others_in_between(
    kind: pb.CommandSubscribe.SubType,
) -> None:
    async with on_stage(kind) as stage:
        stage.publish(*[b"later"] * 5000, **in_s(3600))
        consumer = stage.join()
        turn = stage.turn
        turn.flush()
        stage.subscription.flow(consumer, 1000)
        steps = 0
        while turn.busy:
            before = stage.subscription.delayed
            turn.step()
            steps += 1
            assert stage.subscription.delayed - before <= 300, "putting one aside takes about 15 us"
        assert stage.subscription.delayed == 5000
        assert steps >= 16


async def test_due_messages_wait_for_permits_and_each_takes_one() -> None:
    async with on_stage(SHARED) as stage:
        consumer = stage.join()
        stage.subscription.flow(consumer, 2)
        stage.publish(b"0", b"1", b"2", b"3", **in_s(5))
        await trio.sleep(7)
        assert delivered(consumer) == [b"0", b"1"]
        await trio.sleep(30)
        assert delivered(consumer) == []
        stage.subscription.flow(consumer, 10)
        assert delivered(consumer) == [b"2", b"3"]
        assert stage.subscription.permits_of(consumer) == 8


async def test_a_delivered_one_that_is_requested_again_comes_at_once_and_counts_as_the_second_time() -> None:
    async with on_stage(SHARED) as stage:
        consumer = stage.join()
        stage.subscription.flow(consumer, 10)
        stage.publish(b"0", **in_s(5))
        await trio.sleep(7)
        assert counts(consumer) == [(b"0", 0)]
        stage.subscription.redeliver(consumer, [])
        stage.subscription.pump()
        assert counts(consumer) == [(b"0", 1)]


@both
async def test_what_waits_is_not_read_again_for_the_next_first_consumer(kind: pb.CommandSubscribe.SubType) -> None:
    async with on_stage(kind) as stage:
        first = stage.join("a")
        stage.subscription.flow(first, 10)
        stage.publish(*[b"later"] * 500, **in_s(60))
        stage.publish(b"now")
        assert delivered(first) == [b"now"]
        stage.subscription.remove_consumer(first)
        await trio.sleep(70)
        assert stage.subscription.delayed == 500, "the task sleeps without consumers"
        stage.log.cached = 0
        second = stage.join("b")
        assert stage.log.cached == 0
        stage.subscription.flow(second, 600)
        assert delivered(second).count(b"later") == 500
        assert stage.subscription.delayed == 0


async def test_a_new_first_consumer_passes_over_what_waits() -> None:
    async with on_stage(SHARED) as stage:
        first = stage.join("a")
        stage.subscription.flow(first, 10)
        stage.publish(*[b"later"] * 500, **in_s(60))
        stage.publish(b"now")
        assert delivered(first) == [b"now"]
        stage.subscription.remove_consumer(first)
        stage.log.cached = 0
        second = stage.join("b")
        stage.subscription.flow(second, 600)
        assert delivered(second) == [b"now"]
        assert stage.log.cached == 1
        await trio.sleep(70)
        assert delivered(second) == [b"later"] * 500


async def test_a_consumer_that_leaves_with_due_ones_gives_them_to_the_next() -> None:
    async with on_stage(SHARED) as stage:
        first = stage.join("a")
        stage.subscription.flow(first, 10)
        stage.publish(b"0", b"1", **in_s(5))
        await trio.sleep(7)
        assert delivered(first) == [b"0", b"1"]
        stage.subscription.remove_consumer(first)
        second = stage.join("b")
        stage.subscription.flow(second, 10)
        assert delivered(second) == [b"0", b"1"]


async def test_a_rewind_delivers_nothing_twice() -> None:
    async with on_stage(SHARED) as stage:
        consumer = stage.join()
        stage.subscription.flow(consumer, 100)
        stage.publish(b"0", b"1", **in_s(5))
        stage.publish(b"2")
        assert delivered(consumer) == [b"2"]
        stage.subscription.remove_consumer(consumer)
        again = stage.join()
        stage.subscription.flow(again, 100)
        assert delivered(again) == [b"2"]
        await trio.sleep(7)
        assert delivered(again) == [b"0", b"1"]
        await trio.sleep(60)
        assert delivered(again) == []


async def test_a_seek_back_delays_again_what_is_not_due() -> None:
    async with on_stage(SHARED) as stage:
        consumer = stage.join()
        stage.subscription.flow(consumer, 100)
        stage.publish(b"soon", **in_s(5))
        stage.publish(b"late", **in_s(50))
        await trio.sleep(7)
        assert delivered(consumer) == [b"soon"]
        await stage.subscription.seek(EARLIEST)
        assert stage.subscription.delayed == 0
        again = stage.join()
        stage.subscription.flow(again, 100)
        assert delivered(again) == [b"soon"]
        assert stage.subscription.delayed == 1
        await trio.sleep(50)
        assert delivered(again) == [b"late"]


async def test_a_seek_to_the_end_leaves_nothing_waiting() -> None:
    async with on_stage(SHARED) as stage:
        consumer = stage.join()
        stage.subscription.flow(consumer, 100)
        stage.publish(b"0", **in_s(5))
        await stage.subscription.seek(Position(LEDGER, 1))
        again = stage.join()
        stage.subscription.flow(again, 100)
        await trio.sleep(10)
        assert delivered(again) == []
        assert stage.subscription.delayed == 0


@pytest.mark.parametrize("how", ["skip", "ack"])
async def test_what_is_acknowledged_before_its_time_is_not_delivered(how: str) -> None:
    async with on_stage(SHARED) as stage:
        consumer = stage.join()
        stage.subscription.flow(consumer, 100)
        positions = stage.publish(b"0", b"1", b"2", **in_s(5))
        if how == "skip":
            stage.subscription.cursor.skip_all()
            assert stage.subscription.delayed == 0
        else:
            stage.subscription.ack_individual(consumer, positions[1:], [])
            assert stage.subscription.cursor.mark_delete == Position(LEDGER, -1)
        await trio.sleep(10)
        assert delivered(consumer) == ([] if how == "skip" else [b"0"])


@pytest.mark.parametrize("how", ["stop", "last consumer"])
async def test_a_stopped_subscription_and_one_without_consumers_wake_no_more(how: str) -> None:
    async with on_stage(SHARED) as stage:
        nursery = stage.subscription.topic.nursery
        consumer = stage.join()
        stage.subscription.flow(consumer, 100)
        stage.publish(b"0", **in_s(5))
        await trio.testing.wait_all_tasks_blocked()
        assert [task.name for task in nursery.child_tasks] == [
            "delayed messages of persistent://public/default/orders s"
        ]
        if how == "stop":
            stage.subscription.stop()
        else:
            stage.subscription.remove_consumer(consumer)
        await trio.sleep(10)
        assert delivered(consumer) == []
        assert not nursery.child_tasks


async def test_entries_stored_before_the_topic_was_loaded_wait_too() -> None:
    async with on_stage(SHARED, stored=True) as stage:
        stage.publish(b"later", **in_s(5))
        stage.publish(b"now")
        stage.screen.features = 0
        consumer = stage.join()
        stage.subscription.flow(consumer, 100)
        assert delivered(consumer) == [b"now"]
        await trio.sleep(7)
        assert delivered(consumer) == [b"later"]


async def test_chunks_with_a_delivery_time_stay_with_one_consumer() -> None:
    async with on_stage(SHARED) as stage:
        consumers = [stage.join("a"), stage.join("b")]
        for consumer in consumers:
            stage.subscription.flow(consumer, 100)
        times = in_s(5)
        for uuid in ("x", "y"):
            for number in range(4):
                payload = uuid.encode() + b"%d" % number
                stage.publish(payload, uuid=uuid, num_chunks_from_msg=4, chunk_id=number, **times)
        await trio.sleep(7)
        found = [delivered(consumer) for consumer in consumers]
        assert sorted(each for got in found for each in got) == [b"x0", b"x1", b"x2", b"x3", b"y0", b"y1", b"y2", b"y3"]
        for first in (b"x", b"y"):
            holders = [got for got in found if any(each.startswith(first) for each in got)]
            assert len(holders) == 1
            assert [each for each in holders[0] if each.startswith(first)] == [first + b"%d" % n for n in range(4)]


async def test_key_shared_delivers_due_messages_of_a_key_to_its_consumer() -> None:
    async with on_stage(KEY_SHARED) as stage:
        consumers = [stage.join(name) for name in ("a", "b", "c")]
        for consumer in consumers:
            stage.subscription.flow(consumer, 100)
        times = in_s(5)
        for number in range(120):
            stage.publish(b"%d" % (number % 12), partition_key=f"k{number % 12}", **(times if number >= 12 else {}))
        at_once = [set(delivered(consumer)) for consumer in consumers]
        assert sum(map(len, at_once)) == 12
        assert all(at_once)
        stage.subscription.ack_individual(consumers[0], [Position(LEDGER, number) for number in range(12)], [])
        await trio.sleep(7)
        found = [delivered(consumer) for consumer in consumers]
        assert sum(map(len, found)) == 108
        assert [set(got) for got in found] == at_once


async def test_due_chunks_whose_consumer_has_no_permits_do_not_keep_others_waiting() -> None:
    async with on_stage(SHARED) as stage:
        first, second = stage.join("a"), stage.join("b")
        stage.subscription.flow(first, 2)
        times = in_s(5)
        for number in range(4):
            stage.publish(b"x%d" % number, uuid="x", num_chunks_from_msg=4, chunk_id=number, **times)
        await trio.sleep(7)
        assert delivered(first) == [b"x0", b"x1"]
        stage.subscription.flow(second, 100)
        stage.publish(b"now")
        stage.publish(b"z", **in_s(5))
        await trio.sleep(7)
        assert delivered(second) == [b"now", b"z"]
        stage.subscription.flow(first, 10)
        assert delivered(first) == [b"x2", b"x3"]


async def test_a_hundred_thousand_delayed_among_others_leave_a_bounded_state() -> None:
    """Every tenth of 200,000 is delayed, and the others are acknowledged: that is stored as ranges."""
    async with on_stage(SHARED) as stage:
        consumer = stage.join()
        delayed = in_s(3600)
        for number in range(20_000):
            stage.publish(b"later", **delayed)
            stage.log.add(b"now")
            if number % 200 == 199:
                stage.subscription.flow(consumer, 200)
                finish(stage.turn)
                stage.subscription.pump()
                at = stage.log.last_confirmed.entry_id
                now = [Position(LEDGER, each) for each in range(at - 399, at + 1) if each % 2]
                assert delivered(consumer) == [b"now"] * 200
                stage.subscription.ack_individual(consumer, now, [])
        assert stage.subscription.delayed == 20_000 == stage.subscription.backlog
        assert stage.subscription.delayed_index_bytes < 20_000 * 62 + 40 * 640
        assert stage.subscription.cursor._state.ranges.partial_chunks == 40
        assert stage.subscription.unacked_of(consumer) == 0

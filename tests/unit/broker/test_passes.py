"""Bounds of a subscription's work in one pass of the event loop: dispatch, and taking back entries of removed
consumers."""

from __future__ import annotations

from itertools import chain, pairwise
from typing import Any

import pytest
from trio.testing import wait_all_tasks_blocked

from broker.dispatch.consumer import Consumer
from broker.dispatch.subscription import Subscription
from broker.dispatch.wanted import ACK_SET_COST
from cursors.errors import InvalidAckError
from quire.ledger.position import Position
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.outbox import PASS_WORK
from tests.unit.broker.fakes import LEDGER, Stage, counts, delivered, finish, on_stage

SHARED = pb.CommandSubscribe.Shared
KEY_SHARED = pb.CommandSubscribe.Key_Shared
ENTRIES = 12_000
NO_LIMIT: dict[str, Any] = {"unacked_messages_per_consumer_max": 0, "unacked_messages_per_subscription_max": 0}


def written(consumer: Consumer[Subscription]) -> int:
    """Return the number of messages that wait in the consumer's connection."""
    connection: Any = consumer.connection
    return sum(frames.count(b"msg#") for frames in connection.frames)


def fill(stage: Stage, count: int = ENTRIES) -> None:
    stage.publish(*[b"msg#%d" % number for number in range(count)], partition_key="k")


def most_per_pass(subscription: Subscription) -> int:
    return PASS_WORK // subscription.entry_cost


@pytest.mark.parametrize("kind", [pb.CommandSubscribe.Exclusive, pb.CommandSubscribe.Failover, SHARED, KEY_SHARED])
async def test_one_flow_with_large_permits_delivers_a_bounded_number_in_a_pass_and_others_come_between(
    kind: pb.CommandSubscribe.SubType,
) -> None:
    async with on_stage(kind, **NO_LIMIT) as stage:
        consumer = stage.join()
        fill(stage)
        stage.turn.flush()
        most = most_per_pass(stage.subscription)
        stage.subscription.flow(consumer, ENTRIES + 1)
        sizes = [written(consumer)]
        others: list[int] = []
        stage.turn.later(lambda: others.append(written(consumer)))
        while stage.turn.busy:
            stage.turn.step()
            sizes.append(written(consumer))
        passes = [after - before for before, after in pairwise([0, *sizes])]
        assert most // 2 < max(passes) <= most
        assert others == [sizes[1]], "what was put off later waits for one pass, not for all"
        assert delivered(consumer) == [b"msg#%d" % number for number in range(ENTRIES)]
        assert stage.subscription.hungry, "it has found the end"


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("kind", [pb.CommandSubscribe.Exclusive, SHARED, KEY_SHARED])
async def test_half_acknowledged_batches_cost_a_pass_more_than_whole_ones(
    kind: pb.CommandSubscribe.SubType, cold: bool
) -> None:
    """Cold: from the bookies. What one read returns is delivered in one step, so it is smaller."""
    async with on_stage(kind, cold=cold, **NO_LIMIT) as stage:
        count = 3000
        stage.publish(*[b"msg#%d" % number for number in range(count)], num_messages_in_batch=2)
        for number in range(count):
            stage.subscription.cursor.ack_batch(Position(LEDGER, number), (2,))
        consumer = stage.join()
        stage.turn.flush()
        stage.subscription.flow(consumer, count + 1)
        sizes = [0, written(consumer)]
        while sizes[-1] < count:
            if cold:
                await wait_all_tasks_blocked()
                stage.log.reads.pop().arrived.set()
                await wait_all_tasks_blocked()
            elif stage.turn.busy:
                stage.turn.step()
            sizes.append(written(consumer))
        most = PASS_WORK // (stage.subscription.entry_cost + ACK_SET_COST)
        assert most // 2 < max(after - before for before, after in pairwise(sizes)) <= most


async def test_the_passes_of_many_subscriptions_share_one_bound() -> None:
    """A confirmed group of entries starts the pumps of all subscriptions of its topic."""
    async with on_stage(pb.CommandSubscribe.Exclusive) as stage:
        consumer = stage.join()
        fill(stage, 2000)
        stage.turn.flush()
        stage.turn.left = 100
        stage.subscription.flow(consumer, 2000)
        assert 0 < written(consumer) <= 100
        finish(stage.turn)
        assert written(consumer) == 2000


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
async def test_what_a_consumer_held_that_is_gone_is_taken_back_in_steps_and_nothing_overtakes_it(
    kind: pb.CommandSubscribe.SubType,
) -> None:
    async with on_stage(kind, **NO_LIMIT) as stage:
        gone = stage.join("gone")
        fill(stage)
        stage.subscription.flow(gone, ENTRIES)
        assert len(delivered(gone)) == ENTRIES
        stays = stage.join("stays")
        stage.publish(b"msg#new", partition_key="k")
        stage.turn.flush()
        before = stage.subscription.cursor.read_position
        stage.subscription.remove_consumer(gone)
        replay, most = stage.subscription._replay, most_per_pass(stage.subscription)
        assert 0 < len(replay) <= most
        stage.subscription.flow(stays, ENTRIES + 10)
        sizes = [len(replay)]
        acked = [Position(LEDGER, 3), Position(LEDGER, ENTRIES - 1)]
        stage.subscription.ack_individual(stays, acked, [])
        while len(replay) < ENTRIES - 2:
            assert written(stays) == 0
            assert stage.subscription.cursor.read_position == before
            stage.turn.step()
            sizes.append(len(replay))
            if written(stays):
                break
        assert max(after - earlier for earlier, after in pairwise(sizes)) <= most
        got = counts(stays)
        expected = [(b"msg#%d" % number, 1) for number in range(ENTRIES) if number not in (3, ENTRIES - 1)]
        assert got == [*expected, (b"msg#new", 0)]
        assert stage.subscription._unacked == stage.subscription.unacked_of(stays) == ENTRIES - 1


async def test_many_keys_that_wait_are_given_to_new_owners_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    async with on_stage(KEY_SHARED, **NO_LIMIT) as stage:
        first = stage.join("first")
        for number in range(3000):
            stage.publish(b"msg#%d" % number, partition_key=f"k{number}")
        stage.subscription.flow(first, 3000)
        assert len(delivered(first)) == 3000
        stage.subscription.redeliver(first, [])
        replay: Any = stage.subscription._replay
        asked: list[int] = []
        group_of = replay._group_of

        def asking(key_hash: int) -> Any:
            asked.append(key_hash)
            return group_of(key_hash)

        monkeypatch.setattr(replay, "_group_of", asking)
        second = stage.join("second")
        finish(stage.turn)
        stage.turn.flush()
        del asked[:]
        third = stage.join("third")
        assert 0 < len(asked) <= 2 * most_per_pass(stage.subscription)
        for consumer in (first, second, third):
            stage.subscription.flow(consumer, 3000)
        got = [delivered(consumer) for consumer in (first, second, third)]
        assert sorted(chain(*got)) == sorted(b"msg#%d" % number for number in range(3000))
        assert all(got)


async def test_a_read_that_comes_while_entries_are_taken_back_overtakes_nothing() -> None:
    async with on_stage(SHARED) as stage:
        gone, stays = stage.join("gone"), stage.join("stays")
        fill(stage, 3000)
        stage.subscription.flow(gone, 3000)
        finish(stage.turn)
        run = stage.log.read_cached(Position(LEDGER, 2990), 10, 1 << 20)
        stage.turn.left = 0
        stage.subscription.remove_consumer(gone)
        stage.subscription.flow(stays, 3000)
        stage.turn.left = 40
        stage.subscription._read_done(run, False)
        assert written(stays) == 0
        assert delivered(stays) == [b"msg#%d" % number for number in range(3000)]


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
async def test_an_ack_set_longer_than_its_batch_is_refused_and_stored_nowhere(
    kind: pb.CommandSubscribe.SubType,
) -> None:
    async with on_stage(kind) as stage:
        consumer, other = stage.join(), stage.join()
        positions = stage.publish(b"0", b"1", b"2", num_messages_in_batch=10, partition_key="k")
        for each in (consumer, other):
            stage.subscription.flow(each, 30)
        held = stage.subscription.unacked_of(consumer) + stage.subscription.unacked_of(other)
        assert held == 30
        subscription, cursor = stage.subscription, stage.subscription.cursor
        for words in ((-1,), (1 << 10,), (0, 1), (1,) * 1024):
            with pytest.raises(InvalidAckError, match="behind the end of the batch"):
                subscription.ack_individual(consumer, [], [(positions[0], words)])
        assert not cursor.has_ack_sets
        with pytest.raises(InvalidAckError):
            subscription.ack_individual(other, [positions[2]], [(positions[1], (0x1F,)), (positions[0], (0, 0, 4))])
        assert cursor.is_acked(positions[2])
        assert [cursor.ack_set(position) for position in positions[:2]] == [None, [0x1F]]
        subscription.ack_individual(consumer, [], [(positions[0], (0x3FE, 0, 0))])
        assert cursor.ack_set(positions[0]) == [0x3FE]
        assert subscription._unacked == 9 + 5

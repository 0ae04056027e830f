"""Cursors moved by operators, over a whole broker in virtual time."""

from __future__ import annotations

import pytest

from broker.dispatch import moving
from broker.dispatch.many_consumers import ManyConsumers
from broker.dispatch.subscription import Subscription
from broker.errors import NothingExpiredError, ServiceNotReadyError, SubscriptionBusyError
from cursors.errors import CursorPersistError
from quire.ledger.position import EARLIEST, Position
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.pulsar_frames import C
from tests.support.refusals import raises
from tests.support.waiting import until
from tests.unit.broker.peers import Peer, Room

KINDS = [pb.CommandSubscribe.Exclusive, pb.CommandSubscribe.Shared, pb.CommandSubscribe.Key_Shared]


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [b"m%d" % number for number in range(first, first + count)]


async def subscribed(room: Room, kind: int, count: int) -> tuple[Peer, Subscription, list[Position]]:
    peer = await room.connect()
    await peer.subscribe(subType=kind)
    await peer.producer()
    ids = await peer.publish(*numbers(count))
    return peer, (await room.topic()).subscriptions["s"], [Position(each.ledgerId, each.entryId) for each in ids]


@pytest.mark.parametrize("kind", KINDS)
async def test_delivery_goes_on_behind_what_was_skipped(kind: int, room: Room) -> None:
    peer, subscription, _ = await subscribed(room, kind, 10)
    peer.flow(2)
    assert await peer.payloads(2) == numbers(2)
    await moving.skip(subscription, 5)
    peer.flow(10)
    assert await peer.payloads(5) == numbers(5, 5)
    assert subscription.cursor.backlog() == 5
    assert sum(map(subscription.unacked_of, subscription.consumers)) in (0, 5)


async def test_what_waits_to_be_delivered_again_is_forgotten_when_it_is_skipped(room: Room) -> None:
    peer, subscription, _ = await subscribed(room, pb.CommandSubscribe.Shared, 10)
    peer.flow(6)
    await peer.payloads(6)
    peer.redeliver()
    assert isinstance(subscription, ManyConsumers)
    await until(lambda: subscription.waiting_again == 6)
    await moving.skip_all(subscription)
    assert subscription.waiting_again == 0
    peer.flow(100)
    assert await peer.silent()
    await peer.publish(b"new", first=10)
    assert await peer.payloads(1) == [b"new"]


async def test_thousands_of_held_messages_are_released_in_steps(room: Room) -> None:
    peer, subscription, _ = await subscribed(room, pb.CommandSubscribe.Shared, 2500)
    peer.flow(2500)
    await peer.payloads(2500)
    steps = sum(1 for _ in subscription.release_acked())
    assert steps == 2
    await moving.skip(subscription, 2400)
    [consumer] = subscription.consumers
    assert subscription.unacked_of(consumer) == 100


async def test_a_position_that_cannot_be_stored_is_reported(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    _, subscription, _ = await subscribed(room, pb.CommandSubscribe.Exclusive, 3)

    async def fails() -> None:
        raise CursorPersistError("no bookies")

    monkeypatch.setattr(type(subscription.cursor), "wait_persisted", lambda cursor: fails())
    await raises(ServiceNotReadyError, moving.skip(subscription, 1), match="no bookies")


async def test_a_move_during_a_reset_is_refused(room: Room) -> None:
    _, subscription, ids = await subscribed(room, pb.CommandSubscribe.Exclusive, 3)
    subscription.seeking = True
    for move in (
        moving.skip_all,
        lambda it: moving.skip(it, 1),
        lambda it: moving.reset(it, EARLIEST),
        lambda it: moving.expire_to(it, ids[1]),
    ):
        await raises(SubscriptionBusyError, move(subscription))


async def test_one_expiry_of_a_subscription_at_a_time(room: Room) -> None:
    _, subscription, ids = await subscribed(room, pb.CommandSubscribe.Exclusive, 3)
    subscription.expiry.running = True
    for expire in (moving.expire_older(subscription, 0), moving.expire_to(subscription, ids[0])):
        await raises(NothingExpiredError, expire)


@pytest.mark.broker(log={"entries_max": 3})
async def test_messages_expire_up_to_a_position_or_the_last_one_before_it(room: Room) -> None:
    _, subscription, ids = await subscribed(room, pb.CommandSubscribe.Exclusive, 9)
    await moving.expire_to(subscription, ids[1])
    assert subscription.cursor.mark_delete == ids[1]
    await moving.expire_to(subscription, Position(ids[3].ledger_id, -1))
    assert subscription.cursor.mark_delete == ids[2]
    await moving.expire_to(subscription, ids[0])
    assert subscription.cursor.mark_delete == ids[2], "nothing moves back"
    assert subscription.expiry.expired == 3


@pytest.mark.parametrize(
    ("batch_index", "excluded", "first"), [(-1, False, 0), (0, True, 1), (2, False, 2), (2, True, 3)]
)
async def test_a_reset_into_a_batch_delivers_the_rest_of_it(
    batch_index: int, excluded: bool, first: int, room: Room
) -> None:
    peer, subscription, _ = await subscribed(room, pb.CommandSubscribe.Exclusive, 0)
    peer.send_message(b"batch", 0, num_messages_in_batch=4)
    found = (await peer.expect(C.SEND_RECEIPT)).send_receipt.message_id
    await peer.publish(b"next", first=4)
    place = Position(found.ledgerId, found.entryId)
    await moving.skip_all(subscription)
    await moving.reset(subscription, place, batch_index=batch_index, excluded=excluded)
    await peer.expect(C.CLOSE_CONSUMER)
    await peer.subscribe(permits=1)
    message, payload = await peer.message()
    assert payload == b"batch"
    wanted = sum(1 << index for index in range(first, 4))
    assert list(message.ack_set) == ([wanted] if first else [])


async def test_a_reset_behind_a_whole_batch_delivers_the_next_entry(room: Room) -> None:
    peer, subscription, _ = await subscribed(room, pb.CommandSubscribe.Exclusive, 0)
    peer.send_message(b"batch", 0, num_messages_in_batch=4)
    found = (await peer.expect(C.SEND_RECEIPT)).send_receipt.message_id
    await peer.publish(b"next", first=4)
    for batch_index in (3, -1):
        place = Position(found.ledgerId, found.entryId)
        await moving.reset(subscription, place, batch_index=batch_index, excluded=True)
        await peer.expect(C.CLOSE_CONSUMER)
        await peer.subscribe(permits=1)
        assert await peer.payloads(1) == [b"next"]


@pytest.mark.parametrize("move", ["skip", "skip_all", "expire"])
async def test_delayed_messages_that_are_passed_over_leave_the_index_at_once(move: str, room: Room) -> None:
    peer, subscription, _ = await subscribed(room, pb.CommandSubscribe.Shared, 0)
    due_ms = room.broker.context.world.clock.wall_ms() + 3_600_000
    ids = await peer.publish(*numbers(3000), deliver_at_time=due_ms)
    peer.flow(1)
    assert isinstance(subscription, ManyConsumers)
    await until(lambda: subscription.delayed == 3000)
    assert subscription._delays is not None
    index = subscription._delays._index
    assert index.near_count == 3000
    match move:
        case "skip":
            await moving.skip(subscription, 2900)
        case "skip_all":
            await moving.skip_all(subscription)
        case _:
            await moving.expire_to(subscription, Position(ids[2899].ledgerId, ids[2899].entryId))
    left = 0 if move == "skip_all" else 100
    assert index.near_count == index.count == left


async def test_an_expiry_keeps_the_message_that_it_excludes(room: Room) -> None:
    peer, subscription, ids = await subscribed(room, pb.CommandSubscribe.Exclusive, 10)
    await moving.expire_to(subscription, ids[3], excluded=True)
    assert subscription.cursor.backlog() == 7
    await moving.expire_to(subscription, ids[3])
    assert subscription.cursor.backlog() == 6
    await moving.expire_to(subscription, ids[0], excluded=True)
    peer.flow(10)
    assert await peer.payloads(6) == numbers(6, 4)

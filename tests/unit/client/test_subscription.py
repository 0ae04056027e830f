from __future__ import annotations

import pytest
import trio

from quire.client.client import Client
from quire.client.errors import (
    ClosedError,
    ConsumerBusyError,
    NotAllowedError,
    ServiceUnavailableError,
    TopicNotFoundError,
)
from quire.client.message_id import MessageId
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.pulsar_frames import entry
from tests.unit.client.fake_broker import LEDGER, TOPIC, B, FakeBroker, Session, story

pytestmark = pytest.mark.seeded


async def test_a_new_subscription_begins_at_the_first_entry_or_where_it_is_told_to(
    client: Client, broker: FakeBroker
) -> None:
    broker.append(*[entry()] * 10)
    first = await client.subscription(TOPIC, "first")
    second = await client.subscription(TOPIC, "second", start=MessageId(LEDGER, 4))
    assert await first.mark_delete() == MessageId(LEDGER, -1)
    assert await second.mark_delete() == MessageId(LEDGER, 3)
    assert await second.last_message_id() == MessageId(LEDGER, 9)
    assert broker.of(B.FLOW) == []
    for command in broker.of(B.SUBSCRIBE):
        assert command.subscribe.durable
        assert command.subscribe.subType == pb.CommandSubscribe.Exclusive
        assert command.subscribe.initialPosition == pb.CommandSubscribe.Earliest


async def test_an_acknowledge_covers_everything_up_to_its_entry_and_never_moves_back(
    client: Client, broker: FakeBroker
) -> None:
    broker.append(*[entry()] * 10)
    subscription = await client.subscription(TOPIC, "s")
    await subscription.acknowledge(MessageId(LEDGER, 6))
    await subscription.acknowledge(MessageId(LEDGER, 3))
    assert await subscription.mark_delete() == MessageId(LEDGER, 6)
    [ack] = broker.of(B.ACK)
    assert ack.ack.ack_type == pb.CommandAck.Cumulative


async def test_an_acknowledge_whose_answer_is_lost_is_asked_for_again(client: Client, broker: FakeBroker) -> None:
    broker.append(*[entry()] * 10)
    subscription = await client.subscription(TOPIC, "s")

    def lose(session: Session, command: pb.BaseCommand, payload: bytes) -> bool:
        del broker.on[B.ACK]
        broker.drop()
        return True

    broker.on[B.ACK] = lose
    await subscription.acknowledge(MessageId(LEDGER, 6))
    assert broker.mark_delete["s"] == 6
    assert len(broker.of(B.ACK)) == 2


async def test_a_consumer_that_the_broker_forgot_subscribes_again(client: Client, broker: FakeBroker) -> None:
    broker.append(*[entry()] * 10)
    subscription = await client.subscription(TOPIC, "s")
    broker.refuse[B.ACK] = [(pb.ConsumerNotFound, "who?")]
    await subscription.acknowledge(MessageId(LEDGER, 6))
    assert len(broker.of(B.SUBSCRIBE)) == 2


async def test_after_a_seek_the_position_is_next_though_it_was_acknowledged(client: Client, broker: FakeBroker) -> None:
    broker.append(*[entry()] * 10)
    subscription = await client.subscription(TOPIC, "s")
    await subscription.acknowledge(MessageId(LEDGER, 6))
    await subscription.seek(MessageId(LEDGER, 2))
    assert await subscription.mark_delete() == MessageId(LEDGER, 1)
    await subscription.acknowledge(MessageId(LEDGER, 5))
    assert await subscription.mark_delete() == MessageId(LEDGER, 5)


async def test_a_subscription_that_another_holds_is_waited_for(client: Client, broker: FakeBroker) -> None:
    broker.refuse[B.SUBSCRIBE] = [(pb.ConsumerBusy, "taken")] * 4
    await client.subscription(TOPIC, "s")


async def test_a_subscription_that_another_keeps_is_an_error_that_says_so() -> None:
    async with story(operation_timeout_s=5) as (client, broker):
        broker.refuse[B.SUBSCRIBE] = [(pb.ConsumerBusy, "taken")] * 400
        begun = trio.current_time()
        with pytest.raises(ConsumerBusyError, match=f"subscription 's' of {TOPIC}.*taken"):
            await client.subscription(TOPIC, "s")
        assert 4.9 < trio.current_time() - begun < 5.1


async def test_a_topic_that_was_deleted_is_not_made_again(client: Client, broker: FakeBroker) -> None:
    subscription = await client.subscription(TOPIC, "s")
    await client.subscription(TOPIC, "other", create_topic=False)
    broker.drop()
    await subscription.mark_delete()
    made = [each.subscribe.force_topic_creation for each in broker.of(B.SUBSCRIBE)]
    assert made == [True, False, False, False] or made == [True, False, False]
    broker.refuse[B.SUBSCRIBE] = [(pb.TopicNotFound, "gone")] * 2
    broker.drop()
    with pytest.raises(TopicNotFoundError):
        await subscription.mark_delete()


async def test_what_the_broker_forbids_is_final_at_once(client: Client, broker: FakeBroker) -> None:
    subscription = await client.subscription(TOPIC, "s")
    broker.refuse[B.SEEK] = [(pb.NotAllowedError, "no seeks here")]
    begun = trio.current_time()
    with pytest.raises(NotAllowedError, match="no seeks here"):
        await subscription.seek(MessageId.EARLIEST)
    assert trio.current_time() - begun < 1


async def test_a_request_without_an_answer_gives_up() -> None:
    async with story(operation_timeout_s=5) as (client, broker):
        subscription = await client.subscription(TOPIC, "s")
        broker.silent.add(B.ACK)
        with pytest.raises(ServiceUnavailableError, match="no answer"):
            await subscription.acknowledge(MessageId(LEDGER, 1))


async def test_unsubscribe_deletes_and_closes(client: Client, broker: FakeBroker) -> None:
    subscription = await client.subscription(TOPIC, "s")
    await subscription.unsubscribe()
    assert broker.mark_delete == {}
    with pytest.raises(ClosedError, match="closed"):
        await subscription.mark_delete()


async def test_close_leaves_the_subscription_where_it_stands(client: Client, broker: FakeBroker) -> None:
    broker.append(*[entry()] * 3)
    subscription = await client.subscription(TOPIC, "s")
    await subscription.acknowledge(MessageId(LEDGER, 1))
    await subscription.close()
    assert broker.consumers == []
    again = await client.subscription(TOPIC, "s", start=MessageId.EARLIEST)
    assert await again.mark_delete() == MessageId(LEDGER, 1)

from __future__ import annotations

import pytest
import trio

from quire.client.client import Client
from quire.client.errors import (
    ClosedError,
    ServerRefusedError,
)
from quire.client.message_id import MessageId
from quire.client.packing import pack
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.metadata import peek
from tests.support.waiting import until
from tests.unit.client.conversation import packed
from tests.unit.client.fake_broker import LEDGER, TOPIC, B, FakeBroker, Session

pytestmark = pytest.mark.seeded


async def test_entries_arrive_in_order_with_consecutive_sequence_ids_under_the_name_the_broker_made(
    client: Client, broker: FakeBroker
) -> None:
    producer = await client.producer(TOPIC)
    assert producer.name == "made-by-broker"
    assert producer.last_ids == MessageId.EARLIEST
    await producer.send(packed(100))
    await producer.send(packed(200, first=100))
    await producer.flush()
    assert producer.pending == 0
    assert producer.last_ids == MessageId(LEDGER, 299)
    assert broker.published == [("made-by-broker", number) for number in range(300)]
    seen = [peek(entry) for entry in broker.entries]
    assert [each.sequence_id for each in seen] == list(range(300))
    assert {each.producer_name for each in seen} == {"made-by-broker"}
    assert all(f"{number}/".encode() in entry for number, entry in enumerate(broker.entries))


async def test_the_number_of_messages_of_a_batch_is_told(client: Client, broker: FakeBroker) -> None:
    producer = await client.producer(TOPIC)
    await producer.send(pack([b"a", b"b", b"c"], [None] * 3, None, None))
    await producer.flush()
    assert [each.send.num_messages for each in broker.of(B.SEND)] == [3]


async def test_no_more_than_the_bound_is_under_way(client: Client, broker: FakeBroker) -> None:
    held: list[tuple[Session, pb.BaseCommand, bytes]] = []

    def hold(session: Session, command: pb.BaseCommand, payload: bytes) -> bool:
        held.append((session, command, payload))
        return True

    broker.on[B.SEND] = hold
    producer = await client.producer(TOPIC, pending_max=10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(producer.send, packed(35))
        await until(lambda: len(held) == 10)
        await trio.sleep(1)
        assert len(held) == 10 == producer.pending
        for each in held[:4]:
            each[0]._send(each[1], each[2])
        await trio.sleep(1)
        assert len(held) == 10  # the producer waits until half of them are answered
        each = held[4]
        each[0]._send(each[1], each[2])
        await until(lambda: len(held) == 15)
        nursery.cancel_scope.cancel()


async def test_no_more_bytes_than_the_bound_are_under_way(client: Client, broker: FakeBroker) -> None:
    broker.silent.add(B.SEND)
    producer = await client.producer(TOPIC, pending_bytes_max=5000)
    with trio.move_on_after(5):
        await producer.send(packed(30, size=1000))
    assert producer.pending == 5


async def test_a_refusal_is_raised_from_then_on(client: Client, broker: FakeBroker) -> None:
    producer = await client.producer(TOPIC)
    broker.refuse[B.SEND] = [(pb.TopicTerminatedError, "it is over")]
    await producer.send(packed(1))
    for call in (producer.flush, lambda: producer.send(packed(1)), producer.flush):
        with pytest.raises(ServerRefusedError, match=r"entry 0 was refused.*it is over") as caught:
            await call()
        assert caught.value.code == pb.TopicTerminatedError


async def test_a_receipt_out_of_order_makes_it_begin_again(client: Client, broker: FakeBroker) -> None:
    producer = await client.producer(TOPIC)

    def skip(session: Session, command: pb.BaseCommand, payload: bytes) -> bool:
        command.send.sequence_id += 1
        del broker.on[B.SEND]
        return False

    broker.on[B.SEND] = skip
    await producer.send(packed(1))
    await producer.flush()
    assert len(broker.of(B.PRODUCER)) == 2
    assert broker.published[-1] == ("made-by-broker", 0)


async def test_a_receipt_for_what_was_answered_before_is_passed_over(client: Client, broker: FakeBroker) -> None:
    producer = await client.producer(TOPIC)
    await producer.send(packed(3))
    await producer.flush()

    def twice(session: Session, command: pb.BaseCommand, payload: bytes) -> bool:
        stale = B(type=B.SEND_RECEIPT)
        stale.send_receipt.producer_id = command.send.producer_id
        stale.send_receipt.sequence_id = 1
        stale.send_receipt.message_id.ledgerId = stale.send_receipt.message_id.entryId = 1
        session.send(stale)
        return False

    broker.on[B.SEND] = twice
    await producer.send(packed(2))
    await producer.flush()
    assert len(broker.of(B.PRODUCER)) == 1
    assert producer.last_ids == MessageId(LEDGER, 4)


async def test_close_tells_the_broker_and_ends_every_wait(client: Client, broker: FakeBroker) -> None:
    producer = await client.producer(TOPIC)
    broker.silent.add(B.SEND)
    await producer.send(packed(1))
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            with pytest.raises(ClosedError, match="closed"):
                await producer.flush()

        nursery.start_soon(wait)
        await trio.sleep(1)
        await producer.close()
    await producer.close()
    assert len(broker.of(B.CLOSE_PRODUCER)) == 1


async def test_sends_of_one_pass_leave_with_one_write(client: Client, broker: FakeBroker) -> None:
    producer = await client.producer(TOPIC)
    lines = broker.universe.trace.lines
    before = len(lines)
    for number in range(50):
        await producer.send(packed(1, first=number))
    assert broker.of(B.SEND) == []
    await producer.flush()
    assert len(broker.published) == 50
    writes = [line for line in lines[before:] if " client Sent " in line]
    assert len(writes) == 1

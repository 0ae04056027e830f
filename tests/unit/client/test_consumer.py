"""quire/client/consumer.py and transactions.py, against the fake broker."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from quire.client.client import Client, ConsumerOptions
from quire.client.errors import NotAllowedError, ServerRefusedError, TopicNotFoundError
from quire.client.packing import pack
from quire.client.receiving import FIRST_PART
from quire.client.transactions import ASSIGN_TOPIC
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.metadata import read_metadata
from tests.support.pulsar_frames import entry
from tests.support.refusals import raises
from tests.support.waiting import until
from tests.unit.client.fake_broker import LEDGER, TOPIC, B, FakeBroker, Session, story

pytestmark = pytest.mark.seeded
ENTRIES = [entry(b"%d" % number, sequence_id=number) for number in range(50)]


async def test_the_options_reach_the_broker(client: Client, broker: FakeBroker) -> None:
    options = ConsumerOptions(type="Key_Shared", durable=False, earliest=True, name="me", replicated=True)
    await client.consumer(TOPIC, "s", options)
    await client.consumer(TOPIC, "s2")
    first, second = (each.subscribe for each in broker.of(B.SUBSCRIBE))
    assert (first.subType, first.durable, first.consumer_name) == (pb.CommandSubscribe.Key_Shared, False, "me")
    assert (first.initialPosition, first.start_message_id.ledgerId) == (pb.CommandSubscribe.Earliest, (1 << 64) - 1)
    assert first.replicate_subscription_state
    assert first.HasField("keySharedMeta")
    assert (second.subType, second.durable) == (pb.CommandSubscribe.Exclusive, True)
    assert (second.initialPosition, second.HasField("start_message_id")) == (pb.CommandSubscribe.Latest, False)


@pytest.mark.parametrize("options", [{"type": "Sharded"}, {"window": 0}])
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"Sharded|window"):
        ConsumerOptions(**options)


async def test_no_more_than_the_window_is_sent_ahead(client: Client, broker: FakeBroker) -> None:
    consumer = await client.consumer(TOPIC, "s", ConsumerOptions(window=10))
    broker.append(*ENTRIES)
    found: list[int] = []
    while len(found) < 50:
        received = await consumer.receive()
        assert len(received) <= 10
        found += received.entry_ids
    assert found == list(range(50))


async def test_large_messages_get_fewer_permits_than_the_window() -> None:
    async with story(receive_bytes_max=100_000) as (client, broker):
        broker.append(*[entry(b"%d" % number + bytes(10_000), sequence_id=number) for number in range(200)])
        consumer = await client.consumer(TOPIC, "s", ConsumerOptions(window=1000))
        taken = len(await consumer.receive())
        while taken < 200:
            await trio.sleep(1)
            taken += len(await consumer.receive())
        first, *others = (each.flow.messagePermits for each in broker.of(B.FLOW))
        assert first == 1000 // FIRST_PART
        assert others
        assert max(others) <= 10


async def test_acknowledgements_name_entries_one_by_one(client: Client, broker: FakeBroker) -> None:
    consumer = await client.consumer(TOPIC, "s")
    broker.append(*ENTRIES)
    await consumer.receive()
    consumer.acknowledge([(LEDGER, number) for number in range(1500)])
    await until(lambda: len(broker.of(B.ACK)) == 2)
    acks = [each.ack for each in broker.of(B.ACK)]
    assert [len(each.message_id) for each in acks] == [1000, 500]
    assert {each.ack_type for each in acks} == {pb.CommandAck.Individual}
    assert not acks[0].HasField("request_id")
    await consumer.confirm([(LEDGER, 3)], transaction=(1, 2))
    last = broker.of(B.ACK)[-1].ack
    assert (last.txnid_most_bits, last.txnid_least_bits, last.HasField("request_id")) == (1, 2, True)


async def test_a_refused_acknowledgement_is_an_error(client: Client, broker: FakeBroker) -> None:
    consumer = await client.consumer(TOPIC, "s")
    broker.refuse[B.ACK] = [(pb.TransactionConflict, "taken")]
    await raises(ServerRefusedError, consumer.confirm([(LEDGER, 3)], transaction=(1, 2)), "taken")


async def test_after_a_loss_entries_come_again_and_old_ones_are_dropped(client: Client, broker: FakeBroker) -> None:
    consumer = await client.consumer(TOPIC, "s")
    broker.append(*ENTRIES[:5])
    await until(lambda: consumer.queued_bytes > 0)
    broker.drop()
    await until(lambda: len(broker.of(B.SUBSCRIBE)) == 2)
    found: list[int] = []
    while len(found) < 5:
        found += (await consumer.receive()).entry_ids
    assert found == list(range(5))


class Coordinators:
    """The fake broker's answers to transactions."""

    def __init__(self, broker: FakeBroker, count: int = 2) -> None:
        self.asked: list[pb.BaseCommand] = []
        broker.on[B.PARTITIONED_METADATA] = self.partitions
        self.count = count
        for kind, answer, part in (
            (B.TC_CLIENT_CONNECT_REQUEST, B.TC_CLIENT_CONNECT_RESPONSE, "tcClientConnectResponse"),
            (B.NEW_TXN, B.NEW_TXN_RESPONSE, "newTxnResponse"),
            (B.ADD_PARTITION_TO_TXN, B.ADD_PARTITION_TO_TXN_RESPONSE, "addPartitionToTxnResponse"),
            (B.ADD_SUBSCRIPTION_TO_TXN, B.ADD_SUBSCRIPTION_TO_TXN_RESPONSE, "addSubscriptionToTxnResponse"),
            (B.END_TXN, B.END_TXN_RESPONSE, "endTxnResponse"),
        ):
            broker.on[kind] = self.answers(answer, part)

    def partitions(self, session: Session, command: pb.BaseCommand, payload: bytes) -> bool:
        if command.partitionMetadata.topic != ASSIGN_TOPIC:
            return False
        answer = B(type=B.PARTITIONED_METADATA_RESPONSE)
        answer.partitionMetadataResponse.request_id = command.partitionMetadata.request_id
        answer.partitionMetadataResponse.response = pb.CommandPartitionedTopicMetadataResponse.Success
        answer.partitionMetadataResponse.partitions = self.count
        session.send(answer)
        return True

    def answers(self, kind: pb.BaseCommand.Type, part: str) -> Any:
        def handle(session: Session, command: pb.BaseCommand, payload: bytes) -> bool:
            self.asked.append(command)
            [(_, request)] = [pair for pair in command.ListFields() if pair[0].name != "type"]
            answer = B(type=kind)
            getattr(answer, part).request_id = request.request_id
            if part == "newTxnResponse":
                answer.newTxnResponse.txnid_most_bits, answer.newTxnResponse.txnid_least_bits = request.tc_id, 77
            session.send(answer)
            return True

        return handle

    def kinds(self) -> list[str]:
        return [B.Type.Name(each.type) for each in self.asked]


async def test_a_transaction_names_what_it_does_once(client: Client, broker: FakeBroker) -> None:
    coordinators = Coordinators(broker)
    transactions = await client.transactions()
    producer = await client.transaction_producer(TOPIC)
    transaction = await transactions.begin(timeout_s=1.5)
    await transaction.publishes_to(TOPIC)
    await transaction.publishes_to(TOPIC)
    await producer.send_in(transaction.id, pack([b"a", b"b"]))
    await producer.send(pack([b"c"]))
    await producer.flush()
    await transaction.acknowledges(TOPIC, "s")
    await transaction.acknowledges(TOPIC, "s")
    await transaction.commit()
    await (await transactions.begin(timeout_s=1)).abort()
    assert coordinators.kinds() == [
        "TC_CLIENT_CONNECT_REQUEST",
        "NEW_TXN",
        "ADD_PARTITION_TO_TXN",
        "ADD_SUBSCRIPTION_TO_TXN",
        "END_TXN",
        "TC_CLIENT_CONNECT_REQUEST",
        "NEW_TXN",
        "END_TXN",
    ]
    begun = coordinators.asked[1].newTxn
    assert begun.txn_ttl_seconds == 1500  # milliseconds, in spite of the name
    ends = [each.endTxn.txn_action for each in coordinators.asked if each.type == B.END_TXN]
    assert ends == [pb.COMMIT, pb.ABORT]
    assert {begun.tc_id, coordinators.asked[6].newTxn.tc_id} == {0, 1}
    [opened] = broker.of(B.PRODUCER)
    assert opened.producer.txn_enabled
    inside, outside = (each.send for each in broker.of(B.SEND))
    assert (inside.txnid_most_bits, inside.txnid_least_bits, inside.num_messages) == (*transaction.id, 2)
    assert not outside.HasField("txnid_most_bits")
    metadata = read_metadata(broker.entries[0])
    assert (metadata.txnid_most_bits, metadata.txnid_least_bits) == transaction.id
    assert not read_metadata(broker.entries[1]).HasField("txnid_most_bits")


async def test_entries_of_a_transaction_that_are_sent_again_name_it(client: Client, broker: FakeBroker) -> None:
    Coordinators(broker)
    transactions = await client.transactions()
    producer = await client.transaction_producer(TOPIC)
    transaction = await transactions.begin(timeout_s=60)
    broker.silent.add(B.SEND)
    await producer.send_in(transaction.id, pack([b"a"]))
    await until(lambda: len(broker.of(B.SEND)) == 1)
    broker.silent.clear()
    broker.drop()
    with trio.fail_after(60):
        await producer.flush()
    again = broker.of(B.SEND)[-1].send
    assert (again.txnid_most_bits, again.txnid_least_bits) == transaction.id


async def test_tasks_that_send_at_the_same_time_keep_their_transactions(client: Client, broker: FakeBroker) -> None:
    """Each of them waits in the middle of its entries, as two may be without receipt."""
    producer = await client.transaction_producer(TOPIC, pending_max=2)
    async with trio.open_nursery() as nursery:
        for number in (1, 2):
            nursery.start_soon(producer.send_in, (number, number), pack([b"%d" % number] * 9, batch=False))
        nursery.start_soon(producer.send, pack([b"0"] * 9, batch=False))
    await producer.flush()
    sends = [each.send for each in broker.of(B.SEND)]
    assert [each.sequence_id for each in sends] == list(range(27))
    values = [int(entry[-1:]) for entry in broker.entries]
    assert values != sorted(values), "the tasks sent one after the other"
    assert [(each.txnid_most_bits, each.txnid_least_bits) for each in sends] == [(number,) * 2 for number in values]
    assert producer._of == {}, "kept after their receipts"


async def test_the_number_of_an_entry_that_is_too_large_is_in_no_transaction(
    client: Client, broker: FakeBroker
) -> None:
    producer = await client.transaction_producer(TOPIC)
    too_large = pack([b"x" * (producer.message_size_max + 1)], message_size_max=1 << 30)
    await raises(NotAllowedError, producer.send_in((1, 1), too_large), "above the broker's limit")
    await producer.send(pack([b"0"]))
    await producer.flush()
    [only] = broker.of(B.SEND)
    assert not only.send.HasField("txnid_most_bits")


async def test_a_cluster_without_coordinators_is_an_error(client: Client, broker: FakeBroker) -> None:
    Coordinators(broker, count=0)
    await raises(TopicNotFoundError, client.transactions(), "transactionCoordinatorEnabled")


async def test_receipts_are_announced_in_the_order_of_sending(client: Client, broker: FakeBroker) -> None:
    producer = await client.producer(TOPIC)
    counts: list[int] = []
    producer.on_receipts = counts.append
    await producer.send(pack([b"a", b"b", b"c"], batch=False))
    await producer.flush()
    assert sum(counts) == 3

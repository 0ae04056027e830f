"""Transactions, through the commands of clients: all or nothing, whatever dies in between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from broker.connections.transactions import ACKS_IN_STEP
from broker.topics.compaction.compaction import RUNNING, SUCCESS, compaction_of
from quire.metadata.store import Create
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.pulsar_frames import SUB, C
from tests.support.waiting import until
from tests.unit.broker.peers import TOPIC, Peer, Room, in_broker
from tests.unit.broker.transacting import Client, id_of, producer, publish, send

OTHER = "persistent://public/default/payments"
ASSIGN = "persistent://pulsar/system/transaction_coordinator_assign"


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with in_broker(transactions=True) as room:
        await room.broker.metadata.multi([Create(path="/admin/policies/pulsar/system", make_parents=True)])
        yield room


async def consumer(room: Room, topic: str = TOPIC, **options: Any) -> Peer:
    peer = await room.connect()
    await peer.subscribe(topic, **options)
    peer.flow(100)
    return peer


def crash(room: Room) -> None:
    """Drop everything in memory, as a kill does; the next use opens it from what is durable."""
    broker = room.broker
    for connection in list(broker.connections):
        connection.abort("killed")
    service = broker.transactions
    assert service is not None
    for coordinator in list(service.coordinators.values()):
        coordinator.abandon()
    service.coordinators.clear()
    for topic in broker.topics.loaded():
        topic.abandon()
        del broker.topics._loaded[topic.name.full]


async def test_messages_of_a_transaction_come_when_it_is_committed_and_hold_back_what_follows(room: Room) -> None:
    client, sender, reader = await Client.of(room), await producer(room), await consumer(room)
    txn = await client.new()
    await client.add_partition(txn, TOPIC)
    await publish(sender, b"before", 0)
    await publish(sender, b"one", 1, txn)
    await publish(sender, b"between", 2)
    await publish(sender, b"two", 3, txn)
    assert await reader.payloads(1) == [b"before"]
    assert await reader.silent()
    await client.commit(txn)
    assert await reader.payloads(3) == [b"one", b"between", b"two"]
    assert await reader.silent()


@pytest.mark.parametrize("kind", [SUB.Exclusive, SUB.Shared, SUB.Key_Shared])
async def test_a_read_across_the_bound_is_cut_there(room: Room, kind: Any) -> None:
    client, sender = await Client.of(room), await producer(room)
    txn = await client.new()
    await client.add_partition(txn, TOPIC)
    for number, of in enumerate((None, txn, None)):
        await publish(sender, b"%d" % number, number, of)
    reader = await consumer(room, subType=kind)
    assert await reader.payloads(1) == [b"0"]
    assert await reader.silent()
    await client.commit(txn)
    assert await reader.payloads(2) == [b"1", b"2"]


@pytest.mark.parametrize("kind", [SUB.Exclusive, SUB.Shared, SUB.Key_Shared])
async def test_messages_of_an_aborted_transaction_never_come(room: Room, kind: Any) -> None:
    client, sender, reader = await Client.of(room), await producer(room), await consumer(room, subType=kind)
    txn = await client.new()
    await client.add_partition(txn, TOPIC)
    await publish(sender, b"one", 0, txn)
    await publish(sender, b"kept", 1)
    assert await reader.silent()
    await client.abort(txn)
    message, payload = await reader.message()
    assert payload == b"kept"
    await reader.answered_ack(message.message_id)
    topic = await room.topic()
    assert topic.subscriptions["s"].backlog == 0  # what is passed over is acknowledged


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("ended", [True, False])
async def test_a_transaction_is_all_or_nothing_over_a_crash(room: Room, commit: bool, ended: bool) -> None:
    """Killed after the end of the transaction, or before it: the decision is made after the restart then."""
    client, sender = await Client.of(room), await producer(room)
    second = await producer(room, OTHER)
    txn = await client.new()
    await client.add_partition(txn, TOPIC, OTHER)
    await publish(sender, b"a", 0, txn)
    await publish(second, b"b", 0, txn)
    await publish(sender, b"plain", 1)
    if ended:
        await client.end(txn, commit=commit)
    crash(room)
    client = await Client.of(room)
    reader, other = await consumer(room), await consumer(room, OTHER)
    if not ended:
        assert await reader.silent()
        assert await other.silent()
        await client.end(txn, commit=commit)
    assert await reader.payloads(2 if commit else 1) == ([b"a", b"plain"] if commit else [b"plain"])
    if commit:
        assert await other.payloads(1) == [b"b"]
    assert await reader.silent()
    assert await other.silent()


async def test_a_decision_is_carried_out_after_a_crash_though_no_client_comes_back(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, sender = await Client.of(room), await producer(room)
    txn = await client.new()
    await client.add_partition(txn, TOPIC)
    await publish(sender, b"a", 0, txn)
    service = room.broker.transactions
    assert service is not None
    coordinator = service.coordinators[0]
    told = trio.Event()

    async def dies(topic: str, txn: Any, **how: Any) -> None:
        told.set()
        await trio.sleep_forever()

    monkeypatch.setattr(coordinator._participants, "end_on_partition", dies)
    client.control.send(C(type=C.END_TXN, endTxn=pb.CommandEndTxn(request_id=99, txn_action=pb.COMMIT, **id_of(txn))))
    await told.wait()  # the decision is durable
    monkeypatch.undo()
    crash(room)
    reader = await consumer(room)
    assert await reader.payloads(1) == [b"a"]


async def test_a_second_commit_does_not_run_ahead_of_the_decision_in_the_log(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, again, sender, reader = (
        await Client.of(room),
        await Client.of(room),
        await producer(room),
        await consumer(room),
    )
    txn = await client.new()
    await client.add_partition(txn, TOPIC)
    await publish(sender, b"one", 0, txn)
    assert room.broker.transactions is not None
    records = room.broker.transactions.coordinators[0].records
    write, durable = records.write, trio.Event()

    async def late(record: bytes, applied: Any) -> None:
        await durable.wait()
        await write(record, applied)

    monkeypatch.setattr(records, "write", late)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.commit, txn)
        nursery.start_soon(again.commit, txn)
        assert await reader.silent()
        durable.set()
    assert await reader.payloads(1) == [b"one"]


async def test_a_transaction_that_is_open_for_too_long_is_aborted(room: Room) -> None:
    client, sender, reader = await Client.of(room), await producer(room), await consumer(room)
    txn = await client.new(ttl_ms=5000)
    await client.add_partition(txn, TOPIC)
    await publish(sender, b"late", 0, txn)
    await publish(sender, b"plain", 1)
    begun = trio.current_time()
    assert await reader.payloads(1) == [b"plain"]
    assert 4 < trio.current_time() - begun < 7
    answer = await client.end(txn, commit=True)
    assert answer.error == pb.InvalidTxnStatus
    send(sender, b"later", 2, txn)
    assert (await sender.expect(C.SEND_ERROR)).send_error.error == pb.NotAllowedError
    assert await reader.silent()


async def test_a_message_of_a_transaction_that_is_over_holds_nothing_back_for_ever(room: Room) -> None:
    client, sender, reader = await Client.of(room), await producer(room), await consumer(room)
    txn = await client.new()
    await client.commit(txn)  # the topic is no participant, so it is not told
    await publish(sender, b"stray", 0, txn)
    await publish(sender, b"plain", 1)
    assert await reader.payloads(1) == [b"plain"]


@pytest.mark.parametrize("kind", [SUB.Exclusive, SUB.Shared, SUB.Key_Shared])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("crashes", [False, True])
async def test_acknowledgements_of_a_transaction_count_when_it_is_committed(
    room: Room, kind: Any, commit: bool, crashes: bool
) -> None:
    client, sender, reader = await Client.of(room), await producer(room), await consumer(room, subType=kind)
    ids = [await publish(sender, b"%d" % number, number) for number in range(3)]
    assert await reader.payloads(3) == [b"0", b"1", b"2"]
    txn = await client.new()
    await client.add_subscription(txn)
    assert not (await reader.answered_ack(ids[0], ids[1], **id_of(txn))).HasField("error")
    if crashes:
        crash(room)
        client, reader = await Client.of(room), await consumer(room, subType=kind)
        assert await reader.payloads(1) == [b"2"]  # what is held in the transaction is not delivered
    await client.end(txn, commit=commit)
    if commit:
        assert await reader.silent()
        topic = await room.topic()
        assert topic.subscriptions["s"].backlog == 1
    else:
        again = 3 if kind == SUB.Exclusive else 2
        assert await reader.payloads(again) == [b"0", b"1", b"2"][:again]
    crash(room)
    reader = await consumer(room, subType=kind)
    assert await reader.payloads(1 if commit else 3) == ([b"2"] if commit else [b"0", b"1", b"2"])


async def test_two_transactions_do_not_both_acknowledge_a_message(room: Room) -> None:
    client, sender, reader = await Client.of(room), await producer(room), await consumer(room, subType=SUB.Shared)
    place = await publish(sender, b"m", 0)
    await reader.message()
    first, second = await client.new(), await client.new()
    for txn in (first, second):
        await client.add_subscription(txn)
    assert not (await reader.answered_ack(place, **id_of(first))).HasField("error")
    assert (await reader.answered_ack(place, **id_of(second))).error == pb.TransactionConflict
    await client.abort(first)
    assert await reader.payloads(1) == [b"m"]
    assert not (await reader.answered_ack(place, **id_of(second))).HasField("error")
    await client.commit(second)
    third = await client.new()
    assert (await reader.answered_ack(place, **id_of(third))).error == pb.TransactionConflict


async def test_a_batch_is_shared_by_transactions_message_by_message(room: Room) -> None:
    client, sender, reader = await Client.of(room), await producer(room), await consumer(room, subType=SUB.Shared)
    sender.send_message(b"batch", 0, num_messages_in_batch=4)
    place = (await sender.expect(C.SEND_RECEIPT)).send_receipt.message_id
    await reader.message()
    first, second = await client.new(), await client.new()
    for txn in (first, second):
        await client.add_subscription(txn)
    of_first, of_second, both = [_batch(place, words) for words in (0b1100, 0b0011, 0b1010)]
    assert not (await reader.answered_ack(of_first, **id_of(first))).HasField("error")
    assert (await reader.answered_ack(both, **id_of(second))).error == pb.TransactionConflict
    assert not (await reader.answered_ack(of_second, **id_of(second))).HasField("error")
    await client.commit(first)
    await client.abort(second)
    message, _ = await reader.message()
    assert list(message.ack_set) == [0b1100]
    topic = await room.topic()
    assert topic.subscriptions["s"].backlog == 1


def _batch(place: pb.MessageIdData, words: int) -> pb.MessageIdData:
    return pb.MessageIdData(ledgerId=place.ledgerId, entryId=place.entryId, ack_set=[words], batch_size=4)


async def test_cumulative_acknowledgements_take_part(room: Room) -> None:
    client, sender, reader = await Client.of(room), await producer(room), await consumer(room)
    ids = [await publish(sender, b"%d" % number, number) for number in range(3)]
    await reader.payloads(3)
    txn, other = await client.new(), await client.new()
    await client.add_subscription(txn)
    assert not (await reader.answered_ack(ids[1], cumulative=True, **id_of(txn))).HasField("error")
    assert (await reader.answered_ack(ids[2], cumulative=True, **id_of(other))).error == pb.TransactionConflict
    topic = await room.topic()
    assert topic.subscriptions["s"].backlog == 3
    await client.commit(txn)
    assert topic.subscriptions["s"].backlog == 1


async def test_the_last_message_is_none_of_an_open_or_aborted_transaction(room: Room) -> None:
    client, sender, reader = await Client.of(room), await producer(room), await consumer(room)
    place = await publish(sender, b"plain", 0)
    await reader.message()
    txn = await client.new()
    await client.add_partition(txn, TOPIC)
    await publish(sender, b"open", 1, txn)
    assert (await reader.last_message_id())[:2] == (place.ledgerId, place.entryId)
    await client.abort(txn)
    assert (await reader.last_message_id())[:2] == (place.ledgerId, place.entryId)


async def test_numbers_of_transactions_are_never_given_twice(room: Room) -> None:
    seen = set()
    for _ in range(3):
        client = await Client.of(room)
        for _ in range(3):
            txn = await client.new()
            assert txn not in seen
            seen.add(txn)
            await client.abort(txn)
        crash(room)


async def test_participants_are_kept_as_clients_name_them(room: Room) -> None:
    """The Go client registers short names, and looks for them in the metadata of the transaction."""
    client, sender = await Client.of(room), await producer(room)
    txn = await client.new()
    assert not (await client.add_partition(txn, "orders")).HasField("error")
    assert not (await client.add_subscription(txn, "orders", "s")).HasField("error")
    assert (await client.add_partition(txn, "a/b")).error == pb.InvalidTopicName
    service = room.broker.transactions
    assert service is not None
    found = service.coordinators[0].state.transactions[txn[1]]
    assert [*found.partitions, *found.subscriptions] == ["orders", ("orders", "s")]
    await publish(sender, b"m", 0, txn)
    await client.commit(txn)
    reader = await consumer(room, initialPosition=SUB.Earliest)
    assert await reader.payloads(1) == [b"m"]


async def test_a_producer_that_did_not_announce_transactions_sends_again_behind_the_first_snapshot(room: Room) -> None:
    """So it is with the Go client. Nothing of what it sent behind that is stored before, nor lost."""
    client, sender = await Client.of(room), await room.connect()
    await sender.producer()
    txn = await client.new()
    await client.add_partition(txn, TOPIC)
    await publish(sender, b"before", 0)
    send(sender, b"first", 1, txn)
    send(sender, b"behind", 2)
    assert (await sender.expect(C.CLOSE_PRODUCER)).close_producer.producer_id == 1
    topic = await room.topic()
    assert topic.ledger.entry_count == 1
    assert topic.transactions.takes_messages
    await sender.producer()
    await publish(sender, b"first", 1, txn)
    await publish(sender, b"behind", 2)
    await client.commit(txn)
    reader = await consumer(room, initialPosition=SUB.Earliest)
    assert await reader.payloads(3) == [b"before", b"first", b"behind"]


async def test_an_end_is_answered_once_more_to_another_connection_only(room: Room) -> None:
    """The answer may have been lost with its connection; on the same one the transaction does not exist any more."""
    client = await Client.of(room)
    txn = await client.new()
    await client.commit(txn)
    assert (await client.end(txn, commit=True)).error == pb.TransactionNotFound
    assert (await client.end(txn, commit=False)).error == pb.TransactionNotFound
    other = await Client.of(room)
    assert (await other.end(txn, commit=False)).error == pb.InvalidTxnStatus
    assert not (await other.end(txn, commit=True)).HasField("error")


async def test_an_acknowledgement_of_many_messages_is_stored_in_steps_and_ends_as_one(room: Room) -> None:
    """Ids are worked on in steps, each stored as one record, so that other clients are served between them."""
    client, sender = await Client.of(room), await producer(room)
    count = 5 * ACKS_IN_STEP + 1
    for number in range(count):
        send(sender, b"%d" % number, number)
    for _ in range(count):
        await sender.expect(C.SEND_RECEIPT)
    reader = await room.connect()
    await reader.subscribe(TOPIC, "s", subType=SUB.Shared, initialPosition=SUB.Earliest)
    reader.flow(count)
    places = [(await reader.message())[0].message_id for _ in range(count)]
    txn = await client.new()
    await client.add_subscription(txn)
    assert not (await reader.answered_ack(*places, **id_of(txn))).HasField("error")
    acks = (await room.topic()).transactions.acks["s"]
    assert acks.records.appended == 6
    assert len(acks.state.open[txn].entries) == count
    assert (await room.topic()).subscriptions["s"].backlog == count
    await client.commit(txn)
    assert (await room.topic()).subscriptions["s"].backlog == 0


async def test_an_acknowledgement_in_a_transaction_frees_the_key_for_the_next_consumer(room: Room) -> None:
    """Its later messages waited until the transaction ended: found by the history of clusters with transactions."""
    client, sender = await Client.of(room), await producer(room)
    keys = [f"k{number}" for number in range(10)]
    for number, key in enumerate(keys):
        send(sender, b"first", number, key=key)
        await sender.expect(C.SEND_RECEIPT)
    holder, other = await room.connect(), await room.connect()
    await holder.subscribe(TOPIC, "s", subType=SUB.Key_Shared, initialPosition=SUB.Earliest)
    holder.flow(100)
    places = [(await holder.message())[0].message_id for _ in keys]
    await other.subscribe(TOPIC, "s", subType=SUB.Key_Shared)
    other.flow(100)
    for number, key in enumerate(keys, 10):
        send(sender, b"second", number, key=key)
        await sender.expect(C.SEND_RECEIPT)
    assert await other.silent(0.2)  # its keys are held
    txn = await client.new()
    await client.add_subscription(txn)
    holder.ack(*places, request_id=holder.next_id(), **id_of(txn))
    assert await other.payloads(1) == [b"second"]


async def test_errors_name_what_is_wrong(room: Room) -> None:
    client = await Client.of(room)
    txn = await client.new()
    await client.commit(txn)
    assert (await client.add_partition(txn, TOPIC)).error == pb.TransactionNotFound
    assert (await client.add_partition((0, 5000), TOPIC)).error == pb.TransactionNotFound
    assert (await client.add_partition((3, 1), TOPIC)).error == pb.TransactionCoordinatorNotFound
    assert (await client.connect(77)).error == pb.TransactionCoordinatorNotFound


async def test_clients_cannot_open_the_logs_of_transactions(room: Room) -> None:
    peer = await room.connect()
    for name in ("persistent://pulsar/system/__transaction_log_0", f"{TOPIC}-s__transaction_pending_ack"):
        peer.ask_producer(name)
        assert (await peer.error())[0] == pb.NotAllowedError


async def test_where_transactions_are_off_their_commands_are_refused() -> None:
    async with in_broker() as room:
        peer = await room.connect()
        peer.send(C(type=C.TC_CLIENT_CONNECT_REQUEST, tcClientConnectRequest={"request_id": 7, "tc_id": 0}))
        assert await peer.error() == (pb.NotAllowedError, "Transactions are not enabled.")
        await peer.producer(txn_enabled=True)
        send(peer, b"m", 0, (0, 1))
        assert (await peer.expect(C.SEND_ERROR)).send_error.error == pb.NotAllowedError


async def compacted(room: Room) -> None:
    compaction = compaction_of(await room.topic())
    compaction.start()
    await until(lambda: compaction.status != RUNNING)
    assert (compaction.status, compaction.error) == (SUCCESS, "")


async def test_a_compacted_topic_has_no_message_of_an_aborted_transaction_and_none_behind_an_open_one(
    room: Room,
) -> None:
    client, sender = await Client.of(room), await producer(room)

    async def put(value: bytes, sequence_id: int, txn: tuple[int, int] | None = None) -> None:
        send(sender, value, sequence_id, txn, key="k")
        await sender.expect(C.SEND_RECEIPT)

    aborted, left_open = await client.new(), await client.new()
    for txn in (aborted, left_open):
        await client.add_partition(txn, TOPIC)
    await put(b"kept", 0)
    await put(b"aborted", 1, aborted)
    await client.abort(aborted)
    await put(b"open", 2, left_open)
    await put(b"behind", 3)
    for expected in ([b"kept"], [b"behind"]):
        await compacted(room)
        reader = await room.connect()
        start = pb.MessageIdData(ledgerId=(1 << 64) - 1, entryId=(1 << 64) - 1)
        await reader.subscribe(name="r", durable=False, start_message_id=start, read_compacted=True)
        reader.flow(100)
        assert await reader.payloads(1) == expected
        assert await reader.silent()
        await reader.closed_by_us()
        if expected == [b"kept"]:
            await client.abort(left_open)

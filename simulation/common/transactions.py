"""Commands of transactions, as a client of a simulated host sends them. Calls raise ClientError."""

from __future__ import annotations

import random
from typing import TypeAlias

from broker.transactions import service
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.doors import World
from simulation.common.checkers import Place
from simulation.common.patching import Patch
from simulation.common.pulsar_client import ClientError, Connection, entry

Txn: TypeAlias = tuple[int, int]


def compaction_keys(rng: random.Random) -> dict[str, object]:
    """Return keys by which topics with snapshots are compacted while they are used, or are not."""
    return {
        "quireSystemTopicCompactionThresholdInBytes": rng.choice((1, 300, 1 << 20)),
        "brokerServiceCompactionMonitorIntervalInSeconds": 1,
    }


def rounds_of(seed: int) -> list[Patch]:
    """Return the patch that draws the time between rounds of transactions, in which snapshots are stored, so that
    histories, which are short, have many of them."""
    return [(service, "ROUND_S", random.Random(f"{seed} rounds").choice((0.2, 0.2, 1.0, service.ROUND_S)))]


async def connect(connection: Connection, coordinator: int) -> None:
    """Attach to a coordinator at its broker."""
    number = connection.next_id()
    request = pb.CommandTcClientConnectRequest(request_id=number, tc_id=coordinator)
    found = await connection.ask(
        pb.BaseCommand(type=pb.BaseCommand.TC_CLIENT_CONNECT_REQUEST, tcClientConnectRequest=request), number
    )
    _check(found.tcClientConnectResponse)


async def produce(connection: Connection, topic: str, name: str) -> None:
    """Make producer 1, which may send in transactions."""
    number = connection.next_id()
    request = pb.CommandProducer(topic=topic, producer_id=1, request_id=number, producer_name=name, txn_enabled=True)
    await connection.ask(pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=request), number)


async def begin(connection: Connection, coordinator: int, ttl_ms: int) -> Txn:
    """Open a transaction."""
    number = connection.next_id()
    new = pb.CommandNewTxn(request_id=number, txn_ttl_seconds=ttl_ms, tc_id=coordinator)
    opened = (await connection.ask(pb.BaseCommand(type=pb.BaseCommand.NEW_TXN, newTxn=new), number)).newTxnResponse
    _check(opened)
    return opened.txnid_most_bits, opened.txnid_least_bits


async def name_participants(connection: Connection, txn: Txn, sink: str, source: str, subscription: str) -> None:
    """Name the topic that the transaction sends to, and the subscription that it acknowledges on."""
    number = connection.next_id()
    partition = pb.CommandAddPartitionToTxn(request_id=number, partitions=[sink])
    partition.txnid_most_bits, partition.txnid_least_bits = txn
    added = await connection.ask(
        pb.BaseCommand(type=pb.BaseCommand.ADD_PARTITION_TO_TXN, addPartitionToTxn=partition), number
    )
    _check(added.addPartitionToTxnResponse)
    number = connection.next_id()
    named = [pb.Subscription(topic=source, subscription=subscription)]
    request = pb.CommandAddSubscriptionToTxn(request_id=number, subscription=named)
    request.txnid_most_bits, request.txnid_least_bits = txn
    added = await connection.ask(
        pb.BaseCommand(type=pb.BaseCommand.ADD_SUBSCRIPTION_TO_TXN, addSubscriptionToTxn=request), number
    )
    _check(added.addSubscriptionToTxnResponse)


def send(world: World, connection: Connection, name: str, number: int, txn: Txn, payload: bytes) -> None:
    """Send a message of producer 1 in a transaction; its receipt arrives in `receipts`."""
    body = pb.CommandSend(producer_id=1, sequence_id=number, num_messages=1)
    body.txnid_most_bits, body.txnid_least_bits = txn
    tail = entry(name, number, payload, "", world.clock.wall_ms(), transaction=txn)
    connection.send(pb.BaseCommand(type=pb.BaseCommand.SEND, send=body), tail)


async def acknowledge(connection: Connection, txn: Txn, place: Place) -> None:
    """Acknowledge a message of consumer 1 in a transaction."""
    number = connection.next_id()
    ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, request_id=number)
    ack.txnid_most_bits, ack.txnid_least_bits = txn
    ack.message_id.add(ledgerId=place[0], entryId=place[1])
    answer = await connection.ask(pb.BaseCommand(type=pb.BaseCommand.ACK, ack=ack), number)
    _check(answer.ackResponse)


async def end(connection: Connection, txn: Txn, *, commit: bool) -> None:
    """End a transaction; it may be too late for that."""
    number = connection.next_id()
    request = pb.CommandEndTxn(request_id=number, txn_action=pb.COMMIT if commit else pb.ABORT)
    request.txnid_most_bits, request.txnid_least_bits = txn
    answer = await connection.ask(pb.BaseCommand(type=pb.BaseCommand.END_TXN, endTxn=request), number)
    if answer.endTxnResponse.error not in (pb.InvalidTxnStatus, pb.TransactionNotFound):
        _check(answer.endTxnResponse)


def _check(
    answer: pb.CommandTcClientConnectResponse
    | pb.CommandNewTxnResponse
    | pb.CommandAddPartitionToTxnResponse
    | pb.CommandAddSubscriptionToTxnResponse
    | pb.CommandEndTxnResponse
    | pb.CommandAckResponse,
) -> None:
    if answer.HasField("error"):
        raise ClientError(answer.message)

"""A client of transactions for tests: its commands to coordinators, and messages sent in a transaction."""

from __future__ import annotations

from typing import Any

from broker.transactions.txn_id import COORDINATORS
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.pulsar_frames import C, entry
from tests.support.waiting import until
from tests.unit.broker.peers import TOPIC, Peer, Room


class Client:
    """A client with a connection for transactions, and one for each role, so that answers do not mix."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.control: Peer

    @classmethod
    async def of(cls, room: Room) -> Client:
        client = cls(room)
        client.control = await room.connect()
        await client.connect()
        return client

    async def ask(self, kind: Any, field: str, answer: str, **fields: Any) -> Any:
        """Send a command of transactions; return its answer."""
        command = C(type=kind)
        part = getattr(command, field)
        part.request_id = self.control.next_id()
        for name, value in fields.items():
            if isinstance(value, list):
                getattr(part, name).extend(value)
            else:
                setattr(part, name, value)
        self.control.send(command)
        found, _ = await self.control.receive()
        assert found.HasField(answer), found
        return getattr(found, answer)

    async def connect(self, coordinator: int = 0) -> Any:
        await until(lambda: (self.room.broker.topics.partitioned.known(COORDINATORS) or 0) >= 16)
        return await self.ask(
            C.TC_CLIENT_CONNECT_REQUEST, "tcClientConnectRequest", "tcClientConnectResponse", tc_id=coordinator
        )

    async def new(self, ttl_ms: int = 60_000, coordinator: int = 0) -> tuple[int, int]:
        found = await self.ask(C.NEW_TXN, "newTxn", "newTxnResponse", txn_ttl_seconds=ttl_ms, tc_id=coordinator)
        assert not found.HasField("error"), found
        return found.txnid_most_bits, found.txnid_least_bits

    async def add_partition(self, txn: tuple[int, int], *topics: str) -> Any:
        return await self.ask(
            C.ADD_PARTITION_TO_TXN, "addPartitionToTxn", "addPartitionToTxnResponse", **id_of(txn), partitions=[*topics]
        )

    async def add_subscription(self, txn: tuple[int, int], topic: str = TOPIC, name: str = "s") -> Any:
        return await self.ask(
            C.ADD_SUBSCRIPTION_TO_TXN,
            "addSubscriptionToTxn",
            "addSubscriptionToTxnResponse",
            **id_of(txn),
            subscription=[pb.Subscription(topic=topic, subscription=name)],
        )

    async def end(self, txn: tuple[int, int], *, commit: bool) -> Any:
        action = pb.COMMIT if commit else pb.ABORT
        return await self.ask(C.END_TXN, "endTxn", "endTxnResponse", **id_of(txn), txn_action=action)

    async def commit(self, txn: tuple[int, int]) -> None:
        answer = await self.end(txn, commit=True)
        assert not answer.HasField("error"), answer

    async def abort(self, txn: tuple[int, int]) -> None:
        answer = await self.end(txn, commit=False)
        assert not answer.HasField("error"), answer


def id_of(txn: tuple[int, int]) -> dict[str, int]:
    return {"txnid_most_bits": txn[0], "txnid_least_bits": txn[1]}


def send(
    peer: Peer,
    payload: bytes,
    sequence_id: int,
    txn: tuple[int, int] | None = None,
    producer_id: int = 1,
    key: str = "",
) -> None:
    body = pb.CommandSend(producer_id=producer_id, sequence_id=sequence_id, num_messages=1)
    fields: dict[str, Any] = {}
    if txn is not None:
        fields = id_of(txn)
        body.txnid_most_bits, body.txnid_least_bits = txn
    if key:
        fields["partition_key"] = key
    peer.send(C(type=C.SEND, send=body), entry(payload, sequence_id=sequence_id, **fields))


async def publish(peer: Peer, payload: bytes, sequence_id: int, txn: tuple[int, int] | None = None) -> pb.MessageIdData:
    send(peer, payload, sequence_id, txn)
    return (await peer.expect(C.SEND_RECEIPT)).send_receipt.message_id


async def producer(room: Room, topic: str = TOPIC, **options: Any) -> Peer:
    peer = await room.connect()
    await peer.producer(topic, txn_enabled=True, **options)
    return peer

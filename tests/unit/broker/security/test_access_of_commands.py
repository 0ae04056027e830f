"""Each command as each role: permitted or refused as testdata/commands.txt says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import trio
import trio.testing

from broker.connections.permits import needs
from broker.security.authorization import nodes
from broker.security.authorization.commands import COMMANDS, CommandRow
from broker.security.authorization.permissions import Permission
from broker.transactions.txn_id import TxnId
from quire.metadata.store import Create
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.datadriven import Line, check, read
from tests.support.pulsar_frames import C
from tests.unit.broker.peers import TOPIC, Peer, Room, in_broker
from tests.unit.broker.security.roles import NAMESPACE, OPTIONS, ROLES, policies, principal, store, store_roles
from tests.unit.broker.transacting import Client

TABLE = Path(__file__).parent / "testdata" / "commands.txt"
MISSING = "persistent://public/default/missing"
SUBSCRIPTION = pb.Subscription(topic=TOPIC, subscription="s")
FIELDS: dict[int, tuple[str, dict[str, Any]]] = {
    C.LOOKUP: ("lookupTopic", {"topic": TOPIC}),
    C.PARTITIONED_METADATA: ("partitionMetadata", {"topic": TOPIC}),
    C.GET_TOPICS_OF_NAMESPACE: ("getTopicsOfNamespace", {"namespace": "public/default"}),
    C.WATCH_TOPIC_LIST: ("watchTopicList", {"namespace": "public/default", "topics_pattern": ".*", "watcher_id": 1}),
    C.WATCH_TOPIC_LIST_CLOSE: ("watchTopicListClose", {"watcher_id": 1}),
    C.PRODUCER: ("producer", {"topic": TOPIC, "producer_id": 7}),
    C.CLOSE_PRODUCER: ("close_producer", {"producer_id": 7}),
    C.SUBSCRIBE: ("subscribe", {"topic": TOPIC, "subscription": "t", "subType": pb.CommandSubscribe.Shared}),
    C.CLOSE_CONSUMER: ("close_consumer", {"consumer_id": 7}),
    C.UNSUBSCRIBE: ("unsubscribe", {"consumer_id": 1, "force": True}),
    C.SEEK: ("seek", {"consumer_id": 1, "message_publish_time": 1}),
    C.GET_LAST_MESSAGE_ID: ("getLastMessageId", {"consumer_id": 1}),
    C.CONSUMER_STATS: ("consumerStats", {"consumer_id": 1}),
    C.ACK: ("ack", {"consumer_id": 7, "ack_type": pb.CommandAck.Individual}),
    C.GET_SCHEMA: ("getSchema", {"topic": TOPIC}),
    C.GET_OR_CREATE_SCHEMA: (
        "getOrCreateSchema",
        {"topic": TOPIC, "schema": pb.Schema(name="s", schema_data=b"", type=pb.Schema.String)},
    ),
    C.TC_CLIENT_CONNECT_REQUEST: ("tcClientConnectRequest", {"tc_id": 0}),
    C.NEW_TXN: ("newTxn", {"tc_id": 0, "txn_ttl_seconds": 60_000}),
    C.ADD_PARTITION_TO_TXN: ("addPartitionToTxn", {"partitions": [TOPIC]}),
    C.ADD_SUBSCRIPTION_TO_TXN: ("addSubscriptionToTxn", {"subscription": [SUBSCRIPTION]}),
    C.END_TXN: ("endTxn", {"txn_action": pb.ABORT}),
    C.END_TXN_ON_PARTITION: ("endTxnOnPartition", {"topic": TOPIC, "txn_action": pb.ABORT}),
    C.END_TXN_ON_SUBSCRIPTION: ("endTxnOnSubscription", {"subscription": SUBSCRIPTION, "txn_action": pb.ABORT}),
    C.PING: ("ping", {}),
}
"""Commands that are answered, with their fields."""
UNANSWERED: dict[int, tuple[str, dict[str, Any]]] = {
    C.PONG: ("pong", {}),
    C.FLOW: ("flow", {"consumer_id": 7, "messagePermits": 1}),
    C.REDELIVER_UNACKNOWLEDGED_MESSAGES: ("redeliverUnacknowledgedMessages", {"consumer_id": 7}),
}
WITH_CONSUMER = (C.UNSUBSCRIBE, C.SEEK, C.GET_LAST_MESSAGE_ID, C.CONSUMER_STATS)
OF_A_TRANSACTION = (
    C.ADD_PARTITION_TO_TXN,
    C.ADD_SUBSCRIPTION_TO_TXN,
    C.END_TXN,
    C.END_TXN_ON_PARTITION,
    C.END_TXN_ON_SUBSCRIPTION,
)


@asynccontextmanager
async def a_broker() -> AsyncIterator[Room]:
    """Run a broker with authorization and transactions, with a topic."""
    async with in_broker(transactions=True, authorization=OPTIONS) as room:
        metadata = room.broker.metadata
        await store_roles(metadata)
        await metadata.multi([Create(path="/admin/policies/pulsar/system", make_parents=True)])
        setup = await room.connect(role="super")
        await setup.producer()
        yield room


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with a_broker() as room:
        yield room


def made(kind: int, request_id: int, **more: Any) -> pb.BaseCommand:
    """Return a command."""
    field, fields = (FIELDS | UNANSWERED)[kind]
    command = C(type=C.Type.Name(kind))
    body = getattr(command, field)
    body.SetInParent()
    for name, value in ({"request_id": request_id} | fields | more).items():
        if name not in body.DESCRIPTOR.fields_by_name:
            continue
        if isinstance(value, list):
            getattr(body, name).extend(value)
        elif hasattr(value, "SerializeToString"):
            getattr(body, name).CopyFrom(value)
        else:
            setattr(body, name, value)
    if kind == C.SUBSCRIBE:
        body.consumer_id = request_id
    return command


def error_of(answer: pb.BaseCommand) -> str:
    """Return the name of the error in an answer; empty if it is none."""
    for field, body in answer.ListFields():
        if field.name == "type":
            continue
        for name in ("error", "error_code"):
            if name in body.DESCRIPTOR.fields_by_name and body.HasField(name):
                return str(pb.ServerError.Name(getattr(body, name)))
    return ""


async def open_transaction(room: Room, role: str) -> tuple[int, int]:
    client = Client(room)
    client.control = await room.connect(role=role)
    await client.connect()
    return await client.new()


async def answer_to(room: Room, kind: int, role: str) -> str:
    """Return the answer to a command: `ok`, or the error of a refusal."""
    peer = await room.connect(role="super")
    if kind in WITH_CONSUMER:
        await peer.subscribe(name="s", consumer_id=1)
    more: dict[str, Any] = {}
    if kind in OF_A_TRANSACTION:
        most, least = await open_transaction(room, "owner")
        more = {"txnid_most_bits": most, "txnid_least_bits": least}
    if kind == C.TC_CLIENT_CONNECT_REQUEST:
        await open_transaction(room, "owner")
    room.connection_of(peer).principal = principal(role)
    peer.send(made(kind, 100, **more))
    if kind in UNANSWERED:
        peer.send(made(C.PING, 101))
    answer = await answered(peer, ping=kind == C.PING or kind in UNANSWERED)
    error = "" if answer is None else error_of(answer)
    await peer.closed_by_us()
    if error in ("AuthorizationError", "TransactionNotFound"):
        return error
    return "ok"


async def answered(peer: Peer, *, ping: bool) -> pb.BaseCommand | None:
    """Return the next answer; None for the PONG that is waited for."""
    if not ping:
        while True:
            command, _ = await peer.receive()
            if command.type not in (C.CLOSE_CONSUMER, C.ACTIVE_CONSUMER_CHANGE):
                return command
    command, _ = await peer.receive()
    return None if command.type == C.PONG else command


def walked() -> list[int]:
    return [kind for kind in COMMANDS if kind in FIELDS or kind in UNANSWERED]


def expected(kind: int) -> list[str]:
    """Return the answers that the table has for a command."""
    [case] = read(TABLE)
    [line] = [each for each in case.expected if each.split()[0] == C.Type.Name(kind)]
    return line.split()[1:]


async def test_each_command_is_permitted_to_the_roles_of_the_table(room: Room) -> None:
    not_walked = {C.Type.Name(kind) for kind in COMMANDS if kind not in walked()}
    assert not_walked == {"CONNECT", "AUTH_RESPONSE", "SEND"}, "they need what authentication, or PRODUCER, has found"
    lines = [" ".join(["command".ljust(34), *(each.ljust(20) for each in ROLES)]).rstrip()]
    for kind in walked():
        found = [await answer_to(room, kind, role) for role in ROLES]
        lines.append(" ".join([C.Type.Name(kind).ljust(34), *(each.ljust(20) for each in found)]).rstrip())

    def commands(command: Line, steps: object) -> list[str]:
        assert command.name == "commands"
        return lines

    check(TABLE, commands)


FLIPS = [
    (C.LOOKUP, CommandRow(Permission.NOTHING)),
    (C.PARTITIONED_METADATA, CommandRow(Permission.ANY_ROLE)),
    (C.GET_TOPICS_OF_NAMESPACE, CommandRow(Permission.CONSUME_NAMESPACE)),
    (C.PRODUCER, CommandRow(Permission.LOOKUP)),
    (C.SUBSCRIBE, CommandRow(Permission.LOOKUP)),
    (C.SEEK, CommandRow(Permission.NOTHING)),
    (C.GET_SCHEMA, CommandRow(Permission.NOTHING)),
    (C.GET_OR_CREATE_SCHEMA, CommandRow(Permission.LOOKUP)),
    (C.END_TXN, CommandRow(Permission.ANY_ROLE)),
    (C.END_TXN_ON_PARTITION, CommandRow(Permission.ANY_ROLE)),
    (C.NEW_TXN, CommandRow(Permission.NOTHING)),
]
"""With those of the calls, more than twenty."""


@pytest.mark.parametrize(("kind", "row"), FLIPS, ids=[C.Type.Name(kind) for kind, _ in FLIPS])
async def test_a_flip_of_the_table_is_caught(
    room: Room, kind: int, row: CommandRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [await answer_to(room, kind, role) for role in ROLES] == expected(kind)
    monkeypatch.setattr(needs, "COMMANDS", MappingProxyType({**COMMANDS, kind: row}))
    needs._on.cache_clear()
    assert [await answer_to(room, kind, role) for role in ROLES] != expected(kind)


async def test_a_command_without_a_row_is_refused_to_all(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {kind: row for kind, row in COMMANDS.items() if kind != C.GET_SCHEMA}
    monkeypatch.setattr(needs, "COMMANDS", MappingProxyType(rows))
    assert [await answer_to(room, C.GET_SCHEMA, role) for role in ROLES] == ["AuthorizationError"] * len(ROLES)


async def test_what_is_forbidden_is_not_looked_up_and_not_made(room: Room) -> None:
    """A topic that does not exist is not made by a lookup, a producer or a consumer of a stranger."""
    before = await room.broker.metadata.children("/managed-ledgers/public/default/persistent")
    for role, topic in product(
        ("stranger", ""), (MISSING, TOPIC, "persistent://public/none/t", "persistent://none/none/t")
    ):
        peer = await room.connect(role=role)
        peer.ask_lookup(topic)
        peer.send(made(C.PARTITIONED_METADATA, 5, topic=topic, metadata_auto_creation_enabled=True))
        peer.ask_producer(topic)
        peer.ask_subscribe(topic)
        errors = [error_of((await peer.receive())[0]) for _ in range(4)]
        assert errors == ["AuthorizationError"] * 4, (role, topic)
        assert await peer.silent()
    assert await room.broker.metadata.children("/managed-ledgers/public/default/persistent") == before


async def test_answers_about_missing_and_forbidden_topics_differ_in_the_name_only(room: Room) -> None:
    peer = await room.connect(role="stranger")
    texts = set()
    for topic in (MISSING, TOPIC, "persistent://none/none/t"):
        peer.ask_subscribe(topic)
        texts.add((await peer.error())[1].replace(topic, "T"))
    assert len(texts) == 1, texts


async def test_an_initial_subscription_needs_consume_as_well(room: Room) -> None:
    peer = await room.connect(role="producer")
    assert await peer.refused_producer(initial_subscription_name="s") == pb.AuthorizationError
    await peer.producer()
    admin = await room.connect(role="admin")
    await admin.producer(initial_subscription_name="s", producer_id=3)


async def test_a_transaction_is_its_owners_also_when_it_is_over(room: Room) -> None:
    owner, stranger = Client(room), Client(room)
    for client, role in ((owner, "producer"), (stranger, "consumer")):
        client.control = await room.connect(role=role)
        await client.connect()
    txn = await owner.new()
    for missing in (txn, (0, 999)):
        found = await stranger.end(missing, commit=True)
        assert found.error == pb.TransactionNotFound, found
    assert (await stranger.add_partition(txn, TOPIC)).error == pb.TransactionNotFound
    assert not (await owner.add_partition(txn, TOPIC)).HasField("error")
    await owner.commit(txn)
    assert (await stranger.end(txn, commit=True)).error == pb.TransactionNotFound
    behind_a_proxy = Client(room)
    behind_a_proxy.control = await room.connect(role="proxy", original="producer")
    await behind_a_proxy.connect()
    assert not (await behind_a_proxy.end(txn, commit=True)).HasField("error"), "the same role, another connection"


async def test_a_transaction_that_is_opened_while_a_strangers_command_is_checked_stays_its_owners(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, stranger = Client(room), Client(room)
    for client, role in ((owner, "consumer"), (stranger, "producer")):
        client.control = await room.connect(role=role)
        await client.connect()
    authorizer, readable = room.broker.authorizer, trio.Event()
    assert authorizer is not None
    decide = authorizer.decide

    async def slow(*args: Any) -> Any:
        await readable.wait()
        return await decide(*args)

    monkeypatch.setattr(authorizer, "decide", slow)
    stranger.control.send(made(C.ADD_PARTITION_TO_TXN, 100, txnid_most_bits=0, txnid_least_bits=0))
    await trio.testing.wait_all_tasks_blocked()
    assert await owner.new() == (0, 0)
    readable.set()
    assert error_of((await stranger.control.receive())[0]) == "TransactionNotFound"


async def test_the_owner_needs_produce_on_what_a_transaction_takes_in(room: Room) -> None:
    client = Client(room)
    client.control = await room.connect(role="consumer")
    await client.connect()
    txn = await client.new()
    assert (await client.add_partition(txn, TOPIC)).error == pb.AuthorizationError
    assert not (await client.add_subscription(txn)).HasField("error")


async def test_the_owner_of_a_transaction_is_known_after_a_restart_of_its_coordinator(room: Room) -> None:
    txn = await open_transaction(room, "producer")
    service = room.broker.transactions
    assert service is not None
    service.coordinators.pop(0).abandon()
    stranger = Client(room)
    stranger.control = await room.connect(role="consumer")
    await stranger.connect()
    assert (await stranger.end(txn, commit=False)).error == pb.TransactionNotFound
    assert service.owner_of(TxnId(*txn)) == "producer"


async def test_with_authorization_off_the_handlers_are_those_of_the_table_itself() -> None:
    async with in_broker() as off, in_broker(authorization=OPTIONS) as on:
        assert off.broker.authorizer is None
        assert off.broker.takeaway is None
        names: Callable[[Room], set[str]] = lambda room: {  # noqa: E731
            run.__qualname__ for run in room.broker._requests.by_type.values()
        }
        assert not any("guarded" in name for name in names(off))
        assert any("guarded" in name for name in names(on))


async def test_nothing_is_read_for_what_is_known_and_a_sent_message_asks_nothing(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = await room.connect(role="producer")
    await peer.producer(producer_id=4)
    authorizer = room.broker.authorizer
    assert authorizer is not None
    asked: list[object] = []
    at_once, decide = authorizer.at_once, authorizer.decide

    def noted(kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: object) -> Any:
            asked.append(kind)
            return call(*args)

        return run

    monkeypatch.setattr(authorizer, "at_once", noted("at once", at_once))
    monkeypatch.setattr(authorizer, "decide", noted("read", decide))
    for number in range(10):
        peer.send_message(b"x", number, producer_id=4)
    for _ in range(10):
        await peer.expect(C.SEND_RECEIPT)
    assert asked == []
    await peer.lookup()
    await peer.producer(producer_id=5)
    assert asked == ["at once", "at once"]


async def test_what_cannot_be_decided_now_is_refused_as_not_ready(room: Room) -> None:
    store: Any = room.broker.metadata
    peer = await room.connect(role="producer")
    store.disconnect()
    assert await peer.refused_producer("persistent://public/other/t") == pb.ServiceNotReady
    store.reconnect()
    assert await peer.refused_producer("persistent://public/other/t") == pb.AuthorizationError


async def test_a_refusal_does_not_rely_on_what_was_known_before_a_grant(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal is final to a client. The grant was made through another broker, and its watch has not come yet."""
    authorizer: Any = room.broker.authorizer
    peer = await room.connect(role="app")
    assert await peer.refused_producer() == pb.AuthorizationError
    await trio.sleep(1)
    node = authorizer._namespaces.known(NAMESPACE)
    node.scope.cancel()
    await store(room.broker.metadata, NAMESPACE, policies({"app": ["produce"]}))
    await peer.producer()


async def test_a_client_that_is_refused_again_and_again_makes_few_reads(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    authorizer: Any = room.broker.authorizer
    reads: list[str] = []
    read = authorizer._namespaces._read

    async def counted(path: str) -> Any:
        reads.append(path)
        return await read(path)

    monkeypatch.setattr(authorizer._namespaces, "_read", counted)
    peer = await room.connect(role="stranger")
    begun = trio.current_time()
    for number in range(200):
        peer.ask_producer(producer_id=number)
    for _ in range(200):
        assert (await peer.error())[0] == pb.AuthorizationError
    assert len(reads) < 10, "those that wait at the same time share a read"
    for _ in range(20):
        assert await peer.refused_producer() == pb.AuthorizationError
    assert len(reads) <= 3 + (trio.current_time() - begun) / nodes.PAUSE_S

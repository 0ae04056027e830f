"""/admin/v3/transactions over a broker in memory: broker/admin/transactions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from broker.errors import ServiceNotReadyError
from broker.transactions.txn_id import COORDINATORS
from quire.metadata import ledger_codec
from quire.metadata.ledger_metadata import Fragment, LedgerMetadata
from quire.metadata.ledgers import ledger_path
from quire.metadata.store import Create
from quire.wire.pulsar.names import TopicName
from tests.support.pulsar_frames import SUB
from tests.support.waiting import until
from tests.unit.broker.peers import TOPIC, Room, in_broker
from tests.unit.broker.rest import rest_of
from tests.unit.broker.transacting import Client, id_of, producer, publish

BASE = "/admin/v3/transactions"
ORDERS = "public/default/orders"


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with in_broker(transactions=True) as room:
        await room.broker.metadata.multi([Create(path="/admin/policies/pulsar/system", make_parents=True)])
        yield room


async def test_coordinators_show_their_logs_and_grow_in_number(room: Room) -> None:
    client = await Client.of(room)
    await client.new()
    async with rest_of(room) as rest:
        shown = await rest.get(f"{BASE}/coordinatorInternalStats/0?metadata=true")
        log = shown["transactionLogStats"]
        assert log["managedLedgerName"] == "pulsar/system/persistent/__transaction_log_0"
        state = log["managedLedgerInternalStats"]
        assert (state["numberOfEntries"], state["state"], list(state["cursors"])) == (
            1,
            "LedgerOpened",
            ["transaction.subscription"],
        )
        assert "schemaLedgers" not in state
        assert list(await rest.get(f"{BASE}/coordinatorStats")) == ["0"]
        # What was never used is not made by a look at it.
        for path in ("coordinatorInternalStats/3", "coordinatorStats?coordinatorId=3", "coordinatorInternalStats/16"):
            assert "Transaction coordinator not found" in await rest.refused("GET", f"{BASE}/{path}", 404)
        assert await rest.status("GET", f"{BASE}/coordinatorInternalStats/x") == 400

        scale = f"{BASE}/transactionCoordinator/replicas"
        for body, status in ((16, 406), (3, 406), (-1, 406), (1025, 412), ("20", 400), (None, 400)):
            assert await rest.status("POST", scale, json=body) == status, body
        assert await rest.status("POST", scale) == 400
        assert await rest.status("POST", scale, json=20) == 204
        assert len(await rest.get(f"{BASE}/coordinators")) == 20
        assert room.broker.topics.partitioned.known(COORDINATORS) in (None, 20)
        assert (await client.connect(19)).HasField("error") is False
        assert await client.new(coordinator=19) == (19, 0)
        assert list(await rest.get(f"{BASE}/coordinatorStats")) == ["0", "19"]


async def describe(room: Room, ledger_id: int) -> None:
    """Store metadata of a ledger, which the fake ledgers do not have."""
    metadata = LedgerMetadata(ensemble_size=1, write_quorum=1, ack_quorum=1, fragments=(Fragment(0, ("b:1",)),))
    store, path = room.cluster.stores[0], ledger_path("/ledgers", ledger_id)
    if await store.get(path) is None:
        await store.create(path, ledger_codec.encode(metadata), make_parents=True)
    else:
        await store.put(path, ledger_codec.encode(metadata), -1)


async def test_logs_of_participants_are_shown(room: Room) -> None:
    client, sender = await Client.of(room), await producer(room)
    place = await publish(sender, b"plain", 0)
    peer = await room.connect()
    await peer.subscribe(TOPIC, "s", subType=SUB.Shared, initialPosition=SUB.Earliest)
    async with rest_of(room) as rest:
        acks = f"{BASE}/pendingAckInternalStats/{ORDERS}"
        assert await rest.refused("GET", f"{acks}/s", 503) == "Pending ack have not init success!"
        at = f"{BASE}/positionStatsInPendingAck/{ORDERS}/s/{place.ledgerId}/{place.entryId}"
        assert await rest.get(at) == {"state": "PendingAckNotReady"}
        for path in (f"{acks}/none", at.replace("/s/", "/none/"), f"{BASE}/pendingAckStats/{ORDERS}/none"):
            assert await rest.status("GET", path) == 404, path
        txn = await client.new()
        await client.add_subscription(txn, TOPIC, "s")
        await peer.answered_ack(place, **id_of(txn))
        pending = (await room.topic()).transactions.acks["s"].records.ledger
        snapshots = await room.topic("persistent://public/default/__transaction_buffer_snapshot")
        for ledger in (pending, snapshots.ledger):
            await describe(room, ledger.index.current_id)
        log = (await rest.get(f"{acks}/s?metadata=true"))["pendingAckLogStats"]
        assert log["managedLedgerName"] == "public/default/persistent/orders-s__transaction_pending_ack"
        state = log["managedLedgerInternalStats"]
        assert (state["numberOfEntries"], list(state["cursors"])) == (1, ["__pending_ack_state"])
        assert "ensembleSize" in state["ledgers"][0]["metadata"]
        assert await rest.get(at) == {"state": "PendingAck"}
        shown = await rest.get(f"{BASE}/pendingAckStats/{ORDERS}/s")
        assert 0 < shown["recoverStartTime"] <= shown["recoverEndTime"]

        internal = f"{BASE}/transactionBufferInternalStats"
        found = await rest.get(f"{internal}/{ORDERS}")
        single = found["singleSnapshotSystemTopicInternalStats"]
        assert found["snapshotType"] == "Single"
        assert single["managedLedgerName"] == "public/default/persistent/__transaction_buffer_snapshot"
        assert single["managedLedgerInternalStats"]["numberOfEntries"] == 1
        assert "ensembleSize" not in str(single)
        assert "ensembleSize" in str(await rest.get(f"{internal}/{ORDERS}?metadata=true"))
        await (await room.connect()).producer("persistent://public/default/plain")
        assert "Snapshot" in await rest.refused("GET", f"{internal}/public/default/plain", 404)

        await client.commit(txn)
        await until(lambda: room.broker.topics.find(TopicName.parse(TOPIC)) is not None)
        assert await rest.get(at) == {"state": "MarkDelete"}
        topic = await room.topic()
        await topic.close()
        buffer = await rest.get(f"{BASE}/transactionBufferStats/{ORDERS}")
        assert 0 < buffer["recoverStartTime"] <= buffer["recoverEndTime"]


async def test_a_message_of_a_batch_is_looked_up_by_its_index(room: Room) -> None:
    client, sender = await Client.of(room), await producer(room)
    await publish(sender, b"first", 0)
    place = await publish(sender, b"batch", 1)
    peer = await room.connect()
    await peer.subscribe(TOPIC, "s", subType=SUB.Shared, initialPosition=SUB.Earliest)
    txn = await client.new()
    await client.add_subscription(txn, TOPIC, "s")
    place.batch_size = 3
    place.ack_set.append(0b101)  # the middle one is acknowledged
    await peer.answered_ack(place, **id_of(txn))
    async with rest_of(room) as rest:
        at = f"{BASE}/positionStatsInPendingAck/{ORDERS}/s/{place.ledgerId}/{place.entryId}"
        states = ("NotInPendingAck", "PendingAck", "NotInPendingAck", "InvalidPosition")
        for index, state in enumerate(states):
            assert await rest.get(f"{at}?batchIndex={index}") == {"state": state}
        assert await rest.get(at) == {"state": "PendingAck"}
        assert await rest.status("GET", f"{at}?batchIndex=-1") == 400
        other = at.removesuffix(str(place.entryId)) + str(place.entryId + 5)
        assert await rest.get(other) == {"state": "NotInPendingAck"}
        await client.abort(txn)
        assert await rest.get(f"{at}?batchIndex=1") == {"state": "NotInPendingAck"}


class Elsewhere:
    """Other brokers, which have what `answers` names."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.away: set[str] = set()
        """Topics that they serve."""

    async def owner(self, name: TopicName) -> str | None:
        return "http://other:8080" if name.full in self.away else None

    async def call(self, web_url: str, method: str, path: str, *, errors: Any) -> Any:
        self.asked.append(f"{method} {web_url}{path}")
        found = self.answers.get(path.removeprefix(f"{BASE}/").partition("/")[0].partition("?")[0])
        if found is None:
            raise errors.get(404, ServiceNotReadyError)("not found")
        return found


async def test_coordinators_and_participants_of_other_brokers_are_asked(room: Room) -> None:
    client = await Client.of(room)
    txn = await client.new()
    there = "persistent://public/default/there"
    await client.add_partition(txn, there)
    await client.add_subscription(txn, there, "s/1")
    administration: Any = room.broker.administration
    others = administration.others = Elsewhere(
        coordinatorStats={"leastSigBits": 77},
        slowTransactions={"(5,1)": {"txnId": "(5,1)"}},
        transactionInBufferStats={"startPosition": "1:2", "aborted": False},
        transactionInPendingAckStats={"cumulativeAckPosition": "3:4"},
    )
    others.away = {COORDINATORS.with_partition(5).full, there}
    name = f"({txn[0]},{txn[1]})"
    async with rest_of(room) as rest:
        stats = await rest.get(f"{BASE}/coordinatorStats")
        assert {each: found["leastSigBits"] for each, found in stats.items()} == {"0": txn[1], "5": 77}
        await until(lambda: room.broker.context.world.clock.wall_ms() > 1)
        slow: dict[str, Any] = {}
        while name not in slow:
            slow = await rest.get(f"{BASE}/slowTransactions/0")
        assert slow["(5,1)"] == {"txnId": "(5,1)"}
        found = await rest.get(f"{BASE}/transactionMetadata/{txn[0]}/{txn[1]}")
        assert found["producedPartitions"] == {there: {"startPosition": "1:2", "aborted": False}}
        assert found["ackedPartitions"] == {there: {"s/1": {"cumulativeAckPosition": "3:4"}}}
        path = f"http://other:8080{BASE}/transactionInPendingAckStats/public/default/there/s%2F1/{txn[0]}/{txn[1]}"
        assert f"GET {path}" in others.asked
        assert f"GET http://other:8080{BASE}/coordinatorStats?coordinatorId=5" in others.asked
        others.answers.clear()  # nothing is known of it there
        found = await rest.get(f"{BASE}/transactionMetadata/{txn[0]}/{txn[1]}")
        assert found["producedPartitions"] == {there: {"startPosition": None, "aborted": False}}
        assert found["ackedPartitions"] == {there: {"s/1": {"cumulativeAckPosition": None}}}
        assert list(await rest.get(f"{BASE}/coordinatorStats")) == ["0"]


async def test_without_transactions_all_is_refused() -> None:
    async with in_broker() as room, rest_of(room) as rest:
        for method, path in (
            ("GET", "coordinators"),
            ("GET", "coordinatorStats"),
            ("GET", "coordinatorInternalStats/0"),
            ("POST", "transactionCoordinator/replicas"),
            ("GET", f"transactionBufferInternalStats/{ORDERS}"),
            ("GET", f"pendingAckInternalStats/{ORDERS}/s"),
            ("GET", f"positionStatsInPendingAck/{ORDERS}/s/1/1"),
        ):
            reason = await rest.refused(method, f"{BASE}/{path}", 503)
            assert "transactionCoordinatorEnabled" in reason


@pytest.mark.parametrize(
    "path",
    [
        f"transactionBufferStats/{ORDERS}?lowWaterMarks=x",
        f"pendingAckStats/{ORDERS}/s?lowWaterMarks=x",
        f"pendingAckInternalStats/{ORDERS}/s?metadata=x",
    ],
)
async def test_a_flag_that_cannot_be_read_is_refused_before_anything_begins(room: Room, path: str) -> None:
    """Within the work on the topic it was an ERROR in the log."""
    peer = await room.connect()
    await peer.subscribe(TOPIC, "s", subType=SUB.Shared, initialPosition=SUB.Earliest)
    async with rest_of(room) as rest:
        assert await rest.status("GET", f"{BASE}/{path}") == 400

"""Transactions on a server that is killed at each step: all or nothing, and no consumer waits for ever. By raw frames,
because the official Python client has no transactions; tests/interop has the stories of the Java client."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support import web
from tests.support.process import wait_until
from tests.support.pulsar_frames import SUB, C, entry
from tests.support.raw import RawClient
from tests.support.server import StandaloneProcess, standalone

Txn = tuple[int, int]
_numbers = itertools.count()


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with standalone(tmp_path_factory.mktemp("standalone"), {"transactionCoordinatorEnabled": "true"}) as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/txn-{next(_numbers)}"


def bits(txn: Txn) -> dict[str, Any]:
    return {"txnid_most_bits": txn[0], "txnid_least_bits": txn[1]}


class Coordinator(RawClient):
    """A connection to coordinator 1."""

    def __init__(self, port: int) -> None:
        super().__init__(port)

        def connects() -> bool:
            request = pb.CommandTcClientConnectRequest(request_id=self.next_id(), tc_id=1)
            self.send(C(type=C.TC_CLIENT_CONNECT_REQUEST, tcClientConnectRequest=request))
            answer = self.expect(C.TC_CLIENT_CONNECT_RESPONSE).tcClientConnectResponse
            return not answer.HasField("error")

        wait_until(connects, "the coordinator is there")

    def new(self, ttl_ms: int = 60_000) -> Txn:
        request = pb.CommandNewTxn(request_id=self.next_id(), txn_ttl_seconds=ttl_ms, tc_id=1)
        self.send(C(type=C.NEW_TXN, newTxn=request))
        answer = self.expect(C.NEW_TXN_RESPONSE).newTxnResponse
        assert not answer.HasField("error"), answer
        return answer.txnid_most_bits, answer.txnid_least_bits

    def add(self, txn: Txn, topic: str, subscription: str = "") -> None:
        if subscription:
            named = [pb.Subscription(topic=topic, subscription=subscription)]
            of_subscription = pb.CommandAddSubscriptionToTxn(request_id=self.next_id(), subscription=named, **bits(txn))
            self.send(C(type=C.ADD_SUBSCRIPTION_TO_TXN, addSubscriptionToTxn=of_subscription))
            assert not self.expect(C.ADD_SUBSCRIPTION_TO_TXN_RESPONSE).addSubscriptionToTxnResponse.HasField("error")
        else:
            of_topic = pb.CommandAddPartitionToTxn(request_id=self.next_id(), partitions=[topic], **bits(txn))
            self.send(C(type=C.ADD_PARTITION_TO_TXN, addPartitionToTxn=of_topic))
            assert not self.expect(C.ADD_PARTITION_TO_TXN_RESPONSE).addPartitionToTxnResponse.HasField("error")

    def ask_end(self, txn: Txn, *, commit: bool) -> None:
        action = pb.COMMIT if commit else pb.ABORT
        request = pb.CommandEndTxn(request_id=self.next_id(), txn_action=action, **bits(txn))
        self.send(C(type=C.END_TXN, endTxn=request))

    def end(self, txn: Txn, *, commit: bool) -> pb.CommandEndTxnResponse:
        self.ask_end(txn, commit=commit)
        return self.expect(C.END_TXN_RESPONSE).endTxnResponse


def publish(client: RawClient, payload: bytes, sequence_id: int, txn: Txn | None = None) -> pb.MessageIdData:
    fields: dict[str, Any] = {} if txn is None else bits(txn)
    body = pb.CommandSend(producer_id=1, sequence_id=sequence_id, num_messages=1, **fields)
    client.send(C(type=C.SEND, send=body), entry(payload, sequence_id=sequence_id, **fields))
    return client.expect(C.SEND_RECEIPT).send_receipt.message_id


def delivered(server: StandaloneProcess, topic: str, last: bytes, *, name: str = "s") -> list[bytes]:
    """Return what a new consumer gets up to the message `last`, which must come."""
    found: list[bytes] = []
    with RawClient(server.port) as reader:
        reader.socket.settimeout(30)
        reader.subscribe(topic, name, initialPosition=SUB.Earliest)
        reader.flow(100)
        while last not in found:
            found.append(reader.message()[1])
    return found


STEPS = ("open", "named", "sent", "acknowledged", "asked", "ended")


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_each_step_leaves_all_or_nothing(
    serving: StandaloneProcess, topic: str, step: str, commit: bool
) -> None:
    """The transaction sends and acknowledges: `asked` is killed while the end is under way."""
    source, sink = f"{topic}-in", f"{topic}-out"
    reached = STEPS.index(step)
    with Coordinator(serving.port) as tc, RawClient(serving.port) as sender, RawClient(serving.port) as feeder:
        sender.producer(sink, txn_enabled=True)
        feeder.producer(source)
        consumer = RawClient(serving.port)
        with consumer:
            consumer.subscribe(source, "s", initialPosition=SUB.Earliest)
            consumer.flow(10)
            place = publish(feeder, b"in", 0)
            assert consumer.message()[1] == b"in"
            txn = tc.new(ttl_ms=6000)
            if reached >= 1:
                tc.add(txn, sink)
                tc.add(txn, source, "s")
            if reached >= 2:
                publish(sender, b"out", 0, txn)
            if reached >= 3:
                consumer.send_ack(place, request_id=consumer.next_id(), **bits(txn))
                assert not consumer.expect(C.ACK_RESPONSE).ackResponse.HasField("error")
            if step == "asked":
                tc.ask_end(txn, commit=commit)
            if step == "ended":
                assert not tc.end(txn, commit=commit).HasField("error")
            serving.kill()
    serving.start()
    with Coordinator(serving.port) as tc, RawClient(serving.port) as sender, RawClient(serving.port) as feeder:
        if step not in ("asked", "ended"):
            answer = tc.end(txn, commit=commit)
            assert not answer.HasField("error"), answer
        feeder.producer(source)
        sender.producer(sink)
        publish(sender, b"end", 9)
        publish(feeder, b"end", 9)
    over = f"{serving.web}/admin/v3/transactions/transactionMetadata/{txn[0]}/{txn[1]}"
    wait_until(lambda: web.get(over, timeout=10).status_code == 404, "the transaction is over")
    out = delivered(serving, sink, b"end")
    left = delivered(serving, source, b"end")
    produced, acknowledged = b"out" in out, b"in" not in left
    assert out == ([b"out", b"end"] if produced else [b"end"])
    assert left == ([b"end"] if acknowledged else [b"in", b"end"])
    if step == "asked":
        assert produced == acknowledged  # the request may not have been read before the kill
    elif reached >= 3:
        assert produced == acknowledged == commit
    else:
        assert produced == (commit and reached >= 2)
        assert not acknowledged


def test_what_operators_see(serving: StandaloneProcess, topic: str) -> None:
    base = f"{serving.web}/admin/v3/transactions"
    short = topic.removeprefix("persistent://")
    with Coordinator(serving.port) as tc, RawClient(serving.port) as sender, RawClient(serving.port) as consumer:
        sender.producer(topic, txn_enabled=True)
        consumer.subscribe(topic, "s", initialPosition=SUB.Earliest)
        place = publish(sender, b"plain", 0)
        txn = tc.new()
        tc.add(txn, topic)
        tc.add(txn, topic, "s")
        publish(sender, b"m", 1, txn)
        consumer.send_ack(place, request_id=consumer.next_id(), **bits(txn))
        consumer.expect(C.ACK_RESPONSE)
        path = f"{txn[0]}/{txn[1]}"
        shown = web.get(f"{base}/transactionMetadata/{path}", timeout=10).json()
        assert (shown["txnId"], shown["status"], shown["timeoutAt"]) == (f"({txn[0]},{txn[1]})", "OPEN", 60_000)
        assert shown["producedPartitions"][topic] == {"startPosition": f"{place.ledgerId}:1", "aborted": False}
        assert list(shown["ackedPartitions"][topic]) == ["s"]
        stats = web.get(f"{base}/coordinatorStats?coordinatorId=1", timeout=10).json()
        assert (stats["state"], stats["leastSigBits"], stats["lowWaterMark"]) == ("Ready", txn[1], txn[1] - 1)
        assert "1" in web.get(f"{base}/coordinatorStats", timeout=10).json()
        assert len(web.get(f"{base}/coordinators", timeout=10).json()) == 16
        slow = f"{base}/slowTransactions/1"
        wait_until(lambda: f"({txn[0]},{txn[1]})" in web.get(slow, timeout=10).json(), "it is slow")
        buffer = web.get(f"{base}/transactionBufferStats/{short}?lowWaterMarks=true", timeout=10).json()
        assert (buffer["state"], buffer["ongoingTxnSize"]) == ("Ready", 1)
        assert buffer["maxReadPosition"] == f"{place.ledgerId}:0"
        acks = web.get(f"{base}/pendingAckStats/{short}/s", timeout=10).json()
        assert (acks["state"], acks["ongoingTxnSize"]) == ("Ready", 1)
        in_acks = web.get(f"{base}/transactionInPendingAckStats/{short}/s/{path}", timeout=10)
        assert in_acks.json() == {"cumulativeAckPosition": None}
        at = f"{base}/positionStatsInPendingAck/{short}/s/{place.ledgerId}"
        assert web.get(f"{at}/{place.entryId}", timeout=10).json() == {"state": "PendingAck"}
        assert web.get(f"{at}/{place.entryId + 1}", timeout=10).json() == {"state": "NotInPendingAck"}
        for log, name in (
            (f"coordinatorInternalStats/{txn[0]}", "transactionLogStats"),
            (f"pendingAckInternalStats/{short}/s", "pendingAckLogStats"),
            (f"transactionBufferInternalStats/{short}", "singleSnapshotSystemTopicInternalStats"),
        ):
            found = web.get(f"{base}/{log}?metadata=true", timeout=10).json()[name]["managedLedgerInternalStats"]
            assert found["numberOfEntries"] > 0
            assert "ensembles=" in found["ledgers"][-1]["metadata"], log
        assert web.request("POST", f"{base}/abortTransaction/{path}", timeout=10).status_code == 204
        in_buffer = web.get(f"{base}/transactionInBufferStats/{short}/{path}", timeout=10).json()
        assert in_buffer == {"startPosition": None, "aborted": True}
        assert web.get(f"{base}/transactionMetadata/{path}", timeout=10).status_code == 404
        assert web.get(f"{base}/transactionMetadata/x/1", timeout=10).status_code == 400


def test_a_deleted_topic_ends_its_part_of_a_transaction(serving: StandaloneProcess, topic: str) -> None:
    with Coordinator(serving.port) as tc, RawClient(serving.port) as sender:
        sender.producer(topic, txn_enabled=True)
        txn = tc.new()
        tc.add(txn, topic)
        tc.add(txn, f"{topic}-never")
        publish(sender, b"m", 0, txn)
        path = topic.replace("://", "/")
        assert web.request("DELETE", f"{serving.web}/admin/v2/{path}?force=true", timeout=10).status_code == 204
        assert not tc.end(txn, commit=True).HasField("error")


def test_coordinators_are_added(serving: StandaloneProcess) -> None:
    base = f"{serving.web}/admin/v3/transactions"
    scale = f"{base}/transactionCoordinator/replicas"
    assert web.request("POST", scale, json=16, timeout=10).status_code == 406
    assert web.request("POST", scale, json=18, timeout=10).status_code == 204
    assert len(web.get(f"{base}/coordinators", timeout=10).json()) == 18
    with RawClient(serving.port) as tc:

        def connects() -> bool:
            request = pb.CommandTcClientConnectRequest(request_id=tc.next_id(), tc_id=17)
            tc.send(C(type=C.TC_CLIENT_CONNECT_REQUEST, tcClientConnectRequest=request))
            return not tc.expect(C.TC_CLIENT_CONNECT_RESPONSE).tcClientConnectResponse.HasField("error")

        wait_until(connects, "the new coordinator is there")


def test_a_message_that_is_peeked_shows_the_state_of_its_transaction(serving: StandaloneProcess, topic: str) -> None:
    """Pulsar's clients leave those of open and aborted transactions out of what they peek."""
    peeked = f"{serving.web}/admin/v2/{topic.replace('://', '/')}/subscription/s/position"

    def headers(number: int) -> tuple[str | None, str | None]:
        found = web.get(f"{peeked}/{number}", timeout=20)
        assert found.status_code == 200, found.text
        return found.headers.get("x-pulsar-txn-uncommitted"), found.headers.get("x-pulsar-txn-aborted")

    with Coordinator(serving.port) as tc, RawClient(serving.port) as sender, RawClient(serving.port) as reader:
        reader.subscribe(topic, "s", initialPosition=SUB.Earliest)
        sender.producer(topic, txn_enabled=True)
        publish(sender, b"plain", 0)
        txn = tc.new()
        tc.add(txn, topic)
        publish(sender, b"open", 1, txn)
        assert headers(1) == ("false", None)
        assert headers(2) == ("true", "false")
        assert not tc.end(txn, commit=False).HasField("error")
        wait_until(lambda: headers(2) == ("false", "true"), "the message is shown as aborted")

"""Topics and subscriptions as participants of transactions. See the package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

from starlette.responses import Response

from broker.admin.openapi.parameters import ENTRY, INT64_MAX, LEDGER, LOW_WATERMARKS, METADATA
from broker.admin.positions.every import on_topic, subscription_of
from broker.admin.requests import AdminCall
from broker.admin.resource import answer
from broker.admin.transactions.calls import BASE, log_stats, service_of, txn_of
from broker.errors import ServiceNotReadyError, TopicNotFoundError
from broker.topics.topic import Topic
from broker.transactions.errors import TransactionNotFoundError
from broker.transactions.pending_acks import AcksInTransactions
from broker.transactions.service import parsed
from broker.transactions.topic_transactions import TransactionsOfTopic
from broker.transactions.txn_id import TxnId
from quire.ledger.position import Position
from quire.service.web.parameters import WholeNumber
from quire.wire.pulsar.names import TopicName

_BATCH_INDEX: Final = WholeNumber("batchIndex", "Message of a batch; the whole entry without it.", 0, INT64_MAX)
SINGLE: Final = "Single"
"""Kind of the snapshots: the whole state in one message. Source: Pulsar's TransactionBuffer.SnapshotType."""


async def buffer_stats(call: AdminCall) -> Response:
    service_of(call)
    has_marks = call.flag(LOW_WATERMARKS)

    async def work(topic: Topic) -> dict[str, Any]:
        found = topic.transactions
        buffer = found.buffer if isinstance(found, TransactionsOfTopic) else None
        state = None if buffer is None else buffer.state
        begun, ended = found.recovery_ms if isinstance(found, TransactionsOfTopic) else (0, 0)
        stats: dict[str, Any] = {
            "state": "NoSnapshot" if state is None else "Ready",
            "maxReadPosition": str(topic.read_bound or topic.ledger.last_confirmed),
            "lastSnapshotTimestamps": 0 if buffer is None else buffer.snapshot_ms,
            "ongoingTxnSize": 0 if state is None else len(state.open),
            "recoverStartTime": begun,
            "recoverEndTime": ended,
            "totalAbortedTransactions": 0 if state is None else len(state.aborted),
            "snapshotType": SINGLE,
        }
        return _with_marks(stats, {} if state is None else state.low_watermarks) if has_marks else stats

    return answer(await on_topic(call, work))


def _with_marks(stats: dict[str, Any], marks: Mapping[int, int]) -> dict[str, Any]:
    return {**stats, "lowWaterMarks": {str(coordinator_id): mark for coordinator_id, mark in marks.items()}}


async def in_buffer(call: AdminCall) -> Response:
    service_of(call)
    txn = txn_of(call)

    async def work(topic: Topic) -> dict[str, Any]:
        return _in_buffer(topic.transactions, txn)

    return answer(await on_topic(call, work))


def _in_buffer(found: object, txn: TxnId) -> dict[str, Any]:
    state = found.buffer.state if isinstance(found, TransactionsOfTopic) and found.buffer is not None else None
    first = None if state is None else state.open.get(txn)
    return {
        "startPosition": None if first is None else str(first),
        "aborted": state is not None and state.is_hidden(txn),
    }


async def buffer_internal_stats(call: AdminCall) -> Response:
    service, name, metadata = service_of(call), call.topic(), call.flag(METADATA)

    async def work(topic: Topic) -> bool:
        found = topic.transactions
        return isinstance(found, TransactionsOfTopic) and found.buffer is not None

    place = await service.snapshots.place(name) if await on_topic(call, work) else None
    if place is None:
        raise TopicNotFoundError("Transaction buffer Snapshot for the topic does not exist")
    stats = await call.administration.internal_stats_json(place, metadata)
    log = {"managedLedgerName": place.managed_ledger_path, "managedLedgerInternalStats": stats}
    return answer({"snapshotType": SINGLE, "singleSnapshotSystemTopicInternalStats": log})


# Subscriptions


async def acks_stats(call: AdminCall) -> Response:
    service_of(call)
    name, has_marks = call.subscription(), call.flag(LOW_WATERMARKS)

    async def work(topic: Topic) -> dict[str, Any]:
        acks = _acks_of(topic, name)
        begun, ended = (0, 0) if acks is None else acks.recovery_ms
        stats: dict[str, Any] = {
            "state": "None" if acks is None else "Ready",
            "ongoingTxnSize": 0 if acks is None else len(acks.state.open),
            "recoverStartTime": begun,
            "recoverEndTime": ended,
        }
        return _with_marks(stats, {} if acks is None else acks.state.low_watermarks) if has_marks else stats

    return answer(await on_topic(call, work))


async def acks_internal_stats(call: AdminCall) -> Response:
    service_of(call)
    name, metadata = call.subscription(), call.flag(METADATA)

    async def work(topic: Topic) -> dict[str, Any]:
        acks = _acks_of(topic, name)
        if acks is None:
            raise ServiceNotReadyError("Pending ack have not init success!")
        return await log_stats(call, acks.records, metadata)

    return answer({"pendingAckLogStats": await on_topic(call, work)})


async def in_acks(call: AdminCall) -> Response:
    service_of(call)
    name, txn = call.subscription(), txn_of(call)

    async def work(topic: Topic) -> dict[str, Any]:
        acks = _acks_of(topic, name)
        if acks is None or txn not in acks.state.open:
            raise TransactionNotFoundError(f"subscription {name!r} has nothing of transaction {txn}")
        return _in_acks(acks, txn)

    return answer(await on_topic(call, work))


async def position_in_acks(call: AdminCall) -> Response:
    service_of(call)
    name, position = call.subscription(), Position(call.number(LEDGER), call.number(ENTRY))
    index = call.whole(_BATCH_INDEX)

    async def work(topic: Topic) -> str:
        subscription, acks = subscription_of(topic, name), _acks_of(topic, name)
        if acks is None:
            return "PendingAckNotReady"
        if position <= subscription.cursor.mark_delete:
            return "MarkDelete"
        return acks.state.state_of(position, index)

    return answer({"state": await on_topic(call, work)})


def _acks_of(topic: Topic, name: str) -> AcksInTransactions | None:
    """Return what a subscription acknowledged in transactions; None: nothing yet. Raises
    SubscriptionNotFoundError, ServiceNotReadyError."""
    subscription_of(topic, name)
    found = topic.transactions
    return found.acks.get(name) if isinstance(found, TransactionsOfTopic) else None


def _in_acks(acks: AcksInTransactions, txn: TxnId) -> dict[str, Any]:
    held = acks.state.open.get(txn)
    cumulative = None if held is None else held.cumulative
    return {"cumulativeAckPosition": None if cumulative is None else str(cumulative.position)}


# Participants wherever they are


async def found_in_buffer(call: AdminCall, topic: str, txn: TxnId) -> Any:
    """Return what a topic has of a transaction, on whichever broker. Raises BrokerError."""
    found = service_of(call).transactions_of(topic)
    if found is None:
        answered = await _ask(
            call, topic, lambda name: f"transactionInBufferStats/{_path(name)}/{txn.most}/{txn.least}"
        )
        if answered is not None:
            return answered
    return _in_buffer(found, txn)


async def found_in_acks(call: AdminCall, topic: str, subscription: str, txn: TxnId) -> Any:
    """Return what a subscription has of a transaction, on whichever broker. Raises BrokerError."""
    found = service_of(call).transactions_of(topic)
    if found is not None and subscription in found.acks:
        return _in_acks(found.acks[subscription], txn)
    at = f"{quote(subscription, safe='')}/{txn.most}/{txn.least}"
    answered = await _ask(call, topic, lambda name: f"transactionInPendingAckStats/{_path(name)}/{at}")
    return {"cumulativeAckPosition": None} if answered is None else answered


async def _ask(call: AdminCall, topic: str, path: Callable[[TopicName], str]) -> Any:
    """Return what the broker of a topic answers; None: this broker has it, or there is nothing of the transaction."""
    name, others = parsed(topic), call.administration.others
    url = None if name is None or others is None else await others.owner(name)
    if name is None or others is None or url is None:
        return None
    try:
        return await others.call(url, "GET", f"{BASE}/{path(name)}", errors={404: TopicNotFoundError})
    except TopicNotFoundError:
        return None


def _path(name: TopicName) -> str:
    return f"{name.namespace_path}/{quote(name.local, safe='')}"

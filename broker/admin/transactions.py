"""Transactions, for operators. The broker of a coordinator, or of a topic, answers; others redirect to it.

GET      {t}/coordinators                       [{"id":0,"brokerServiceUrl":"pulsar://..."}]
GET      {t}/coordinatorStats?coordinatorId=    {"state","leastSigBits","lowWaterMark","ongoingTxnSize"}; without an id
                                                those of this broker, by id
GET      {t}/transactionMetadata/{most}/{least} {"txnId","status","openTimestamp","timeoutAt","producedPartitions",
                                                "ackedPartitions"}; 404 it is over
GET      {t}/slowTransactions/{ms}?coordinatorId=   the same of all that are open for so long, by id
GET      {t}/transactionBufferStats/{topic}?lowWaterMarks=
GET      {t}/transactionInBufferStats/{topic}/{most}/{least}
GET      {t}/pendingAckStats/{topic}/{subscription}?lowWaterMarks=
GET      {t}/transactionInPendingAckStats/{topic}/{subscription}/{most}/{least}
POST     {t}/abortTransaction/{most}/{least}    204; 404 it is over, 409 it is being committed

`{t}` stands for /admin/v3/transactions, `{topic}` for {tenant}/{namespace}/{topic}. 503 where transactions are off.
Source: Pulsar's Transactions (v3), TransactionsBase.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from broker.admin.errors import MalformedRequestError
from broker.admin.positions.every import on_topic
from broker.admin.redirects import at_owner
from broker.admin.requests import INT64_MAX, AdminCall
from broker.admin.resource import answer
from broker.errors import ServiceNotReadyError, SubscriptionNotFoundError
from broker.topics.topic import Topic
from broker.transactions.coordinator import Coordinator
from broker.transactions.coordinator_state import OPEN, Transaction, status_name
from broker.transactions.errors import TransactionNotFoundError
from broker.transactions.service import TransactionService
from broker.transactions.topic_transactions import TransactionsOfTopic
from broker.transactions.txn_id import COORDINATORS, TxnId


def _service(call: AdminCall) -> TransactionService:
    found = call.administration.transactions
    if not isinstance(found, TransactionService):
        raise ServiceNotReadyError("This Broker is not configured with transactionCoordinatorEnabled=true.")
    return found


def _number(call: AdminCall, name: str, text: str | None = None) -> int:
    text = call.part(name) if text is None else text
    if not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) > INT64_MAX:
        raise MalformedRequestError(f"{name} is not a number: {text[:100]!a}")
    return int(text)


def _txn(call: AdminCall) -> TxnId:
    return TxnId(_number(call, "most"), _number(call, "least"))


async def _coordinator(call: AdminCall, number: int) -> Coordinator:
    """Return a coordinator of this broker. Raises RedirectError if another broker has it."""
    service = _service(call)
    if number < await call.administration.partitions(COORDINATORS):
        await at_owner(call, COORDINATORS.with_partition(number))
    return await service.connect(number)


# Coordinators


async def coordinators(call: AdminCall) -> Response:
    service = _service(call)
    count = await call.administration.partitions(COORDINATORS)
    own = call.service.broker_url()
    return answer([{"id": number, "brokerServiceUrl": await service.url_of(number) or own} for number in range(count)])


async def coordinator_stats(call: AdminCall) -> Response:
    wanted = call.request.query_params.get("coordinatorId")
    if wanted is not None:
        return answer(_stats(await _coordinator(call, _number(call, "coordinatorId", wanted))))
    known = sorted(_service(call).coordinators.items())
    return answer({str(number): _stats(coordinator) for number, coordinator in known if not coordinator.closed})


def _stats(coordinator: Coordinator) -> dict[str, Any]:
    state = coordinator.state
    return {
        "state": "Ready",
        "leastSigBits": state.last_id,
        "lowWaterMark": state.low_watermark,
        "ongoingTxnSize": len(state.transactions),
        "recoverStartTime": coordinator.recovery_ms[0],
        "recoverEndTime": coordinator.recovery_ms[1],
    }


async def metadata(call: AdminCall) -> Response:
    txn = _txn(call)
    coordinator = await _coordinator(call, txn.most)
    return answer(_metadata(_service(call), coordinator.state.find(txn)))


async def slow(call: AdminCall) -> Response:
    timeout_ms = _number(call, "timeout")
    wanted = call.request.query_params.get("coordinatorId")
    service = _service(call)
    if wanted is not None:
        found = [await _coordinator(call, _number(call, "coordinatorId", wanted))]
    else:
        found = [each for each in service.coordinators.values() if not each.closed]
    now_ms = service.now_ms()
    return answer(
        {
            str(each.id): _metadata(service, each)
            for coordinator in found
            for each in coordinator.state.transactions.values()
            if each.status == OPEN and now_ms - each.opened_ms > timeout_ms
        }
    )


def _metadata(service: TransactionService, transaction: Transaction) -> dict[str, Any]:
    """Return a transaction as the original shows it. Of its participants, those on this broker are looked into."""
    acked: dict[str, dict[str, Any]] = {}
    for topic, name in transaction.subscriptions:
        acked.setdefault(topic, {})[name] = {"cumulativeAckPosition": None}
        if (found := service.transactions_of(topic)) is not None and name in found.acks:
            acked[topic][name] = _in_acks(found, name, transaction.id)
    produced: dict[str, Any] = {}
    for topic in transaction.partitions:
        found = service.transactions_of(topic)
        produced[topic] = _in_buffer(found, transaction.id)
    return {
        "txnId": str(transaction.id),
        "status": status_name(transaction.status),
        "openTimestamp": transaction.opened_ms,
        "timeoutAt": transaction.timeout_ms,
        "producedPartitions": produced,
        "ackedPartitions": acked,
        "owner": None,
    }


async def abort(call: AdminCall) -> Response | None:
    txn = _txn(call)
    await (await _coordinator(call, txn.most)).end(txn, commit=False)
    return None


# Topics


async def buffer_stats(call: AdminCall) -> Response:
    _service(call)

    async def work(topic: Topic) -> dict[str, Any]:
        found = topic.transactions
        buffer = found.buffer if isinstance(found, TransactionsOfTopic) else None
        if buffer is None:
            return {
                "state": "NoSnapshot",
                "maxReadPosition": str(topic.ledger.last_confirmed),
                "lastSnapshotTimestamps": 0,
                "ongoingTxnSize": 0,
                "totalAbortedTransactions": 0,
                "snapshotType": "Single",
            }
        state = buffer.state
        stats = {
            "state": "Ready",
            "maxReadPosition": str(topic.read_bound or topic.ledger.last_confirmed),
            "lastSnapshotTimestamps": buffer.snapshot_ms,
            "ongoingTxnSize": len(state.open),
            "totalAbortedTransactions": len(state.aborted),
            "snapshotType": "Single",
        }
        if call.flag("lowWaterMarks"):
            stats["lowWaterMarks"] = {str(number): mark for number, mark in state.low_watermarks.items()}
        return stats

    return answer(await on_topic(call, work))


async def in_buffer(call: AdminCall) -> Response:
    _service(call)
    txn = _txn(call)

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


async def acks_stats(call: AdminCall) -> Response:
    _service(call)
    name = call.subscription()

    async def work(topic: Topic) -> dict[str, Any]:
        found = _acks_of(topic, name)
        state = None if found is None else found.acks[name].state
        stats: dict[str, Any] = {
            "state": "None" if state is None else "Ready",
            "ongoingTxnSize": 0 if state is None else len(state.open),
        }
        if call.flag("lowWaterMarks"):
            marks = {} if state is None else state.low_watermarks
            stats["lowWaterMarks"] = {str(number): mark for number, mark in marks.items()}
        return stats

    return answer(await on_topic(call, work))


async def in_acks(call: AdminCall) -> Response:
    _service(call)
    name, txn = call.subscription(), _txn(call)

    async def work(topic: Topic) -> dict[str, Any]:
        found = _acks_of(topic, name)
        if found is None or txn not in found.acks[name].state.open:
            raise TransactionNotFoundError(f"subscription {name!r} has nothing of transaction {txn}")
        return _in_acks(found, name, txn)

    return answer(await on_topic(call, work))


def _acks_of(topic: Topic, name: str) -> TransactionsOfTopic | None:
    if name not in topic.subscriptions:
        raise SubscriptionNotFoundError(f"{topic.name.full} has no subscription {name!r}")
    found = topic.transactions
    return found if isinstance(found, TransactionsOfTopic) and name in found.acks else None


def _in_acks(found: TransactionsOfTopic, name: str, txn: TxnId) -> dict[str, Any]:
    held = found.acks[name].state.open.get(txn)
    cumulative = None if held is None else held.cumulative
    return {"cumulativeAckPosition": None if cumulative is None else str(cumulative.position)}

"""Coordinators and their transactions. See the package."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from starlette.responses import Response

from broker.admin.errors import MalformedRequestError, PreconditionError
from broker.admin.openapi.parameters import COORDINATOR_ID, METADATA
from broker.admin.redirects import at_owner
from broker.admin.requests import INT32_MAX, INT64_MAX, AdminCall
from broker.admin.resource import answer
from broker.admin.transactions.calls import BASE, log_stats, service_of, txn_of
from broker.admin.transactions.participants import found_in_acks, found_in_buffer
from broker.background import for_all
from broker.errors import NotPartitionedError, PartitionCountError, TopicNotFoundError
from broker.transactions.coordinator import Coordinator
from broker.transactions.coordinator_state import OPEN, Transaction, status_name
from broker.transactions.txn_id import COORDINATORS
from quire.service.web.parameters import PathNumber
from quire.service.web.shapes import Whole

T = TypeVar("T")

_REPLICAS: Final = Whole(-INT32_MAX, INT32_MAX)
_COORDINATOR: Final = PathNumber("coordinator", "Number of a coordinator of transactions.", 0, INT64_MAX)
_TIMEOUT: Final = PathNumber("timeout", "Milliseconds for which a transaction is open.", 0, INT64_MAX)
REPLICAS_MAX: Final = 1024
"""Coordinators there may be. Each is a log, and partition of a topic; the original has no bound."""


async def _coordinator(call: AdminCall, coordinator_id: int) -> Coordinator:
    """Return a coordinator of this broker. Raises RedirectError if another broker has it, TopicNotFoundError if there
    is none, or it was never used."""
    service = service_of(call)
    if coordinator_id < await call.administration.partitions(COORDINATORS):
        await at_owner(call, COORDINATORS.with_partition(coordinator_id))
        if (found := await service.existing(coordinator_id)) is not None:
            return found
    raise TopicNotFoundError(f"Transaction coordinator not found! coordinator id : {coordinator_id}")


async def _by_coordinator(
    call: AdminCall, here: Callable[[Coordinator], Awaitable[T]], path: str
) -> list[tuple[int, T | Any]]:
    """Return the results of all coordinators in use, by number: of this broker's those of `here`, of others what their
    brokers answer at `path`, which is given the number. Raises BrokerError."""
    service, others = service_of(call), call.administration.others
    found: dict[int, T | Any] = {}

    async def ask(coordinator_id: int) -> None:
        url = None if others is None else await others.owner(COORDINATORS.with_partition(coordinator_id))
        if url is None or others is None:
            if (known := await service.existing(coordinator_id)) is not None:
                found[coordinator_id] = await here(known)
            return
        try:
            errors = {404: TopicNotFoundError}
            found[coordinator_id] = await others.call(url, "GET", f"{BASE}/{path}{coordinator_id}", errors=errors)
        except TopicNotFoundError:
            pass  # it was never used

    await for_all(range(await call.administration.partitions(COORDINATORS)), ask, name=call.line)
    return sorted(found.items())


async def listed(call: AdminCall) -> Response:
    service = service_of(call)
    count = await call.administration.partitions(COORDINATORS)
    own = call.service.broker_url()
    return answer([{"id": each, "brokerServiceUrl": await service.url_of(each) or own} for each in range(count)])


async def stats(call: AdminCall) -> Response:
    wanted = call.whole(COORDINATOR_ID)
    if wanted is not None:
        return answer(_stats(await _coordinator(call, wanted)))

    async def here(coordinator: Coordinator) -> dict[str, Any]:
        return _stats(coordinator)

    found = await _by_coordinator(call, here, "coordinatorStats?coordinatorId=")
    return answer({str(coordinator_id): each for coordinator_id, each in found})


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


async def internal_stats(call: AdminCall) -> Response:
    coordinator = await _coordinator(call, call.number(_COORDINATOR))
    return answer({"transactionLogStats": await log_stats(call, coordinator.records, call.flag(METADATA))})


async def metadata(call: AdminCall) -> Response:
    txn = txn_of(call)
    coordinator = await _coordinator(call, txn.most)
    return answer(await _metadata(call, coordinator.state.find(txn)))


async def slow(call: AdminCall) -> Response:
    timeout_ms = call.number(_TIMEOUT)
    now_ms = service_of(call).now_ms()

    async def here(coordinator: Coordinator) -> dict[str, Any]:
        late = [
            each
            for each in coordinator.state.transactions.values()
            if each.status == OPEN and now_ms - each.opened_ms > timeout_ms
        ]
        return {str(each.id): await _metadata(call, each) for each in late}

    wanted = call.whole(COORDINATOR_ID)
    if wanted is not None:
        return answer(await here(await _coordinator(call, wanted)))
    found = await _by_coordinator(call, here, f"slowTransactions/{timeout_ms}?coordinatorId=")
    return answer({txn: each for _, transactions in found for txn, each in transactions.items()})


async def _metadata(call: AdminCall, transaction: Transaction) -> dict[str, Any]:
    """Return a transaction as the original shows it, with what its participants, on whichever broker, have of it."""
    produced: dict[str, Any] = {}
    acked: dict[tuple[str, str], Any] = {}

    async def on_partition(topic: str) -> None:
        produced[topic] = await found_in_buffer(call, topic, transaction.id)

    async def on_subscription(at: tuple[str, str]) -> None:
        acked[at] = await found_in_acks(call, *at, transaction.id)

    partitions, subscriptions = list(transaction.partitions), list(transaction.subscriptions)
    await for_all(partitions, on_partition, name=call.line)
    await for_all(subscriptions, on_subscription, name=call.line)
    by_topic: dict[str, dict[str, Any]] = {}
    for topic, name in subscriptions:
        by_topic.setdefault(topic, {})[name] = acked[topic, name]
    return {
        "txnId": str(transaction.id),
        "status": status_name(transaction.status),
        "openTimestamp": transaction.opened_ms,
        "timeoutAt": transaction.timeout_ms,
        "producedPartitions": {topic: produced[topic] for topic in partitions},
        "ackedPartitions": by_topic,
        "owner": transaction.owner or None,
    }


async def abort(call: AdminCall) -> Response | None:
    txn = txn_of(call)
    await (await _coordinator(call, txn.most)).end(txn, commit=False)
    return None


async def scale(call: AdminCall) -> None:
    """Add coordinators. Those that are there stay where they are."""
    service_of(call)
    body = await call.json()
    replicas = _REPLICAS.check(body, "the number of coordinators", MalformedRequestError)
    count = await call.administration.partitions(COORDINATORS)
    if not count:
        raise NotPartitionedError("the coordinators of transactions are not set up yet")
    if replicas <= count:
        raise PartitionCountError(
            "Number of transaction coordinators should be more than the current number of transaction coordinator"
        )
    if replicas > REPLICAS_MAX:
        raise PreconditionError(f"there may be at most {REPLICAS_MAX} coordinators of transactions, not {replicas}")
    await call.administration.grow_partitioned_topic(COORDINATORS, replicas)

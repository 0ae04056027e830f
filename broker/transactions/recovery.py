"""Transactions of a topic that is being loaded."""

from __future__ import annotations

from collections.abc import Mapping

from broker.topics.deduplication.guard import DEDUPLICATION_CURSOR
from broker.transactions.buffer import BufferTopic
from broker.transactions.buffer_state import Snapshot
from broker.transactions.topic_transactions import TransactionsOfTopic
from broker.transactions.txn_id import pending_acks_log
from managed_ledger.errors import ManagedLedgerUnavailableError
from managed_ledger.factory import ManagedLedgerFactory
from managed_ledger.stored_list import log_path
from quire.metadata.errors import MetadataError
from quire.metadata.store import MetadataStore


async def recover_transactions(
    topic: BufferTopic,
    factory: ManagedLedgerFactory,
    metadata: MetadataStore,
    *,
    whole_log: bool,
    with_acks: bool,
) -> TransactionsOfTopic | None:
    """Return the transactions of a topic; None if it has none.

    `whole_log`: Pulsar may have written messages of transactions, so everything is read once; what is learnt is stored.
    `with_acks`: also what subscriptions acknowledged. Raises ManagedLedgerError, CursorError."""
    found = TransactionsOfTopic(topic, factory)
    ledger = topic.ledger
    snapshot = Snapshot(ledger.previous_position(ledger.first_position()), {}, {}) if whole_log else None
    await found.recover(await _with_logs(topic, metadata) if with_acks else (), snapshot)
    return found if found.buffer is not None or found.acks else None


async def _with_logs(topic: BufferTopic, metadata: MetadataStore) -> list[str]:
    """Return the subscriptions that have a log of acknowledgements in transactions."""
    cursors: Mapping[str, object] = topic.ledger.cursors
    found: list[str] = []
    for name in cursors:
        if name == DEDUPLICATION_CURSOR:
            continue
        path = log_path(pending_acks_log(topic.name, name).managed_ledger_path)
        try:
            if await metadata.get(path) is not None:
                found.append(name)
        except MetadataError as error:
            raise ManagedLedgerUnavailableError(f"{path}: {error}") from error
    return found

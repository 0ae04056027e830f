"""Transactions of a topic that is being loaded."""

from __future__ import annotations

from collections.abc import Mapping

from broker.topics.deduplication.guard import DEDUPLICATION_CURSOR
from broker.transactions.buffer import BufferTopic, SnapshotStore
from broker.transactions.buffer_state import Snapshot, SnapshotError, united
from broker.transactions.topic_transactions import TransactionsOfTopic
from broker.transactions.txn_id import IN_TOPIC, NO_TRANSACTIONS, SNAPSHOT_PROPERTY, pending_acks_log
from managed_ledger.errors import ManagedLedgerUnavailableError
from managed_ledger.factory import ManagedLedgerFactory
from managed_ledger.stored_list import log_path
from quire.metadata.errors import MetadataError
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger

log = get_logger(__name__)


async def recover_transactions(
    topic: BufferTopic,
    factory: ManagedLedgerFactory,
    metadata: MetadataStore,
    snapshots: SnapshotStore,
    *,
    has_snapshot: bool,
    with_acks: bool,
) -> TransactionsOfTopic | None:
    """Return the transactions of a topic; None if it has none.

    `has_snapshot`: Quire or Pulsar may have stored one. `with_acks`: also what subscriptions acknowledged. Raises
    ManagedLedgerError, CursorError, MetadataUnavailableError."""
    found = TransactionsOfTopic(topic, factory, snapshots)
    snapshot = await _snapshot_of(topic, snapshots) if has_snapshot else None
    await found.recover(await _with_logs(topic, metadata) if with_acks else (), snapshot)
    return found if found.buffer is not None or found.acks else None


async def _snapshot_of(topic: BufferTopic, snapshots: SnapshotStore) -> Snapshot | None:
    """Return what is known of a topic's transactions at some position; None: it has none."""
    ledger = topic.ledger
    stored = dict(ledger.properties).get(SNAPSHOT_PROPERTY, NO_TRANSACTIONS)
    found: list[Snapshot] = []
    if stored not in (IN_TOPIC, NO_TRANSACTIONS):
        # From an older version, or of a terminated topic.
        try:
            found.append(Snapshot.decode(stored))
        except SnapshotError as error:
            raise ManagedLedgerUnavailableError(f"transactions of {topic.name.full}: {error}") from error
    in_topic = await snapshots.find(topic.name, lambda ledger_id: ledger.last_entry_of(ledger_id) is not None)
    if in_topic is not None:
        found.append(in_topic)
    elif stored == IN_TOPIC:
        log.warning("snapshot of transactions is missing: the topic is read from its beginning", topic=topic.name.full)
        found.append(Snapshot(ledger.previous_position(ledger.first_position()), {}, {}))
    return united(found)


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

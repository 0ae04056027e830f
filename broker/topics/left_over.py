"""Deletion of what a deleted namespace has left."""

from __future__ import annotations

from collections.abc import Iterable

from broker.errors import ServiceNotReadyError, translated
from broker.topics.compaction.leftovers import delete_log
from cursors.errors import CursorError
from managed_ledger.errors import ManagedLedgerError, NoSuchManagedLedgerError
from managed_ledger.factory import ManagedLedgerFactory
from managed_ledger.stored_list import log_path
from quire.metadata.errors import NoNodeError, NotEmptyError
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger
from quire.wire.pulsar.names import NamespaceName, TopicName

log = get_logger(__name__)


async def delete_logs(names: Iterable[TopicName], factory: ManagedLedgerFactory, metadata: MetadataStore) -> None:
    """Delete the logs of topics that no broker owns any more. Raises ServiceNotReadyError."""
    for name in names:
        try:
            await delete_log(factory, metadata, name, None)
            log.info("leftover topic of a deleted namespace removed", topic=name.full)
        except NoSuchManagedLedgerError:
            pass
        except (ManagedLedgerError, CursorError) as error:
            raise ServiceNotReadyError(f"topic {name.full} is not deleted yet: {error}") from error


async def delete_folders(namespace: NamespaceName, metadata: MetadataStore) -> None:
    """Delete the folders that had the nodes of the logs, if they are empty. Raises MetadataUnavailableError."""
    with translated(namespace):
        for folder in (f"{namespace}/persistent", str(namespace)):
            try:
                await metadata.delete(log_path(folder))
            except (NoNodeError, NotEmptyError):
                pass

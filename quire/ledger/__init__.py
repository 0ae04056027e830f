"""The BookKeeper client and ledger API for applications. docs/ledger-api.md is a guide to it.

    async with open_client(world, "zk+hierarchical://zk1:2181/ledgers") as client:
        writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        await writer.write(b"an entry")
        await writer.close()

Where speed matters, append runs of entries with callbacks (`LedgerWriter.append`). Every failure is a `LedgerError` or,
if it comes from the metadata service, a `MetadataError`.
"""

from __future__ import annotations

from quire.ledger.bookies.authentication import BookieCredentials
from quire.ledger.client import LedgerClient
from quire.ledger.context import LedgerConfig
from quire.ledger.errors import LedgerError
from quire.ledger.opening import open_client, open_client_on, open_ledger_client
from quire.ledger.placement.policy import PlacementConfig
from quire.ledger.reading.reader import LedgerReader
from quire.ledger.writing.advanced_writer import AdvancedLedgerWriter
from quire.ledger.writing.writer import LedgerWriter
from quire.wire.bookkeeper.entry import DigestType

__all__ = [
    "AdvancedLedgerWriter",
    "BookieCredentials",
    "DigestType",
    "LedgerClient",
    "LedgerConfig",
    "LedgerError",
    "LedgerReader",
    "LedgerWriter",
    "PlacementConfig",
    "open_client",
    "open_client_on",
    "open_ledger_client",
]

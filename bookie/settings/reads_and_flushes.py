"""Keys of reading ahead, and of the syncs within a flush. Source: BookKeeper's ServerConfiguration, DbLedgerStorage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from quire.service.config import BYTES, conf_key

READ_AHEAD_BYTES: Final = 256 << 10
SEQUENTIAL_AHEAD_BYTES: Final = 1 << 20
"""A larger piece takes a fifth less of the processor per entry, but is wasted on a reader that jumps."""


@dataclass(frozen=True, kw_only=True)
class ReadAndFlushKeys:
    """Bytes that are read ahead, and written between two syncs."""

    read_ahead_batch_bytes: int = conf_key(
        "dbStorage_readAheadCacheBatchBytesSize",
        -1,
        unit=BYTES,
        minimum=-1,
        maximum=16 << 20,
        doc=(
            f"Bytes read ahead at a time. -1 or 0: {READ_AHEAD_BYTES}, or {SEQUENTIAL_AHEAD_BYTES} when a ledger is "
            "read in order. While entries are added, at most quireReadBytesBesideAdds."
        ),
    )
    flush_sync_bytes: int = conf_key(
        "flushEntrylogBytes",
        32 << 20,
        unit=BYTES,
        minimum=0,
        doc="Bytes that a flush writes to an entry log between two syncs of it. 0: it is synced at the end alone.",
    )

    @property
    def read_ahead_bytes_max(self) -> int:
        return self.read_ahead_batch_bytes if self.read_ahead_batch_bytes > 0 else READ_AHEAD_BYTES

    @property
    def sequential_ahead_bytes_max(self) -> int:
        return self.read_ahead_batch_bytes if self.read_ahead_batch_bytes > 0 else SEQUENTIAL_AHEAD_BYTES

"""Deliveries: entries as received by a reader."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Deliveries:
    """Entries in the order of the topic, as parallel columns."""

    ledger_ids: list[int] = field(default_factory=list)
    entry_ids: list[int] = field(default_factory=list)
    entries: list[bytes] = field(default_factory=list)
    """Entries as stored: [0x0e02 broker metadata] 0x0e01 crc32c metadataSize metadata payload."""

    def __len__(self) -> int:
        return len(self.entries)

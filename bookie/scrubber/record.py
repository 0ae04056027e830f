"""Record of the scrubber in one ledger directory, kept in the file `scrub.json` over restarts. Pure.

The file is written without a sync of what it describes: after a crash a part of a round is read again. A damaged file
counts as none, so the next round begins at the first ledger.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from bookie.scrubber.rows import DamagedEntry

FILE_NAME: Final = "scrub.json"
LEDGERS_MAX: Final = 10_000
"""Damaged ledgers that are remembered; further ones are found again in the next round."""
ENTRIES_MAX: Final = 1000
"""Damaged entries that are remembered of one ledger."""
_VERSION: Final = 1


@dataclass(slots=True)
class ScrubRecord:
    """Times in milliseconds since 1970, 0 for never."""

    position: int = -1
    """Ledger to go on with; -1: no round is unfinished."""
    next_log: int = 0
    """Log to go on with, before the ledgers."""
    round_began_ms: int = 0
    round_ended_ms: int = 0
    entries: int = 0
    """Entries read in the current round, or in the last one."""
    unverified: int = 0
    """Number of those whose digest is not known: of a MAC whose password is not in the metadata."""
    logs: dict[int, int] = field(default_factory=dict)
    """Time at which the header and the map of each log were last read; its entries: in the round of that time."""
    damaged_logs: dict[int, str] = field(default_factory=dict)
    """Faults of headers and maps."""
    damages: dict[int, dict[int, DamagedEntry]] = field(default_factory=dict)
    """Damaged entries that are not healed, by ledger and entry."""
    lost: dict[int, str] = field(default_factory=dict)
    """Why a ledger could not be healed at the last try."""

    def begin_round(self, now_ms: int) -> None:
        self.position = self.next_log = 0
        self.round_began_ms = now_ms
        self.entries = self.unverified = 0

    def end_round(self, now_ms: int) -> None:
        self.position = -1
        self.round_ended_ms = now_ms

    def keep_logs(self, existing: Collection[int]) -> None:
        """Forget the logs that are gone."""
        for log_id in [*self.logs]:
            if log_id not in existing:
                del self.logs[log_id]
                self.damaged_logs.pop(log_id, None)

    def log_read(self, log_id: int, now_ms: int, reason: str) -> bool:
        """Note the result of a log's check; return whether it is a new damage."""
        self.logs[log_id] = now_ms
        if not reason:
            self.damaged_logs.pop(log_id, None)
            return False
        is_new = log_id not in self.damaged_logs
        self.damaged_logs[log_id] = reason
        return is_new

    def found(self, damages: Iterable[DamagedEntry]) -> list[int]:
        """Note damaged entries; return the ledgers that had none before."""
        new: list[int] = []
        for damage in damages:
            entries = self.damages.get(damage.ledger_id)
            if entries is None:
                new.append(damage.ledger_id)
                if len(self.damages) >= LEDGERS_MAX:
                    continue
                entries = self.damages[damage.ledger_id] = {}
            if len(entries) < ENTRIES_MAX:
                entries[damage.entry_id] = damage
        return list(dict.fromkeys(new))

    def healed(self, ledger_id: int, entry_ids: Iterable[int]) -> None:
        """Forget damaged entries that are good now, or gone."""
        entries = self.damages.get(ledger_id, {})
        for entry_id in entry_ids:
            entries.pop(entry_id, None)
        if not entries:
            self.damages.pop(ledger_id, None)
            self.lost.pop(ledger_id, None)

    @property
    def damaged_entries(self) -> int:
        return sum([len(entries) for entries in self.damages.values()])


def encode(record: ScrubRecord) -> bytes:
    """Return the content of the file."""
    value = {
        "version": _VERSION,
        "position": record.position,
        "nextLog": record.next_log,
        "roundBegan": record.round_began_ms,
        "roundEnded": record.round_ended_ms,
        "entries": record.entries,
        "unverified": record.unverified,
        "logs": [[log_id, at, record.damaged_logs.get(log_id, "")] for log_id, at in record.logs.items()],
        "damages": [list(each) for entries in record.damages.values() for each in entries.values()],
    }
    return json.dumps(value).encode()


def decode(data: bytes) -> ScrubRecord | None:
    """Return the record in a file; None if it is damaged.

    >>> decode(encode(ScrubRecord(position=7))).position, decode(b"{"), decode(b"[]"), decode(b"[" * 100_000)
    (7, None, None, None)
    """
    try:
        value: Any = json.loads(data)
        if value["version"] != _VERSION:
            return None
        record = ScrubRecord(
            position=int(value["position"]),
            next_log=int(value.get("nextLog", 0)),
            round_began_ms=int(value["roundBegan"]),
            round_ended_ms=int(value["roundEnded"]),
            entries=int(value["entries"]),
            unverified=int(value["unverified"]),
        )
        for log_id, at, reason in value["logs"]:
            record.log_read(int(log_id), int(at), str(reason))
        record.found(
            [DamagedEntry(int(ledger), int(entry), int(log), str(why)) for ledger, entry, log, why in value["damages"]]
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return record

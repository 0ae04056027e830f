"""Choice of the ledgers that are no longer needed. Pure.

Why this is hard: a ledger deleted too early is data lost. So only durable positions of cursors count, not those in
memory; retention ends by age or by size, whichever comes first; and the log must never get a hole, nor lose the
ledger in which a position lies.

Source: Pulsar's ManagedLedgerImpl.internalTrimLedgers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from managed_ledger.config import MIB, MINUTE_MS, LogConfig
from managed_ledger.ledger_list import LedgerInfo
from quire.ledger.position import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Retention of entries that every subscription has consumed. -1: no limit of this kind."""

    time_ms: int = 0
    size: int = 0
    """Bytes."""

    @classmethod
    def of(cls, config: LogConfig) -> Retention:
        return cls(
            time_ms=config.retention_minutes * MINUTE_MS if config.retention_minutes >= 0 else -1,
            size=config.retention_mb * MIB if config.retention_mb >= 0 else -1,
        )


def trimmable(
    ledgers: Sequence[LedgerInfo],
    current_ledger_id: int,
    slowest: Position | None,
    retention: Retention,
    *,
    total_size: int,
    now_ms: int,
) -> list[int]:
    """Return the ids of the ledgers to delete.

    These are, from the start of the list: closed, wholly consumed by the slowest durable cursor (None: there is no
    durable cursor), and past the retention by age or by size. The first one that is kept ends them, so that the log
    never gets a hole. `slowest` is a durable mark-delete position, `total_size` the bytes of the log."""
    found: list[int] = []
    remaining = total_size
    for info in ledgers:
        if info.ledger_id == current_ledger_id or not _is_consumed(info, slowest):
            break
        remaining -= info.size
        too_old = retention.time_ms >= 0 and now_ms - info.closed_ms > retention.time_ms
        too_much = retention.size >= 0 and remaining >= retention.size
        if not (too_old or too_much):
            break
        found.append(info.ledger_id)
    return found


def _is_consumed(info: LedgerInfo, slowest: Position | None) -> bool:
    return slowest is None or slowest >= Position(info.ledger_id, info.last_entry_id)

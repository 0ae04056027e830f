"""A run of consecutive entries of one ledger, as read."""

from __future__ import annotations

from typing import NamedTuple

from quire.world.doors import Buffer


class EntryRun(NamedTuple):
    """Entries from `first_entry_id` on; no payloads: nothing to read there yet. The list may be shared and must not be
    changed."""

    ledger_id: int
    first_entry_id: int
    payloads: list[Buffer]

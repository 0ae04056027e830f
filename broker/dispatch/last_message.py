"""Last message of a topic: the answer to GET_LAST_MESSAGE_ID, up to which clients read."""

from __future__ import annotations

from broker.topics.entry_screen import EntryScreen
from managed_ledger.managed_ledger import ManagedLedger
from quire.ledger.position import Position
from quire.wire.pulsar.metadata import peek

NOTHING = Position(-1, -1)
LOOK_BACK_MAX = 100
"""Undeliverable entries at the end of a log to skip while searching for the last deliverable one."""
LOOK_BACK_IN_TRANSACTIONS_MAX = 10_000
"""The same for a topic with transactions, any of which may be aborted."""


async def last_message(
    ledger: ManagedLedger, screen: EntryScreen, bound: Position | None = None
) -> tuple[Position, int]:
    """Return the entry of the last message, and its index if that is a batch, else -1; NOTHING if there is none.

    Entries that are passed over do not count, nor those behind `bound` (of open transactions): a client would wait for
    them forever. Raises ManagedLedgerError."""
    position = ledger.last_confirmed if bound is None else bound
    for _ in range(LOOK_BACK_MAX if screen.transactions is None else LOOK_BACK_IN_TRANSACTIONS_MAX):
        if position.entry_id < 0 or ledger.last_entry_of(position.ledger_id) is None:
            return NOTHING, -1  # nothing was ever published, or everything is trimmed
        run = await ledger.read(position, 1, 1)
        if not run.payloads or (run.ledger_id, run.first_entry_id) != position:
            break
        if screen.knows(*position) or not screen.is_passed_over(run.payloads[0]):
            found = peek(run.payloads[0])
            return position, found.count - 1 if found.batched else -1
        position = ledger.previous_position(position)
    return position, -1

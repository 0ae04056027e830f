"""Opening of a topic's deduplication: the snapshot, and the entries behind it."""

from __future__ import annotations

import trio

from broker.config import BrokerOptions
from broker.topics.deduplication.guard import DEDUPLICATION_CURSOR, Deduplication
from broker.topics.deduplication.sequences import Sequences, signed
from broker.topics.policies import Held
from managed_ledger.errors import ManagedLedgerReadError, ManagedLedgerUnavailableError, NoSuchCursorError
from managed_ledger.managed_ledger import ManagedLedger
from quire.ledger.position import Position
from quire.service.log import get_logger
from quire.wire.pulsar.errors import MalformedMetadataError
from quire.wire.pulsar.metadata import Buffer, peek

log = get_logger(__name__)

READ_ENTRIES_MAX = 100
READ_BYTES_MAX = 1 << 20
"""Bounds of one read, and of the entries looked at in one step of the event loop. Source of the first: Pulsar's
MessageDeduplication."""


async def open_deduplication(ledger: ManagedLedger, options: BrokerOptions, policies: Held) -> Deduplication | None:
    """Return the deduplication of a topic that is being loaded; None if its policies ask for none.

    The cursor is made if it is missing, at the end of the log, and deleted if it is not needed. Raises
    ManagedLedgerError, CursorError."""
    if not policies.asks_deduplication():
        if DEDUPLICATION_CURSOR in ledger.cursors:
            await delete_cursor(ledger)
        return None
    try:
        return await _recover(ledger, options, policies)
    except ManagedLedgerReadError as error:
        raise ManagedLedgerUnavailableError(f"sequence ids of {ledger.name} not read: {error}") from error


async def _recover(ledger: ManagedLedger, options: BrokerOptions, policies: Held) -> Deduplication:
    cursor = await ledger.open_cursor(DEDUPLICATION_CURSOR)
    cursor.deactivate()  # the tail is not kept in the cache for it
    sequences = Sequences(options.deduplication_names_max)
    sequences.recover(cursor.properties.items(), trio.current_time())
    cursor.rewind()
    entries = await _replay(ledger, cursor.read_position, sequences)
    deduplication = Deduplication(options, policies, cursor, sequences)
    deduplication.replayed(entries, ledger.last_confirmed)
    log.debug("sequence ids recovered", topic=ledger.name, producers=len(sequences.persisted), entries=entries)
    return deduplication


async def _replay(ledger: ManagedLedger, position: Position, sequences: Sequences) -> int:
    """Learn from the entries from `position` on, which nobody adds to meanwhile; return how many there are."""
    entries = 0
    now = trio.current_time()
    while position <= ledger.last_confirmed:
        run = await ledger.read(position, READ_ENTRIES_MAX, READ_BYTES_MAX)
        if not run.payloads:
            break
        sequences.recover(filter(None, map(stored_id, run.payloads)), now)
        entries += len(run.payloads)
        position = ledger.next_position(Position(run.ledger_id, run.first_entry_id + len(run.payloads) - 1))
    return entries


def stored_id(entry: Buffer) -> tuple[str, int] | None:
    """Return the producer of an entry and the sequence id that it stored; None if the entry completes no message."""
    try:
        found = peek(entry)
    except MalformedMetadataError:
        return None
    if found.marker_type is not None:
        return None
    if found.chunk_id is not None and found.chunk_id < (found.chunks or 0) - 1:
        return None
    last = signed(found.sequence_id)
    if found.highest_sequence_id is not None:
        last = max(last, signed(found.highest_sequence_id))
    return found.producer_name, last


async def delete_cursor(ledger: ManagedLedger) -> None:
    """Delete the cursor of a topic whose deduplication is off. Raises ManagedLedgerError, CursorError."""
    try:
        await ledger.delete_cursor(DEDUPLICATION_CURSOR)
    except NoSuchCursorError:
        pass  # never made, or deleted already

"""Memory of one log among thousands, without the ledgers themselves."""

from __future__ import annotations

import gc
import tracemalloc

from managed_ledger.factory import ManagedLedgerFactory
from tests.unit.managed_ledger.cluster import NAME, Cluster, publish

LOGS = 200
BYTES_MAX = 5400
"""It was 5110 on Python 3.11; 5570 before logs created rarely used parts on demand, and 6860 before they shared some.
Much of it belongs to the fake ledgers and the metadata."""


async def test_an_open_log_that_one_entry_was_written_to_takes_little_memory(
    factory: ManagedLedgerFactory, cluster: Cluster
) -> None:
    await publish(await factory.open(NAME), b"x")  # objects that are created once
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(LOGS):
            await publish(await factory.open(f"{NAME}-{number}"), b"x")
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / LOGS < BYTES_MAX


async def test_logs_without_cursors_share_an_empty_table_and_one_with_a_cursor_has_its_own(
    factory: ManagedLedgerFactory, cluster: Cluster
) -> None:
    one, other = await factory.open(NAME), await factory.open(f"{NAME}-2")
    assert one.cursors is other.cursors is one.reader_cursors
    reader = one.new_reader_cursor(one.last_confirmed)
    await one.open_cursor("sub")
    assert (list(one.cursors), list(one.reader_cursors)) == (["sub"], ["reader-1"])
    assert (dict(other.cursors), dict(other.reader_cursors)) == ({}, {})
    one.drop_reader_cursor(reader)
    await one.delete_cursor("sub")
    assert one.cursors is other.cursors is one.reader_cursors

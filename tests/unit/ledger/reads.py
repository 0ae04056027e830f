"""Entries that tests of the ledger client write and read back."""

from __future__ import annotations

from typing import Any

from quire.ledger.client import LedgerClient
from quire.ledger.reading.reader import LedgerReader
from tests.unit.ledger.fake_bookie import begun, payloads


async def written(client: LedgerClient, quorum: tuple[int, int, int], count: int, **options: Any) -> LedgerReader:
    """Write and close a ledger of `count` entries in runs of 7."""
    writer, seen = await begun(client, quorum, **options)
    for first in range(0, count, 7):
        writer.append(payloads(first, min(first + 6, count - 1)))
    await seen.until(count - 1)
    await writer.close()
    return await client.open(writer.ledger_id, recover=False)


async def read_all(reader: LedgerReader, size_max: int = 1 << 20) -> list[bytes]:
    found: list[bytes] = []
    while len(found) <= reader.last_entry_id:
        found += [bytes(each) for each in await reader.read(len(found), reader.last_entry_id, size_max=size_max)]
    return found

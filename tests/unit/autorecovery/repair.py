"""Ledgers on fake bookies for tests of repairs, and a check of every copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quire.ledger.client import LedgerClient
from quire.ledger.striping import Striping
from quire.metadata.ledgers import LedgerMetadata, LedgerState
from quire.wire.bookkeeper.entry import Digest
from tests.unit.ledger.fake_bookie import FakeCluster, write


async def stored(
    cluster: FakeCluster, client: LedgerClient, count: int, **how: Any
) -> tuple[int, list[bytes], LedgerMetadata]:
    """Write a ledger of `count` entries; return its id, its payloads and its metadata."""
    ledger_id, written = await write(client, count, **how)
    return ledger_id, written, await cluster.metadata(ledger_id)


def wrong_copies(cluster: FakeCluster, ledger_id: int, metadata: LedgerMetadata, written: Sequence[bytes]) -> list[str]:
    """Return the copies of a closed ledger that are missing or differ from the written entries."""
    assert metadata.state is LedgerState.CLOSED
    assert metadata.last_entry_id == len(written) - 1
    digest = Digest(metadata.digest_type, metadata.password)
    striping = Striping(metadata.ensemble_size, metadata.write_quorum)
    wrong: list[str] = []
    for entry_id, payload in enumerate(written):
        bookies = metadata.fragment_at(entry_id).bookies
        for index in striping.write_set(entry_id):
            bookie = cluster.bookies[bookies[index]]
            copy = bookie.entries.get(ledger_id, {}).get(entry_id)
            if copy is None or bookie.down:
                wrong.append(f"{entry_id} is missing on {bookie.bookie_id}")
            elif bytes(digest.open(ledger_id, entry_id, memoryview(copy))) != payload:
                wrong.append(f"{entry_id} is wrong on {bookie.bookie_id}")
    return wrong

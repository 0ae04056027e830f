"""What tests of repair share: a cluster of fake bookies, ledgers on it, and a look at every copy."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from autorecovery.ledger_checker import LedgerChecker
from autorecovery.replicator import Replicator
from quire.ledger.client import LedgerClient
from quire.ledger.striping import Striping
from quire.metadata.ledgers import LedgerMetadata, LedgerState
from quire.wire.bookkeeper.entry import Digest
from tests.unit.ledger.fake_bookie import Confirmations, FakeCluster, payloads


@asynccontextmanager
async def repairing(cluster: FakeCluster, **config) -> AsyncIterator[tuple[LedgerClient, LedgerChecker, Replicator]]:
    async with cluster.client(**config) as client:
        checker = LedgerChecker(client, rng=random.Random(1))
        yield client, checker, Replicator(client, checker)


async def write(
    client: LedgerClient, count: int, *, quorums: tuple[int, int, int] = (3, 3, 2), close: bool = True, size: int = 20
) -> tuple[int, list[bytes]]:
    """A ledger of `count` entries; its id and its payloads. All copies are there."""
    writer = await client.create(
        ensemble_size=quorums[0], write_quorum=quorums[1], ack_quorum=quorums[2], password=b"secret"
    )
    seen = Confirmations(writer)
    written = payloads(0, count - 1, size)
    for first in range(0, count, 50):
        writer.append(written[first : first + 50])
    if count:
        await seen.until(count - 1)
    if close:
        await writer.close()
    return writer.ledger_id, written


def wrong_copies(cluster: FakeCluster, ledger_id: int, metadata: LedgerMetadata, written: Sequence[bytes]) -> list[str]:
    """The copies that should be there and are not what was written. Of a closed ledger."""
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

"""A cluster of real bookies on a simulated host, with ledgers and auto recovery."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial

import trio

from autorecovery.config import AutoRecoveryConfig
from autorecovery.ledger_checker import LedgerChecker
from autorecovery.marks.underreplication import UnderreplicatedLedgers
from autorecovery.service import RecoveryStats, open_repair_client, run_autorecovery
from quire.ledger import LedgerClient
from quire.metadata.ledgers import LedgerState
from quire.metadata.store import MetadataStore
from tests.support.waiting import until
from tests.unit.cli.shell.build import LiveCluster
from tests.unit.ledger import fake_bookie

CONFIG = AutoRecoveryConfig(
    open_ledger_grace_period_ms=3000, backoff_ms=200, failed_lock_release_ms=32_000, ledger_check_interval_s=0
)


@asynccontextmanager
async def client_of(cluster: LiveCluster) -> AsyncIterator[LedgerClient]:
    store = cluster.store()
    async with open_repair_client(cluster.world, store, CONFIG) as client:
        yield client
    await store.aclose()


def marks_of(cluster: LiveCluster, store: MetadataStore | None = None, owner: str = "test") -> UnderreplicatedLedgers:
    return UnderreplicatedLedgers(
        store or cluster.store(), rng=cluster.world.rng, wall_ms=cluster.world.clock.wall_ms, owner=owner
    )


async def write(
    client: LedgerClient,
    count: int,
    *,
    quorums: tuple[int, int, int] = (3, 3, 2),
    close: bool = True,
    on: str | None = None,
) -> int:
    """Write a ledger with the bookie `on` as a member; return its id."""
    ledger_id, _ = await fake_bookie.write(client, count, quorums=quorums, close=close, on=on)
    return ledger_id


async def nobody_names(client: LedgerClient, bookie_id: str, ledger_ids: Iterable[int]) -> bool:
    """Return whether none of the ledgers names the bookie."""
    found = [await client.read_metadata(each) for each in ledger_ids]
    return not any(bookie_id in fragment.bookies for each in found for fragment in each.fragments)


async def is_closed(client: LedgerClient, ledger_id: int) -> bool:
    return (await client.read_metadata(ledger_id)).state is LedgerState.CLOSED


async def all_copies_are_good(cluster: LiveCluster, client: LedgerClient, ledger_id: int, count: int) -> None:
    """Check the content of every copy of every entry, read from its bookie."""
    metadata = await client.read_metadata(ledger_id)
    assert metadata.last_entry_id == count - 1, metadata
    checker = LedgerChecker(client, rng=cluster.world.rng)
    assert await checker.check(ledger_id, metadata, percentage=100) == []
    reader = await client.open(ledger_id, password=b"secret", recover=False)
    if count:
        assert list(map(bytes, await reader.read(0, count - 1))) == fake_bookie.payloads(0, count - 1)


async def damage(client: LedgerClient, ledger_id: int, bookie_id: str, entry_id: int) -> None:
    """Change the last byte of the bookie's copy."""
    copies = client.copies(ledger_id, await client.read_metadata(ledger_id))
    [good], _ = await copies.read(bookie_id, [entry_id])
    await copies.write(bookie_id, [entry_id], [memoryview(bytes(good[:-1]) + b"?")])


async def bookie_stops(cluster: LiveCluster, name: str) -> None:
    """Stop a bookie: it is no longer registered, and serves no client."""
    cluster.stops[name].set()
    store = cluster.store()

    async def is_gone() -> bool:
        return await store.get(f"/ledgers/available/{name}") is None

    await until(is_gone)


@asynccontextmanager
async def recovering(
    cluster: LiveCluster,
    config: AutoRecoveryConfig = CONFIG,
    *,
    name: str = "ar1",
    auditor: bool = True,
    worker: bool = True,
    store: MetadataStore | None = None,
) -> AsyncIterator[RecoveryStats]:
    """Run auto recovery in a session of its own, or in that of `store`, which is closed at the end."""
    stats = RecoveryStats()
    stop, is_ready = trio.Event(), trio.Event()
    store = store or cluster.store()
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            async with open_repair_client(cluster.world, store, config) as client:
                await run_autorecovery(
                    cluster.world,
                    store,
                    client,
                    config,
                    name=name,
                    auditor=auditor,
                    worker=worker,
                    stats=stats,
                    ready=is_ready.set,
                    stop=stop,
                )

        nursery.start_soon(run)
        await is_ready.wait()
        yield stats
        stop.set()
    await store.aclose()


async def no_marks(marks: UnderreplicatedLedgers) -> bool:
    return not [each async for each in marks.list()]


def nothing_is_marked(cluster: LiveCluster) -> Callable[[], Awaitable[bool]]:
    return partial(no_marks, marks_of(cluster))

"""A cluster of real bookies on a simulated host, with ledgers, and auto recovery beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import trio

from autorecovery.config import AutoRecoveryConfig
from autorecovery.ledger_checker import LedgerChecker
from autorecovery.service import RecoveryStats, open_repair_client, run_autorecovery
from autorecovery.underreplication import UnderreplicatedLedgers
from quire.ledger import LedgerClient
from quire.metadata.store import MetadataStore
from tests.unit.cli.shell.build import LiveCluster
from tests.unit.ledger.fake_bookie import payloads

CONFIG = AutoRecoveryConfig(
    open_ledger_grace_period_ms=3000, backoff_ms=200, failed_lock_release_ms=32_000, ledger_check_interval_s=0
)
PASSWORD = b"secret"


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
    """A ledger, which the bookie `on` has a part in; its id."""
    while True:
        writer = await client.create(
            ensemble_size=quorums[0], write_quorum=quorums[1], ack_quorum=quorums[2], password=PASSWORD
        )
        if on is None or on in writer.metadata.fragments[0].bookies:
            break
        await writer.close()
        await client.delete(writer.ledger_id)
    if count:
        writer.append(payloads(0, count - 1))
        await writer.wait_confirmed(count - 1)
    if close:
        await writer.close()
    return writer.ledger_id


async def all_copies_are_good(cluster: LiveCluster, client: LedgerClient, ledger_id: int, count: int) -> None:
    """Every copy of every entry, read from its bookie; and what is in them."""
    metadata = await client.read_metadata(ledger_id)
    assert metadata.last_entry_id == count - 1, metadata
    checker = LedgerChecker(client, rng=cluster.world.rng)
    assert await checker.check(ledger_id, metadata, percentage=100) == []
    reader = await client.open(ledger_id, password=PASSWORD, recover=False)
    if count:
        assert list(map(bytes, await reader.read(0, count - 1))) == payloads(0, count - 1)


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 600) -> None:
    """Virtual seconds."""
    with trio.fail_after(seconds):
        while True:
            if await condition():
                return
            await trio.sleep(0.05)


async def bookie_stops(cluster: LiveCluster, name: str) -> None:
    """It is registered no more, and serves nobody."""
    cluster.stops[name].set()
    store = cluster.store()
    watch = store.watch(f"/ledgers/available/{name}")
    while await store.get(f"/ledgers/available/{name}"):
        await watch.next()


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
    """Auto recovery runs, in a session of its own, or `store`'s, which is closed in the end."""
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

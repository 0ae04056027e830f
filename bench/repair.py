"""Speed of repair of lost copies: Quire's auto recovery with one worker and with three, and Apache BookKeeper's, on the
same kind of data.

Four bookies of Quire. Every ledger has its three copies on the first three; one of those is killed, all ledgers are
marked while auto recovery rests, the workers are started, and the time is taken from the moment it is enabled until no
mark is left. Then every copy is there again, on the fourth; it is read and the next one's turn comes, with a fresh
cluster.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import trio

from autorecovery.auditing.election import read_auditor
from autorecovery.marks.underreplication import UnderreplicatedLedgers
from quire.ledger import LedgerClient, open_client
from quire.metadata import bookies
from quire.metadata.store import MetadataStore
from quire.wire.bookkeeper.entry import DigestType
from quire.world.real import real_world
from tools.local_cluster.cluster import LocalCluster
from tools.local_cluster.original import auto_recovery
from tools.local_cluster.plan import Kind, Node, Plan
from tools.local_cluster.store import metadata_store

ENTRIES = 100
ENTRY = b"x" * 1024
WRITTEN_AT_ONCE = 16
POLL_S = 0.02
REPAIR_S = 600.0
SESSION_S = 60.0
"""Time within which the session of a killed bookie ends."""
JAVA_READY_S = 60.0
"""Time within which the original's auto recovery elects its auditor."""
_REPLICATED = re.compile(r'event="ledger replicated"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """Figures of one repair."""

    ledgers: int
    seconds: float
    shares: tuple[float, ...] = ()
    """CPU share of the workers, 0 to 1, if known."""

    @property
    def rate(self) -> float:
        """Return the ledgers per second."""
        return self.ledgers / self.seconds


def repair(folder: Path, lib: Path | None, ledgers: int, say: Callable[[str], None]) -> dict[str, Repair]:
    """Repairs by the kind of worker."""
    found = {}
    if lib is not None:
        found["Apache BookKeeper, one worker"] = one_repair(folder / "repair-original", ledgers, say, lib=lib)
    found["Quire, one worker"] = one_repair(folder / "repair-1", ledgers, say, workers=1)
    found["Quire, three workers"] = one_repair(folder / "repair-3", ledgers, say, workers=3)
    return found


def one_repair(
    folder: Path, ledgers: int, say: Callable[[str], None], *, workers: int = 0, lib: Path | None = None
) -> Repair:
    """Repair ledgers on a separate cluster, with so many workers of Quire, or one of the original."""
    cluster = LocalCluster.make(folder, Plan(bookies=3, brokers=0, recoveries=workers), bound=True)
    who = f"{workers} of ours" if workers else "the original's"
    with ExitStack() as stack:
        stack.callback(cluster.abandon)
        recoveries = cluster.nodes(Kind.RECOVERY)
        cluster.state.nodes = [node for node in cluster.state.nodes if node.kind is not Kind.RECOVERY]
        cluster.up()
        say(f"writing {ledgers} ledgers for {who}")
        ledger_ids = trio.run(_write, cluster.metadata_uri, ledgers)
        cluster.add_bookie()
        lost = cluster.nodes(Kind.BOOKIE)[0]
        cluster.kill(lost)
        trio.run(_mark, cluster, lost, ledger_ids)
        if lib is not None:
            stack.callback(auto_recovery(folder / "original", lib, cluster.metadata_uri).stop)
            trio.run(_wait_for_auditor, cluster)
        for node in recoveries:
            cluster.state.nodes.append(node)
            cluster.start(node)
        seconds = trio.run(_repaired, cluster)
        shares = _shares(cluster, recoveries)
        result = Repair(ledgers=ledgers, seconds=seconds, shares=shares)
        say(f"repair by {who}: {result.rate:.1f} ledgers/s")
        if not (copies := cluster.verify_replicas())["good"]:
            raise RuntimeError(f"copies are missing after the repair, however fast it was: {copies}")
    return result


def _shares(cluster: LocalCluster, recoveries: list[Node]) -> tuple[float, ...]:
    counts = [len(_REPLICATED.findall(cluster.log(node))) for node in recoveries]
    total = sum(counts)
    return tuple(count / total for count in counts) if total else ()


# --- on the cluster


async def _write(uri: str, count: int) -> list[int]:
    made: list[int] = []

    async def some(client: LedgerClient, number: int) -> None:
        for _ in range(number):
            writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=3, digest_type=DigestType.CRC32C)
            writer.append([ENTRY] * ENTRIES)
            await writer.wait_confirmed(ENTRIES - 1)
            await writer.close()
            made.append(writer.ledger_id)

    async with open_client(real_world(), uri) as client, trio.open_nursery() as nursery:
        for number in range(WRITTEN_AT_ONCE):
            share = count // WRITTEN_AT_ONCE + (number < count % WRITTEN_AT_ONCE)
            nursery.start_soon(some, client, share)
    return made


async def _until(store: MetadataStore, path: str, condition: Callable[[], Awaitable[bool]], seconds: float) -> None:
    """Wait until a condition holds, checked whenever the node changes. Raises trio.TooSlowError."""
    changes = store.watch(path)
    try:
        with trio.fail_after(seconds):
            while not await condition():
                await changes.next()
    finally:
        changes.close()


async def _wait_for_auditor(cluster: LocalCluster) -> None:
    """Wait until auto recovery has started, which its election shows. Raises trio.TooSlowError."""
    async with metadata_store(cluster.state.addresses, cluster.security) as store:

        async def elected() -> bool:
            return await read_auditor(store) is not None

        await _until(store, "/ledgers/underreplication/auditorelection", elected, JAVA_READY_S)


def _marks(store: MetadataStore) -> UnderreplicatedLedgers:
    world = real_world()
    return UnderreplicatedLedgers(store, rng=world.rng, wall_ms=world.clock.wall_ms, owner="bench")


async def _mark(cluster: LocalCluster, lost: Node, ledger_ids: list[int]) -> None:
    """Mark all ledgers, with auto recovery disabled, once the bookie's session has ended. Raises trio.TooSlowError if
    it does not end."""
    async with metadata_store(cluster.state.addresses, cluster.security) as store:

        async def gone() -> bool:
            return lost.address not in await bookies.available(store)

        marks = _marks(store)
        await marks.prepare()
        await marks.disable()
        await _until(store, "/ledgers/available", gone, SESSION_S)
        for ledger_id in ledger_ids:
            await marks.mark(ledger_id, [lost.address])


async def _repaired(cluster: LocalCluster) -> float:
    """Enable auto recovery; return the seconds until nothing is marked. Raises RuntimeError if that takes too long."""
    async with metadata_store(cluster.state.addresses, cluster.security) as store:
        marks = _marks(store)
        begun = time.perf_counter()
        await marks.enable()
        while True:
            async for _ in marks.list():
                break
            else:
                return time.perf_counter() - begun
            if time.perf_counter() - begun > REPAIR_S:
                raise RuntimeError(f"{await marks.count()} ledgers are still marked after {REPAIR_S:g} s")
            await trio.sleep(POLL_S)

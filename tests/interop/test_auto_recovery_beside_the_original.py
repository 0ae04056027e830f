"""A bookie is lost permanently. The original's auto recovery repairs ledgers of Quire's client, and Quire's repairs
those of the original's client; bookies of both kinds get the copies. Afterwards Quire reads every copy, and the
original's client every entry.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import trio

from autorecovery.auditing.election import read_auditor
from autorecovery.ledger_checker import LedgerChecker
from autorecovery.marks.underreplication import UnderreplicatedLedgers
from quire.ledger import LedgerClient, open_client
from quire.metadata.ledgers import LedgerState
from quire.metadata.store import MetadataStore
from quire.wire.bookkeeper.entry import DIGEST_TYPES
from quire.world.real import real_world
from tests.interop import exchange
from tests.interop.exchange import Exchanged
from tests.interop.java import ApacheAutoRecovery, ApacheBookie, run_tester
from tests.interop.mixed import mixed_bookies
from tests.support.autorecovery_process import auto_recovery
from tests.support.bookie_process import BookieProcess
from tests.support.bookies import BookieCluster
from tests.support.waiting import until
from tests.support.zookeeper import opened, run

PATIENCE_S = 120.0


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[tuple[BookieCluster, ApacheBookie]]:
    """Run three of Quire's bookies and one of the original's."""
    with mixed_bookies(tmp_path, 3) as bookies:
        yield bookies


def lose_for_good(bookie: BookieProcess | ApacheBookie) -> None:
    bookie.kill()
    for folder in ("journal", "ledgers"):
        shutil.rmtree(bookie.log_path.parent / folder)


def on_cluster(cluster: BookieCluster, story: Callable[[LedgerClient, MetadataStore], Awaitable[None]]) -> None:
    async def main() -> None:
        async with (
            opened(cluster.zookeeper.config("/")) as store,
            open_client(real_world(), cluster.uri) as client,
        ):
            await story(client, store)

    run(main, PATIENCE_S)


async def members(client: LedgerClient, ledgers: Sequence[Exchanged]) -> dict[int, set[str]]:
    """Return the bookies that each ledger names."""
    found: dict[int, set[str]] = {}
    for each in ledgers:
        metadata = await client.read_metadata(each.ledger)
        found[each.ledger] = {bookie for fragment in metadata.fragments for bookie in fragment.bookies}
    return found


async def repaired(
    client: LedgerClient, store: MetadataStore, root: str, ledgers: Sequence[Exchanged], lost: str
) -> None:
    """Wait until no ledger with entries names the lost bookie, and nothing is marked any more."""
    world = real_world()
    marks = UnderreplicatedLedgers(store, root=root, rng=world.rng, wall_ms=world.clock.wall_ms, owner="test")
    with_entries = [each for each in ledgers if each.entries]
    while True:
        naming = await members(client, with_entries)
        marked = [each.ledger_id async for each in marks.list()]
        if not marked and not any(lost in names for names in naming.values()):
            return
        await trio.sleep(0.2)


async def read_every_copy(
    client: LedgerClient, ledgers: Sequence[Exchanged], living: Collection[str], concerned: Collection[int]
) -> None:
    """Check that each copy of each entry exists and matches its digest, and that the entries are those written."""
    for each in ledgers:
        metadata = await client.read_metadata(each.ledger)
        if each.closed and not each.entries:
            continue  # nothing to be copied
        assert {bookie for fragment in metadata.fragments for bookie in fragment.bookies} <= set(living)
        if metadata.state is not LedgerState.CLOSED:
            assert each.ledger not in concerned  # one that was left open, and whose repair would have closed it
            await exchange.verify_one(client, each, recover=True)
            metadata = await client.read_metadata(each.ledger)
        checker = LedgerChecker(
            client,
            rng=real_world().rng,
            password=each.password.encode(),
            digest_type=DIGEST_TYPES[each.digest],
        )
        assert await checker.check(each.ledger, metadata, percentage=100) == []
        await exchange.verify_one(client, each, recover=False)


@dataclass(frozen=True, slots=True)
class Loss:
    """A bookie that is lost permanently, the remaining bookies, and the ledgers of which it had copies."""

    lost: str
    left: frozenset[str]
    concerned: frozenset[int]


def lose_one(ours: BookieCluster, theirs: ApacheBookie, which: str, ledgers: Sequence[Exchanged]) -> Loss:
    doomed = theirs if which == "theirs" else ours.bookies[0]
    named: dict[int, set[str]] = {}

    async def story(client: LedgerClient, store: MetadataStore) -> None:
        named.update(await members(client, [each for each in ledgers if each.entries]))

    on_cluster(ours, story)
    everybody = {theirs.id, *(each.id for each in ours.bookies)}
    assert set().union(*named.values()) == everybody
    lose_for_good(doomed)
    concerned = frozenset(ledger_id for ledger_id, names in named.items() if doomed.id in names)
    return Loss(doomed.id, frozenset(everybody - {doomed.id}), concerned)


def until_whole(ours: BookieCluster, ledgers: Sequence[Exchanged], loss: Loss) -> None:
    """Wait for the repair, and check its results."""

    async def story(client: LedgerClient, store: MetadataStore) -> None:
        await repaired(client, store, ours.root, ledgers, loss.lost)
        await read_every_copy(client, ledgers, loss.left, loss.concerned)

    on_cluster(ours, story)


def verified_by_the_original(uri: str, ledgers: Sequence[Exchanged], folder: Path) -> None:
    path = folder / "verified.jsonl"
    exchange.write_list(path, list(ledgers))
    for options in (("--recover",), ("--v2",)):
        assert f"{len(ledgers)} passed, 0 failed" in run_tester(uri, "verify", str(path), *options)


@pytest.mark.parametrize("which", ["theirs", "ours"])
def test_the_originals_auto_recovery_makes_ledgers_of_ours_whole(
    which: str, mixed: tuple[BookieCluster, ApacheBookie], tmp_path: Path
) -> None:
    ours, theirs = mixed
    ledgers = [each for protocol in ("v2", "v3") for each in exchange.write(ours.uri, protocol, count=30)]
    loss = lose_one(ours, theirs, which, ledgers)
    with ApacheAutoRecovery(tmp_path / "recovery", ours.uri):
        until_whole(ours, ledgers, loss)
    verified_by_the_original(ours.uri, ledgers, tmp_path)


@pytest.mark.parametrize("which", ["theirs", "ours"])
def test_our_auto_recovery_makes_ledgers_of_the_original_whole(
    which: str, mixed: tuple[BookieCluster, ApacheBookie], tmp_path: Path
) -> None:
    ours, theirs = mixed
    ledgers: list[Exchanged] = []
    for number, options in enumerate(((), ("--v2",))):
        path = tmp_path / f"written-{number}.jsonl"
        run_tester(ours.uri, "write", str(path), *options)
        ledgers += exchange.read_list(path)
    loss = lose_one(ours, theirs, which, ledgers)
    with auto_recovery(ours.folder, ours.uri, "recovery-1", "recovery-2"):
        until_whole(ours, ledgers, loss)
    verified_by_the_original(ours.uri, ledgers, tmp_path)


@pytest.mark.real_clock(seconds=PATIENCE_S)
async def test_candidates_of_both_kinds_elect_one_auditor_and_each_takes_over_from_the_other(
    mixed: tuple[BookieCluster, ApacheBookie], tmp_path: Path
) -> None:
    ours, _ = mixed
    async with opened(ours.zookeeper.config("/")) as store:

        async def is_ours() -> bool:
            return await read_auditor(store, ours.root) == "of-ours"

        async def is_theirs() -> bool:
            return (await read_auditor(store, ours.root) or "").startswith("127.0.0.1:")

        async def votes(count: int) -> bool:
            return len(await store.children(f"{ours.root}/underreplication/auditorelection")) == count

        with auto_recovery(ours.folder, ours.uri, "of-ours") as [process]:
            await until(is_ours, "ours is the auditor")
            with ApacheAutoRecovery(tmp_path / "recovery", ours.uri) as theirs:
                await until(partial(votes, 2), "theirs is a candidate")
                assert await is_ours()
                process.kill()
                await until(is_theirs, "theirs is the auditor")
                with auto_recovery(ours.folder, ours.uri, "of-ours"):
                    await until(partial(votes, 2), "ours is a candidate")
                    assert await is_theirs()
                    theirs.kill()
                    await until(is_ours, "ours is the auditor again")

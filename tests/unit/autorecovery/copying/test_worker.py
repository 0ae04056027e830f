"""The replication worker: the order of its ledgers, and the state of those that it cannot repair."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import trio

from autorecovery.copying.ledger_repair import LedgerRepair
from autorecovery.copying.worker import LEDGERS_AT_ONCE
from autorecovery.errors import StillBadError
from quire.metadata.errors import MetadataUnavailableError
from quire.metadata.local.memory import MemoryStore
from tests.support.waiting import until
from tests.unit.autorecovery.live import (
    CONFIG,
    all_copies_are_good,
    bookie_stops,
    client_of,
    marks_of,
    nobody_names,
    nothing_is_marked,
    recovering,
    write,
)
from tests.unit.cli.shell.build import with_bookies

pytestmark = pytest.mark.seeded


async def test_a_ledger_that_cannot_be_repaired_is_tried_ever_more_rarely_and_done_once_it_can() -> None:
    async with with_bookies() as cluster:
        spare = cluster.bookies["b3"]
        spare.set_read_only(True)
        async with client_of(cluster) as client:

            async def the_spare_one_takes_nothing() -> bool:
                return client.cluster is not None and client.cluster.read_only == {"b3"}

            await until(the_spare_one_takes_nothing)
            ledger_id = await write(client, 10, quorums=(2, 2, 1))
            async with recovering(cluster) as stats:
                await bookie_stops(cluster, "b1")
                await trio.sleep(100)  # kept for 1, 2, 4 ... 32 s
                assert 6 <= stats.worker.failed <= 9
                assert [each.ledger_id async for each in marks_of(cluster).list()] == [ledger_id]
                spare.set_read_only(False)
                await until(nothing_is_marked(cluster), within=60)
            await all_copies_are_good(cluster, client, ledger_id, 10)


async def test_a_ledger_that_cannot_be_repaired_for_days_does_not_end_the_worker(monkeypatch: pytest.MonkeyPatch):
    async with with_bookies(count=1) as cluster:

        async def repair(self: LedgerRepair, ledger_id: int, marked: Collection[str]) -> bool:
            raise StillBadError("a copy is missing")

        monkeypatch.setattr(LedgerRepair, "repair", repair)
        await marks_of(cluster).mark(7, ["b1"])
        often = replace(CONFIG, failed_lock_release_ms=32)
        async with recovering(cluster, often, auditor=False) as stats:
            await until(lambda: stats.worker.failed > 1100, within=600)  # after 1,024 doublings a float overflows


async def test_others_are_repaired_while_some_cannot_be() -> None:
    async with with_bookies(count=4) as cluster, client_of(cluster) as client:
        stuck = [await write(client, 10, quorums=(4, 4, 3)) for _ in range(20)]
        well = [await write(client, 10, quorums=(2, 2, 2), on="b1") for _ in range(20)]
        async with recovering(cluster):
            await bookie_stops(cluster, "b1")
            await until(partial(nobody_names, client, "b1", well), within=60)
        for ledger_id in well:
            await all_copies_are_good(cluster, client, ledger_id, 10)
        for ledger_id in stuck:
            assert "b1" in (await client.read_metadata(ledger_id)).fragments[0].bookies


async def test_a_mark_that_was_merged_while_its_ledger_was_repaired_is_looked_at_again(monkeypatch: pytest.MonkeyPatch):
    async with with_bookies(count=1) as cluster:
        marks = marks_of(cluster)
        looked_at: list[tuple[str, ...]] = []

        async def repair(self: LedgerRepair, ledger_id: int, marked: Collection[str]) -> bool:
            looked_at.append(tuple(marked))
            await marks.mark(ledger_id, ["b2"])
            return True

        monkeypatch.setattr(LedgerRepair, "repair", repair)
        await marks.mark(7, ["b1"])
        async with recovering(cluster, auditor=False):
            await until(nothing_is_marked(cluster))
        assert looked_at == [("b1",), ("b1", "b2")]


async def test_several_ledgers_are_repaired_at_once_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async with with_bookies(count=1) as cluster:
        running = most = 0

        async def repair(self: LedgerRepair, ledger_id: int, marked: Collection[str]) -> bool:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await trio.sleep(1)
            running -= 1
            return True

        monkeypatch.setattr(LedgerRepair, "repair", repair)
        for ledger_id in range(3 * LEDGERS_AT_ONCE):
            await marks_of(cluster).mark(ledger_id, ["b1"])
        async with recovering(cluster, auditor=False):
            await until(nothing_is_marked(cluster))
        assert most == LEDGERS_AT_ONCE


class Forgetful(MemoryStore):
    """A store that loses the answer to the first lock."""

    lost = 0

    async def create(self, path: str, *args: Any, **options: Any) -> str:
        made = await super().create(path, *args, **options)
        if "/locks/" in path and not self.lost:
            self.lost += 1
            raise MetadataUnavailableError("the answer was lost")
        return made


async def test_a_lock_that_was_made_unheard_of_does_not_keep_the_ledger_from_everybody() -> None:
    async with with_bookies(count=3) as cluster, client_of(cluster) as client:
        ledger_id = await write(client, 10)
        store = Forgetful(cluster.tree)
        async with recovering(cluster, store=store):
            await marks_of(cluster).mark(ledger_id, ["b1"])
            await until(nothing_is_marked(cluster), within=60)
        assert store.lost == 1

"""The replication worker: which ledger when, and what becomes of those it cannot repair."""

from __future__ import annotations

from typing import Any

import trio

from quire.metadata.errors import MetadataUnavailableError
from quire.metadata.memory import MemoryStore
from tests.unit.autorecovery.live import (
    all_copies_are_good,
    bookie_stops,
    client_of,
    marks_of,
    nothing_is_marked,
    recovering,
    until,
    write,
)
from tests.unit.cli.shell.build import LiveCluster, with_bookies


def test_a_ledger_that_cannot_be_repaired_is_tried_ever_more_rarely_and_done_once_it_can() -> None:
    async def story(cluster: LiveCluster) -> None:
        async with client_of(cluster) as client:
            ledger_id = await write(client, 10, quorums=(2, 2, 1))
            async with recovering(cluster) as stats:
                await bookie_stops(cluster, "b1")
                await trio.sleep(100)  # kept for 1, 2, 4 ... 32 s
                assert 6 <= stats.worker.failed <= 9
                assert not await nothing_is_marked(cluster)()
                [mark] = [each async for each in marks_of(cluster).list()]
                assert mark.ledger_id == ledger_id

    with_bookies(story, count=2)


def test_others_are_repaired_while_some_cannot_be() -> None:
    async def story(cluster: LiveCluster) -> None:
        async with client_of(cluster) as client:
            stuck = [await write(client, 10, quorums=(4, 4, 3)) for _ in range(20)]
            well = [await write(client, 10, quorums=(2, 2, 2), on="b1") for _ in range(20)]
            async with recovering(cluster):
                await bookie_stops(cluster, "b1")

                async def all_well() -> bool:
                    named = [(await client.read_metadata(each)).fragments[0].bookies for each in well]
                    return not any("b1" in each for each in named)

                await until(all_well, seconds=60)
            for ledger_id in well:
                await all_copies_are_good(cluster, client, ledger_id, 10)
            for ledger_id in stuck:
                assert "b1" in (await client.read_metadata(ledger_id)).fragments[0].bookies

    with_bookies(story, count=4)


class Forgetful(MemoryStore):
    """The answer to the first lock is lost."""

    lost = 0

    async def create(self, path: str, *args: Any, **options: Any) -> str:
        made = await super().create(path, *args, **options)
        if "/locks/" in path and not self.lost:
            self.lost += 1
            raise MetadataUnavailableError("the answer was lost")
        return made


def test_a_lock_that_was_made_unheard_of_does_not_keep_the_ledger_from_everybody() -> None:
    async def story(cluster: LiveCluster) -> None:
        async with client_of(cluster) as client:
            ledger_id = await write(client, 10)
            store = Forgetful(cluster.tree)
            async with recovering(cluster, store=store):
                await marks_of(cluster).mark(ledger_id, ["b1"])
                await until(nothing_is_marked(cluster), seconds=60)
            assert store.lost == 1

    with_bookies(story, count=3)

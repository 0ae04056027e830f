"""decommissionbookie"""

from __future__ import annotations

import pytest

from quire.cli.shell.errors import ShellError
from tests.support.waiting import until
from tests.unit.autorecovery.live import all_copies_are_good, bookie_stops, client_of, marks_of, recovering, write
from tests.unit.cli.shell.build import LiveCluster, with_bookies

pytestmark = pytest.mark.seeded


async def auditor_is_elected(cluster: LiveCluster) -> None:
    async def elected() -> bool:
        try:
            return (await cluster.run("whoisauditor", "--json")).code == 0
        except ShellError:
            return False

    await until(elected)


async def test_a_stopped_bookie_goes_when_all_it_had_is_elsewhere() -> None:
    async with with_bookies(count=5) as cluster, client_of(cluster) as client:
        closed = [await write(client, 20) for _ in range(6)]
        open_one = await write(client, 4, close=False, on="b2")
        async with recovering(cluster):
            await auditor_is_elected(cluster)
            await bookie_stops(cluster, "b2")
            ran = await cluster.run("decommissionbookie", "-bookieid", "b2", "--json")
            assert (ran.code, ran.values[0]["decommissioned"]) == (0, True)
            for ledger_id in closed:
                assert "b2" not in (await client.read_metadata(ledger_id)).fragments[0].bookies
                await all_copies_are_good(cluster, client, ledger_id, 20)
            await all_copies_are_good(cluster, client, open_one, 4)
            assert await cluster.store().get("/ledgers/cookies/b2") is None


async def test_it_is_refused_while_the_bookie_runs_or_nobody_would_copy() -> None:
    async with with_bookies(count=2) as cluster:
        with pytest.raises(ShellError, match="is running"):
            await cluster.run("decommissionbookie", "-bookieid", "b1")
        await bookie_stops(cluster, "b1")
        with pytest.raises(ShellError, match="no auditor is running"):
            await cluster.run("decommissionbookie", "-bookieid", "b1")
        await cluster.run("autorecovery", "-d")
        with pytest.raises(ShellError, match="disabled"):
            await cluster.run("decommissionbookie", "-bookieid", "b1")
        assert await cluster.store().get("/ledgers/cookies/b1") is not None


async def test_it_is_refused_while_copies_of_another_lost_bookie_are_missing() -> None:
    async with with_bookies(count=4) as cluster, client_of(cluster) as client:
        for _ in range(8):
            await write(client, 5, quorums=(2, 2, 2))
        async with recovering(cluster, worker=False):
            await auditor_is_elected(cluster)
            await bookie_stops(cluster, "b1")
            await bookie_stops(cluster, "b2")
            with pytest.raises(ShellError, match=r"copies of other bookies are missing.*b2"):
                await cluster.run("decommissionbookie", "-bookieid", "b1")
            assert await cluster.store().get("/ledgers/cookies/b1") is not None


async def test_it_is_refused_while_a_ledger_is_marked_for_another_bookie() -> None:
    async with with_bookies(count=2) as cluster:
        marks = marks_of(cluster)
        async with recovering(cluster, worker=False):
            await auditor_is_elected(cluster)
            await bookie_stops(cluster, "b1")
            await marks.mark(3, ["b2"])
            with pytest.raises(ShellError, match=r"1 ledgers are marked .* 3"):
                await cluster.run("decommissionbookie", "-bookieid", "b1")
            await marks.unmark(3)
            with pytest.raises(ShellError, match="unknown bookie"):
                await cluster.run("decommissionbookie", "-bookieid", "b9")
            ran = await cluster.run("decommissionbookie", "-bookieid", "b1", "--dry-run")
            assert (ran.code, await cluster.store().get("/ledgers/cookies/b1") is not None) == (0, True)

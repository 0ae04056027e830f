"""recover"""

from __future__ import annotations

import pytest

from quire.cli.shell.errors import FAILED, ShellError
from quire.metadata.ledgers import LedgerState
from tests.unit.autorecovery.live import all_copies_are_good, bookie_stops, client_of, write
from tests.unit.cli.shell.build import with_bookies

pytestmark = pytest.mark.seeded


async def test_what_a_lost_bookie_had_is_put_on_others_and_its_cookie_deleted() -> None:
    async with with_bookies(count=4) as cluster, client_of(cluster) as client:
        closed = [await write(client, 20) for _ in range(5)]
        open_one = await write(client, 20, close=False, on="b1")
        await bookie_stops(cluster, "b1")
        ran = await cluster.run("recover", "b1", "-f", "-d")
        assert ran.code == 0
        assert "Recovered ledger " in ran.out
        for ledger_id in [*closed, open_one]:
            assert "b1" not in (await client.read_metadata(ledger_id)).fragments[0].bookies
            await all_copies_are_good(cluster, client, ledger_id, 20)
        assert await cluster.store().get("/ledgers/cookies/b1") is None
        assert await cluster.store().get("/ledgers/cookies/b2") is not None


async def test_a_running_bookie_is_emptied_too() -> None:
    async with with_bookies(count=4) as cluster, client_of(cluster) as client:
        ledger_id = await write(client, 20)
        before = await client.read_metadata(ledger_id)
        ran = await cluster.run("recover", before.fragments[0].bookies[0], "-f", "--json")
        assert ran.values == [{"ledgerId": ledger_id, "fenced": False, "entries": 20, "bytes": ran.values[0]["bytes"]}]
        assert before.fragments[0].bookies[0] not in (await client.read_metadata(ledger_id)).fragments[0].bookies
        await all_copies_are_good(cluster, client, ledger_id, 20)


async def test_a_dry_run_and_a_query_change_nothing() -> None:
    async with with_bookies(count=3) as cluster, client_of(cluster) as client:
        ledger_id, open_one = await write(client, 20), await write(client, 3, close=False, on="b1")
        before = [await client.read_metadata(each) for each in (ledger_id, open_one)]
        plan = await cluster.run("recover", "b1", "--dry-run")
        assert plan.out.splitlines() == [
            f"ledger {ledger_id} : CLOSED",
            "  Fragment [0 - 19] : others for b1",
            f"ledger {open_one} : OPEN [fence required]",
            "  Fragment [0 - ?] : others for b1",
        ]
        values = (await cluster.run("recover", "b1", "-dr", "-sk", "--json")).values
        assert values == [
            {
                "ledgerId": ledger_id,
                "state": "CLOSED",
                "fence": False,
                "fragments": [{"firstEntryId": 0, "lastEntryId": 19, "replace": ["b1"]}],
            }
        ]
        asked = await cluster.run("recover", "b1", "-q")
        assert f"ledger {ledger_id} : CLOSED" in asked.out
        assert "b1* " in asked.out
        assert "summary: [0=1, ]" in asked.out
        assert [await client.read_metadata(each) for each in (ledger_id, open_one)] == before


async def test_without_a_yes_nothing_is_done() -> None:
    async with with_bookies(count=4) as cluster, client_of(cluster) as client:
        ledger_id = await write(client, 3, on="b1")
        with pytest.raises(ShellError, match="not confirmed"):
            await cluster.run("recover", "b1")
        assert "b1" in (await client.read_metadata(ledger_id)).fragments[0].bookies


async def test_open_ledgers_can_be_left_alone() -> None:
    async with with_bookies(count=3) as cluster, client_of(cluster) as client:
        open_one = await write(client, 3, close=False, on="b1")
        ran = await cluster.run("recover", "b1", "-f", "-sk")
        assert (ran.code, ran.out) == (0, "")
        assert (await client.read_metadata(open_one)).state is LedgerState.OPEN


async def test_a_ledger_that_cannot_be_recovered_is_named_with_reason_and_remedy_and_the_others_are_recovered() -> None:
    async with with_bookies(count=3) as cluster, client_of(cluster) as client:
        wide, narrow = await write(client, 3), await write(client, 3, quorums=(1, 1, 1), on="b1")
        ran = await cluster.run("recover", "b1", "-f")
        assert ran.code == FAILED
        [line] = [each for each in ran.err.splitlines() if "cannot be recovered" in each]
        assert line.startswith(f"ledger {wide} cannot be recovered: entries 0 to 2 of ledger {wide}: b1 misplaced: ")
        assert line.endswith("start a bookie outside its ensemble, or add one, then run recover again")
        assert "1 of 2 ledgers recovered, 1 cannot be now" in ran.err
        assert "b1" not in (await client.read_metadata(narrow)).fragments[0].bookies

        narrow = await write(client, 3, quorums=(1, 1, 1), on="b1")
        assert (await cluster.run("recover", "b1", "-f", "-sku")).code == 0
        ran = await cluster.run("recover", "b1", "-f", "-d", "-sku")
        assert ran.code == FAILED
        assert "the cookies are kept" in ran.err
        assert "b1" not in (await client.read_metadata(narrow)).fragments[0].bookies
        assert await cluster.store().get("/ledgers/cookies/b1") is not None

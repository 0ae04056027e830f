"""listunderreplicated, autorecovery, queryautorecoverystatus, lostbookierecoverydelay, triggeraudit, whoisauditor"""

from __future__ import annotations

from functools import partial

import pytest
import trio

from quire.cli.shell import bookies
from quire.cli.shell.errors import ShellError, UsageError
from tests.support.waiting import until
from tests.unit.autorecovery.live import bookie_stops, client_of, marks_of, nobody_names, recovering, write
from tests.unit.cli.shell.build import with_bookies

pytestmark = pytest.mark.seeded


@pytest.fixture(autouse=True)
def no_name_service(monkeypatch: pytest.MonkeyPatch) -> None:
    async def names(host: str, port: int) -> tuple[str, str]:
        return host, f"name-of-{host}"

    monkeypatch.setattr(bookies, "_names", names)


async def test_marked_ledgers_are_listed_as_the_original_does() -> None:
    async with with_bookies(count=1) as cluster:
        assert (await cluster.run("listunderreplicated")).out == ""
        marks = marks_of(cluster, owner="worker1")
        await marks.mark(7, ["b1"])
        await marks.mark(5_000_000_000, ["b1", "b2"])
        found = [each async for each in marks.list()]
        plain = await cluster.run("listunderreplicated", "-pmr")
        assert plain.out.splitlines() == [
            "7",
            f"\tCtime : {found[0].ctime_ms}",
            "\tMissingReplica : b1",
            "5000000000",
            f"\tCtime : {found[1].ctime_ms}",
            "\tMissingReplica : b1",
            "\tMissingReplica : b2",
        ]
        assert (await cluster.run("listunderreplicated", "-c")).out == "Under replicated ledger count: 2\n"
        assert [
            each["ledgerId"] for each in (await cluster.run("listunderreplicated", "-mr", "b2", "--json")).values
        ] == [5_000_000_000]
        assert [
            each["ledgerId"] for each in (await cluster.run("listunderreplicated", "-emr", "b2", "--json")).values
        ] == [7]
        locked = await marks.lock_next([5_000_000_000])
        assert locked is not None
        assert "\tReplicationWorkerId : worker1" in (await cluster.run("listunderreplicated", "-prw")).out.splitlines()
        status = await cluster.run("queryautorecoverystatus")
        assert status.out.splitlines() == [
            "Autorecovery is enabled.",
            "CurrentRecoverLedgerInfo:",
            "\tLedgerId:7\tBookieId:worker1",
        ]


async def test_auto_recovery_is_switched() -> None:
    async with with_bookies(count=1) as cluster:
        marks = marks_of(cluster)
        assert (await cluster.run("autorecovery", "-e")).out == "Autorecovery already enabled. Doing nothing\n"
        assert "would be disabled" in (await cluster.run("autorecovery", "-d", "--dry-run")).out
        assert await marks.is_enabled()
        assert (await cluster.run("autorecovery", "-d")).out == "Disabling autorecovery\n"
        assert not await marks.is_enabled()
        assert (await cluster.run("autorecovery", "-d", "--json")).values == [{"enabled": False, "changed": False}]
        assert (await cluster.run("autorecovery", "-e", "--json")).values == [{"enabled": True, "changed": True}]
        assert await marks.is_enabled()
        with pytest.raises(UsageError) as refused:
            await cluster.run("autorecovery")
        assert refused.value.code == 1


async def test_the_delay_is_printed_and_set() -> None:
    async with with_bookies(count=1) as cluster:
        marks = marks_of(cluster)
        assert "is not set" in (await cluster.run("lostbookierecoverydelay", "-g")).out
        assert (await cluster.run("lostbookierecoverydelay", "-s", "30", "--dry-run")).code == 0
        assert await marks.read_recovery_delay() is None
        ran = await cluster.run("lostbookierecoverydelay", "-s", "30")
        assert ran.out == "Successfully set LostBookieRecoveryDelay value in ZK: 30\n"
        assert (await cluster.run("lostbookierecoverydelay", "-g")).out == "LostBookieRecoveryDelay value in ZK: 30\n"
        with pytest.raises(UsageError):
            await cluster.run("lostbookierecoverydelay", "-g", "-s", "1")


async def test_the_auditor_is_named_and_told_to_look_before_the_delay_is_over() -> None:
    async with with_bookies(count=4) as cluster, client_of(cluster) as client:
        ledger_id = await write(client, 3)
        lost = (await client.read_metadata(ledger_id)).fragments[0].bookies[0]
        for command in ("triggeraudit", "whoisauditor"):
            with pytest.raises(ShellError, match="auditor"):
                await cluster.run(command)
        await cluster.run("lostbookierecoverydelay", "-s", "36000")
        async with recovering(cluster, name="b2"):

            async def is_elected() -> bool:
                try:
                    return (await cluster.run("whoisauditor")).out.startswith("Auditor: BookieID:b2, ")
                except ShellError:
                    return False

            await until(is_elected)
            await bookie_stops(cluster, lost)
            began = trio.current_time()
            await cluster.run("triggeraudit", "--dry-run")
            await trio.sleep(60)
            assert lost in (await client.read_metadata(ledger_id)).fragments[0].bookies
            await cluster.run("triggeraudit")
            await until(partial(nobody_names, client, lost, [ledger_id]))
            assert trio.current_time() - began < 600
            await cluster.run("autorecovery", "-d")
            with pytest.raises(ShellError, match="disabled"):
                await cluster.run("triggeraudit")

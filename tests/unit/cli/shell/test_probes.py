"""simpletest, bookiesanity"""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
import trio

from quire.cli.shell.arguments import LedgerIdFormat
from quire.cli.shell.context import Shell, open_zookeeper
from quire.cli.shell.entry_text import EntryFormat
from quire.cli.shell.errors import ShellError
from quire.cli.shell.ledger import probes
from quire.cli.shell.ledger.probes import local_bookie_id
from quire.cli.shell.output import Output
from quire.ledger.errors import LedgerError, NotEnoughBookiesError
from quire.metadata.bookies import Cookie, encode_cookie
from quire.servers.cluster_config import SHELL, ClusterConfig
from quire.world.doors import World
from tests.support.refusals import raises, refuses
from tests.unit.cli.shell.build import LiveCluster, with_bookies

pytestmark = pytest.mark.seeded


async def ledgers_left(cluster: LiveCluster) -> str:
    return (await cluster.run("listledgers")).out


async def test_a_sound_cluster_passes_and_keeps_nothing() -> None:
    async with with_bookies() as cluster:
        ran = await cluster.run("simpletest", "-n", "250")
        assert (ran.code, ran.err) == (0, "")
        assert ran.out == "Ledger ID: 0\n250 entries written to ledger 0. Last entry Id 249\n"
        wide = await cluster.run("simpletest", "--ensemble", "3", "-w", "3", "-a", "2", "-n", "1", "--json")
        assert wide.values == [{"ledgerId": 1, "entries": 1, "lastEntryId": 0, "passed": True}]
        assert await ledgers_left(cluster) == ""


async def test_a_long_test_waits_for_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    async with with_bookies() as cluster:
        monkeypatch.setattr(probes, "WINDOW", 20)
        monkeypatch.setattr(probes, "BATCH", 10)
        assert (await cluster.run("simpletest", "-n", "333", "--json")).values[0]["lastEntryId"] == 332


async def test_too_few_bookies_fail_the_test() -> None:
    async with with_bookies(count=2) as cluster:
        await raises(NotEnoughBookiesError, cluster.run("simpletest"))
        assert await ledgers_left(cluster) == ""


async def test_entries_that_come_back_otherwise_fail_the_test_and_leave_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with with_bookies() as cluster:
        check = probes._check

        async def other(client: Any, ledger_id: int, payloads: list[bytes], *, unconfirmed: bool = False) -> None:
            await check(client, ledger_id, [*payloads[:-1], b"what nobody wrote"], unconfirmed=unconfirmed)

        monkeypatch.setattr(probes, "_check", other)
        await raises(ShellError, cluster.run("simpletest", "-n", "10"), "entry 9 of ledger 0 is not what was written")
        assert await ledgers_left(cluster) == ""


async def test_the_local_bookie_alone_is_tested() -> None:
    async with with_bookies() as cluster:
        for name in ("b2", "b3"):
            cluster.stops[name].set()
        ran = await cluster.run("bookiesanity")
        assert ran.out == "Read 10 entries from ledger 0\nBookie sanity test succeeded\n"
        assert (await cluster.run("bookiesanity", "-e", "3", "--json")).values[0]["bookieId"] == "b1"
        assert await ledgers_left(cluster) == ""


async def test_a_bookie_that_is_away_fails_in_the_time_that_was_given() -> None:
    async with with_bookies() as cluster:
        cluster.config = replace(cluster.config, bookie=replace(cluster.config.bookie, bookie_id="b9"))
        began = trio.current_time()
        await raises(LedgerError, cluster.run("bookiesanity", "-t", "2"))
        assert trio.current_time() - began < 10
        assert await ledgers_left(cluster) == ""


async def test_which_bookie_is_the_local_one(world: World) -> None:
    def local(config: ClusterConfig) -> str:
        shell = Shell(
            world=world,
            config=config,
            output=Output(io.StringIO(), io.StringIO()),
            ask=lambda question: False,
            open_store=open_zookeeper,
            ledger_ids=LedgerIdFormat.LONG,
            entries=EntryFormat.STRING,
        )
        return local_bookie_id(shell)

    given = {"journalDirectories": ("/j",), "ledgerDirectories": ("/l",)}
    config = SHELL.build(given)
    refuses(ShellError, lambda: local(config), "the bookie is not identified")
    cookie = Cookie(bookie_id="c:1", journal_directories=("/j",), ledger_directories=("/l",))
    world.disk.make_dirs("/l/current")
    world.disk.write_atomic("/l/current/VERSION", encode_cookie(cookie))
    assert local(config) == "c:1"
    assert local(SHELL.build({**given, "advertisedAddress": "h", "bookiePort": 9})) == "h:9"
    assert local(SHELL.build({**given, "advertisedAddress": "h", "bookieId": "me"})) == "me"

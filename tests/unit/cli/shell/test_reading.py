"""readledger"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from quire.cli.shell import reading
from quire.cli.shell.errors import ShellError, UsageError
from quire.ledger.client import LedgerClient
from quire.ledger.errors import LedgerError
from quire.ledger.opening import open_client_on
from quire.metadata import ledger_codec
from quire.metadata.ledgers import LedgerState, ledger_path
from quire.wire.bookkeeper.entry import DigestType
from tests.unit.cli.shell.build import LiveCluster, Ran, with_bookies

pytestmark = pytest.mark.seeded


@asynccontextmanager
async def client(cluster: LiveCluster) -> AsyncIterator[LedgerClient]:
    async with open_client_on(cluster.world, cluster.store()) as opened:
        yield opened


async def closed_ledger(cluster: LiveCluster, count: int, *, write_quorum: int = 2) -> int:
    async with client(cluster) as ledgers:
        writer = await ledgers.create(
            ensemble_size=3, write_quorum=write_quorum, ack_quorum=2, password=b"pw", digest_type=DigestType.HMAC
        )
        for number in range(count):
            await writer.write(b"entry %d" % number)
        await writer.close()
    return writer.ledger_id


def ids(ran: Ran) -> list[int]:
    return [value["entryId"] for value in ran.values]


async def test_a_closed_ledger_is_read_to_its_end_whatever_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    async with with_bookies() as cluster:
        monkeypatch.setattr(reading, "READS_AT_ONCE", 3)
        ledger_id = await closed_ledger(cluster, 10)
        ran = await cluster.run("readledger", "-l", str(ledger_id))
        assert ran.out.splitlines()[9] == f"--------- Lid={ledger_id}, Eid=9, EntrySize=7 ---------"
        assert len(ran.out.splitlines()) == 10
        assert (ran.code, ran.err) == (0, "")
        some = await cluster.run("readledger", "-l", str(ledger_id), "-fe", "2", "-le", "6", "-m")
        assert some.out.splitlines()[1::2] == [f"entry {number}" for number in range(2, 7)]


async def test_past_the_end_there_is_nothing_and_it_is_said() -> None:
    async with with_bookies() as cluster:
        ledger_id = await closed_ledger(cluster, 4)
        ran = await cluster.run("readledger", "-l", str(ledger_id), "-fe", "2", "-le", "20", "--json")
        assert (ran.code, ids(ran), ran.err) == (0, [2, 3], "the ledger ends with entry 3\n")
        empty = await closed_ledger(cluster, 0)
        assert (await cluster.run("readledger", "-l", str(empty))).out == ""


async def test_an_open_ledger_is_read_past_what_is_confirmed_and_it_is_said() -> None:
    async with with_bookies() as cluster, client(cluster) as ledgers:
        writer = await ledgers.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        for number in range(5):
            await writer.write(b"x%d" % number)
        ran = await cluster.run("readledger", "-l", str(writer.ledger_id), "--json")
        assert ids(ran) == [0, 1, 2, 3, 4]
        assert "the entries past 3 are not confirmed" in ran.err
        await writer.write(b"still open")


async def test_a_forced_recovery_closes_the_ledger_before() -> None:
    async with with_bookies() as cluster, client(cluster) as ledgers:
        writer = await ledgers.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        await writer.write(b"x")
        ran = await cluster.run("readledger", "-l", str(writer.ledger_id), "-r", "-le", "9", "--json")
        assert (ids(ran), ran.err) == ([0], "the ledger ends with entry 0\n")
        assert (await ledgers.read_metadata(writer.ledger_id)).state is LedgerState.CLOSED
        with pytest.raises(LedgerError):
            await writer.write(b"y")


async def test_one_bookie_shows_what_it_has_and_is_not_blamed_for_the_rest() -> None:
    async with with_bookies() as cluster:
        ledger_id = await closed_ledger(cluster, 6)
        async with client(cluster) as ledgers:
            (fragment,) = (await ledgers.read_metadata(ledger_id)).fragments
        bookie = fragment.bookies[0]
        ran = await cluster.run("readledger", "-l", str(ledger_id), "-b", bookie, "--json")
        assert (ran.code, ids(ran), ran.err) == (0, [0, 2, 3, 5], "")
        part = await cluster.run("readledger", "-l", str(ledger_id), "-b", bookie, "-fe", "1", "-le", "3", "-m")
        assert part.out.splitlines()[1::2] == ["entry 2", "entry 3"]


async def test_an_entry_that_a_bookie_should_have_and_has_not_is_a_failure() -> None:
    async with with_bookies() as cluster:
        ledger_id = await closed_ledger(cluster, 4, write_quorum=3)
        store, path = cluster.store(), ledger_path("/ledgers", ledger_id)
        node = await store.get(path)
        assert node is not None
        longer = replace(ledger_codec.decode(node.value), last_entry_id=5)
        await store.put(path, ledger_codec.encode(longer), node.version)
        ran = await cluster.run("readledger", "-l", str(ledger_id), "-b", "b1", "-le", "7", "--json")
        assert (ran.code, ids(ran)) == (255, [0, 1, 2, 3])
        assert ran.err == "entry 4: NO_ENTRY\nentry 5: NO_ENTRY\n"
        with pytest.raises(LedgerError, match=f"entry {ledger_id}:4 cannot be read"):
            await cluster.run("readledger", "-l", str(ledger_id))


async def test_what_makes_no_sense_is_refused() -> None:
    async with with_bookies() as cluster:
        with pytest.raises(ShellError, match="there is no ledger 77"):
            await cluster.run("readledger", "-l", "77")
        with pytest.raises(ShellError, match="there is no ledger 77"):
            await cluster.run("readledger", "-l", "77", "-b", "b1")
        with pytest.raises(UsageError, match="is before"):
            await cluster.run("readledger", "-l", "1", "-fe", "3", "-le", "2")
        ledger_id = await closed_ledger(cluster, 2)
        with pytest.raises(ShellError, match="bookie b9: bookie b9 cannot be reached"):
            await cluster.run("readledger", "-l", str(ledger_id), "-b", "b9")

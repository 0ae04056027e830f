"""The original's shell with Quire's bookies, configured by the same file as one of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import exchange
from tests.interop.exchange import Exchanged
from tests.interop.java import shell
from tests.support.bookies import BookieCluster, cluster


@pytest.fixture(scope="module")
def bookies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BookieCluster]:
    with cluster(tmp_path_factory.mktemp("shell"), 3) as made:
        yield made


@pytest.fixture(scope="module")
def written(bookies: BookieCluster) -> list[Exchanged]:
    """Write four closed ledgers of six entries, an empty one, and one that stays open, in this order."""
    return exchange.write(bookies.uri, "v2", count=6)


@pytest.fixture(scope="module")
def conf(bookies: BookieCluster) -> Path:
    return bookies.bookies[0].conf


def test_simpletest_writes_reads_and_deletes_a_ledger(conf: Path, written: list[Exchanged]) -> None:
    told = shell(conf, "simpletest", "-e", "3", "-w", "2", "-a", "2", "-n", "100")
    (ledger_id,) = re.findall(r"^100 entries written to ledger (\d+). Last entry Id 99$", told, re.MULTILINE)
    listed = shell(conf, "listledgers")
    assert int(ledger_id) not in map(int, re.findall(r"^ledgerID: (\d+)$", listed, re.MULTILINE))


def test_bookiesanity_succeeds(conf: Path) -> None:
    assert "Bookie sanity test succeeded" in shell(conf, "bookiesanity")


@pytest.mark.parametrize("number", range(6))
def test_readledger_shows_the_bytes_that_were_written(number: int, conf: Path, written: list[Exchanged]) -> None:
    ledger = written[number]
    recover = () if ledger.closed else ("-r",)
    told = shell(conf, "-entryformat", "hex", "readledger", "-m", "-l", str(ledger.ledger), *recover)
    # It shows the ledger's length so far as the entry's size.
    shown = re.findall(rf"Lid={ledger.ledger}, Eid=(\d+), EntrySize=(\d+) -+\n((?:[0-9a-f]{{8}}.*\n|\n)*)", told, re.I)
    written_bytes = [exchange.payload(ledger.ledger, each, ledger.size) for each in range(ledger.entries)]
    lengths = [sum(map(len, written_bytes[: each + 1])) for each in range(ledger.entries)]
    assert [(int(entry), int(length)) for entry, length, _ in shown] == list(enumerate(lengths))
    assert [undumped(dump) for _, _, dump in shown] == written_bytes


def undumped(dump: str) -> bytes:
    """Return the bytes of lines like `00000010 53 5F A1 4E  S_.N`: 8 digits of offset, 16 bytes as 3 each, the text."""
    return b"".join(bytes.fromhex(line[9:56]) for line in dump.splitlines())


def test_ledgermetadata_and_listledgers_show_what_we_stored(conf: Path, written: list[Exchanged]) -> None:
    closed = next(each for each in written if each.digest == "CRC32")
    opened = written[5]
    told = shell(conf, "ledgermetadata", "-l", str(closed.ledger))
    assert f"ledgerID: {closed.ledger}\n" in told
    assert (
        "formatVersion=3, ensembleSize=3, writeQuorumSize=2, ackQuorumSize=2, state=CLOSED, length=1415, "
        "lastEntryId=5, digestType=CRC32, password=base64:" in told
    )
    told = shell(conf, "listledgers", "-m")
    assert set(map(int, re.findall(r"^ledgerID: (\d+)$", told, re.MULTILINE))) >= {each.ledger for each in written}
    assert re.search(rf"^ledgerID: {opened.ledger}\nLedgerMetadata.*state=(OPEN|CLOSED), ", told, re.MULTILINE)


def test_listledgers_of_a_bookie_shows_those_it_is_in(
    conf: Path, bookies: BookieCluster, written: list[Exchanged]
) -> None:
    told = shell(conf, "listledgers", "-bookieid", bookies.bookies[1].id)
    # A closed ledger without entries is on no bookie.
    expected = {each.ledger for each in written if each.entries}
    assert set(map(int, re.findall(r"^ledgerID: (\d+)$", told, re.MULTILINE))) >= expected


def test_listbookies_shows_who_is_there(conf: Path, bookies: BookieCluster) -> None:
    everybody = {bookie.id for bookie in bookies.bookies}
    for which in ("-rw", "-a"):
        assert set(re.findall(r"^BookieID:(\S+),", shell(conf, "listbookies", which, "-h"), re.MULTILINE)) == everybody
    assert "No bookie exists!" in shell(conf, "listbookies", "-ro")


def test_bookieinfo_shows_the_space_of_every_bookie(conf: Path, bookies: BookieCluster) -> None:
    told = shell(conf, "bookieinfo")
    spaces = re.findall(r"^BookieID:(\S+), .*Free: (\d+)\(.*Total: (\d+)\(", told, re.MULTILINE)
    assert {name for name, _, _ in spaces} == {bookie.id for bookie in bookies.bookies}
    assert all(0 < int(free) <= int(total) for _, free, total in spaces)


def test_whatisinstanceid_and_cookie_get_show_what_our_bookies_stored(conf: Path, bookies: BookieCluster) -> None:
    (instance,) = re.findall(r"InstanceId: (\S+)$", shell(conf, "whatisinstanceid"), re.MULTILINE)
    me = bookies.bookies[2]
    told = shell(conf, "cookie_get", me.id)
    assert f'bookieHost: "{me.id}"' in told
    assert f'instanceId: "{instance}"' in told


def test_deleteledger_deletes_what_we_wrote(conf: Path, bookies: BookieCluster, tmp_path: Path) -> None:
    doomed = exchange.write(bookies.uri, "v2", count=1)[0].ledger
    shell(conf, "deleteledger", "-l", str(doomed), "-f")
    assert f"ledgerID: {doomed}\n" not in shell(conf, "listledgers") + "\n"

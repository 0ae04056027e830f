"""The folders of a bookie, written by the original and by Quire in turn: several journals and ledger folders, and entry
logs that were compacted. Both shells must find the same in them."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.cli.shell.main import run_shell
from quire.ledger import LedgerConfig, open_client
from quire.ledger.bookies.pool import WireProtocol
from quire.world.real import real_world
from tests.interop import exchange
from tests.interop.exchange import Exchanged
from tests.interop.java import ApacheBookie, shell
from tests.interop.our_bookie import OurBookie, serves
from tests.support.bookies import BookieCluster, cluster
from tests.support.waiting import wait_until
from tests.support.zookeeper import run

COUNT = 40
LEDGERS = 8
ENTRIES = 30
PAYLOAD_BYTES = 20_000
COMPACTING = {
    "logSizeLimit": 1 << 20,
    "flushInterval": 200,
    "gcWaitTime": 500,
    "minorCompactionInterval": 1,
    "majorCompactionInterval": 2,
    "majorCompactionThreshold": 0.95,
    "entryLogFilePreallocationEnabled": "false",
}
COMPACTED_S = 120.0
_RECORD = re.compile(r"^-+ Lid=(\d+), Eid=(-?\d+), ByteOffset=(\d+), EntrySize=(\d+) -+$", re.MULTILINE)
_LOCATION = re.compile(r"^entry (\d+)\t:\t\(log: ?(\d+), pos: ?(\d+)\)$", re.MULTILINE)
_READ = re.compile(r"^-+ Lid=(\d+), Eid=(\d+), EntrySize=\d+ -+$|^([0-9A-Fa-f]{8} .*)$", re.MULTILINE)
"""Ids and bytes. The size is left out: the original prints the length of the ledger up to the entry."""


@pytest.fixture
def bookies(tmp_path: Path) -> Iterator[BookieCluster]:
    with cluster(tmp_path / "cluster", 0) as made:
        yield made


def our_shell(conf: Path, *words: str) -> str:
    out, err = io.StringIO(), io.StringIO()
    code = run_shell(["-conf", str(conf), *words], out=out, err=err, environment={})
    assert code in (0, 255), err.getvalue()  # 255: a log ends in a torn record, which is noted
    return out.getvalue()


def same_of_both(conf: Path, pattern: re.Pattern[str], *words: str) -> list[tuple[str, ...]]:
    """Return what both shells print of the pattern; they must agree."""
    ours, theirs = pattern.findall(our_shell(conf, *words)), pattern.findall(shell(conf, *words))
    assert ours == theirs, words
    return ours


# --- several folders


@pytest.mark.parametrize("killed", [False, True])
def test_two_journals_and_two_ledger_folders_are_served_by_both_in_turn(
    killed: bool, bookies: BookieCluster, tmp_path: Path
) -> None:
    folder = tmp_path / "theirs"
    folders = {
        "journalDirectories": f"{folder}/j1,{folder}/j2",
        "ledgerDirectories": f"{folder}/l1,{folder}/l2",
        "flushInterval": 500,
    }
    theirs = ApacheBookie(folder, bookies.uri, conf=folders).start()
    our = OurBookie(theirs, tmp_path / "our", bookies.uri)
    written: list[Exchanged] = []
    for bookie in (theirs, our, theirs, our):
        if bookie is not theirs or written:
            bookie.start()
        serves(bookies, written)
        written += exchange.write(bookies.uri, "v2", quorum=(1, 1, 1), count=COUNT)
        bookie.kill() if killed else bookie.stop()
    assert {each.ledger % 2 for each in written if each.entries} == {0, 1}
    theirs.start()
    serves(bookies, written)
    exchange.verify(bookies.uri, "v2", written, recover=True)  # the open ledgers, whose fences are ours to keep
    theirs.stop()
    our.start()
    serves(bookies, written)
    exchange.verify(bookies.uri, "v2", written, recover=False)
    our.stop()
    for ledger in [each for each in written if each.entries][:2]:
        assert len(same_of_both(theirs.conf, _LOCATION, "ledger", str(ledger.ledger))) == COUNT
    assert "=== Check passed ===" in shell(theirs.conf, "localconsistencycheck")
    assert "=== Check passed ===" in our_shell(theirs.conf, "localconsistencycheck")


# --- compaction


def write_large(uri: str, protocol: WireProtocol = "v2") -> list[Exchanged]:
    """Write closed ledgers of several entry logs, in turn, so that each log has entries of several."""
    written: list[Exchanged] = []

    async def main() -> None:
        async with open_client(real_world(), uri, LedgerConfig(protocol=protocol)) as client:
            writers = [
                await client.create(ensemble_size=1, write_quorum=1, ack_quorum=1, password=b"exchange-CRC32C")
                for _ in range(LEDGERS)
            ]
            for entry_id in range(ENTRIES):
                for writer in writers:
                    await writer.write(exchange.payload(writer.ledger_id, entry_id, PAYLOAD_BYTES))
            for writer in writers:
                await writer.close()
                written.append(
                    Exchanged(
                        ledger=writer.ledger_id,
                        digest="CRC32C",
                        password="exchange-CRC32C",
                        entries=ENTRIES,
                        size=PAYLOAD_BYTES,
                        closed=True,
                    )
                )

    run(main)
    return written


def delete(uri: str, ledgers: list[Exchanged]) -> None:
    async def main() -> None:
        async with open_client(real_world(), uri) as client:
            for each in ledgers:
                await client.delete(each.ledger)

    run(main)


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("writer", ["Quire", "the original"])
def test_both_shells_find_the_same_after_a_compaction_and_a_kill(
    writer: str, transactional: bool, bookies: BookieCluster, tmp_path: Path
) -> None:
    conf = {**COMPACTING, "useTransactionalCompaction": str(transactional).lower()}
    theirs = ApacheBookie(tmp_path / "theirs", bookies.uri, conf=conf)
    our = OurBookie(theirs, tmp_path / "our", bookies.uri, **conf)
    first, second = (our, theirs) if writer == "Quire" else (theirs, our)
    first.start()
    written = write_large(bookies.uri)
    logs = Path(tmp_path / "theirs/ledgers/current")
    living, dead = written[::2], written[1::2]
    before = {path.name for path in logs.glob("*.log")}
    live_bytes = sum(each.entries for each in living) * PAYLOAD_BYTES
    delete(bookies.uri, dead)

    def compacted() -> bool:
        """Return whether the logs have little more than what lives, but for the one that is written."""
        return sum(path.stat().st_size for path in logs.glob("*.log")) < live_bytes * 1.1 + (1 << 20)

    wait_until(compacted, "the logs are compacted", within=COMPACTED_S)
    serves(bookies, living)
    first.kill()
    found = sorted(logs.glob("*.log"))
    assert {path.name for path in found} != before
    records: set[tuple[str, ...]] = set()
    for path in found:
        records |= {(*row, path.stem) for row in same_of_both(theirs.conf, _RECORD, "readlog", path.name)}
    journals = sorted(Path(tmp_path / "theirs/journal/current").glob("*.txn"))
    journaled = {row[:2] for path in journals for row in same_of_both(theirs.conf, _RECORD, "readjournal", path.name)}
    assert journaled >= {(str(living[-1].ledger), str(entry_id)) for entry_id in range(ENTRIES)}
    for ledger in living:
        rows = same_of_both(theirs.conf, _LOCATION, "ledger", str(ledger.ledger))
        assert [int(entry_id) for entry_id, _, _ in rows] == list(range(ENTRIES))
        # A location is that of the record behind its size field, of 4 bytes.
        places = {(lid, eid, int(log, 16), int(offset) + 4) for lid, eid, offset, _, log in records}
        assert {(str(ledger.ledger), eid, int(log), int(position)) for eid, log, position in rows} <= places
    assert "=== Check passed ===" in our_shell(theirs.conf, "localconsistencycheck")
    second.start()
    serves(bookies, living)
    read = same_of_both(theirs.conf, _READ, "-entryformat", "hex", "readledger", "-m", "-l", str(living[0].ledger))
    assert [int(entry_id) for _, entry_id, _ in read if entry_id] == list(range(ENTRIES))
    second.stop()
    assert "=== Check passed ===" in shell(theirs.conf, "localconsistencycheck")

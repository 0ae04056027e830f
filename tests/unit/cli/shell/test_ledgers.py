"""listledgers, ledgermetadata, deleteledger"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from quire.cli.shell.ledgers import READS_AT_ONCE
from quire.metadata import ledger_codec
from quire.metadata.layouts import HIERARCHICAL
from quire.metadata.ledgers import Fragment, LedgerMetadata, LedgerState
from quire.metadata.local.memory import MemoryStore
from tests.unit.cli.shell.build import MemoryCluster

ROOT = "/bk/ledgers"
METADATA = LedgerMetadata(
    ensemble_size=2, write_quorum=2, ack_quorum=1, fragments=(Fragment(0, ("b:1", "b:2")),), password=b"pw"
)
ELSEWHERE = replace(METADATA, fragments=(Fragment(0, ("b:3", "b:4")),))


@pytest.fixture
def cluster(tmp_path: Path) -> MemoryCluster:
    made = MemoryCluster(tmp_path)
    made.do(lambda store: store.create("/bk"))
    made.shell("initnewcluster")
    return made


def put(cluster: MemoryCluster, *ledgers: int, value: bytes | LedgerMetadata = METADATA) -> None:
    async def job(store: MemoryStore) -> None:
        for ledger_id in ledgers:
            data = value if isinstance(value, bytes) else ledger_codec.encode(value)
            await store.create(HIERARCHICAL.path(ROOT, ledger_id), data, make_parents=True)

    cluster.do(job)


def stored(cluster: MemoryCluster, ledger_id: int) -> bytes | None:
    node = cluster.do(lambda store: store.get(HIERARCHICAL.path(ROOT, ledger_id)))
    return None if node is None else node.value


def test_ledgers_are_listed_in_order_of_their_ids(cluster: MemoryCluster) -> None:
    put(cluster, 7, 5_000_000_000, 0)
    assert cluster.shell("listledgers").out == "ledgerID: 0\nledgerID: 7\nledgerID: 5000000000\n"
    assert cluster.shell("listledgers", "--json").values == [
        {"ledgerId": 0},
        {"ledgerId": 7},
        {"ledgerId": 5_000_000_000},
    ]
    assert cluster.shell("-ledgeridformat", "hex", "listledgers").out.splitlines()[2] == "ledgerID: 12a05f200"


def test_an_empty_cluster_has_no_ledgers(cluster: MemoryCluster) -> None:
    ran = cluster.shell("listledgers", "-m")
    assert (ran.code, ran.out, ran.err) == (0, "", "")


def test_many_ledgers_come_with_their_metadata_in_order(cluster: MemoryCluster) -> None:
    count = 2 * READS_AT_ONCE + 3
    put(cluster, *range(count))
    values = cluster.shell("listledgers", "-m", "--json").values
    assert [value["ledgerId"] for value in values] == list(range(count))
    assert values[0]["metadata"]["ensembles"] == {"0": ["b:1", "b:2"]}


def test_ledgers_of_a_bookie_are_those_with_entries_on_it(cluster: MemoryCluster) -> None:
    put(cluster, 1, 2)
    put(cluster, 3, value=ELSEWHERE)
    put(cluster, 4, value=replace(METADATA, state=LedgerState.CLOSED))
    assert cluster.shell("listledgers", "-bookieid", "b:2").out == "ledgerID: 1\nledgerID: 2\n"
    assert cluster.shell("listledgers", "--bookieid=b:4").out == "ledgerID: 3\n"
    assert cluster.shell("listledgers", "-bookieid", "b:9").out == ""


def test_one_damaged_ledger_does_not_hide_the_others(cluster: MemoryCluster) -> None:
    put(cluster, 1, 3)
    put(cluster, 2, value=b"BookieMetadataFormatVersion\t9\n")
    ran = cluster.shell("listledgers", "-m", "--json")
    assert ran.code == 255
    assert [value["ledgerId"] for value in ran.values] == [1, 3]
    assert "ledger 2: ledger metadata has format version 9" in ran.err
    assert "1 ledgers have unreadable metadata" in ran.err


def test_a_ledgers_metadata_is_printed_dumped_and_restored(cluster: MemoryCluster, tmp_path: Path) -> None:
    put(cluster, 5)
    value = stored(cluster, 5)
    assert value is not None
    ran = cluster.shell("ledgermetadata", "-ledgerid", "5")
    assert ran.out.startswith("ledgerID: 5\nLedgerMetadata{formatVersion=3, ensembleSize=2, ")
    file = tmp_path / "five"
    assert cluster.shell("ledgermetadata", "-l", "5", "-dumptofile", str(file)).code == 0
    assert file.read_bytes() == value
    taken = cluster.shell("ledgermetadata", "-l", "5", "-restorefromfile", str(file))
    assert taken.code == 255
    assert "ledger 5 exists: -update overwrites" in taken.err
    put(cluster, 6, value=ELSEWHERE)
    assert cluster.shell("ledgermetadata", "-l", "6", "-restorefromfile", str(file), "-update").code == 0
    assert stored(cluster, 6) == value
    assert cluster.shell("ledgermetadata", "-l", "8", "-restorefromfile", str(file)).code == 0
    assert stored(cluster, 8) == value


def test_what_is_no_metadata_is_not_restored(cluster: MemoryCluster, tmp_path: Path) -> None:
    put(cluster, 5)
    value = stored(cluster, 5)
    file = tmp_path / "bad"
    file.write_bytes(b"nonsense")
    ran = cluster.shell("ledgermetadata", "-l", "5", "-restorefromfile", str(file), "-update")
    assert ran.code == 255
    assert "nothing was changed" in ran.err
    assert stored(cluster, 5) == value
    gone = cluster.shell("ledgermetadata", "-l", "5", "-restorefromfile", str(tmp_path / "gone"))
    assert (gone.code, "cannot be read: No such file or directory" in gone.err) == (255, True)


def test_exit_codes_of_ledgermetadata_are_the_originals(cluster: MemoryCluster) -> None:
    assert cluster.shell("ledgermetadata").code == 255
    missing = cluster.shell("ledgermetadata", "-l", "77")
    assert (missing.code, missing.err) == (255, "quire shell: there is no ledger 77\n")
    assert cluster.shell("ledgermetadata", "-l", "1", "-dumptofile", "a", "-restorefromfile", "b").code == 254


def test_a_ledger_is_deleted_when_confirmed(cluster: MemoryCluster) -> None:
    put(cluster, 5, 6)
    for answers in ("n\n", ""):
        ran = cluster.shell("deleteledger", "-l", "5", answers=answers)
        assert (ran.code, ran.out) == (0, "Not confirmed; nothing was deleted\n")
        assert stored(cluster, 5) is not None
    assert cluster.shell("deleteledger", "-l", "5", answers="Y\n").out == "Deleted ledger 5\n"
    assert stored(cluster, 5) is None
    forced = cluster.shell("deleteledger", "-l", "6", "-f", "--json")
    assert forced.values == [{"ledgerId": 6, "deleted": True}]
    gone = cluster.shell("deleteledger", "-l", "6", "-force", "--json")
    assert (gone.code, gone.values) == (0, [{"ledgerId": 6, "deleted": False}])
    assert cluster.shell("deleteledger", "-f").code == 255

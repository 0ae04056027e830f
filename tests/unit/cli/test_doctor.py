"""quire.cli.doctor, bookie/doctor, managed_ledger/list_check.py: damage in a stopped server's folders."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
import trio

from bookie.bookie import open_bookie
from bookie.config import BookieConfig
from bookie.db_ledger_storage.entry_log_format import HEADER_LENGTH
from bookie.doctor.examine import Remedies, examine
from managed_ledger import ledger_list
from managed_ledger.ledger_list import LedgerList
from managed_ledger.list_check import check_lists
from quire.cli import doctor
from quire.cli.doctor import run_doctor
from quire.metadata import ledger_codec
from quire.metadata.layouts import HIERARCHICAL
from quire.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from quire.metadata.local.memory import MemoryTree
from quire.world.real import real_world
from quire.world.real_look import look_into
from tests.unit.bookie.build import Client, cluster, entry

ENTRIES = 8


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Return the folders of a stopped bookie with ledgers 7 and 8, with its configuration file beside them."""
    config = BookieConfig(
        bookie_id="bookie:1",
        journal_directories=(str(tmp_path / "journal"),),
        ledger_directories=(str(tmp_path / "ledgers"),),
        journal_prealloc_mb=1,
    )

    async def main() -> None:
        world = real_world(1)
        store = await cluster(MemoryTree(), world)
        async with open_bookie(world, config, store) as bookie:
            client = Client(bookie)
            await client.add(7, 0, ENTRIES)
            await client.add(8, 0, ENTRIES)

    trio.run(main)
    (tmp_path / "bk_server.conf").write_text(
        f"bookieId=bookie:1\njournalDirectories={tmp_path}/journal\nledgerDirectories={tmp_path}/ledgers\n"
        "advertisedAddress=127.0.0.1\n"
    )
    return tmp_path


def run(folders: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, object]]]:
    """Run the doctor; return its exit code and its output: each finding, then the sum."""
    code = run_doctor(None, folders / "bk_server.conf", as_json=True)
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def image(folder: Path) -> dict[str, str]:
    return {
        str(path): hashlib.md5(path.read_bytes()).hexdigest() + str(path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)


def test_a_sound_bookie_is_healthy_and_nothing_in_its_folders_is_changed(folders, capsys):
    before = image(folders)
    code, said = run(folders, capsys)
    assert (code, said[-1]["healthy"], len(said)) == (0, True, 1)
    assert image(folders) == before


def test_a_flipped_bit_in_an_entry_is_found_by_its_digest_and_the_entry_named(folders, capsys):
    log = folders / "ledgers/current/0.log"
    flip(log, log.read_bytes().index(entry(8, 3)) + 40)
    code, said = run(folders, capsys)
    assert code == 1
    assert said[0]["file"] == str(log)
    assert said[0]["what"] == "is damaged: entry 8:3 does not match its digest"
    assert "scripts/replace-disk bookie:1" in str(said[0]["remedy"])
    assert said[-1]["damagedFiles"] == 1


@pytest.mark.parametrize(
    ("size", "what"),
    [(HEADER_LENGTH, "no entry 7:0 at 1024"), (HEADER_LENGTH + 30, "it ends in entry 7:0"), (None, "it is missing")],
)
def test_an_entry_log_that_was_cut_or_is_missing_is_named(folders, capsys, size, what):
    log = folders / "ledgers/current/0.log"
    if size is None:
        log.unlink()
    else:
        os.truncate(log, size)
    code, said = run(folders, capsys)
    assert (code, said[0]["file"]) == (1, str(log))
    assert what in str(said[0]["what"])


@pytest.mark.parametrize(("existing", "loses"), [({7}, False), ({7, 8}, True), (None, True)])
def test_damage_to_an_entry_of_a_deleted_ledger_loses_nothing(
    folders: Path, existing: set[int] | None, loses: bool
) -> None:
    log = folders / "ledgers/current/0.log"
    flip(log, log.read_bytes().index(entry(8, 3)) + 40)
    config = BookieConfig(
        journal_directories=(str(folders / "journal"),), ledger_directories=(str(folders / "ledgers"),)
    )
    found = examine(
        real_world().disk,
        look_into,
        config,
        remedies=Remedies(journal="", storage=""),
        progress=lambda what, count: None,
        existing=existing,
    )
    assert [(finding.file, finding.loses) for finding in found.findings] == [(str(log), loses)]


@pytest.fixture
def two_disks(tmp_path: Path) -> Path:
    """Return the folders of a stopped bookie with two journals and two ledger directories, and ledgers 7 and 8."""
    kinds = {kind: tuple(str(tmp_path / f"{kind}{number}") for number in (1, 2)) for kind in ("journal", "ledgers")}
    config = BookieConfig(
        bookie_id="bookie:1",
        journal_directories=kinds["journal"],
        ledger_directories=kinds["ledgers"],
        journal_prealloc_mb=1,
    )

    async def main() -> None:
        world = real_world(1)
        store = await cluster(MemoryTree(), world)
        async with open_bookie(world, config, store) as bookie:
            client = Client(bookie)
            for first in range(0, 3 * ENTRIES, ENTRIES):  # a group of the journal for each
                await client.add(7, first, ENTRIES)
                await client.add(8, first, ENTRIES)

    trio.run(main)
    (tmp_path / "bk_server.conf").write_text(
        f"bookieId=bookie:1\njournalDirectories={','.join(kinds['journal'])}\n"
        f"ledgerDirectories={','.join(kinds['ledgers'])}\nadvertisedAddress=127.0.0.1\n"
    )
    return tmp_path


def test_all_directories_of_a_bookie_are_examined(two_disks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = run(two_disks, capsys)
    assert (code, said[-1]["healthy"], len(said)) == (0, True, 1)
    for number, ledger_id in ((1, 8), (2, 7)):
        log = two_disks / f"ledgers{number}/current/0.log"
        before = log.read_bytes()
        flip(log, before.index(entry(ledger_id, 3)) + 40)
        code, said = run(two_disks, capsys)
        assert (code, said[0]["file"]) == (1, str(log))
        assert f"entry {ledger_id}:3 does not match" in str(said[0]["what"])
        log.write_bytes(before)


def test_all_journals_of_a_bookie_are_examined(two_disks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the seals a start replays all of both journals."""
    for seal in two_disks.glob("ledgers*/current/lastMark*.sealed"):
        seal.unlink()
    for number in (1, 2):
        [journal] = [each for each in (two_disks / f"journal{number}/current").glob("*.txn") if each.stat().st_size]
        before = journal.read_bytes()
        flip(journal, 600)
        _, said = run(two_disks, capsys)
        assert str(journal) in {line.get("file") for line in said if line.get("damaged")}
        journal.write_bytes(before)
        _, said = run(two_disks, capsys)
        assert str(journal) not in {line.get("file") for line in said if line.get("damaged")}


@pytest.mark.parametrize("name", ["locations", "ledgers"])
def test_an_index_that_is_missing_as_a_whole_is_named(folders, capsys, name):
    shutil.rmtree(folders / "ledgers/current" / name)
    code, said = run(folders, capsys)
    assert code == 1
    assert said[0]["file"] == str(folders / "ledgers/current" / name)


def test_a_bit_of_the_journal_behind_the_mark_is_named_and_one_that_is_replayed_no_more_is_not(folders, capsys):
    (journal,) = (folders / "journal/current").glob("*.txn")
    flip(journal, 600)
    assert run(folders, capsys)[0] == 0
    (folders / "ledgers/current/lastMark.sealed").unlink()
    code, said = run(folders, capsys)
    assert (code, said[0]["damaged"]) == (1, True)
    assert str(journal) in {line.get("file") for line in said if line.get("damaged")}


def test_a_cookie_that_differs_from_the_other_folders_is_named(folders, capsys):
    path = folders / "journal/current/VERSION"
    path.write_text(path.read_text().replace("bookie:1", "bookie:2"))
    code, said = run(folders, capsys)
    assert code == 1
    assert "is not the same as" in str(said[0]["what"])
    assert "Copy the file" in str(said[0]["remedy"])


def test_what_loses_nothing_is_only_noted(folders, capsys):
    (folders / "ledgers/current/lastId").write_text("zz\n")
    code, said = run(folders, capsys)
    assert code == 0
    assert [(line["damaged"], "is damaged: it says -1" in str(line["what"])) for line in said[:-1]] == [(False, True)]


def test_folders_that_are_served_are_not_looked_at(folders, capsys):
    held = real_world().disk.lock(str(folders / "journal/quire.lock"))
    assert run_doctor(None, folders / "bk_server.conf", as_json=False) == 2
    assert "a server runs on these folders" in capsys.readouterr().err
    held.release()


def test_one_of_the_two_options_is_needed_and_a_folder_that_there_is(tmp_path, capsys):
    assert run_doctor(None, None, as_json=False) == 2
    assert run_doctor(tmp_path, tmp_path / "bk_server.conf", as_json=False) == 2
    assert run_doctor(tmp_path, None, as_json=False) == 2
    assert "is not a data directory of quire" in capsys.readouterr().err
    assert run_doctor(tmp_path / "nowhere", None, as_json=False) == 2


# --- what a standalone server's metadata say

TOPIC = "/managed-ledgers/public/default/persistent/t"


def closed(last_entry_id: int) -> LedgerMetadata:
    return LedgerMetadata(
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        fragments=(Fragment(0, ("b:1",)),),
        state=LedgerState.CLOSED,
        last_entry_id=last_entry_id,
        length=10,
    )


def nodes(*, reserved: int = 1000) -> dict[str, bytes]:
    return {
        HIERARCHICAL.path("/ledgers", 5): ledger_codec.encode(closed(9)),
        "/ledgers/idgen": b"%d" % reserved,
        TOPIC: ledger_list.encode(LedgerList().opened(5)),
    }


def test_a_list_that_names_a_ledger_without_metadata_is_found_and_what_is_to_be_deleted_may_be_gone():
    assert list(check_lists(nodes(), {5})) == []
    assert list(check_lists(nodes(), set())) == [f"has a node {TOPIC} that names ledger 5, and no such ledger"]
    deleting = nodes() | {TOPIC: ledger_list.encode(LedgerList(deleting=(5,)))}
    assert list(check_lists(deleting, set())) == []
    (unreadable,) = check_lists(nodes() | {TOPIC: b"\xff\xff"}, {5})
    assert "cannot be read" in unreadable


def test_ids_that_would_be_given_out_twice_and_entries_that_the_bookie_lacks_are_found():
    assert list(doctor._nodes(nodes(), {5: 10})) == []
    assert ["given out twice" in what for what in doctor._nodes(nodes(reserved=5), {5: 10})] == [True]
    assert list(doctor._nodes(nodes(), {5: 4})) == ["names 10 entries of ledger 5, and the bookie has 4"]

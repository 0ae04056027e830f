"""Cases that the golden files do not have: damage, several folders."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bookie.db_ledger_storage.entry_log_format import Header, encode_header
from bookie.db_ledger_storage.ledger_index import LedgerRow
from bookie.journal.format import LogMark, encode_last_mark
from bookie.journal.format import encode_header as encode_journal_header
from quire.cli.shell.local.records import RecordPrinter
from quire.cli.shell.main import run_shell
from quire.world.real import real_world
from tests.unit.bookie.build import entry
from tests.unit.cli.shell.build import Ran


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("j1", "j2", "l1", "l2"):
        (tmp_path / name / "current").mkdir(parents=True)
    (tmp_path / "bk.conf").write_text("journalDirectories=j1,j2\nledgerDirectories=l1,l2\n")
    return tmp_path


def shell(*words: str) -> Ran:
    out, err = io.StringIO(), io.StringIO()
    code = run_shell(["-conf", "bk.conf", *words], out=out, err=err, environment={})
    return Ran(code, out.getvalue(), err.getvalue())


def log_bytes(*entries: bytes) -> bytes:
    return encode_header(Header()) + b"".join(len(each).to_bytes(4, "big") + each for each in entries)


def test_every_journal_has_its_mark_the_newest_of_all_ledger_folders(folder: Path) -> None:
    for newer, older in (("l1", "l2"), ("l2", "l1")):
        (folder / newer / "current/lastMark.0").write_bytes(encode_last_mark(LogMark(16, 1024)))
        (folder / older / "current/lastMark.0").write_bytes(encode_last_mark(LogMark(16, 512)))
        (folder / older / "current/lastMark.1").write_bytes(b"short")
        assert shell("lastmark").out == (
            "LastLogMark : Journal Id - 16(10.txn), Pos - 1024\nLastLogMark : Journal Id - 0(0.txn), Pos - 0\n"
        )


def test_of_several_journals_one_must_be_named(folder: Path) -> None:
    (folder / "j2/current/10.txn").write_bytes(encode_journal_header(16, None))
    assert "there are 2 journals: give the folder of one with -dir" in shell("readjournal", "16").err
    for name in ("j2", "j2/current", "./j2/"):
        assert shell("readjournal", "-dir", name, "16").code == 0
    assert "j3 is not one of the journals" in shell("readjournal", "-dir", "j3", "16").err


def test_a_damaged_journal_is_shown_up_to_the_damage(folder: Path) -> None:
    record = entry(7, 0)
    data = encode_journal_header(16, None) + len(record).to_bytes(4, "big") + record + b"\xff\xff\xff\xf0" + bytes(8)
    (folder / "j1/current/10.txn").write_bytes(data)
    ran = shell("readjournal", "-dir", "j1", "10.txn", "--json")
    assert (ran.code, [value["entryId"] for value in ran.values]) == (255, [0])
    assert f"a record of -16 bytes at offset {512 + 4 + len(record)}" in ran.err
    (folder / "j1/current/11.txn").write_bytes(b"BKLG" + bytes([0, 0, 0, 99]) + bytes(512))
    assert "is not a journal: version 99" in shell("readjournal", "-dir", "j1", "11.txn").err


def test_a_log_that_a_bookie_writes_is_shown_as_far_as_it_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = log_bytes(*(entry(7, each) for each in range(3)))
    path = folder / "l2/current/a.log"
    written = [data[:-5], data[: -5 - len(entry(7, 2))]]
    path.write_bytes(written.pop())
    show = RecordPrinter.print

    def show_while_it_is_written(*values: Any) -> None:
        path.write_bytes(written.pop() if written else data)
        show(*values)

    monkeypatch.setattr(RecordPrinter, "print", show_while_it_is_written)
    ran = shell("readlog", "10", "--json")
    assert (ran.code, [value["entryId"] for value in ran.values], ran.err.count("torn")) == (0, [0, 1, 2], 0)


def test_a_log_is_found_in_whichever_folder_it_is_and_shown_up_to_a_tear(folder: Path) -> None:
    (folder / "l2/current/a.log").write_bytes(log_bytes(entry(7, 0), entry(7, 1))[:-5])
    ran = shell("readlog", "10", "--json")
    assert (ran.code, [value["entryId"] for value in ran.values]) == (255, [0])
    assert "torn or damaged at offset" in ran.err
    assert shell("readlogmetadata", "a", "--json").values == [
        {"logId": 10, "totalSize": 4 + len(entry(7, 0)), "ledgersMap": False},
        {"ledgerId": 7, "size": 4 + len(entry(7, 0))},
    ]
    (folder / "l1/current/b.log").write_bytes(b"no log at all, and short")
    assert "an entry log begins with" in shell("readlog", "11").err


def test_a_log_that_several_folders_have_is_shown_from_each_or_from_the_one_that_is_named(folder: Path) -> None:
    """Each ledger folder counts its entry logs from 0."""
    for number in (1, 2):
        log = log_bytes(entry(number, 0), *[b"torn"] * (number == 2))
        (folder / f"l{number}/current/a.log").write_bytes(log)
    both = shell("readlog", "10", "--json")
    assert ([value["ledgerId"] for value in both.values], both.code) == ([1, 2], 255)
    assert "a.log is in l1/current and l2/current" in both.err
    for named in ("l2/a.log", "l2/current/a.log", str(folder / "l2/current/a.log")):
        assert [value["ledgerId"] for value in shell("readlog", named, "--json").values] == [2]
    assert [value["ledgerId"] for value in shell("readlog", "l1/a.log", "--json").values] == [1]
    assert [value["ledgerId"] for value in shell("readlog", "10", "-l", "2", "--json").values] == [2]
    told = [value["ledgerId"] for value in shell("readlogmetadata", "a", "--json").values if "ledgerId" in value]
    assert told == [1, 2]


def write_rows(folder: str, ledgers: Sequence[int], entries: Sequence[tuple[int, int]], log_id: int) -> None:
    """Write rows of ledgers into the ledger index, and of entries of a log into the location index."""
    world = real_world(1)
    for name in ("ledgers", "locations"):
        rows = world.key_value.open(f"{folder}/current/{name}")
        batch = rows.batch()
        if name == "ledgers":
            for ledger_id in ledgers:
                batch.put(ledger_id.to_bytes(8, "big"), LedgerRow(master_key=folder.encode()).encode())
        else:
            for ledger_id, entry_id in entries:
                key = ledger_id.to_bytes(8, "big") + entry_id.to_bytes(8, "big")
                batch.put(key, (log_id << 32 | 1028).to_bytes(8, "big"))
        rows.write(batch, sync=True)
        rows.close()


def test_a_ledger_is_looked_up_where_it_is_after_an_expansion(folder: Path) -> None:
    """Ledger 7 was there before the second folder was, and is not in that of its id."""
    write_rows("l1", [6, 7], [(6, 0), (7, 1)], 3)
    write_rows("l2", [9], [(9, 2)], 4)
    assert shell("ledger", "6").out == "entry 0\t:\t(log: 3, pos: 1028)\n"
    seven = shell("ledger", "7")
    assert seven.out == "entry 1\t:\t(log: 3, pos: 1028)\n"
    assert "ledger 7 is in l1/current" in seven.err
    assert shell("ledger", "9").out == "entry 2\t:\t(log: 4, pos: 1028)\n"
    state, row = shell("ledger", "-m", "7", "--json").values
    assert (state["known"], state["masterKey"]) == (True, b"l1".hex())
    assert (row["index"], row["entryId"]) == ("l1/current", 1)
    assert shell("ledger", "-m", "8", "--json").values == [{"ledgerId": 8, "known": False}]


def test_a_ledger_in_two_folders_is_shown_from_both_as_the_bookie_reads_it(folder: Path) -> None:
    """The original has continued ledger 7 in the folder of its id."""
    write_rows("l1", [7], [(7, 0), (7, 1)], 3)
    write_rows("l2", [7], [(7, 1), (7, 2)], 4)
    rows = [(value["index"], value["entryId"], value["logId"]) for value in shell("ledger", "7", "--json").values]
    assert rows == [("l2/current", 1, 4), ("l2/current", 2, 4), ("l1/current", 0, 3)]


def test_a_ledger_is_looked_up_while_the_bookie_runs_and_nothing_is_changed(folder: Path) -> None:
    write_rows("l1", [6], [(6, 0)], 0)
    write_rows("l2", [7], [(7, 1)], 1)
    open_rows = real_world(1).key_value.open(str(folder / "l1/current/locations"))  # as a bookie locks it
    before = sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*"))
    assert shell("ledger", "6").out == "entry 0\t:\t(log: 0, pos: 1028)\n"
    assert shell("ledger", "7").out == "entry 1\t:\t(log: 1, pos: 1028)\n"
    assert sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*")) == before
    open_rows.close()


def test_an_index_that_is_not_there_or_damaged_is_one_line(folder: Path) -> None:
    missing = shell("ledger", "6")
    assert (missing.code, missing.err) == (
        255,
        "quire shell: the index l1/current/locations cannot be read: No such file or directory\n",
    )
    (folder / "l1/current/locations").mkdir()
    (folder / "l1/current/locations/CURRENT").write_text("nonsense\n")
    damaged = shell("ledger", "6")
    assert (damaged.code, "cannot be read" in damaged.err) == (255, True)

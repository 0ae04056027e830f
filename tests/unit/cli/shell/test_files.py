"""Cases that the golden files do not have: damage, several folders."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from bookie.db_ledger_storage.entry_log_format import Header, encode_header
from bookie.journal.format import LogMark, encode_last_mark
from bookie.journal.format import encode_header as encode_journal_header
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


def test_a_ledger_is_looked_up_in_the_folder_it_belongs_to(folder: Path) -> None:
    world = real_world(1)
    for number in (0, 1):
        rows = world.key_value.open(str(folder / f"l{number + 1}/current/locations"))
        batch = rows.batch()
        for ledger_id in (6, 7):
            key = ledger_id.to_bytes(8, "big") + number.to_bytes(8, "big")
            batch.put(key, (number << 32 | 1028).to_bytes(8, "big"))
        rows.write(batch, sync=True)
        if number:
            rows.close()
        else:
            open_rows = rows  # as if a bookie were running: it is locked, and looked at all the same
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

"""The commands on local files print the output of BookKeeper 4.17.3 for the same files, except where that is wrong."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from quire.cli.shell.main import run_shell
from tests.unit.cli.shell.build import Ran

DB = Path(__file__).parents[3] / "golden/bookkeeper/db"
SHELL = DB / "shell"


@pytest.fixture(autouse=True)
def in_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DB / "clean")  # the configuration names folders relative to it


def shell(*words: str) -> Ran:
    out, err = io.StringIO(), io.StringIO()
    code = run_shell(["-conf", "../bk1.conf", *words], out=out, err=err, environment={})
    return Ran(code, out.getvalue(), err.getvalue())


@pytest.mark.parametrize(
    ("words", "file"),
    [
        ("lastmark", "lastmark"),
        ("ledger 0", "ledger_0"),
        ("ledger -m 0", "ledger_-m_0"),
        ("ledger 2", "ledger_2"),
        ("ledger 4", "ledger_4"),
        ("ledger 5000000000", "ledger_5000000000"),
        ("ledger 77", "ledger_77"),
        ("readlog 0", "readlog_0"),
        ("readlog 0.log", "readlog_0"),
        ("readlog -l 3 0", "readlog_-l_3_0"),
        ("readlogmetadata 0", "readlogmetadata_0"),
    ],
)
def test_the_output_is_the_originals(words: str, file: str) -> None:
    ran = shell(*words.split())
    assert ran.out == (SHELL / f"{file}.out").read_text()
    assert (ran.code, ran.err) == (0, "")


def test_a_log_without_a_map_is_read_and_has_the_originals_sums() -> None:
    ran = shell("readlogmetadata", "1")
    assert sorted(ran.out.splitlines()) == sorted((SHELL / "readlogmetadata_1.out").read_text().splitlines())
    assert "has no ledgers map" in ran.err


def test_a_journal_is_the_originals_but_for_explicit_lacs_which_it_takes_for_entries() -> None:
    """The original reads the size of the package and half of a ledger id as a last add confirmed."""
    theirs = (SHELL / "readjournal_1a1fdbcafc3_txn.out").read_text()
    wrong = "Eid=-32768, ByteOffset=12800, EntrySize=56 ---------\nType:           DATA\nLastConfirmed:  154618822656\n"
    assert wrong in theirs
    right = wrong.replace("DATA", "META").replace("LastConfirmed:  154618822656", "ExplicitLac:    5")
    expected = theirs.replace(wrong, right)
    for name in ("1a1fdbcafc3.txn", "1795258363843", "elsewhere/1a1fdbcafc3.txn"):
        assert shell("readjournal", name).out == expected


def test_a_journal_with_what_the_entries_hold_is_the_originals() -> None:
    theirs = (SHELL / "hex_readjournal_-m_1a1fdbcafc3_txn.out").read_bytes().decode()
    lac = re.compile(r"(Eid=-32768.*?\n).*?(?=\n--------- Lid)", re.DOTALL)
    assert lac.sub(r"\1", shell("readjournal", "-m", "1a1fdbcafc3.txn").out) == lac.sub(r"\1", theirs)


def test_a_log_with_what_the_entries_hold_in_hex_is_the_originals() -> None:
    theirs = (SHELL / "hex_readlog_-m_0.out").read_text()
    theirs = re.sub(r"Warn: Index is outside.*", "", theirs)  # its dump of nothing
    assert shell("-entryformat", "hex", "readlog", "-m", "0").out == theirs


def test_a_range_of_a_log_is_what_the_original_takes_for_it() -> None:
    """4.17.3 prints entries that overlap the range or begin in it."""
    found = shell("readlog", "-sp", "2000", "-ep", "2700", "0", "--json").values
    assert [(value["ledgerId"], value["entryId"], value["offset"]) for value in found] == [(1, 2, 1597), (1, 3, 2641)]
    assert shell("readlog", "-l", "3", "-e", "2", "0", "--json").values[0]["offset"] == 5011
    for words in (("-sp", "20000"), ("-l", "99"), ("-l", "3", "-e", "77")):
        ran = shell("readlog", *words, "0")
        assert (ran.code, len(ran.out.splitlines())) == (0, 2)
    backwards = shell("readlog", "-sp", "5", "-ep", "4", "0")
    assert (backwards.code, "is before" in backwards.err) == (255, True)


def test_a_journal_that_holds_nothing_is_no_failure() -> None:
    assert shell("readjournal", "1a1fdbcafc4.txn").out == "Scan journal 1795258363844 (1a1fdbcafc4.txn)\n"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("readlog 77", "there is no file 4d.log in bk1/ledgers/current"),
        ("readlog x.txt", "x.txt is neither an id nor the name of a .log file"),
        ("readlogmetadata 99", "there is no file 99.log"),
        ("readjournal 99", "there is no file bk1/journal/current/63.txn"),
        ("readjournal zz.txn", "zz.txn has no hexadecimal id in its name"),
        ("readjournal", "<journal id or file> is wanted, not nothing"),
        ("ledger 1x", "not a ledger id: 1x"),
    ],
)
def test_what_is_not_there_is_one_line(words: str, why: str) -> None:
    ran = shell(*words.split())
    assert (ran.code, len(ran.err.splitlines())) == (255, 1)
    assert why in ran.err


def test_the_state_of_a_ledger_comes_with_its_entries() -> None:
    first, *entries = shell("ledger", "-m", "2", "--json").values
    assert first["known"]
    assert (first["fenced"], first["explicitLac"], first["limbo"]) == (False, 5, False)
    assert first["masterKey"] == "615ed0089f3a2db1c1f7182910edc04428396d09"
    assert entries[0] == {"entryId": 0, "logId": 0, "position": 3191}
    assert len(entries) == 6
    assert shell("ledger", "-m", "77", "--json").values == [{"ledgerId": 77, "known": False}]


def test_looking_leaves_the_folders_as_they_were() -> None:
    def names() -> list[tuple[str, int]]:
        return sorted((str(path), path.stat().st_mtime_ns) for path in Path("bk1").rglob("*"))

    before = names()
    for words in ("ledger -m 0 --json", "readlog 0", "readlogmetadata 1", "readjournal 1a1fdbcafc3.txn", "lastmark"):
        assert shell(*words.split()).code == 0
    assert names() == before

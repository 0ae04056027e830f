from __future__ import annotations

import io

from bookie.journal.format import ExplicitLac, Fence, LedgerKey, Record
from quire.cli.shell.arguments import LedgerIdFormat
from quire.cli.shell.entry_text import EntryFormat
from quire.cli.shell.local.records import RecordPrinter
from quire.cli.shell.output import Output
from tests.unit.bookie.build import DIGEST, KEY, entry

PRINTER = RecordPrinter(ledger_ids=LedgerIdFormat.HEX, entries=EntryFormat.STRING, with_data=True)


def body(record: Record) -> bytes:
    assert isinstance(record, LedgerKey | Fence | ExplicitLac)
    return record.encode()[4:]


def test_special_records_are_named() -> None:
    lac = DIGEST.seal_lac(26, 41)
    key = body(LedgerKey(26, KEY))
    assert PRINTER.text(26, -0x1000, 512, len(key), key) == (
        f"--------- Lid=1a, Eid=-4096, ByteOffset=512, EntrySize=40 ---------\nType:           META\n"
        f"MasterKey:      {KEY.hex()}\n"
    )
    assert PRINTER.text(26, -0x2000, 0, 16, body(Fence(26))).splitlines()[1:] == ["Type:           META", "Fenced"]
    package = body(ExplicitLac(26, lac))
    assert PRINTER.text(26, -0x8000, 0, len(package), package).splitlines()[2] == "ExplicitLac:    41"
    assert PRINTER.value(26, -0x8000, 0, len(package), package)["explicitLac"] == 41
    assert PRINTER.value(26, -5, 0, 16, bytes(16))["type"] == "unknown"


def test_an_entry_shows_what_it_holds_if_asked() -> None:
    data = entry(26, 3, b"hello")
    lines = PRINTER.text(26, 3, 1024, len(data), data).splitlines()
    assert lines[1:5] == ["Type:           DATA", "LastConfirmed:  2", "Data:", ""]
    assert lines[5].endswith("hello")
    out = io.StringIO()
    without = RecordPrinter(ledger_ids=LedgerIdFormat.LONG, entries=EntryFormat.STRING, with_data=False)
    without.print(Output(out, io.StringIO(), as_json=True), 26, 3, 1024, len(data), data[:32])
    assert out.getvalue() == (
        '{"ledgerId": 26, "entryId": 3, "offset": 1024, "size": 41, "type": "entry", "lastConfirmed": 2}\n'
    )


def test_a_record_that_is_too_short_is_shown_all_the_same() -> None:
    assert "LastConfirmed:  None" in PRINTER.text(1, 1, 0, 16, bytes(16))
    assert PRINTER.value(1, -0x8000, 0, 20, bytes(20))["explicitLac"] is None

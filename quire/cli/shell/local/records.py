"""Records of journals and entry logs in the original's text form, and for JSON (pure).

    --------- Lid=0, Eid=0, ByteOffset=1024, EntrySize=36 ---------
    Type:           DATA
    LastConfirmed:  -1

Source: BookKeeper's FormatUtil; tests/golden/bookkeeper/db/shell. The original takes an explicit LAC for an entry.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from bookie.journal.format import EXPLICIT_LAC_ID, FENCE_ID, LEDGER_KEY_ID
from quire.cli.shell.arguments import LedgerIdFormat
from quire.cli.shell.entry_text import EntryFormat
from quire.cli.shell.output import Output
from quire.wire.bookkeeper.entry import METADATA_LENGTH, Buffer

_LONG: Final = Struct("!q")
_LAC_OFFSET: Final = 16
_VALUE_OFFSET: Final = 20
"""Offset of a key or a LAC package in its record: behind the ids and the size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPrinter:
    ledger_ids: LedgerIdFormat
    entries: EntryFormat
    with_data: bool
    """-msg: with the contents of the entries; digest included, as its type is unknown here."""

    def print(self, output: Output, ledger_id: int, entry_id: int, offset: int, size: int, body: Buffer) -> None:
        """Print a record. `body` is the record from its two ids on: all `size` bytes, or of an entry at least its
        metadata."""
        if output.as_json:
            output.value(**self.value(ledger_id, entry_id, offset, size, body))
        else:
            output.line(self.text(ledger_id, entry_id, offset, size, body))

    def text(self, ledger_id: int, entry_id: int, offset: int, size: int, body: Buffer) -> str:
        """Return the text, without the last newline."""
        ledger = self.ledger_ids.write(ledger_id)
        head = f"--------- Lid={ledger}, Eid={entry_id}, ByteOffset={offset}, EntrySize={size} ---------"
        lines = [head, f"Type:           {'DATA' if entry_id >= 0 else 'META'}"]
        view = memoryview(body)
        if entry_id == LEDGER_KEY_ID:
            lines.append(f"MasterKey:      {view[_VALUE_OFFSET:].hex()}")
        elif entry_id == FENCE_ID:
            lines.append("Fenced")
        elif entry_id == EXPLICIT_LAC_ID:
            lines.append(f"ExplicitLac:    {_explicit_lac(view)}")
        elif entry_id >= 0:
            lines.append(f"LastConfirmed:  {_lac(view)}")
            if self.with_data:
                lines += ["Data:", "", self.entries.lines(view[METADATA_LENGTH:])]
        else:
            lines.append("Unknown")
        return "\n".join([*lines, ""])

    def value(self, ledger_id: int, entry_id: int, offset: int, size: int, body: Buffer) -> dict[str, Any]:
        view = memoryview(body)
        found: dict[str, Any] = {"ledgerId": ledger_id, "entryId": entry_id, "offset": offset, "size": size}
        if entry_id == LEDGER_KEY_ID:
            found |= {"type": "masterKey", "masterKey": view[_VALUE_OFFSET:].hex()}
        elif entry_id == FENCE_ID:
            found["type"] = "fence"
        elif entry_id == EXPLICIT_LAC_ID:
            found |= {"type": "explicitLac", "explicitLac": _explicit_lac(view)}
        elif entry_id >= 0:
            found |= {"type": "entry", "lastConfirmed": _lac(view)}
            if self.with_data:
                found["data"] = b64encode(view[METADATA_LENGTH:]).decode("ascii")
        else:
            found["type"] = "unknown"
        return found


def _lac(body: memoryview) -> int | None:
    """Return the last add confirmed in an entry; None if the entry is too short to have one."""
    return _long(body, _LAC_OFFSET)


def _explicit_lac(body: memoryview) -> int | None:
    """Return the LAC in a LAC package, which begins with the ledger's id."""
    return _long(body, _VALUE_OFFSET + 8)


def _long(body: memoryview, offset: int) -> int | None:
    if len(body) < offset + _LONG.size:
        return None
    number: int = _LONG.unpack_from(body, offset)[0]
    return number

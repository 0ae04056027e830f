"""Contents of an entry as text (pure): -entryformat string or hex."""

from __future__ import annotations

from enum import Enum

from quire.wire.bookkeeper.entry import Buffer

_ROW = 16


class EntryFormat(Enum):
    STRING = "string"
    HEX = "hex"

    def lines(self, data: Buffer) -> str:
        """Return `data` as text, without the last newline."""
        return hex_dump(data) if self is EntryFormat.HEX else bytes(data).decode("utf-8", "replace")


def hex_dump(data: Buffer) -> str:
    """Return rows of offset, up to 16 bytes, and those of them that are printable ASCII.

    >>> print(hex_dump(b"S_\\xa1N"))
    00000000 53 5F A1 4E                                     S_.N
    """
    rows = []
    for start in range(0, len(data), _ROW):
        row = bytes(data[start : start + _ROW])
        printable = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        rows.append(f"{start:08X} {row.hex(' ').upper().ljust(3 * _ROW - 1)} {printable}")
    return "\n".join(rows)

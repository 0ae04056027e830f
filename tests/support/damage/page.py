"""Statements of docs/faults.md about damage to files: by kind of file and of damage, the allowed verdicts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.support.damage.places import Damage
from tests.support.damage.verdicts import Verdict

PAGE: Final = Path(__file__).parents[3] / "docs/faults.md"
_COLUMNS: Final = ((Damage.FLIP, Damage.SECTOR, Damage.ZERO), (Damage.CUT,), (Damage.MISSING,))
_ROCKSDB: Final = re.compile(r"(?:metadata|locations|ledgers) (?!VERSION)(.*)")


def row_of(kind: str) -> str:
    """Return the name of the row of a kind of file; for RocksDB's files it does not name their map."""
    if match := _ROCKSDB.fullmatch(kind):
        return f"RocksDB {match[1]}"
    return kind.rpartition(" ")[2] if kind.endswith("VERSION") else kind


def promises() -> dict[tuple[str, Damage], frozenset[Verdict]]:
    """Return the allowed verdicts by row and kind of damage."""
    section = PAGE.read_text().split("\n## Damage to files\n")[1].split("\n## ")[0]
    found: dict[tuple[str, Damage], frozenset[Verdict]] = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("| ") or cells[0] == "file":
            continue
        for name in _names(cells[0]):
            for column, damages in zip(cells[1:], _COLUMNS, strict=True):
                verdicts = frozenset(Verdict(word.strip()) for word in column.split(","))
                found.update({(name, damage): verdicts for damage in damages})
    return found


def _names(cell: str) -> list[str]:
    """Return the kinds in a row's first cell: the part before a pattern, otherwise each of the names."""
    if cell.endswith(("`*.txn`", "`*.log`")):
        return [cell.rpartition(" ")[0]]
    prefix = "RocksDB " if cell.startswith("RocksDB's ") else ""
    return [prefix + name for name in re.findall(r"`([^`]+)`", cell)]

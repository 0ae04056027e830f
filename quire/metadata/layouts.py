"""Layouts of ledgers as nodes (pure): BookKeeper's three ledger managers.

    hierarchical        <root>/00/0000/L0000                       %010d of an id below 2^31-1, cut 2/4/4
                        <root>/000/0000/0000/0000/L0000            %019d of a greater one, cut 3/4/4/4/4
    longhierarchical    <root>/000/0000/0000/0000/L0000            %019d of every id
    flat                <root>/L0000000000                         %010d
    <root>/LAYOUT       names the layout: "2" LF class name ":1"

Source: BookKeeper's LedgerLayout, FlatLedgerManager, HierarchicalLedgerManager, LongHierarchicalLedgerManager;
tests/golden/bookkeeper/zk.
"""

from __future__ import annotations

from dataclasses import dataclass

from quire.metadata import paths
from quire.metadata.errors import UnsupportedLayoutError

SHORT_ID_LIMIT = (1 << 31) - 1
"""Upper bound of ids with a short path, which come from the original's first sequence."""
LONG_ID_LIMIT = 1 << 63

SHORT_WIDTHS = (2, 4, 4)
LONG_WIDTHS = (3, 4, 4, 4, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLayout:
    name: str
    """Name as in `zk+name://`."""
    factory: str
    trees: tuple[tuple[int, ...], ...]
    """Widths of the path's components, per tree; the ids of the first are below SHORT_ID_LIMIT if there are two."""
    id_folder: str
    """Folder of the id sequence, below the root; empty: the root itself."""

    @property
    def value(self) -> bytes:
        """Return the bytes of the LAYOUT node."""
        return f"2\norg.apache.bookkeeper.meta.{self.factory}:1".encode()

    def path(self, root: str, ledger_id: int) -> str:
        """Return the path of a ledger's metadata."""
        assert 0 <= ledger_id < LONG_ID_LIMIT, f"{ledger_id} is not a ledger id"
        widths = self.trees[-1] if ledger_id >= SHORT_ID_LIMIT else self.trees[0]
        if widths == SHORT_WIDTHS:  # nearly all are; a broker that loads its topics needs thousands
            digits = f"{ledger_id:010d}"
            return paths.join(root, f"{digits[:2]}/{digits[2:6]}/L{digits[6:]}")
        digits = f"{ledger_id:0{sum(widths)}d}"
        parts = []
        for width in widths[:-1]:
            parts.append(digits[:width])
            digits = digits[width:]
        return paths.join(root, "/".join((*parts, f"L{digits}")))


HIERARCHICAL = LedgerLayout(
    name="hierarchical",
    factory="HierarchicalLedgerManagerFactory",
    trees=(SHORT_WIDTHS, LONG_WIDTHS),
    id_folder="idgen",
)
LONG_HIERARCHICAL = LedgerLayout(
    name="longhierarchical",
    factory="LongHierarchicalLedgerManagerFactory",
    trees=(LONG_WIDTHS,),
    id_folder="idgen",
)
FLAT = LedgerLayout(name="flat", factory="FlatLedgerManagerFactory", trees=((10,),), id_folder="")

LAYOUTS = {layout.name: layout for layout in (FLAT, HIERARCHICAL, LONG_HIERARCHICAL)}


def decode_layout(root: str, value: bytes) -> LedgerLayout:
    """Decode a LAYOUT node; UnsupportedLayoutError if the layout is unsupported."""
    for layout in LAYOUTS.values():
        if value == layout.value:
            return layout
    raise UnsupportedLayoutError(f"{root} has an unsupported layout of ledgers: {value!r}")


def is_ledger_node(name: str) -> bool:
    """Return whether a child of the root is a ledger of the flat layout, or a folder of the others."""
    digits = name[1:] if name.startswith("L") else name
    if not (digits.isascii() and digits.isdigit()):
        return False
    return len(digits) >= FLAT.trees[0][0] if name.startswith("L") else len(digits) in (2, 3)

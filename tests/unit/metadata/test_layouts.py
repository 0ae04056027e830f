from __future__ import annotations

import pytest

from quire.metadata.errors import UnsupportedLayoutError
from quire.metadata.layouts import (
    FLAT,
    HIERARCHICAL,
    LAYOUTS,
    LONG_HIERARCHICAL,
    LedgerLayout,
    decode_layout,
    is_ledger_node,
)
from quire.metadata.ledgers import ledger_path


@pytest.mark.parametrize(
    ("layout", "ledger_id", "path"),
    [
        (FLAT, 4, "/r/L0000000004"),
        (FLAT, (1 << 31) - 2, "/r/L2147483646"),
        (HIERARCHICAL, 0, "/r/00/0000/L0000"),
        (HIERARCHICAL, 12345, "/r/00/0001/L2345"),
        (HIERARCHICAL, 1_234_567_890, "/r/12/3456/L7890"),
        (HIERARCHICAL, (1 << 31) - 2, "/r/21/4748/L3646"),
        (HIERARCHICAL, (1 << 31) - 1, "/r/000/0000/0021/4748/L3647"),
        (HIERARCHICAL, 5_000_000_000, "/r/000/0000/0050/0000/L0000"),
        (HIERARCHICAL, (1 << 63) - 1, "/r/922/3372/0368/5477/L5807"),
        (LONG_HIERARCHICAL, 0, "/r/000/0000/0000/0000/L0000"),
        (LONG_HIERARCHICAL, (1 << 63) - 1, "/r/922/3372/0368/5477/L5807"),
    ],
)
def test_paths_of_ledgers_in_each_layout(layout: LedgerLayout, ledger_id: int, path: str) -> None:
    assert layout.path("/r", ledger_id) == path
    assert layout is not HIERARCHICAL or ledger_path("/r", ledger_id) == path, "the default"


def test_a_layout_is_known_by_the_bytes_of_its_node_and_by_nothing_else() -> None:
    for layout in LAYOUTS.values():
        assert decode_layout("/r", layout.value) is layout
        for other in (layout.value + b"\n", layout.value.replace(b":1", b":2"), b"", b"1\n" + layout.value[2:]):
            with pytest.raises(UnsupportedLayoutError):
                decode_layout("/r", other)


@pytest.mark.parametrize("name", ["00", "000", "42", "L0000000004", "L12345678901"])
def test_nodes_of_ledgers_are_told(name: str) -> None:
    assert is_ledger_node(name)


@pytest.mark.parametrize("name", ["LAYOUT", "L0004", "cookies", "0", "0000", "idgen", "L", "", "٠٠"])
def test_other_nodes_are_not_taken_for_ledgers(name: str) -> None:
    assert not is_ledger_node(name)

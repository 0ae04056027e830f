"""Check that lists of logs and nodes of cursors name existing ledgers. Pure: all nodes at once, as they were read.

Of a stopped server nothing is on its way: a list names a ledger only while the ledger's metadata are there, since both
are made in one write, and a ledger leaves the list before it is deleted. What is `deleting` may be gone, and what was
offloaded too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from cursors.errors import CursorDamagedError
from cursors.position_info import NO_LEDGER, decode_node
from managed_ledger.errors import ManagedLedgerDamagedError
from managed_ledger.ledger_list import decode
from managed_ledger.offloading import is_in_object

ROOT = "/managed-ledgers"
_LOG_DEPTH = 5
"""Depth of `/managed-ledgers/tenant/namespace/persistent/topic`; one deeper is a cursor of it."""


def check_lists(nodes: Mapping[str, bytes], ledgers: Collection[int]) -> Iterator[str]:
    """Return the problems, each as the end of a sentence that begins with "the metadata".

    Args:
        nodes: all nodes by path.
        ledgers: the ids that have metadata.
    """
    for path, value in nodes.items():
        depth = path.count("/")
        if not path.startswith(f"{ROOT}/") or depth < _LOG_DEPTH:
            continue
        try:
            named = (
                [info.ledger_id for info in decode(value).ledgers if not is_in_object(info)]
                if depth == _LOG_DEPTH
                else _cursor_ledgers(value)
            )
        except (ManagedLedgerDamagedError, CursorDamagedError) as error:
            yield f"has a node {path} that cannot be read: {error}"
            continue
        for ledger_id in named:
            if ledger_id not in ledgers:
                yield f"has a node {path} that names ledger {ledger_id}, and no such ledger"


def _cursor_ledgers(value: bytes) -> list[int]:
    node, _ = decode_node(value)
    return [] if node.ledger_id == NO_LEDGER else [node.ledger_id]

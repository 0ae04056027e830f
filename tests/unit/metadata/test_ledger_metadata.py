from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from quire.metadata.errors import MalformedMetadataError
from quire.metadata.ledgers import Fragment, LedgerMetadata, LedgerState

GOOD = LedgerMetadata(
    ensemble_size=3,
    write_quorum=2,
    ack_quorum=2,
    fragments=(Fragment(0, ("a", "b", "c")), Fragment(10, ("a", "d", "c"))),
)


@pytest.mark.parametrize(
    "change",
    [
        {"ack_quorum": 0},
        {"ack_quorum": 3},
        {"write_quorum": 4},
        {"fragments": ()},
        {"fragments": (Fragment(0, ("a", "b")),)},
        {"fragments": (Fragment(0, ("a", "b", "a")),)},
        {"fragments": (Fragment(-1, ("a", "b", "c")),)},
        {"fragments": (Fragment(5, ("a", "b", "c")), Fragment(5, ("a", "b", "d")))},
        {"fragments": (Fragment(5, ("a", "b", "c")), Fragment(4, ("a", "b", "d")))},
        {"last_entry_id": 4},
        {"length": 1},
        {"state": LedgerState.IN_RECOVERY, "last_entry_id": 0},
        {"state": LedgerState.CLOSED, "last_entry_id": -2},
        {"state": LedgerState.CLOSED, "length": -1},
        {"format_version": 0},
        {"format_version": 4},
    ],
    ids=str,
)
def test_a_broken_invariant_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(MalformedMetadataError):
        replace(GOOD, **change)


def test_an_empty_ledger_can_be_closed() -> None:
    closed = replace(GOOD, state=LedgerState.CLOSED, last_entry_id=-1, length=0)
    assert closed.state is LedgerState.CLOSED


def test_an_entry_is_in_the_last_fragment_that_starts_at_or_before_it() -> None:
    assert [GOOD.fragment_at(entry).first_entry_id for entry in (0, 9, 10, 11, 1 << 40)] == [0, 0, 10, 10, 10]


def test_only_metadata_that_do_not_tell_the_password_take_another() -> None:
    assert replace(GOOD, password=b"own").password_or(b"given") == b"own"
    assert replace(GOOD, password_known=False).password_or(b"given") == b"given"

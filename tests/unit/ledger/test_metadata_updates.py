from __future__ import annotations

from dataclasses import replace

import pytest

from quire.ledger import metadata_updates
from quire.ledger.errors import (
    FragmentChangedError,
    LedgerClosedError,
    LedgerConflictError,
    LedgerFencedError,
    LedgerRecoveryError,
)
from quire.metadata.ledgers import Fragment, LedgerMetadata, LedgerState
from tests.support.refusals import refuses

OPEN = LedgerMetadata(
    ensemble_size=3,
    write_quorum=2,
    ack_quorum=2,
    fragments=(Fragment(0, ("a", "b", "c")), Fragment(10, ("a", "d", "c"))),
)
RECOVERING = replace(OPEN, state=LedgerState.IN_RECOVERY)
CLOSED = replace(OPEN, state=LedgerState.CLOSED, last_entry_id=20, length=500)


def test_a_fragment_is_appended_or_takes_the_place_of_one_without_entries() -> None:
    assert metadata_updates.with_ensemble(OPEN.fragments, 15, "xyz") == (*OPEN.fragments, Fragment(15, ("x", "y", "z")))
    assert metadata_updates.with_ensemble(OPEN.fragments, 10, "xyz") == (
        OPEN.fragments[0],
        Fragment(10, ("x", "y", "z")),
    )


def test_a_writer_takes_over_repairs_of_complete_fragments_and_knows_its_last_one_best() -> None:
    first, last = OPEN.fragments
    repaired = Fragment(0, ("a", "b", "z"))
    stored = replace(OPEN, fragments=(repaired, last))
    newest = Fragment(15, ("x", "d", "c"))
    assert metadata_updates.with_repairs((first, last, newest), stored) == (repaired, last, newest)
    assert metadata_updates.with_repairs((first, newest), stored) == (repaired, newest)
    behind = replace(OPEN, fragments=(first,))
    assert metadata_updates.with_repairs((repaired, last), behind) == (repaired, last)
    assert metadata_updates.with_repairs((first, newest), CLOSED) == CLOSED.fragments


def test_only_bookies_that_still_stand_where_they_failed_are_replaced() -> None:
    changed = metadata_updates.replace_failed(OPEN, 15, {0: "a", 1: "b"}, ("x", "y", "c"))
    assert changed is not None
    assert changed.fragments[-1] == Fragment(15, ("x", "d", "c")), "b was replaced by d already"
    assert metadata_updates.replace_failed(OPEN, 15, {1: "b"}, ("a", "y", "c")) is None


def test_no_bookie_is_put_into_an_ensemble_twice() -> None:
    assert metadata_updates.replace_failed(OPEN, 15, {0: "a"}, ("d", "b", "c")) is None


def test_a_writer_whose_ledger_is_taken_changes_nothing() -> None:
    refuses(LedgerClosedError, lambda: metadata_updates.replace_failed(CLOSED, 15, {0: "a"}, ("x", "d", "c")))
    refuses(LedgerFencedError, lambda: metadata_updates.replace_failed(RECOVERING, 15, {0: "a"}, ("x", "d", "c")))


@pytest.mark.parametrize("stored", [OPEN, RECOVERING])
def test_close_closes_an_open_ledger_and_one_in_recovery(stored: LedgerMetadata) -> None:
    assert metadata_updates.close(stored, 20, 500) == CLOSED


def test_close_accepts_a_closed_ledger_only_if_it_is_equal() -> None:
    assert metadata_updates.close(CLOSED, 20, 500) is None
    for last, length in ((19, 500), (20, 499)):
        with pytest.raises(LedgerConflictError):
            metadata_updates.close(CLOSED, last, length)


def test_recovery_begins_only_on_an_open_ledger() -> None:
    assert metadata_updates.begin_recovery(OPEN) == RECOVERING
    assert metadata_updates.begin_recovery(RECOVERING) is None
    assert metadata_updates.begin_recovery(CLOSED) is None


def test_recovery_adopts_a_close_by_others() -> None:
    assert metadata_updates.end_recovery(CLOSED, RECOVERING, RECOVERING.fragments, 30, 700) is None


def test_recovery_keeps_repairs_made_meanwhile_and_adds_its_own_ensembles() -> None:
    repaired = replace(RECOVERING, fragments=(Fragment(0, ("a", "e", "c")), OPEN.fragments[1]))
    unchanged = metadata_updates.end_recovery(repaired, RECOVERING, RECOVERING.fragments, 20, 500)
    assert unchanged == replace(CLOSED, fragments=repaired.fragments)
    ours = (*RECOVERING.fragments, Fragment(18, ("x", "d", "c")))
    changed = metadata_updates.end_recovery(repaired, RECOVERING, ours, 20, 500)
    assert changed is not None
    assert changed.fragments == (*repaired.fragments, ours[2])


def test_a_ledger_that_is_open_again_is_no_ledger_to_close() -> None:
    refuses(LedgerRecoveryError, lambda: metadata_updates.end_recovery(OPEN, RECOVERING, OPEN.fragments, 20, 500))


def test_a_repair_names_newcomers_where_the_old_members_stood() -> None:
    changed = metadata_updates.replace_members(OPEN, 0, 9, {1: ("b", "x"), 2: ("c", "y")})
    assert changed == replace(OPEN, fragments=(Fragment(0, ("a", "x", "y")), OPEN.fragments[1]))
    assert changed is not None
    assert metadata_updates.replace_members(changed, 0, 9, {1: ("b", "x"), 2: ("c", "y")}) is None, "it was done"
    last = metadata_updates.replace_members(CLOSED, 10, 20, {0: ("a", "x")})
    assert last == replace(CLOSED, fragments=(CLOSED.fragments[0], Fragment(10, ("x", "d", "c"))))


@pytest.mark.parametrize(
    ("stored", "first", "last", "members"),
    [
        (OPEN, 5, 9, {1: ("b", "x")}),  # no fragment begins there
        (OPEN, 0, 8, {1: ("b", "x")}),  # it ends elsewhere
        (OPEN, 10, 20, {1: ("d", "x")}),  # it has no end yet
        (RECOVERING, 10, 20, {1: ("d", "x")}),
        (CLOSED, 10, 19, {1: ("d", "x")}),
        (OPEN, 0, 9, {1: ("d", "x")}),  # another bookie has that place
        (OPEN, 0, 9, {1: ("b", "c")}),  # the new bookie is already a member
    ],
)
def test_a_repair_of_a_fragment_that_is_not_what_was_copied_changes_nothing(stored, first, last, members) -> None:
    refuses(FragmentChangedError, lambda: metadata_updates.replace_members(stored, first, last, members))

"""How far a verification is."""

from __future__ import annotations

import itertools

import pytest

from quire.cli.operations.context import checked, filled
from quire.cli.operations.verification import LedgerReport, Totals
from quire.cli.operations.verify_replicas import Progress, forget, load, save
from quire.cli.shell.errors import ShellError


def report(ledger_id: int) -> LedgerReport:
    return LedgerReport(ledger_id, totals=Totals(ledgers=1, copies=10 * ledger_id))


def test_in_all_orders_the_next_ledger_is_the_first_that_is_not_done():
    for order in itertools.permutations([3, 5, 8, 9]):
        progress = Progress()
        for ledger_id in (3, 5, 8, 9):
            progress.begun(ledger_id)
        done: set[int] = set()
        for ledger_id in order:
            progress.done(report(ledger_id))
            done.add(ledger_id)
            left = [each for each in (3, 5, 8, 9) if each not in done]
            before = [each for each in (3, 5, 8, 9) if not left or each < left[0]]
            assert progress.next_ledger == (before[-1] + 1 if before else 0)
            assert progress.totals.copies == sum(10 * each for each in before)
            assert progress.all_totals.copies == sum(10 * each for each in done)


def test_what_is_saved_goes_on_with_the_same_figures(tmp_path):
    path = tmp_path / "progress"
    progress = Progress()
    progress.begun(4)
    progress.done(LedgerReport(4, totals=Totals(ledgers=1, copies=7, bad_ledgers=1, bad_copies=2)))
    progress.begun(6)
    save(progress, path)
    again = load(path)
    assert again.next_ledger == 5
    assert again.totals == progress.totals
    forget(path)
    assert load(path).next_ledger == 0


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 1}', '{"version": 99}'])
def test_a_file_that_is_none_is_refused(text, tmp_path):
    path = tmp_path / "progress"
    path.write_text(text)
    with pytest.raises(ShellError):
        load(path)


def test_a_command_is_filled_for_its_bookie():
    assert filled("{host} {port} {id} {other}", "h.example:3181") == "h.example 3181 h.example:3181 {other}"
    assert filled("{host}", "named") == "named"


def test_bookies_are_taken_once_and_what_cannot_be_one_is_refused():
    assert checked(["a:1", "b:2", "a:1"]) == ["a:1", "b:2"]
    with pytest.raises(ShellError):
        checked(["a b"])

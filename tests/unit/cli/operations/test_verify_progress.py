"""Progress of a verification."""

from __future__ import annotations

import itertools

import pytest
import trio
import trio.testing

from quire.cli.operations.verification import LedgerReport, ReadTotals
from quire.cli.operations.verify_replicas import Progress, forget, load, save
from quire.cli.shell.errors import ShellError
from quire.world.tasks import for_each


def report(ledger_id: int) -> LedgerReport:
    return LedgerReport(ledger_id, totals=ReadTotals(ledgers=1, copies=10 * ledger_id))


def test_in_all_orders_the_next_ledger_is_the_first_that_is_not_done():
    for order in itertools.permutations([3, 5, 8, 9]):
        progress = Progress()
        assert list(progress.begin([3, 5, 8, 9])) == [3, 5, 8, 9]
        done: set[int] = set()
        for ledger_id in order:
            progress.done(report(ledger_id))
            done.add(ledger_id)
            left = [each for each in (3, 5, 8, 9) if each not in done]
            before = [each for each in (3, 5, 8, 9) if not left or each < left[0]]
            assert progress.next_ledger == (before[-1] + 1 if before else 0)
            assert progress.totals.copies == sum(10 * each for each in before)


@pytest.mark.real_clock
async def test_no_ledger_is_passed_over_though_a_later_one_of_those_at_once_may_come_to_run_first():
    async def main() -> None:
        progress = Progress()

        async def job(ledger_id: int) -> None:
            if ledger_id == 1:
                await trio.testing.wait_all_tasks_blocked()
                assert progress.next_ledger == 0
            progress.done(report(ledger_id))

        await for_each(progress.begin([1, 2, 3]), job, at_once=3, name="test")
        assert progress.next_ledger == 4

    for _ in range(20):  # trio starts tasks in either order
        await main()


def test_what_is_saved_goes_on_with_the_same_figures(tmp_path):
    path = tmp_path / "progress"
    progress = Progress()
    begun = progress.begin([4, 6])
    next(begun)
    progress.done(LedgerReport(4, totals=ReadTotals(ledgers=1, copies=7, bad_ledgers=1, bad_copies=2)))
    next(begun)
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

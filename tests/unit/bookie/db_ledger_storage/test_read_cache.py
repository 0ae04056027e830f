from __future__ import annotations

from bookie.db_ledger_storage.read_cache import ReadCache
from bookie.db_ledger_storage.write_cache import run_cost
from quire.wire.bookkeeper.run import Run


def test_what_workers_read_is_found(run_of):
    cache = ReadCache(1 << 20)
    cache.arrived.append(run_of(1, range(5, 10)))
    run = cache.find(1, 7)
    assert run is not None
    assert run.first == 5
    assert cache.find(1, 4) is None
    assert cache.find(1, 10) is None
    assert cache.find(2, 7) is None


def test_the_run_unused_for_longest_goes_first_and_the_bound_holds(run_of):
    runs: list[Run] = [run_of(1, range(first, first + 10)) for first in (0, 10, 20)]
    cache = ReadCache(2 * run_cost(runs[0]))
    cache.put(runs[0])
    cache.put(runs[1])
    assert cache.find(1, 0) is runs[0]
    cache.put(runs[2])
    assert cache.find(1, 10) is None, "the second was used before the first"
    assert cache.find(1, 0) is runs[0]
    assert cache.find(1, 20) is runs[2]
    assert cache.size == 2 * run_cost(runs[0])


def test_a_run_read_twice_costs_once(run_of):
    cache = ReadCache(1 << 20)
    for _ in range(3):
        cache.put(run_of(1, range(10)))
    assert cache.size == run_cost(run_of(1, range(10)))


def test_a_run_larger_than_the_cache_is_not_kept(run_of):
    cache = ReadCache(1000)
    cache.put(run_of(1, [0], 2000))
    assert (cache.size, cache.find(1, 0)) == (0, None)


def test_what_nobody_takes_in_is_bounded(run_of):
    cache = ReadCache(1 << 20)
    for first in range(100):
        cache.arrived.append(run_of(1, [first]))
    assert len(cache.arrived) < 20
    assert cache.find(1, 99) is not None


def test_a_dropped_ledger_leaves_nothing_behind(run_of):
    cache = ReadCache(1 << 20)
    cache.put(run_of(1, range(10)))
    cache.put(run_of(2, range(10)))
    cache.arrived.append(run_of(1, range(10, 20)))
    cache.drop_ledger(1)
    assert cache.find(1, 5) is None
    assert cache.find(1, 15) is None
    assert cache.size == run_cost(run_of(2, range(10)))


def test_no_older_copy_stays_of_what_is_written_again(run_of):
    for first, last in [(0, 4), (0, 5), (5, 5), (7, 30), (9, 9), (10, 12), (25, 40)]:
        cache = ReadCache(1 << 20)
        cache.put(run_of(1, range(5, 10)))
        cache.arrived.append(run_of(1, range(20, 30)))
        cache.put(run_of(2, range(50)))
        cache.forget_overlap(run_of(1, range(first, last + 1)))
        for entry_id in range(first, last + 1):
            assert cache.find(1, entry_id) is None
        assert (cache.find(1, 5) is not None) == (last < 5 or first > 9)
        assert (cache.find(1, 20) is not None) == (last < 20)
        assert cache.find(2, 7) is not None

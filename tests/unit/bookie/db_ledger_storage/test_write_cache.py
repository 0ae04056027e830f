from __future__ import annotations

from struct import pack

from hypothesis import given
from hypothesis import strategies as st

from bookie.db_ledger_storage.write_cache import RunTable, WriteCache, cut, cut_parts, run_cost
from bookie.errors import WriteCacheFullError
from quire.wire.bookkeeper.run import Run
from tests.support.refusals import refuses

RUNS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(1, 8)), max_size=25
)  # ledger, first entry, entries


def content(run: Run | None, entry_id: int) -> bytes:
    assert run is not None
    return bytes(run.entry(entry_id))


@given(RUNS)
def test_whatever_the_order_and_overlap_the_newest_version_of_each_entry_is_found(runs):
    table = RunTable()
    model: dict[tuple[int, int], bytes] = {}
    for version, (ledger, first, count) in enumerate(runs):
        entries = [(each, pack("!qqqq", ledger, each, version, 0)) for each in range(first, first + count)]
        table.add(Run.of(ledger, entries))
        model.update({(ledger, each): entry for each, entry in entries})

    for ledger in range(3):
        ids = sorted(each for owner, each in model if owner == ledger)
        assert table.last_entry_id(ledger) == (ids[-1] if ids else -1)
        for entry_id in range(-1, 42):
            run = table.find(ledger, entry_id)
            found = None if run is None else content(run, entry_id)
            assert found == model.get((ledger, entry_id))
    written = list(table.sorted_runs())
    assert [(run.ledger_id, each) for run in written for each in range(run.first, run.last + 1)] == sorted(model)
    assert b"".join(bytes(part) for run in written for part in run.parts) == b"".join(
        len(model[key]).to_bytes(4, "big") + model[key] for key in sorted(model)
    )
    assert table.entries == len(model)
    assert table.size == sum(map(run_cost, written))
    for ledger in table.ledgers():
        table.drop_ledger(ledger)
    assert (table.size, table.entries, len(table)) == (0, 0, 0)


def test_the_next_run_behind_an_entry_is_told(run_of):
    table = RunTable()
    for first in (10, 20, 30):
        table.add(run_of(1, range(first, first + 5)))
    assert [table.next_first(1, each) for each in (0, 10, 14, 20, 30)] == [10, 20, 20, 30, None]
    assert table.next_first(2, 0) is None


def test_a_run_is_cut_without_copying(run_of, records_of):
    run = run_of(1, range(10))
    part = cut(run, 3, 5)
    assert (part.first, part.last, part.count, part.size) == (3, 5, 3, 3 * 44)
    assert bytes(part.parts[0]) == records_of(1, range(3, 6))
    assert content(part, 4) == content(run, 4)
    view = part.parts[0]
    assert isinstance(view, memoryview)
    assert view.obj is run.parts[0]
    assert cut_parts(run, 0, 9) is run.parts


def test_a_run_of_several_parts_is_cut_where_entries_lie_across_them(run_of):
    whole = bytes(run_of(1, range(4)).parts[0])
    pieces = [whole[:50], whole[50:60], whole[60:]]
    run = Run(1, 0, list(pieces), len(whole), [0, 44, 88, 132])
    for first in range(4):
        for last in range(first, 4):
            parts = cut(run, first, last).parts
            assert b"".join(map(bytes, parts)) == whole[44 * first : 44 * (last + 1)]


def test_a_full_cache_takes_nothing_and_says_so(run_of):
    cache = WriteCache(10_000)
    cache.add(run_of(1, [0], 6000))
    refuses(WriteCacheFullError, lambda: cache.add(run_of(1, [1], 6000)))
    assert cache.find(1, 1) is None
    assert cache.begin_flush().entries == 1
    cache.add(run_of(1, [1], 1000))
    refuses(WriteCacheFullError, lambda: cache.add(run_of(1, [2], 6000)))
    cache.end_flush()
    cache.add(run_of(1, [3], 3000))


def test_one_run_larger_than_the_cache_still_goes_in(run_of):
    cache = WriteCache(1000)
    cache.add(run_of(1, [0], 5000))
    assert cache.find(1, 0) is not None


def test_entries_stay_in_sight_while_they_are_flushed_and_newer_ones_win(run_of, entry_of):
    cache = WriteCache(1 << 20)
    cache.add(run_of(1, range(5), version=1))
    cache.begin_flush()
    cache.add(run_of(1, [2], version=2))
    versions = [content(cache.find(1, each), each) for each in range(5)]
    assert versions == [entry_of(1, each, version=2 if each == 2 else 1) for each in range(5)]
    assert cache.last_entry_id(1) == 4
    assert cache.ledgers() == [1]
    assert cache.next_first(1, 0) == 2
    cache.end_flush()
    assert cache.find(1, 1) is None
    assert content(cache.find(1, 2), 2) == entry_of(1, 2, version=2)


def test_a_failed_flush_begins_again_with_the_same_table(run_of):
    cache = WriteCache(1 << 20)
    cache.add(run_of(1, [0]))
    table = cache.begin_flush()
    cache.add(run_of(1, [1]))
    assert cache.begin_flush() is table
    cache.drop_ledger(1)
    assert cache.size == 0


def test_a_run_that_is_a_small_part_of_its_buffer_does_not_pin_it():
    chunk = bytes(range(256)) * 1000
    table = RunTable()
    for number in range(40):
        body = memoryview(chunk)[number : number + 50]
        table.add(Run(1, number, [pack("!i", 50), body], 54, [0], b"key", 3))
    for run in table.sorted_runs():
        assert content(run, run.first) == chunk[run.first : run.first + 50]
        assert (run.key, run.flags) == (b"key", 3)
        assert not any(isinstance(part, memoryview) and part.obj is chunk for part in run.parts)


def test_a_run_that_is_most_of_its_buffer_is_not_copied():
    chunk = bytes(10_000)
    body = memoryview(chunk)[:6000]
    table = RunTable()
    table.add(Run(1, 0, [pack("!i", 6000), body], 6004, [0]))
    [run] = table.sorted_runs()
    assert run.parts[-1] is body

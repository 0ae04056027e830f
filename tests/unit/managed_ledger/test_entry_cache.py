from __future__ import annotations

import random

from managed_ledger.entry_cache import CacheBudget, EntryCache, kept_bytes
from quire.world.doors import Buffer


def cache(limit: int = 1 << 20, age_max_s: float = 1.0) -> EntryCache:
    return EntryCache(CacheBudget(limit, 0.5, age_max_s))


def run(first: int, count: int, size: int = 10) -> list[Buffer]:
    joined = bytearray(count * size)
    view = memoryview(joined)
    for number in range(count):
        joined[number * size : number * size + 2] = (first + number).to_bytes(2, "big")
    return [view[number * size : (number + 1) * size] for number in range(count)]


def ids(payloads: list[Buffer]) -> list[int]:
    return [int.from_bytes(payload[:2], "big") for payload in payloads]


def test_a_run_counts_with_the_buffer_it_keeps_alive() -> None:
    chunk = memoryview(bytearray(1000))
    assert kept_bytes([chunk[0:10], chunk[10:20]]) == 1000
    assert kept_bytes([b"abc", b"de"]) == 5
    big = memoryview(bytearray(50_000))
    assert kept_bytes([chunk[0:10], big[:], chunk[20:30]]) >= 51_000
    assert kept_bytes([chunk[0:10], big[1:]]) == 51_000


def test_entries_are_served_over_runs_that_touch() -> None:
    entries = cache()
    for first in (0, 10, 20):
        entries.add(1, first, run(first, 10), 1, 0.0)
    found = entries.get(1, 5, 100, 1 << 20, counted=False)
    assert found is not None
    assert (found.ledger_id, found.first_entry_id, ids(found.payloads)) == (1, 5, list(range(5, 30)))


def test_a_gap_or_another_ledger_ends_what_is_served() -> None:
    entries = cache()
    entries.add(1, 0, run(0, 10), 1, 0.0)
    entries.add(1, 15, run(15, 5), 1, 0.0)
    entries.add(2, 20, run(20, 5), 1, 0.0)
    for position, expected in (((1, 3), list(range(3, 10))), ((1, 15), list(range(15, 20)))):
        found = entries.get(*position, 100, 1 << 20, counted=False)
        assert found is not None
        assert ids(found.payloads) == expected
    assert entries.get(1, 10, 100, 1 << 20, counted=False) is None
    assert entries.get(2, 0, 100, 1 << 20, counted=False) is None
    assert entries.misses == 2


def test_limits_hold_and_at_least_one_entry_is_served() -> None:
    entries = cache()
    entries.add(1, 0, run(0, 10, 100), 1, 0.0)
    entries.add(1, 10, run(10, 10, 100), 1, 0.0)
    for count_max, size_max, expected in (
        (3, 1 << 20, 3),
        (100, 250, 2),
        (100, 1, 1),
        (13, 1 << 20, 13),
        (15, 1300, 13),
    ):
        found = entries.get(1, 0, count_max, size_max, counted=False)
        assert found is not None
        assert ids(found.payloads) == list(range(expected)), (count_max, size_max)


def test_a_run_goes_when_all_expected_readers_have_read_it() -> None:
    entries = cache()
    entries.add(1, 0, run(0, 10), 2, 0.0)
    for first, count in ((0, 10), (0, 4), (4, 6)):
        assert len(entries) == 10
        found = entries.get(1, first, count, 1 << 20, counted=True)
        assert found is not None
        assert ids(found.payloads) == list(range(first, first + count))
    assert len(entries) == 0
    assert entries._budget.used == 0


def test_a_replay_does_not_use_up_what_others_expect() -> None:
    entries = cache()
    entries.add(1, 0, run(0, 1), 1, 0.0)
    for _ in range(5):
        assert entries.get(1, 0, 1, 100, counted=False) is not None
    assert len(entries) == 1


def test_the_budget_is_never_exceeded_and_the_oldest_goes_first_whatever_its_log() -> None:
    budget = CacheBudget(1000, 0.5, 1.0)
    one, other = EntryCache(budget), EntryCache(budget)
    for number in range(50):
        (one if number % 2 else other).add(1, number * 10, run(number * 10, 10), 1, 0.0)
        assert budget.used <= 1000
    assert one.get(1, 490, 1, 100, counted=False) is not None
    assert other.get(1, 0, 1, 100, counted=False) is None
    assert budget.evicted > 0


def test_what_is_old_goes_though_nobody_read_it() -> None:
    entries = cache(age_max_s=1.0)
    entries.add(1, 0, run(0, 10), 1, now=5.0)
    entries.add(1, 10, run(10, 10), 1, now=6.0)
    entries._budget.evict_old(6.5)
    assert len(entries) == 10
    entries._budget.evict_old(8.0)
    assert (len(entries), entries._budget.used) == (0, 0)


def test_a_cache_of_no_bytes_keeps_nothing() -> None:
    entries = cache(limit=0)
    entries.add(1, 0, run(0, 10), 1, 0.0)
    assert entries.get(1, 0, 1, 100, counted=True) is None


def test_runs_put_in_later_find_their_place_and_overlaps_are_passed_over() -> None:
    entries = cache()
    rng = random.Random(2)
    starts = list(range(0, 100, 10))
    rng.shuffle(starts)
    for start in starts:
        entries.add(1, start, run(start, 10), 1, 0.0)
        entries.add(1, max(0, start - 5), run(max(0, start - 5), 10), 1, 0.0)
    found: list[int] = []
    while len(found) < 100:
        served = entries.get(1, len(found), 100, 1 << 20, counted=False)
        assert served is not None
        found += ids(served.payloads)
    assert found == list(range(len(found)))


def test_a_deleted_ledger_leaves_the_cache() -> None:
    entries = cache()
    entries.add(1, 0, run(0, 10), 1, 0.0)
    entries.add(2, 0, run(0, 10), 1, 0.0)
    entries.forget_ledger(1)
    assert entries.get(1, 0, 1, 100, counted=False) is None
    assert entries.get(2, 0, 1, 100, counted=False) is not None
    entries.clear()
    assert entries._budget.used == 0


def test_a_run_that_two_readers_fetched_is_kept_once() -> None:
    entries = cache()
    for first, count in ((0, 5), (10, 5), (10, 5), (10, 9), (0, 5)):
        entries.add(1, first, run(first, count), 1, 0.0)
    assert len(entries) == 10


def test_a_cache_has_the_entries_it_serves() -> None:
    entries = cache()
    assert not entries.has(1, 0)
    entries.add(1, 5, run(5, 10), 1, 0.0)
    entries.add(2, 20, run(20, 5), 1, 0.0)
    for ledger_id in (0, 1, 2, 3):
        for entry_id in range(30):
            served = entries.get(ledger_id, entry_id, 1, 1 << 20, counted=False) is not None
            assert entries.has(ledger_id, entry_id) == served

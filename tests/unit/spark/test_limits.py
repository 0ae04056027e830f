from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.spark.limits import Backlog, Limits, share

PIECES = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 5000)), max_size=4)
RATES = st.floats(0.001, 500)
BACKLOGS = st.lists(st.builds(Backlog, PIECES, RATES), min_size=1, max_size=5)
LIMITS = st.builds(
    lambda messages, size: Limits(messages_max=messages, bytes_max=size),
    st.none() | st.integers(1, 3000),
    st.none() | st.integers(1, 20_000),
)


def backlog(entries: int, *, each: int = 100, messages: float = 1.0) -> Backlog:
    return Backlog([(entries, entries * each)] if entries else [], messages)


def cost(backlogs: list[Backlog], taken: list[int]) -> tuple[float, float]:
    pairs = list(zip(backlogs, taken, strict=True))
    return sum(each.messages(n) for each, n in pairs), sum(each.bytes(n) for each, n in pairs)


def is_within(backlogs: list[Backlog], taken: list[int], limits: Limits) -> bool:
    messages, size = cost(backlogs, taken)
    return (limits.messages_max is None or messages <= limits.messages_max + 1e-3) and (
        limits.bytes_max is None or size <= limits.bytes_max + 1e-3
    )


def test_without_limits_all_is_taken() -> None:
    assert share([backlog(7), backlog(0), backlog(10**9)], Limits()) == [7, 0, 10**9]


def test_a_limit_of_messages_is_shared_evenly() -> None:
    assert share([backlog(100), backlog(100)], Limits(messages_max=20)) == [10, 10]


def test_partitions_of_different_length_come_to_their_ends_together() -> None:
    lengths, triggers = [1000, 100, 10], 0
    while sum(lengths):
        taken = share([backlog(length) for length in lengths], Limits(messages_max=111))
        lengths = [length - n for length, n in zip(lengths, taken, strict=True)]
        triggers += 1
        for length, whole in zip(lengths, [1000, 100, 10], strict=True):
            assert abs(length / whole - (1 - triggers / 10)) <= 1 / whole + 1e-3
    assert triggers == 10


def test_what_an_idle_partition_does_not_need_goes_to_the_others() -> None:
    assert share([backlog(0), backlog(3), backlog(100)], Limits(messages_max=20)) == [0, 1, 19]


def test_messages_are_counted_by_what_entries_hold() -> None:
    assert share([backlog(100, messages=10), backlog(100, messages=1)], Limits(messages_max=110)) == [10, 10]


def test_bytes_are_counted_by_the_average_of_each_ledger() -> None:
    small_then_large = Backlog([(10, 100), (10, 10_000)])
    assert share([small_then_large], Limits(bytes_max=3100)) == [13]


def test_both_limits_hold_at_once() -> None:
    taken = share([backlog(100, each=1), backlog(100, each=1000)], Limits(messages_max=50, bytes_max=10_000))
    assert taken == [10, 9]


def test_at_least_one_entry_is_taken_even_if_it_is_above_every_limit() -> None:
    assert share([backlog(0), backlog(5, each=10**6, messages=1000)], Limits(messages_max=1, bytes_max=1)) == [0, 1]


def test_nothing_is_taken_of_nothing() -> None:
    assert share([backlog(0), backlog(0)], Limits(messages_max=1)) == [0, 0]
    assert share([], Limits(messages_max=1)) == []


def test_partitions_take_turns_where_the_limit_is_less_than_an_entry_of_each() -> None:
    backlogs = [backlog(100) for _ in range(4)]
    served = [share(backlogs, Limits(messages_max=2), turn=turn) for turn in range(4)]
    assert served == [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]]


def test_a_sample_without_messages_does_not_make_entries_free() -> None:
    assert share([backlog(10**9, messages=0.0)], Limits(messages_max=10)) == [1000]


@settings(deadline=None)
@given(BACKLOGS, LIMITS, st.integers(0, 10))
def test_a_trigger_is_within_its_limits_or_one_entry(backlogs: list[Backlog], limits: Limits, turn: int) -> None:
    taken = share(backlogs, limits, turn=turn)
    assert all(0 <= n <= each.entries for each, n in zip(backlogs, taken, strict=True))
    assert is_within(backlogs, taken, limits) or sum(taken) == 1


@settings(deadline=None)
@given(BACKLOGS, LIMITS, st.integers(0, 10))
def test_one_more_entry_of_every_unfinished_partition_would_be_too_much(
    backlogs: list[Backlog], limits: Limits, turn: int
) -> None:
    taken = share(backlogs, limits, turn=turn)
    more = [min(n + 1, each.entries) for n, each in zip(taken, backlogs, strict=True)]
    assert more == taken or not is_within(
        backlogs, more, Limits(messages_max=_less(limits.messages_max), bytes_max=_less(limits.bytes_max))
    )


def _less(most: int | None) -> int | None:
    """Return one less: a sum as large as the limit may have been rounded above it."""
    return None if most is None else most - 1


@settings(deadline=None)
@given(st.lists(st.integers(0, 200), min_size=1, max_size=6), st.integers(1, 400), st.integers(0, 10))
def test_partitions_give_the_same_fraction_up_to_one_entry(entries: list[int], most: int, turn: int) -> None:
    taken = share([backlog(n) for n in entries], Limits(messages_max=most), turn=turn)
    assert sum(taken) == min(sum(entries), most)
    fraction = min(1.0, most / max(1, sum(entries)))
    assert all(abs(n - fraction * there) < 1 + 1e-3 for n, there in zip(taken, entries, strict=True))


@settings(deadline=None)
@given(PIECES, RATES, st.floats(0, 10_000), st.floats(0, 30_000))
def test_within_is_the_most_that_fits(pieces: list[tuple[int, int]], rate: float, messages: float, size: float) -> None:
    each = Backlog(pieces, rate)
    n = each.within(messages, size)
    assert 0 <= n <= each.entries
    assert each.messages(n) <= messages + 1e-3
    assert each.bytes(n) <= size + 1e-3
    if n < each.entries:
        assert each.messages(n + 1) > messages - 1e-3 or each.bytes(n + 1) > size - 1e-3


@pytest.mark.parametrize(
    ("asked", "limits"),
    [
        (SimpleNamespace(), Limits()),
        (SimpleNamespace(max_rows=5), Limits(messages_max=5, bytes_max=1000)),
        (SimpleNamespace(max_rows=500), Limits(messages_max=100, bytes_max=1000)),
        (SimpleNamespace(max_bytes=7), Limits(messages_max=100, bytes_max=7)),
        (SimpleNamespace(min_rows=7), Limits()),
        (SimpleNamespace(max_files=7), Limits()),
    ],
)
def test_what_spark_asks_for_holds_beside_what_is_configured(asked: object, limits: Limits) -> None:
    assert Limits.of(asked, Limits(messages_max=100, bytes_max=1000)) == limits


def test_read_all_available_means_no_limit_whatever_is_configured() -> None:
    assert Limits.of(SimpleNamespace(), Limits(messages_max=1, bytes_max=1)) == Limits()

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from quire.ledger.read_config import ReadConfig
from quire.ledger.reading.speculation import CREDIT_MAX, DoubledReads, fixed_wait_s, wait_s

FIXED = ReadConfig(speculative_learned=False, speculative_first_s=0.5, speculative_max_s=1.5)


def test_fixed_waits_are_those_of_the_original() -> None:
    assert [wait_s(ReadConfig(speculative_learned=False), 0.001, 1000, n) for n in range(3)] == [2.0, 2.0, 2.0]
    assert [wait_s(FIXED, 0.001, 1000, n) for n in range(4)] == [0.5, 1.0, 1.5, 1.5]
    assert fixed_wait_s(3.0, 2.0, 2.0, 5) == 3.0, "a maximum below the first wait does not shorten it"


def test_without_a_first_wait_there_is_no_speculation() -> None:
    assert wait_s(ReadConfig(speculative_first_s=0), 0.001, 1000, 0) == inf


@given(st.floats(0, 100), st.integers(0, 5 << 20), st.integers(0, 4))
def test_a_learned_wait_is_no_longer_than_the_fixed_one_and_leaves_time_for_the_bytes(expected_s, size, doubled):
    config = ReadConfig()
    wait = wait_s(config, expected_s, size, doubled)
    assert 0.01 <= wait <= 2.0
    assert wait >= min(2.0, 2 * expected_s + size / 50_000_000)
    assert wait <= wait_s(config, expected_s + 0.1, size, doubled)


def test_only_a_share_of_the_reads_is_doubled_early() -> None:
    doubled = DoubledReads(0.1)
    done = sum(doubled.spend(1) for _ in range(10_000))
    assert done == CREDIT_MAX
    for _ in range(1000):
        doubled.earn(1)
        done += doubled.spend(1)
    assert 99 <= done - CREDIT_MAX <= 101
    assert not doubled.spend(50)
    doubled.earn(100_000)
    assert doubled.spend(int(CREDIT_MAX))
    assert not doubled.spend(1), "credit is not saved up"

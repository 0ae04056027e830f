"""Whole servers on seeded worlds: nothing confirmed is lost, whatever happens to the machine.

The tests run a slice of `python -m simulation --seeds 0..199`; `scripts/test --full` runs all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from simulation.common.sweep import Outcome, Work, sweep
from simulation.life.cast import PARTS
from tests.simulation.histories import JOBS, Histories

SLICE = range(8)
FENCING_SLICE = range(12)
REUSE_SLICE = range(12)
COMPACTION_SLICE = range(5)
EXPLAIN_SLICE = range(9)
OFFLOAD_SLICE = (1, 5)
TRANSACTIONS_SLICE = range(5)
LIMITS_SLICE = range(8)
LIFE_SLICE = (0, 1, 5, 6, 7)
"""Quick seeds that have every part together."""
LIVING_SLICE = (1, 3)
TRANSACTING_SLICE = (16, 22)
"""Quick seeds with the most kinds of faults together."""


def once_bad() -> Iterator[Work]:
    for line in (Path(__file__).parent / "seeds.txt").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            history, seed, _ = line.split(maxsplit=2)
            yield Work(history, int(seed))


def failures(outcomes: Sequence[Outcome]) -> list[str]:
    return [f"{each.history} {each.line}" for each in outcomes if not each.ok]


def assert_big_enough(outcomes: Sequence[Outcome]) -> None:
    for each in outcomes:
        found = re.search(
            r"(\d+) confirmed, (\d+) crashes \((\d+) dropped unsynced writes\), (\d+) recoveries", each.line
        )
        assert found is not None, each.line
        confirmed, crashes, dropped, recoveries = map(int, found.groups())
        assert confirmed >= 300, each.line
        assert crashes >= 3, each.line
        assert dropped >= 1, each.line
        assert recoveries >= 1, each.line


def test_no_crash_of_a_standalone_server_loses_what_it_confirmed(histories: Histories) -> None:
    outcomes = histories.of("standalone", SLICE)
    assert failures(outcomes) == []
    assert_big_enough(outcomes)


def test_no_crash_of_a_bookie_lets_a_fenced_writer_go_on(histories: Histories) -> None:
    outcomes = histories.of("fencing", FENCING_SLICE)
    assert failures(outcomes) == []
    assert sum("0 crashes" not in each.line for each in outcomes) == len(outcomes)


def test_no_crash_loses_or_mixes_a_ledger_whose_id_is_used_again(histories: Histories) -> None:
    outcomes = histories.of("reuse", REUSE_SLICE)
    assert failures(outcomes) == []


def test_no_crash_leaves_a_topic_between_two_compacted_views(histories: Histories) -> None:
    outcomes = histories.of("compaction", COMPACTION_SLICE)
    assert failures(outcomes) == []


def test_no_kill_loses_an_offloaded_ledger_or_leaves_an_object(histories: Histories) -> None:
    outcomes = histories.of("offload", OFFLOAD_SLICE)
    assert failures(outcomes) == []
    numbers = [re.findall(r"(\d+) (ledgers offloaded|left their bookie|bits flipped)", each.line) for each in outcomes]
    for what in ("ledgers offloaded", "left their bookie", "bits flipped"):
        assert sum(int(count) for found in numbers for count, name in found if name == what) >= 5, what
    steps = {step for each in outcomes for step in re.findall(r"([a-z ]+) \d+", each.line.partition("killed at ")[2])}
    assert len(steps) >= 6, steps


def test_messages_flow_when_the_cause_that_was_named_is_removed(histories: Histories) -> None:
    outcomes = histories.of("explain", EXPLAIN_SLICE)
    assert failures(outcomes) == []
    removed = {cause for each in outcomes for cause in re.findall(r"([a-z-]+) \d+(?=[ ,])", each.line)}
    assert removed >= {"no-consumers", "no-permits", "consumer-unacked", "subscription-unacked", "key-consumer-busy"}
    assert removed >= {"key-held", "delivered-unacknowledged", "failover-delay", "delayed"}


def test_messages_that_a_limit_holds_flow_when_it_is_removed(histories: Histories) -> None:
    outcomes = histories.of("limits", LIMITS_SLICE)
    assert failures(outcomes) == []
    removed = {cause for each in outcomes for cause in re.findall(r"([a-z-]+) \d+(?=[ ,])", each.line)}
    assert removed >= {"backlog-quota", "dispatch-rate", "publish-rate", "subscribe-rate"}


def test_no_crash_breaks_what_time_and_limits_promise(histories: Histories) -> None:
    outcomes = histories.of("life", LIFE_SLICE)
    assert failures(outcomes) == []
    assert {name for each in outcomes for name in re.findall(r"([a-z]+) \(", each.line)} >= {
        part.name for part in PARTS
    }


def test_no_fault_of_a_cluster_breaks_what_time_and_limits_promise(histories: Histories) -> None:
    outcomes = histories.of("living", LIVING_SLICE)
    assert failures(outcomes) == []


def test_transactions_are_all_or_nothing_and_no_consumer_waits_for_ever(histories: Histories) -> None:
    outcomes = histories.of("transactions", TRANSACTIONS_SLICE)
    assert failures(outcomes) == []


def test_transactions_are_all_or_nothing_over_moves_and_deaths_of_brokers(histories: Histories) -> None:
    outcomes = histories.of("transacting", TRANSACTING_SLICE)
    assert failures(outcomes) == []


@pytest.mark.full
def test_seeds_that_were_bad_once_are_good(histories: Histories) -> None:
    assert failures(histories.outcomes(list(once_bad()))) == []


@pytest.mark.full
def test_two_hundred_seeds_of_each_history() -> None:
    names = ["standalone", "fencing", "reuse", "compaction", "explain", "transactions", "limits", "life", "offload"]
    outcomes = list(sweep(names, range(200), jobs=JOBS))
    assert failures(outcomes) == []
    assert_big_enough([each for each in outcomes if each.history == "standalone"])

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest
import trio

from autorecovery.auditing.checks import (
    LISTS_AT_ONCE,
    TOLD_MAX,
    check_ledgers,
    check_placement,
    check_replicas,
    worst_placed,
)
from autorecovery.auditing.metrics import AuditorStats
from autorecovery.config import AutoRecoveryConfig
from autorecovery.errors import CheckStuckError, ListOfEntriesError
from autorecovery.fragments import BadFragment, LostReason, fragments_of
from quire.ledger.placement.policy import Adherence
from quire.metadata.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from quire.wire.bookkeeper.availability import Availability
from tests.unit.autorecovery.cluster import EPOCH_MS, Cluster, closed

CONFIG = AutoRecoveryConfig()


class Checker:
    """A slow checker that reports the copies of the `bad` bookies."""

    def __init__(self, *bad: str, seconds: float = 0.0) -> None:
        self.bad = bad
        self.seconds = seconds
        self.percentages: set[int] = set()
        self.running = self.most = 0

    async def check(self, ledger_id: int, metadata: LedgerMetadata, *, percentage: int = 0) -> list[BadFragment]:
        self.percentages.add(percentage)
        self.running += 1
        self.most = max(self.most, self.running)
        await trio.sleep(self.seconds)
        self.running -= 1
        found = []
        for fragment in fragments_of(ledger_id, metadata):
            faults = {index: LostReason.LOST for index, each in enumerate(fragment.bookies) if each in self.bad}
            if faults:
                found.append(BadFragment(fragment=fragment, faults=faults))
        return found


async def test_every_bookie_with_bad_copies_is_marked(cluster: Cluster, nursery: trio.Nursery) -> None:
    two = (Fragment(0, ("b1", "b2")), Fragment(5, ("b2", "b3")))
    await cluster.ledger(replace(closed("b1", "b2"), fragments=two))
    await cluster.ledger(closed("b4", "b5"))
    await cluster.ledger(closed("b5", "b3"))
    stats = AuditorStats()
    checker = Checker("b3", "b1")
    assert await check_ledgers(cluster.ledgers, cluster.marks, checker, CONFIG, stats) == 2
    assert await cluster.marked() == {0: ("b1", "b3"), 2: ("b3",)}
    assert (stats.ledgers_checked, stats.fragments_per_ledger.total, stats.bookies_per_ledger.total) == (3, 4, 7)
    assert checker.percentages == {0}


async def test_a_check_asks_as_much_and_as_many_at_once_as_it_is_told(cluster: Cluster, nursery: trio.Nursery) -> None:
    await cluster.make(10, "b1", "b2")
    checker = Checker(seconds=10)
    config = AutoRecoveryConfig(open_ledgers_max=4, verification_percentage=30, open_ledger_wait_ms=11_000)
    await check_ledgers(cluster.ledgers, cluster.marks, checker, config, AuditorStats())
    assert (checker.most, checker.percentages) == (4, {30})


async def test_a_check_that_comes_no_further_is_given_up(cluster: Cluster, nursery: trio.Nursery) -> None:
    await cluster.ledger(closed("b1", "b2"))
    config = AutoRecoveryConfig(open_ledger_wait_ms=9_000)
    with pytest.raises(CheckStuckError, match="within 9 s"):
        await check_ledgers(cluster.ledgers, cluster.marks, Checker(seconds=10), config, AuditorStats())
    assert trio.current_time() == pytest.approx(9)
    config = AutoRecoveryConfig(open_ledger_wait_ms=0)
    await check_ledgers(cluster.ledgers, cluster.marks, Checker(seconds=1e5), config, AuditorStats())


async def test_so_many_ledgers_are_named_in_the_log_and_no_more(log_events, cluster, nursery):
    async def story(cluster: Cluster, nursery: trio.Nursery) -> None:
        await cluster.begin()
        await cluster.make(TOLD_MAX + 5, "b1", "b2")
        await check_ledgers(cluster.ledgers, cluster.marks, Checker("b1"), CONFIG, AuditorStats())

    await story(cluster, nursery)
    told = [event for event in log_events if event["event"] == "a ledger has bad copies"]
    assert len(told) == TOLD_MAX + 1
    assert told[-1]["more_ledgers"] == 5


def by_name(ensemble: Sequence[str], write_quorum: int, ack_quorum: int) -> Adherence:
    return next((each for each in Adherence if each.value in ensemble), Adherence.MEETS_STRICT)


def test_the_worst_placed_fragment_counts() -> None:
    two = replace(closed("b1", "b2"), fragments=(Fragment(0, ("b1", "MEETS_SOFT")), Fragment(5, ("FAIL", "b3"))))
    assert worst_placed(two, by_name) == (Adherence.FAIL, ("FAIL", "b3"))
    soft = replace(closed("b1", "b2"), fragments=(Fragment(0, ("b1", "MEETS_SOFT")), Fragment(5, ("b2", "b3"))))
    assert worst_placed(soft, by_name)[0] is Adherence.MEETS_SOFT


@pytest.mark.parametrize("repair", [False, True])
async def test_ledgers_placed_wrongly_are_counted_and_marked_if_that_is_wished(repair, cluster, nursery):
    for name in ("FAIL", "b1", "MEETS_SOFT", "FAIL"):
        await cluster.ledger(closed("b0", name))
    await cluster.ledger(replace(closed("b0", "FAIL"), state=LedgerState.OPEN, last_entry_id=-1, length=0))
    stats = AuditorStats()
    config = AutoRecoveryConfig(repair_placement=repair)
    found = await check_placement(cluster.ledgers, cluster.marks, by_name, config, stats, cluster.wall_ms)
    assert (found, stats.not_adhering, stats.softly_adhering) == (2, 2, 1)
    assert await cluster.marked() == ({0: (), 3: ()} if repair else {})


async def test_ledgers_that_lack_copies_for_too_long_are_counted(cluster: Cluster, nursery: trio.Nursery) -> None:
    await cluster.marks.mark(1, ["b1"])
    await trio.sleep(100)
    await cluster.marks.mark(2, ["b1"])
    await trio.sleep(50)
    for grace_s, count in ((0, 0), (149, 1), (151, 0), (49, 2)):
        stats = AuditorStats()
        config = AutoRecoveryConfig(recovery_grace_period_s=grace_s)
        await check_placement(cluster.ledgers, cluster.marks, by_name, config, stats, cluster.wall_ms)
        assert stats.grace_elapsed == count
    assert cluster.wall_ms() == EPOCH_MS + 150_000


class Lists:
    """Lists of entries, by bookie: all up to 9, except those in `without`; `silent` bookies do not answer."""

    def __init__(self, without: dict[tuple[str, int], set[int]], silent: Collection[str] = ()) -> None:
        self.without = without
        self.silent = silent
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, bookie_id: str, ledger_id: int) -> Availability:
        self.asked.append((bookie_id, ledger_id))
        await trio.sleep(0.01)
        if bookie_id in self.silent:
            raise ListOfEntriesError("silent")
        missing = self.without.get((bookie_id, ledger_id), set())
        return Availability.of([entry_id for entry_id in range(10) if entry_id not in missing])


async def test_ledgers_that_lack_entries_are_counted_by_their_worst_and_marked(cluster: Cluster, nursery: trio.Nursery):
    for _ in range(4):
        await cluster.ledger(replace(closed("b1", "b2", "b3"), ack_quorum=2))
    lists = Lists(
        {
            ("b2", 0): {4, 5},
            ("b1", 1): {9},
            ("b2", 1): {9},
            **{(each, 2): {0} for each in ("b1", "b2", "b3")},
        }
    )
    stats = AuditorStats()
    assert await check_replicas(cluster.ledgers, cluster.marks, lists, stats) == 3
    assert await cluster.marked() == {0: ("b2",), 1: ("b1", "b2"), 2: ("b1", "b2", "b3")}
    assert (stats.below_write_quorum, stats.below_ack_quorum, stats.no_replica) == (1, 1, 1)
    lists.asked.clear()
    await check_replicas(cluster.ledgers, cluster.marks, lists, stats)
    assert {ledger_id for _, ledger_id in lists.asked} == {3}
    assert stats.no_replica == 0


async def test_a_bookie_that_does_not_answer_is_asked_no_more_and_not_blamed(log_events, cluster, nursery):
    async def story(cluster: Cluster, nursery: trio.Nursery) -> None:
        await cluster.begin()
        await cluster.make(500, "b1", "b2")
        lists = Lists({}, silent=["b2"])
        assert await check_replicas(cluster.ledgers, cluster.marks, lists, AuditorStats()) == 0
        assert 0 < sum(bookie_id == "b2" for bookie_id, _ in lists.asked) <= LISTS_AT_ONCE

    await story(cluster, nursery)
    assert len([event for event in log_events if event["event"] == "a bookie does not list its entries"]) == 1


async def test_ledgers_that_are_open_or_empty_are_not_asked_for(cluster: Cluster, nursery: trio.Nursery) -> None:
    await cluster.ledger(replace(closed("b1", "b2"), state=LedgerState.OPEN, last_entry_id=-1, length=0))
    await cluster.ledger(closed("b1", "b2", last=-1, length=0))
    lists = Lists({})
    await check_replicas(cluster.ledgers, cluster.marks, lists, AuditorStats())
    assert lists.asked == []


async def test_a_ledger_that_changed_while_its_bookies_were_asked_is_not_blamed(cluster, nursery):
    """Either it was deleted, and its bookies have no entries of it any more, or its copies have moved."""
    await cluster.make(2, "b1", "b2")
    lists = Lists({("b1", 0): {1}, ("b1", 1): {1}})

    async def list_entries(bookie_id: str, ledger_id: int) -> Availability:
        found = await lists(bookie_id, ledger_id)
        if bookie_id == "b2" and ledger_id == 0:
            await cluster.ledgers.manager.delete(0)
        elif bookie_id == "b2":
            await cluster.ledgers.manager.update(1, lambda _: closed("b3", "b2"))
        return found

    assert await check_replicas(cluster.ledgers, cluster.marks, list_entries, AuditorStats()) == 0
    assert await cluster.marked() == {}

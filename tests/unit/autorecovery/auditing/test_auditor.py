from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

import pytest
import trio

from autorecovery.auditing.auditor import Auditor, wait_before_check
from autorecovery.auditing.checks import Adheres
from autorecovery.config import AutoRecoveryConfig
from autorecovery.errors import IncompatibleUnderreplicationError
from autorecovery.fragments import BadFragment
from autorecovery.marks.underreplication import CheckTime
from quire.ledger.placement.policy import Adherence
from quire.metadata.errors import MetadataUnavailableError, SessionExpiredError
from quire.metadata.ledgers import LedgerMetadata
from quire.metadata.local.memory import MemoryStore
from quire.metadata.store import Op
from tests.unit.autorecovery.cluster import EPOCH_MS, Cluster, closed

BASE = "/ledgers/underreplication"
SOON_S = 0.5
"""Virtual seconds in which an auditor completes everything that it can do."""


def auditor_of(
    cluster: Cluster,
    store: MemoryStore | None = None,
    *,
    check: Callable[[], Awaitable[None]] | None = None,
    adheres: Adheres | None = None,
    **settings: Any,
) -> Auditor:
    """Return an auditor. `check` is called for each ledger whose copies are to be read; all copies are good."""
    store = store or cluster.store
    config = AutoRecoveryConfig(**{"ledger_check_interval_s": 0, **settings})
    ledgers = cluster.ledgers if store is cluster.store else cluster.ledgers_of(store)
    checker = GoodCopies(check) if check is not None else None
    marks = cluster.marks_of(store)
    return Auditor(
        store, ledgers, marks, config, wall_ms=cluster.wall_ms, rng=Random(1), checker=checker, adheres=adheres
    )


class GoodCopies:
    """A checker that finds nothing."""

    def __init__(self, called: Callable[[], Awaitable[None]]) -> None:
        self._called = called

    async def check(self, ledger_id: int, metadata: LedgerMetadata, *, percentage: int = 0) -> list[BadFragment]:
        await self._called()
        return []


AuditorTest = Callable[[Cluster, trio.Nursery], Awaitable[None]]


def story_of(
    *bookie_ids: str, **settings: Any
) -> Callable[[Callable[[Cluster, Auditor], Awaitable[None]]], AuditorTest]:
    """Run a test on a cluster of these bookies with a running auditor and three ledgers: on b1 b2, b2 b3, b1 b3."""

    def made(story: Callable[[Cluster, Auditor], Awaitable[None]]) -> AuditorTest:
        async def test(cluster: Cluster, nursery: trio.Nursery) -> None:
            await cluster.begin(*bookie_ids)
            for members in (("b1", "b2"), ("b2", "b3"), ("b1", "b3")):
                await cluster.ledger(closed(*members))
            auditor = auditor_of(cluster, **settings)
            nursery.start_soon(auditor.run)
            await trio.sleep(SOON_S)
            await story(cluster, auditor)

        test.__name__ = story.__name__
        return test

    return made


ALL = ("b1", "b2", "b3", "b4")


@story_of(*ALL)
async def test_the_ledgers_of_a_lost_bookie_are_marked(cluster: Cluster, auditor: Auditor) -> None:
    assert await cluster.marked() == {}
    await cluster.go("b1")
    await trio.sleep(SOON_S)
    assert await cluster.marked() == {0: ("b1",), 2: ("b1",)}
    await cluster.go("b3")
    await trio.sleep(SOON_S)
    marked = await cluster.marked()
    assert marked == {0: ("b1",), 1: ("b3",), 2: ("b1", "b3")}
    stats = auditor.stats
    assert (stats.marked_now, stats.underreplicated.count, stats.underreplicated.total) == (3, 3, 6)
    assert stats.underreplicated_bytes.total == 6000


@story_of(*ALL)
async def test_read_only_bookies_are_not_lost(cluster: Cluster, auditor: Auditor) -> None:
    for read_only in (True, False, True):
        await cluster.come("b1", read_only=read_only)
        await trio.sleep(SOON_S)
    assert await cluster.marked() == {}
    await cluster.go("b1")
    await trio.sleep(SOON_S)
    assert sorted(await cluster.marked()) == [0, 2]


@story_of(*ALL, lost_bookie_recovery_delay_s=30)
async def test_one_lost_bookie_is_waited_for(cluster: Cluster, auditor: Auditor) -> None:
    await cluster.go("b1")
    await trio.sleep(29)
    assert await cluster.marked() == {}
    await trio.sleep(1 + SOON_S)
    assert sorted(await cluster.marked()) == [0, 2]
    assert auditor.stats.audits_delayed == 1


@story_of(*ALL, lost_bookie_recovery_delay_s=30)
async def test_two_lost_bookies_are_not(cluster: Cluster, auditor: Auditor) -> None:
    await cluster.go("b1")
    await trio.sleep(5)
    await cluster.go("b2")
    await trio.sleep(SOON_S)
    assert await cluster.marked() == {0: ("b1", "b2"), 1: ("b2",), 2: ("b1",)}


@story_of(*ALL, lost_bookie_recovery_delay_s=30)
async def test_a_rolling_restart_marks_nothing(cluster: Cluster, auditor: Auditor) -> None:
    for bookie_id in ALL:
        await cluster.go(bookie_id)
        await trio.sleep(20)
        await cluster.come(bookie_id)
        await trio.sleep(20)
    assert await cluster.marked() == {}
    assert auditor.stats.audits_cancelled == 4


@story_of("b2", "b3", lost_bookie_recovery_delay_s=30)
async def test_a_bookie_that_only_ledgers_still_name_is_lost_from_the_beginning(cluster: Cluster, auditor: Auditor):
    """No auditor has seen it, and it has no cookie, so its return is not waited for."""
    assert await cluster.marked() == {0: ("b1",), 2: ("b1",)}


async def test_an_auditor_that_follows_a_dead_one_keeps_to_the_delay(cluster: Cluster, nursery: trio.Nursery) -> None:
    await cluster.begin("b1", "b2", "b3")
    await cluster.ledger(closed("b1", "b2"))
    await cluster.go("b1")
    nursery.start_soon(auditor_of(cluster, lost_bookie_recovery_delay_s=30).run)
    await trio.sleep(29)
    assert await cluster.marked() == {}
    await trio.sleep(2)
    assert await cluster.marked() == {0: ("b1",)}


@story_of(*ALL, lost_bookie_recovery_delay_s=300)
async def test_the_delay_set_again_to_what_it_was_asks_for_an_audit(cluster: Cluster, auditor: Auditor) -> None:
    await cluster.go("b1")
    await trio.sleep(1)
    await cluster.marks.set_recovery_delay(300)
    await trio.sleep(SOON_S)
    assert sorted(await cluster.marked()) == [0, 2]


@story_of(*ALL, lost_bookie_recovery_delay_s=300)
async def test_another_delay_counts_from_when_it_was_set(cluster: Cluster, auditor: Auditor) -> None:
    await cluster.go("b1")
    await trio.sleep(1)
    await cluster.marks.set_recovery_delay(20)
    await trio.sleep(19)
    assert await cluster.marked() == {}
    await trio.sleep(2)
    assert sorted(await cluster.marked()) == [0, 2]


@story_of(*ALL)
async def test_a_delay_that_cannot_be_read_changes_nothing(cluster: Cluster, auditor: Auditor) -> None:
    await cluster.store.put(f"{BASE}/lostBookieRecoveryDelay", b"soon", 0)
    await trio.sleep(SOON_S)
    await cluster.go("b1")
    await trio.sleep(SOON_S)
    assert sorted(await cluster.marked()) == [0, 2]


@story_of(*ALL)
async def test_while_disabled_nothing_is_marked_and_afterwards_all(cluster: Cluster, auditor: Auditor) -> None:
    await cluster.marks.disable()
    await cluster.go("b1")
    await trio.sleep(1000)
    assert await cluster.marked() == {}
    await cluster.marks.enable()
    await trio.sleep(SOON_S)
    assert sorted(await cluster.marked()) == [0, 2]


@story_of(*ALL)
async def test_a_bookie_that_came_back_while_disabled_is_not_marked(cluster: Cluster, auditor: Auditor) -> None:
    await cluster.marks.disable()
    await cluster.go("b1")
    await trio.sleep(10)
    await cluster.come("b1")
    await cluster.marks.enable()
    await trio.sleep(SOON_S)
    assert await cluster.marked() == {}


@story_of(*ALL)
async def test_what_was_disabled_in_the_middle_begins_anew(cluster: Cluster, auditor: Auditor) -> None:
    async def disable() -> None:
        cluster.ledgers.before_read = None
        await cluster.marks.disable()
        await trio.sleep(1)

    cluster.ledgers.before_read = disable
    await cluster.go("b1")
    await trio.sleep(10)
    assert await cluster.marked() == {}
    await cluster.marks.enable()
    await trio.sleep(SOON_S)
    assert sorted(await cluster.marked()) == [0, 2]


@story_of(*ALL)
async def test_who_is_back_before_all_ledgers_were_read_is_not_marked(cluster: Cluster, auditor: Auditor) -> None:
    async def come_back() -> None:
        cluster.ledgers.before_read = None
        await cluster.come("b1")

    cluster.ledgers.before_read = come_back
    await cluster.go("b1")
    await trio.sleep(SOON_S)
    assert await cluster.marked() == {}


@story_of(*ALL, lost_bookie_recovery_delay_s=30)
async def test_an_audit_leaves_out_who_is_waited_for(cluster: Cluster, auditor: Auditor) -> None:
    async def lose_another() -> None:
        cluster.ledgers.before_read = None
        await cluster.go("b3")
        await trio.sleep(SOON_S)

    await cluster.go("b1")
    cluster.ledgers.before_read = lose_another
    await trio.sleep(30 + 2 * SOON_S)
    assert await cluster.marked() == {0: ("b1",), 2: ("b1",)}
    await trio.sleep(30)
    assert await cluster.marked() == {0: ("b1",), 1: ("b3",), 2: ("b1", "b3")}


@story_of(*ALL)
async def test_an_audit_that_fails_is_made_again(cluster: Cluster, auditor: Auditor) -> None:
    async def fail() -> None:
        cluster.ledgers.before_read = None
        raise MetadataUnavailableError("away")

    cluster.ledgers.before_read = fail
    await cluster.go("b1")
    await trio.sleep(5)
    assert sorted(await cluster.marked()) == [0, 2]
    assert auditor.stats.audits_failed == 1


async def test_a_damaged_ledger_does_not_keep_the_others_from_being_marked(log_events, cluster, nursery):
    async def story(cluster: Cluster, nursery: trio.Nursery) -> None:
        await cluster.begin("b1", "b2")
        for _ in range(3):
            await cluster.ledger(closed("b1", "b2"))
        await cluster.store.put(cluster.ledgers.manager.path(1), b"damaged", 0)
        await cluster.go("b1")
        nursery.start_soon(auditor_of(cluster).run)
        await trio.sleep(SOON_S)
        assert sorted(await cluster.marked()) == [0, 2]

    await story(cluster, nursery)
    assert any(event["event"].startswith("cannot read the metadata of a ledger") for event in log_events)


@story_of(*ALL, bookie_check_interval_s=3600)
async def test_the_bookies_are_looked_at_from_time_to_time(cluster: Cluster, auditor: Auditor) -> None:
    """This finds changes without an event: a ledger that names a bookie which was lost long ago."""
    late = await cluster.ledger(closed("b2", "b9"))
    await trio.sleep(3590)
    assert await cluster.marked() == {}
    await trio.sleep(20)
    assert await cluster.marked() == {late: ("b9",)}


@story_of(*ALL, bookie_check_interval_s=0)
async def test_without_an_interval_the_bookies_are_looked_at_once_only(cluster: Cluster, auditor: Auditor) -> None:
    await cluster.ledger(closed("b2", "b9"))
    await trio.sleep(80_000)
    assert await cluster.marked() == {}


async def test_two_auditors_at_once_do_what_one_does(cluster: Cluster, nursery: trio.Nursery) -> None:
    await cluster.begin("b1", "b2", "b3")
    for _ in range(20):
        await cluster.ledger(closed("b1", "b2", "b3"))
    for _ in range(2):
        store = MemoryStore(cluster.tree, latency=lambda: cluster.rng.random() / 100)
        nursery.start_soon(auditor_of(cluster, store).run)
    await trio.sleep(5)
    await cluster.go("b1")
    await cluster.go("b2")
    await trio.sleep(60)
    assert {number: sorted(missing) for number, missing in (await cluster.marked()).items()} == {
        number: ["b1", "b2"] for number in range(20)
    }


@pytest.mark.parametrize("marks_made", [0, 1, 7, 29])
async def test_an_auditor_stopped_anywhere_is_followed_by_one_that_does_the_rest(
    marks_made: int, cluster: Cluster, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.begin("b1", "b2", "b3")
    for _ in range(30):
        await cluster.ledger(closed("b1", "b2"))
    await cluster.go("b1")
    store = MemoryStore(cluster.tree)
    multi = store.multi
    made = 0

    async def counted(ops: Sequence[Op]) -> list[str]:
        nonlocal made
        if "urL" in ops[-1].path:
            if made == marks_made:
                scope.cancel()
                await trio.sleep_forever()
            made += 1
        return await multi(ops)

    monkeypatch.setattr(store, "multi", counted)
    with trio.CancelScope() as scope:
        await auditor_of(cluster, store, open_ledgers_max=1).run()
    assert len(await cluster.marked()) == marks_made
    with trio.move_on_after(10):
        await auditor_of(cluster).run()
    assert sorted(await cluster.marked()) == list(range(30))


async def test_the_end_of_the_session_ends_the_auditor(cluster: Cluster, nursery: trio.Nursery) -> None:
    await cluster.begin("b1")
    store = MemoryStore(cluster.tree)

    async def expire() -> None:
        await trio.sleep(5)
        cluster.tree.expire(store.session)

    nursery.start_soon(expire)
    with pytest.raises(SessionExpiredError):
        await auditor_of(cluster, store).run()


async def test_an_auditor_does_not_touch_marks_of_another_layout(cluster: Cluster, nursery: trio.Nursery) -> None:
    await cluster.begin("b1")
    await cluster.store.create(f"{BASE}/LAYOUT", b'type: "BASIC"\nversion: 9\n', make_parents=True)
    with pytest.raises(IncompatibleUnderreplicationError):
        await auditor_of(cluster).run()


# --------------------------------------------------------------------------------------------- checks of all ledgers


def test_a_check_is_due_when_its_interval_has_passed_since_anybody_made_it() -> None:
    assert wait_before_check(100, None, 5_000) == 0
    assert wait_before_check(100, 4_000, 5_000) == 99
    assert wait_before_check(100, 5_000, 205_000) == 0
    assert wait_before_check(100, 9_000, 5_000) == 100


async def test_checks_of_all_ledgers_are_made_from_time_to_time_one_after_the_other_and_their_times_kept(
    cluster: Cluster, nursery: trio.Nursery
) -> None:
    await cluster.begin("b1", "b2")
    await cluster.ledger(closed("b1", "b2"))
    made: list[tuple[float, str]] = []

    def adheres(ensemble: Sequence[str], write_quorum: int, ack_quorum: int) -> Adherence:
        made.append((trio.current_time(), "placement"))
        return Adherence.MEETS_STRICT

    async def check() -> None:
        made.append((trio.current_time(), "ledgers"))
        await trio.sleep(110)

    await cluster.marks.set_check_time(CheckTime.PLACEMENT, EPOCH_MS - 200_000)
    auditor = auditor_of(
        cluster, check=check, adheres=adheres, ledger_check_interval_s=1000, placement_check_interval_s=300
    )
    nursery.start_soon(auditor.run)
    await trio.sleep(1150)
    assert sorted((round(at), name) for at, name in made) == [
        (0, "ledgers"),
        (110, "placement"),  # due at 100, while the other check runs
        (410, "placement"),
        (710, "placement"),
        (1010, "placement"),
        (1110, "ledgers"),
    ]
    assert await cluster.marks.check_time(CheckTime.ALL_LEDGERS) == EPOCH_MS + 110_000
    assert await cluster.marks.check_time(CheckTime.REPLICAS) is None


async def test_checks_of_all_ledgers_wait_while_a_bookie_is_waited_for_or_all_is_disabled(cluster, nursery):
    await cluster.begin("b1", "b2", "b3")
    await cluster.ledger(closed("b1", "b2"))
    await cluster.go("b3")
    made: list[float] = []

    async def check() -> None:
        made.append(trio.current_time())
        if len(made) == 1:
            await cluster.marks.disable()
        await trio.sleep(1)

    auditor = auditor_of(cluster, check=check, ledger_check_interval_s=1000, lost_bookie_recovery_delay_s=30)
    nursery.start_soon(auditor.run)
    await trio.sleep(500)
    assert [round(at) for at in made] == [30]
    assert auditor.stats.checks_skipped == 2  # (the check of the bookies, and the one of the ledgers)
    assert await cluster.marks.check_time(CheckTime.ALL_LEDGERS) is None
    await cluster.marks.enable()
    await trio.sleep(10)
    assert [round(at) for at in made] == [30, 500]
    assert await cluster.marks.check_time(CheckTime.ALL_LEDGERS) == EPOCH_MS + 501_000


async def test_a_check_that_fails_is_made_again_before_its_next_time(cluster: Cluster, nursery: trio.Nursery) -> None:
    await cluster.begin("b1", "b2")
    await cluster.ledger(closed("b1", "b2"))
    made: list[float] = []

    async def check() -> None:
        made.append(trio.current_time())
        if len(made) == 1:
            raise MetadataUnavailableError("away")
        if len(made) == 2:
            await trio.sleep_forever()

    auditor = auditor_of(cluster, check=check, ledger_check_interval_s=1000, open_ledger_wait_ms=20_000)
    nursery.start_soon(auditor.run)
    await trio.sleep(999)
    assert [round(at) for at in made] == [0, 60, 140]
    assert auditor.stats.ledger_checks_failed == 2

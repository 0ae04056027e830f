from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from random import Random
from unittest.mock import patch

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from autorecovery.errors import IncompatibleUnderreplicationError
from autorecovery.marks import tree as mark_tree
from autorecovery.marks.underreplication import CheckTime, LockedLedger, Underreplicated, UnderreplicatedLedgers
from quire.metadata.errors import SessionExpiredError
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import Kind, Node, Op
from quire.service.log import Event
from tests.support.refusals import raises

BASE = "/ledgers/underreplication"
NOW_MS = 1_795_258_634_733


class Cluster:
    """A tree, and any number of processes on it."""

    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.wall_ms = NOW_MS

    def process(self, owner: str = "host", seed: int = 0) -> tuple[MemoryStore, UnderreplicatedLedgers]:
        store = MemoryStore(self.tree)
        return store, UnderreplicatedLedgers(store, rng=Random(seed), wall_ms=lambda: self.wall_ms, owner=owner)


@pytest.fixture
async def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def process(cluster: Cluster) -> tuple[MemoryStore, UnderreplicatedLedgers]:
    return cluster.process()


@pytest.fixture
async def store(process: tuple[MemoryStore, UnderreplicatedLedgers]) -> MemoryStore:
    return process[0]


@pytest.fixture
async def ledgers(process: tuple[MemoryStore, UnderreplicatedLedgers]) -> UnderreplicatedLedgers:
    return process[1]


async def node_of(store: MemoryStore, path: str) -> Node:
    node = await store.get(f"{BASE}/{path}")
    assert node is not None
    return node


async def lock(ledgers: UnderreplicatedLedgers, skip: Collection[int] = ()) -> LockedLedger:
    locked = await ledgers.lock_next(skip)
    assert locked is not None
    return locked


async def listed(ledgers: UnderreplicatedLedgers, **wanted: str) -> list[int]:
    return [found.ledger_id async for found in ledgers.list(**wanted)]


async def test_marks_lie_where_the_originals_look_for_them(store: MemoryStore, ledgers: UnderreplicatedLedgers) -> None:
    await ledgers.prepare()
    await ledgers.prepare()
    await ledgers.mark(5_000_000_000, ["b1:3181"])
    assert (
        await node_of(store, "ledgers/0000/0001/2a05/f200/urL5000000000")
    ).value == b'replica: "b1:3181"\nctime: 1795258634733\n'
    assert (await node_of(store, "LAYOUT")).value == b'type: "BASIC"\nversion: 1\n'
    assert await store.children(f"{BASE}/locks") == []


async def test_marks_of_another_layout_are_not_touched(store: MemoryStore, ledgers: UnderreplicatedLedgers) -> None:
    await store.create(f"{BASE}/LAYOUT", b'type: "BASIC"\nversion: 2\n', make_parents=True)
    await raises(IncompatibleUnderreplicationError, ledgers.prepare(), "version: 2")


async def test_a_second_loss_is_added_to_the_mark_and_a_known_one_changes_nothing(cluster, store, ledgers):
    await ledgers.mark(7, ["b1"])
    cluster.wall_ms += 5
    await ledgers.mark(7, ["b1"])
    assert await ledgers.read(7) == Underreplicated(7, ("b1",), NOW_MS)
    await ledgers.mark(7, ["b2", "b1"])
    assert await ledgers.read(7) == Underreplicated(7, ("b1", "b2"), NOW_MS + 5)
    assert (await node_of(store, "ledgers/0000/0000/0000/0007/urL0000000007")).version == 1


async def test_auditors_that_mark_one_ledger_at_once_lose_no_bookie(cluster: Cluster) -> None:
    rng = Random(1)
    names = [f"b{number}" for number in range(12)]
    async with trio.open_nursery() as nursery:
        for name in names:
            store = MemoryStore(cluster.tree, latency=lambda: rng.random())
            ledgers = UnderreplicatedLedgers(store, rng=rng, wall_ms=lambda: 0, owner="a")
            nursery.start_soon(ledgers.mark, 3, [name])
    found = await cluster.process()[1].read(3)
    assert found is not None
    assert sorted(found.replicas) == sorted(names)


async def test_a_ledger_may_be_marked_without_a_bookie(ledgers: UnderreplicatedLedgers) -> None:
    await ledgers.mark(1, [])
    assert await ledgers.read(1) == Underreplicated(1, (), NOW_MS)


async def test_marks_are_listed_by_growing_id_and_by_bookie(store: MemoryStore, ledgers: UnderreplicatedLedgers):
    assert await listed(ledgers) == []
    for ledger_id, missing in ((5_000_000_000, "b1"), (65_536, "b2"), (3, "b1"), (20, "b2")):
        await ledgers.mark(ledger_id, [missing])
    await ledgers.mark(3, ["b2"])
    await store.create(f"{BASE}/ledgers/0000/strange/0000/0000", make_parents=True)
    assert await listed(ledgers) == [3, 20, 65_536, 5_000_000_000]
    assert await listed(ledgers, missing="b1") == [3, 5_000_000_000]
    assert await listed(ledgers, excluding="b1") == [20, 65_536]
    assert await listed(ledgers, missing="b1", excluding="b2") == [5_000_000_000]


async def test_each_ledger_is_locked_by_one_worker(cluster: Cluster) -> None:
    _, auditor = cluster.process()
    for ledger_id in range(20):
        await auditor.mark(ledger_id, ["b1"])
    got: list[int] = []

    async def work(ledgers: UnderreplicatedLedgers) -> None:
        while (locked := await ledgers.lock_next()) is not None:
            got.append(locked.ledger_id)

    async with trio.open_nursery() as nursery:
        for seed in range(3):
            nursery.start_soon(work, cluster.process(f"w{seed}", seed)[1])
    assert sorted(got) == list(range(20))
    assert await auditor.locked_by(got[0]) in ("w0", "w1", "w2")
    assert await auditor.locked_by(20) is None


async def test_workers_begin_with_different_ledgers(cluster: Cluster) -> None:
    _, auditor = cluster.process()
    for ledger_id in range(1000):
        await auditor.mark(ledger_id, ["b1"])
    taken: list[int] = []
    for seed in (1, 2):
        _, ledgers = cluster.process(seed=seed)
        locked = await lock(ledgers)
        taken.append(locked.ledger_id)
        await ledgers.release(locked)
    assert taken[0] != taken[1]


async def test_skipped_ledgers_are_left_to_others(ledgers: UnderreplicatedLedgers) -> None:
    for ledger_id in (1, 2):
        await ledgers.mark(ledger_id, ["b1"])
    locked = await ledgers.lock_next({1})
    assert locked == LockedLedger(2, 0, ("b1",))
    assert await ledgers.lock_next({1}) is None


async def test_a_repaired_ledger_leaves_nothing_behind(store: MemoryStore, ledgers: UnderreplicatedLedgers) -> None:
    await ledgers.prepare()
    await ledgers.mark(1, ["b1"])
    await ledgers.mark(5_000_000_000, ["b1"])
    for _ in range(2):
        locked = await lock(ledgers)
        assert await ledgers.done(locked)
    assert await store.children(f"{BASE}/ledgers") == []
    assert await store.children(f"{BASE}/locks") == []
    await ledgers.mark(1, ["b1"])
    await ledgers.unmark(1)
    await ledgers.unmark(1)
    assert await store.children(f"{BASE}/ledgers") == []


async def test_a_mark_merged_during_the_repair_stays(ledgers: UnderreplicatedLedgers) -> None:
    await ledgers.mark(1, ["b1"])
    locked = await lock(ledgers)
    await ledgers.mark(1, ["b2"])
    assert not await ledgers.done(locked)
    assert await ledgers.read(1) == Underreplicated(1, ("b1", "b2"), NOW_MS)
    assert await ledgers.locked_by(1) is None
    again = await ledgers.lock_next()
    assert again == LockedLedger(1, 1, ("b1", "b2"))


@pytest.mark.parametrize("goes", [True, False])
async def test_a_lock_is_taken_on_the_newest_mark_only(goes, cluster, store, ledgers):
    """The mark is removed, or changes, between its read and the lock."""
    _, other = cluster.process()
    await ledgers.mark(1, ["b1"])
    create = store.create

    async def late(path: str, value: bytes = b"", **how: object) -> object:
        await (other.unmark(1) if goes else other.mark(1, ["b2"]))
        return await create(path, value, kind=Kind.EPHEMERAL, make_parents=True)

    with patch.object(store, "create", late):
        locked = await ledgers.lock_next()
    if goes:
        assert locked is None
        assert await ledgers.locked_by(1) is None
    else:
        assert locked == LockedLedger(1, 1, ("b1", "b2"))


async def test_the_lock_of_a_worker_that_died_goes_with_its_session(cluster: Cluster) -> None:
    dying, first = cluster.process()
    _, second = cluster.process()
    await first.mark(1, ["b1"])
    locked = await lock(first)
    assert await second.lock_next() is None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second.wait_for_work)
        await wait_all_tasks_blocked()
        cluster.tree.expire(dying.session)
    assert await second.lock_next() == LockedLedger(1, 0, ("b1",))
    await raises(SessionExpiredError, first.release(locked))


async def is_waiting(ledgers: UnderreplicatedLedgers, skip: set[int], act: Callable[[], Awaitable[object]]) -> None:
    """Check that `wait_for_work` waits before `act`, and not after it."""
    async with trio.open_nursery() as nursery:
        over = trio.Event()

        async def wait() -> None:
            await ledgers.wait_for_work(skip)
            over.set()

        nursery.start_soon(wait)
        await wait_all_tasks_blocked(0.01)
        assert not over.is_set()
        await act()
        with trio.fail_after(1):
            await over.wait()


async def test_work_is_noticed_wherever_it_appears(cluster, store, ledgers):
    _, other = cluster.process("other")
    await is_waiting(ledgers, set(), lambda: other.mark(1, ["b1"]))
    await is_waiting(ledgers, {1}, lambda: other.mark(2, ["b1"]))
    await is_waiting(ledgers, {1, 2}, lambda: other.mark(5_000_000_000, ["b1"]))
    locked = await lock(other, {1, 2})
    await is_waiting(ledgers, {1, 2}, lambda: other.release(locked))
    for ledger_id in (1, 2, 5_000_000_000):
        await other.unmark(ledger_id)
    # In the order of the originals: the folder first.
    folder = f"{BASE}/ledgers/0000/0000/0000/0009"
    await is_waiting(ledgers, set(), lambda: other.mark(8, ["b1"]))
    await store.create(folder)

    async def late_mark() -> None:
        await store.create(f"{folder}/urL0000000009")

    await is_waiting(ledgers, {8}, late_mark)


async def test_too_many_folders_are_looked_through_now_and_then(monkeypatch: pytest.MonkeyPatch, cluster: Cluster):
    monkeypatch.setattr(mark_tree, "WATCHES_MAX", 2)
    _, ledgers = cluster.process()
    _, other = cluster.process()
    await other.mark(1, ["b1"])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ledgers.wait_for_work, {1})
        await wait_all_tasks_blocked(0.01)
        await other.mark(2, ["b1"])
        started = trio.current_time()
    assert 0 < trio.current_time() - started <= mark_tree.UNWATCHED_S


async def test_waiting_ends_with_the_session(cluster: Cluster, store: MemoryStore, ledgers: UnderreplicatedLedgers):
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            await raises(SessionExpiredError, ledgers.wait_for_work())

        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        cluster.tree.expire(store.session)


async def test_the_switch_is_one_for_all_processes(cluster: Cluster, ledgers: UnderreplicatedLedgers) -> None:
    _, other = cluster.process()
    assert await ledgers.is_enabled()
    assert await other.disable()
    assert not await other.disable()
    assert not await ledgers.is_enabled()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ledgers.wait_enabled)
        await wait_all_tasks_blocked()
        assert nursery.child_tasks
        assert await other.enable()
    assert not await other.enable()
    await ledgers.wait_enabled()


async def test_the_delay_that_stands_in_the_metadata_wins(store: MemoryStore, ledgers: UnderreplicatedLedgers) -> None:
    assert await ledgers.recovery_delay(9) == 9
    assert (await ledgers.begin_recovery_delay(30)).value == 30
    assert (await ledgers.begin_recovery_delay(40)).value == 30
    assert (await node_of(store, "lostBookieRecoveryDelay")).value == b"30"
    await ledgers.set_recovery_delay(30)
    found = await ledgers.read_recovery_delay()
    assert found is not None
    assert (found.value, found.version) == (30, 1)
    assert await ledgers.recovery_delay() == 30


async def test_the_time_of_a_check_is_kept_for_the_next_auditor(ledgers: UnderreplicatedLedgers) -> None:
    for check in CheckTime:
        assert await ledgers.check_time(check) is None
        await ledgers.set_check_time(check, NOW_MS)
        await ledgers.set_check_time(check, NOW_MS + 1)
        assert await ledgers.check_time(check) == NOW_MS + 1


async def test_a_damaged_mark_is_a_mark_all_the_same(log_events: list[Event], cluster: Cluster) -> None:
    async def story(cluster: Cluster) -> None:
        store, ledgers = cluster.process()
        await ledgers.mark(1, ["b1"])
        path = f"{BASE}/ledgers/0000/0000/0000/0001/urL0000000001"
        await store.put(path, b"replica", 0)
        assert [found async for found in ledgers.list()] == [Underreplicated(1, (), None)]
        locked = await ledgers.lock_next()
        assert locked == LockedLedger(1, 1, ())
        await ledgers.mark(1, ["b2"])
        assert await ledgers.read(1) == Underreplicated(1, ("b2",), NOW_MS)
        assert not await ledgers.done(locked)

    await story(cluster)
    assert {event["event"] for event in log_events} == {
        "mark of a ledger is damaged, checking its copies anyway",
        "mark of a ledger is damaged, writing it again",
    }


async def test_a_delay_that_nobody_can_read_is_set_anew_by_the_next_auditor(store, ledgers):
    await store.create(f"{BASE}/lostBookieRecoveryDelay", b"soon", make_parents=True)
    assert (await ledgers.begin_recovery_delay(30)).value == 30


async def test_a_worker_is_done_even_if_its_lock_or_its_mark_went_before(store, ledgers):
    for gone in ("locks/urL0000000001", "ledgers/0000/0000/0000/0001/urL0000000001"):
        await ledgers.mark(1, ["b1"])
        locked = await lock(ledgers)
        await store.delete(f"{BASE}/{gone}")
        assert await ledgers.done(locked)
        assert await store.children(f"{BASE}/ledgers") == []
        assert await store.children(f"{BASE}/locks") == []


async def test_marks_are_made_in_one_call_and_their_folders_once(monkeypatch, store, ledgers):
    calls = 0
    multi = store.multi

    async def counted(ops: Sequence[Op]) -> object:
        nonlocal calls
        calls += 1
        return await multi(ops)

    monkeypatch.setattr(store, "multi", counted)
    async with trio.open_nursery() as nursery:
        for ledger_id in range(100):
            nursery.start_soon(ledgers.mark, ledger_id, ["b1"])
    assert calls == 101
    for ledger_id in range(100):
        await ledgers.unmark(ledger_id)
    await ledgers.mark(5, ["b1"])
    assert await listed(ledgers) == [5]


async def test_a_recovery_delay_of_nothing_is_kept_and_asks_for_an_audit(ledgers: UnderreplicatedLedgers) -> None:
    await ledgers.set_recovery_delay(0)
    first = await ledgers.begin_recovery_delay(5)
    await ledgers.set_recovery_delay(0)
    again = await ledgers.begin_recovery_delay(5)
    assert (first.value, again.value) == (0, 0)
    assert again.version > first.version

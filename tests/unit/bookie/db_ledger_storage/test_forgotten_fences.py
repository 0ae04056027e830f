"""A fence outlives its ledger: for a limited time, within a bound, and over every crash."""

from __future__ import annotations

import pytest
import trio

from bookie.db_ledger_storage import forgotten_fences
from bookie.db_ledger_storage.forgotten_fences import (
    FILE_NAME,
    KEPT_MAX,
    KEPT_MS,
    ForgottenFences,
    decode,
    encode,
)
from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.errors import StorageDamagedError
from simulation.machines.host import Host
from simulation.machines.power import PowerCut
from simulation.machines.world import Universe
from tests.support.refusals import raises, refuses
from tests.unit.bookie.build import open_storage

PATH = f"/b/current/{FILE_NAME}"


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def wall_ms(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def fences(clock: Clock) -> ForgottenFences:
    disk = Universe(1).host("bookie").world().disk
    disk.make_dirs("/b/current")
    return ForgottenFences(disk, PATH, clock.wall_ms)


def again(fences: ForgottenFences, clock: Clock) -> ForgottenFences:
    """Return the fences known after the next start."""
    next_one = ForgottenFences(fences._disk, PATH, clock.wall_ms)
    next_one.load()
    return next_one


def test_what_was_saved_is_there_after_a_restart_and_nothing_else_is(fences: ForgottenFences, clock: Clock) -> None:
    assert len(again(fences, clock)) == 0
    fences.add([5, 1, 1 << 40])
    assert len(again(fences, clock)) == 0
    fences.save()
    fences.add([6])
    next_one = again(fences, clock)
    assert [each for each in (0, 1, 5, 6, 1 << 40) if each in next_one] == [1, 5, 1 << 40]


def test_a_fence_is_remembered_for_seven_days_from_when_it_was_last_forgotten(fences: ForgottenFences, clock: Clock):
    fences.add([1, 2])
    clock.now += KEPT_MS - 1
    assert 1 in fences
    fences.add([2])
    clock.now += 1
    assert 1 not in fences
    assert 2 in fences
    fences.add([3])
    assert len(fences) == 2, "what is not remembered any more takes no room"
    fences.save()
    clock.now += KEPT_MS - 1
    assert 2 not in again(fences, clock)
    assert 3 in again(fences, clock)


def test_at_the_bound_the_oldest_go_and_the_log_says_so(fences: ForgottenFences, log_events: list[dict[str, object]]):
    fences.add(range(KEPT_MAX))
    fences.add([0])  # now the newest
    assert log_events == []
    fences.add([KEPT_MAX, KEPT_MAX + 1])
    assert len(fences) == KEPT_MAX
    assert [each for each in (0, 1, 2, 3, KEPT_MAX + 1) if each in fences] == [0, 3, KEPT_MAX + 1]
    assert [event["ledgers"] for event in log_events] == [2]


def test_every_damaged_byte_and_every_torn_file_refuses_the_start(fences: ForgottenFences, clock: Clock) -> None:
    good = encode({7: clock.now, 9: clock.now})
    assert decode(good) == ({7: clock.now, 9: clock.now}, {})
    bad = [good[:size] for size in range(len(good))]
    bad += [bytes([*good[:at], good[at] ^ 4, *good[at + 1 :]]) for at in range(len(good))]
    for data in bad:
        fences._disk.write_atomic(PATH, data)
        refuses(StorageDamagedError, lambda: again(fences, clock), "create an empty file instead")


def test_fences_of_ledgers_without_entries_push_out_no_others(fences, clock, monkeypatch, log_events) -> None:
    monkeypatch.setattr(forgotten_fences, "KEPT_MAX", 10)
    fences.add([1, 2], {1, 2})
    fences.add(range(100, 200), set())
    fences.save()
    for found in (fences, again(fences, clock)):
        assert [each for each in (1, 2, 100, 189, 190, 199) if each in found] == [1, 2, 190, 199]
        assert len(found) == 12


# --- with the storage around it


@pytest.fixture
async def storage(host: Host) -> DbLedgerStorage:
    return await with_ledgers(host)


async def with_ledgers(host: Host) -> DbLedgerStorage:
    """Return a storage with ledger 1, which is fenced, and ledger 2, which is not; both are on the disk."""
    storage = await open_storage(host.world())
    for ledger_id in (1, 2):
        storage.set_master_key(ledger_id, b"k")
    storage.set_fenced(1)
    await storage.flush()
    return storage


async def test_a_deleted_ledger_is_unknown_and_as_fenced_as_it_was(host: Host, storage: DbLedgerStorage) -> None:
    await storage.delete_ledgers([1, 2])
    for _ in range(2):
        assert storage.ledgers() == []
        assert storage.is_fenced(1)
        assert not storage.is_fenced(2)
        host.cut_power()
        storage = await open_storage(host.world())


async def test_a_ledger_that_comes_back_is_fenced_from_the_beginning(host: Host, storage: DbLedgerStorage) -> None:
    await storage.delete_ledgers([1, 2])
    for ledger_id in (1, 2):
        storage.set_master_key(ledger_id, b"k")
        storage.set_explicit_lac(ledger_id, b"lac")
    for _ in range(2):
        assert [storage.is_fenced(ledger_id) for ledger_id in (1, 2)] == [True, False]
        await storage.flush()
        host.cut_power()
        storage = await open_storage(host.world())


@pytest.mark.parametrize("seed", range(4))
async def test_no_crash_amid_a_deletion_loses_a_fence(universe: Universe, seed: int) -> None:
    for changes in range(40):
        host = universe.host(f"bookie {changes}")
        storage = await with_ledgers(host)
        host.crash_after(changes)
        try:
            await storage.delete_ledgers([1, 2])
        except PowerCut:
            storage = await open_storage(host.world())
            assert storage.is_fenced(1), f"a crash after {changes} changes"
            assert not storage.is_fenced(2)
        else:
            assert changes > 3, "it took several steps, and each was tried"
            return
    pytest.fail("it never came to its end")


async def test_a_ledger_fenced_while_it_is_deleted_stays_for_the_next_round(host, monkeypatch):
    storage = await with_ledgers(host)
    deleted = storage._ledgers.delete_rows

    def late(ledgers: list[int]) -> None:
        storage.set_fenced(2)
        deleted(ledgers)

    monkeypatch.setattr(storage._ledgers, "delete_rows", late)
    await storage.delete_ledgers([1, 2])
    assert storage.ledgers() == [2]
    await storage.flush()
    host.cut_power()
    storage = await open_storage(host.world())
    assert storage.is_fenced(2)
    await storage.delete_ledgers([2])
    assert storage.ledgers() == []
    assert storage.is_fenced(2)


async def test_while_the_fences_cannot_be_written_their_ledgers_stay(host: Host, storage: DbLedgerStorage) -> None:
    host.disk.limit(0)
    await raises(OSError, storage.delete_ledgers([1, 2]), "No space")
    host.disk.limit(None)
    assert storage.ledgers() == [1, 2]
    host.cut_power()
    storage = await open_storage(host.world())
    assert storage.is_fenced(1)
    with trio.fail_after(60):
        await storage.delete_ledgers([1, 2])
    assert storage.ledgers() == []

from __future__ import annotations

import random
from functools import partial

import pytest
import trio
import trio.lowlevel
import trio.testing

from cursors.ack_state import AckState
from cursors.position_info import CursorNode, encode_node
from managed_ledger.errors import (
    EntryTooLargeError,
    ManagedLedgerClosedError,
    ManagedLedgerFencedError,
    ManagedLedgerReadError,
    ManagedLedgerUnavailableError,
    NoSuchCursorError,
)
from managed_ledger.factory import ManagedLedgerFactory
from managed_ledger.log_cursors import Initial
from managed_ledger.managed_ledger import ManagedLedger
from managed_ledger.stored_list import log_path
from managed_ledger.writing.state import State
from quire.ledger.errors import EntryTooLargeError as LedgerEntryTooLargeError
from quire.ledger.errors import LedgerReadError, LedgerWriteError, NotEnoughBookiesError
from quire.ledger.position import EARLIEST, LATEST, Position
from quire.metadata.errors import MetadataUnavailableError
from tests.support.refusals import raises
from tests.support.waiting import until
from tests.unit.managed_ledger.cluster import NAME, Cluster, append, kill, numbered, publish, read_all
from tests.unit.managed_ledger.fake_ledgers import FakeWriter, Sink


def current(cluster: Cluster, log: ManagedLedger) -> FakeWriter:
    return cluster.ledgers.writers[log.ledgers[-1].ledger_id]


@pytest.mark.broker(age_min_minutes=10)
async def test_appends_are_confirmed_in_order_with_their_positions(log: ManagedLedger) -> None:
    sinks = [Sink() for _ in range(20)]
    for number, sink in enumerate(sinks):
        log.append(numbered(3 * number, 3), sink)
    await until(lambda: all(sink.count == 3 for sink in sinks))
    assert [place for sink in sinks for place in sink.ids()] == [(0, entry) for entry in range(60)]
    assert log.last_confirmed == Position(0, 59)
    assert await read_all(log) == numbered(0, 60)


async def test_a_ledger_takes_exactly_as_many_entries_as_it_may_and_a_roll_splits_a_run(cluster, log):
    ids = await publish(log, *numbered(0, 35))
    assert ids == [(ledger, entry) for ledger in range(4) for entry in range(10)][:35]
    listed = await cluster.stored_list()
    assert [(one.ledger_id, one.entries) for one in listed.ledgers] == [(0, 10), (1, 10), (2, 10), (3, 0)]
    assert [one.size for one in listed.ledgers] == [10, 20, 20, 0]
    assert [cluster.ledgers.stored[n].last_entry_id for n in range(4)] == [9, 9, 9, None]
    assert await read_all(log) == numbered(0, 35)


async def test_ledgers_that_the_queue_fills_at_once_are_rolled_one_after_the_other(log: ManagedLedger) -> None:
    await publish(log, *numbered(0, 45))
    assert await read_all(log) == numbered(0, 45)
    await trio.testing.wait_all_tasks_blocked()
    tasks = log._services.nursery.child_tasks
    assert [task.name for task in tasks if task.name.startswith("next ledger")] == []


@pytest.mark.broker(age_min_minutes=1)
async def test_a_young_ledger_is_not_rolled_however_full_and_an_old_one_is(log: ManagedLedger) -> None:
    await publish(log, *numbered(0, 35))
    assert len(log.ledgers) == 1
    await trio.sleep(62)
    assert [one.entries for one in log.ledgers] == [35, 0]


@pytest.mark.broker(age_max_minutes=2)
async def test_a_ledger_with_entries_is_rolled_by_age_and_an_empty_one_is_not(log: ManagedLedger) -> None:
    await publish(log, b"one")
    await trio.sleep(600)
    assert [one.entries for one in log.ledgers] == [1, 0]


@pytest.mark.broker(size_max_mb=1)
async def test_a_ledger_is_rolled_by_size(log: ManagedLedger) -> None:
    for _ in range(3):
        await publish(log, bytes(600_000))
    await until(lambda: log.state is State.OPEN)
    assert [one.entries for one in log.ledgers] == [2, 0]


async def test_nothing_of_the_next_ledger_is_sent_before_the_list_has_it(cluster: Cluster, log: ManagedLedger) -> None:
    cluster.ledgers.delay_s = 1
    sink = append(log, numbered(0, 15))
    await trio.sleep(0.5)
    assert sink.count == 10
    assert log.state is State.SWITCHING
    assert log.pending_bytes == 10
    log.append(numbered(15, 2), sink)
    await until(lambda: sink.count == 17)
    assert cluster.ledgers.log == ["create 0", "close 0", "create 1"]


async def test_a_payload_that_waits_for_a_ledger_survives_the_reuse_of_its_buffer(log: ManagedLedger) -> None:
    buffer = bytearray(b"%02d" * 0 + b"".join(b"%02d" % n for n in range(25)))
    view = memoryview(buffer)
    sink = append(log, [view[2 * n : 2 * n + 2] for n in range(25)])
    buffer[:] = bytes(50)
    await until(lambda: sink.count == 25)
    assert await read_all(log) == [b"%02d" % n for n in range(25)]


@pytest.mark.parametrize("stored", [-1, 3, 6, 8])
@pytest.mark.parametrize("confirmed", [-1, 3])
@pytest.mark.broker(entries_max=100)
async def test_what_a_failed_ledger_did_not_confirm_is_sent_again_in_order(stored, confirmed, cluster, log):
    writer = current(cluster, log)
    writer.held = True
    sinks = [Sink() for _ in range(3)]
    for number, sink in enumerate(sinks):
        log.append(numbered(3 * number, 3), sink)
    writer.confirm(confirmed)
    writer.store(max(stored, confirmed))
    cluster.ledgers.failures["create"] = [NotEnoughBookiesError("no bookie is available")]
    writer.fail(LedgerWriteError("no quorum"))
    log.append(numbered(9, 2), sinks[0])
    await until(lambda: [sink.count for sink in sinks] == [5, 3, 3])
    assert await read_all(log) == numbered(0, 11)
    listed = await cluster.stored_list()
    assert [(one.ledger_id, one.entries) for one in listed.ledgers] == (
        [(0, confirmed + 1), (1, 0)] if confirmed >= 0 else [(1, 0)]
    )
    assert not any(sink.errors for sink in sinks)
    if confirmed >= 0:
        assert listed.ledgers[0].size == confirmed + 1


async def test_a_ledger_that_fails_while_it_is_rolled_is_no_different(cluster: Cluster, log: ManagedLedger) -> None:
    writer = current(cluster, log)
    writer.held = True
    sink = append(log, numbered(0, 14))
    await trio.sleep(1)
    assert log.state is State.SWITCHING
    writer.confirm(4)
    writer.fail(LedgerWriteError("no quorum"))
    await until(lambda: sink.count == 14)
    assert await read_all(log) == numbered(0, 14)
    assert sink.ids() == [(0, n) for n in range(5)] + [(1, n) for n in range(9)]


async def test_without_bookies_appends_fail_after_a_while_and_the_log_goes_on_when_they_are_back(cluster, log):
    await publish(log, b"0")
    cluster.ledgers.failures["create"] = [NotEnoughBookiesError("none")] * 8
    current(cluster, log).fail(LedgerWriteError("no quorum"))
    sink = append(log, [b"lost"])
    with trio.fail_after(20):
        await until(lambda: bool(sink.errors))
    assert isinstance(sink.errors[0], ManagedLedgerUnavailableError)
    assert (len(sink.errors), sink.count) == (1, 0)
    assert log.state is State.IDLE
    cluster.ledgers.failures.clear()
    await publish(log, b"1")
    assert await read_all(log) == [b"0", b"1"]


def is_open(log: ManagedLedger) -> bool:
    return log.state is State.OPEN


def all_confirmed(sinks: list[tuple[Sink, list[bytes]]]) -> bool:
    return all(sink.count == len(payloads) for sink, payloads in sinks)


async def test_ledgers_that_store_nothing_follow_each_other_slowly_and_appends_fail_after_a_while(cluster, log):
    await publish(log, b"0")
    for number in range(2):
        cluster.ledgers.full = True
        ledgers = len(cluster.ledgers.writers)
        sink = append(log, [b"lost"])
        begun = trio.current_time()
        with trio.fail_after(20):
            await until(partial(bool, sink.errors))
        assert 3 < trio.current_time() - begun <= 5, "retry_timeout_s is 5"
        assert isinstance(sink.errors[0], ManagedLedgerUnavailableError)
        assert "the disk is full" in str(sink.errors[0])
        assert len(cluster.ledgers.writers) - ledgers < 10
        cluster.ledgers.full = False
        await publish(log, b"%d" % (number + 1))
    assert await read_all(log) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("step", ["create", "created"])
async def test_a_list_write_of_unknown_outcome_is_looked_up_and_nothing_leaks(step: str, cluster: Cluster) -> None:
    async def test(cluster: Cluster) -> None:
        async with cluster.broker() as factory:
            log = await factory.open(NAME)
            cluster.ledgers.failures[step] = [MetadataUnavailableError("the answer was lost")]
            ids = await publish(log, *numbered(0, 15))
            assert [entry for _, entry in ids] == [*range(10), *range(5)]
            assert await read_all(log) == numbered(0, 15)
        async with cluster.broker() as factory:
            log = await factory.open(NAME)
            assert await read_all(log) == numbered(0, 15)
            await trio.sleep(1)
            assert cluster.ledgers.listed() == await cluster.named_ledgers()

    await test(cluster)


async def test_a_fenced_ledger_fences_the_log_fails_all_that_waits_and_tells_the_owner(cluster: Cluster) -> None:
    async with cluster.broker() as factory, cluster.broker() as other:
        log = await factory.open(NAME)
        cursor = await log.open_cursor("sub")
        told: list[str] = []
        log.on_fenced = lambda: told.append("fenced")
        await publish(log, *numbered(0, 3))
        taken = await other.open(NAME)
        sinks = [Sink(), Sink()]
        for sink in sinks:
            log.append([b"late"], sink)
        await until(lambda: all(sink.errors for sink in sinks))
        assert all(isinstance(sink.errors[0], ManagedLedgerFencedError) for sink in sinks)
        assert told == ["fenced"]
        after = Sink()
        log.append([b"later"], after)
        assert isinstance(after.errors[0], ManagedLedgerFencedError)
        await raises(ManagedLedgerFencedError, log.read(EARLIEST, 1, 1))
        outcome: list[object] = []
        cursor.persisted(outcome.append)
        assert outcome != [None]
        assert await read_all(taken) == numbered(0, 3)
        assert NAME not in factory.managed_ledgers


async def test_a_list_changed_by_another_fences_the_log_at_the_next_roll(cluster: Cluster) -> None:
    async with cluster.broker() as factory, cluster.broker() as other:
        log = await factory.open(NAME)
        told: list[str] = []
        log.on_fenced = lambda: told.append("fenced")
        current(cluster, log).stored.fenced = False
        await publish(log, *numbered(0, 3))
        await other.open(NAME)
        cluster.ledgers.stored[0].fenced = False  # a bookie that lost the fence must not be enough
        cluster.ledgers.stored[0].last_entry_id = None
        sink = append(log, numbered(3, 12))
        await until(lambda: bool(sink.errors))
        assert sink.count <= 7
        assert (told, log.state) == (["fenced"], State.FENCED)


async def test_an_entry_too_large_fails_alone(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, log: ManagedLedger):
    writer = current(cluster, log)

    def refuse(payloads: object) -> int:
        raise LedgerEntryTooLargeError("too large")

    sink = Sink()
    with monkeypatch.context() as patch:
        patch.setattr(writer, "append", refuse)
        log.append(numbered(0, 25), sink)
    assert [type(error) for error in sink.errors] == [EntryTooLargeError]
    assert await publish(log, b"fine") == [(0, 0)]


async def test_consumers_at_the_end_of_the_log_cause_no_ledger_read_and_leave_nothing_in_the_cache(cluster: Cluster):
    async with cluster.broker(entries_max=1000) as factory:
        log = await factory.open(NAME)
        cursors = [await log.open_cursor(name, initial="earliest") for name in ("a", "b")]
        cursors.append(log.new_reader_cursor(LATEST))
        got: dict[str, list[bytes]] = {cursor.name: [] for cursor in cursors}

        def pump() -> None:
            for cursor in cursors:
                while True:
                    run = log.read_cached(cursor.read_position, 100, 1 << 20)
                    if run is None:
                        break
                    got[cursor.name] += [bytes(payload) for payload in run.payloads]
                    end = Position(run.ledger_id, run.first_entry_id + len(run.payloads) - 1)
                    cursor.read_position = log.next_position(end)

        log.add_waiter(pump)
        log.add_waiter(pump)
        for number in range(50):
            await publish(log, *numbered(10 * number, 10))
        assert all(found == numbered(0, 500) for found in got.values())
        assert log.ledger_reads == 0
        assert cluster.ledgers.reads == []
        assert factory.budget.used == 0
        log.remove_waiter(pump)


async def test_without_active_cursors_nothing_is_cached(factory: ManagedLedgerFactory, log: ManagedLedger) -> None:
    await publish(log, b"x")
    assert factory.budget.used == 0
    cursor = await log.open_cursor("sub")
    await publish(log, b"y")
    assert factory.budget.used > 0
    cursor.deactivate()
    await trio.sleep(3)
    assert factory.budget.used == 0


async def test_readers_of_the_same_place_share_one_ledger_read(cluster: Cluster, log: ManagedLedger) -> None:
    await publish(log, *numbered(0, 25))
    for _ in range(3):
        log.new_reader_cursor(EARLIEST)
    cluster.ledgers.delay_s = 0.1
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(log.read, Position(0, 0), 100, 1 << 20)
    assert cluster.ledgers.reads == [(0, 0, 9)]
    assert log.ledger_reads == 1


async def test_reads_never_go_above_the_entries_that_the_list_gives_a_closed_ledger(cluster, log):
    writer = current(cluster, log)
    writer.held = True
    sink = append(log, numbered(0, 8))
    writer.confirm(4)
    writer.store(7)
    writer.fail(LedgerWriteError("no quorum"))
    await until(lambda: sink.count == 8)
    run = await log.read(Position(0, 3), 100, 1 << 20)
    assert [bytes(payload) for payload in run.payloads] == [b"3", b"4"]
    run = await log.read(Position(0, 5), 100, 1 << 20)
    assert (run.ledger_id, run.first_entry_id) == (1, 0)


async def test_a_read_past_the_end_gives_nothing_and_a_read_error_is_one_of_ours(cluster: Cluster, log: ManagedLedger):
    await publish(log, *numbered(0, 12))
    assert (await log.read(Position(1, 2), 10, 1 << 20)).payloads == []
    cluster.ledgers.failures["read"] = [LedgerReadError("away")]
    await raises(ManagedLedgerReadError, log.read(Position(0, 0), 10, 1 << 20))
    assert len((await log.read(Position(0, 0), 10, 1 << 20)).payloads) == 10


async def test_a_new_cursor_stands_where_it_was_asked_to(log: ManagedLedger) -> None:
    await publish(log, *numbered(0, 25))
    expected: list[tuple[str, Initial, Position]] = [
        ("latest", "latest", Position(2, 5)),
        ("earliest", "earliest", Position(0, 0)),
        ("there", Position(1, 4), Position(1, 5)),
        ("end", Position(0, 9), Position(1, 0)),
        ("max", LATEST, Position(2, 5)),
        ("min", EARLIEST, Position(0, 0)),
        ("nowhere", Position(0, 70), Position(1, 0)),
    ]
    for name, initial, read in expected:
        cursor = await log.open_cursor(name, initial=initial)
        assert cursor.read_position == read, name
        assert await log.open_cursor(name, initial="latest") is cursor
    assert log.cursors["earliest"].backlog() == 25


async def test_a_cursor_whose_making_was_not_heard_of_is_found_again(cluster: Cluster) -> None:
    async with cluster.broker() as factory, cluster.broker() as other:
        log = await factory.open(NAME)
        await publish(log, *numbered(0, 3))
        value = encode_node(CursorNode(), AckState(log, Position(0, 1)), count_max=0)
        await cluster.metadata.create(f"{log_path(NAME)}/sub", value)
        cursor = await log.open_cursor("sub", initial="earliest")
        assert cursor.mark_delete == Position(0, 1)
        await cluster.metadata.create(f"{log_path(NAME)}/late", value)
        await other.open(NAME)
        await raises(ManagedLedgerFencedError, log.open_cursor("late"))
        assert log.state is State.FENCED


@pytest.mark.broker(age_min_minutes=10)
async def test_a_deleted_cursor_is_gone_with_its_ledgers_in_one_write(cluster: Cluster, log: ManagedLedger) -> None:
    cursor = await log.open_cursor("sub", initial="earliest")
    await publish(log, *numbered(0, 5))
    cursor.ack_individual([Position(0, 0)])
    await cursor.wait_persisted()
    assert cluster.ledgers.listed() == {0, 1}
    await log.delete_cursor("sub")
    assert cluster.ledgers.listed() == {0}
    assert "sub" not in log.cursors
    await raises(NoSuchCursorError, log.delete_cursor("sub"))
    fresh = await log.open_cursor("sub", initial="earliest")
    assert fresh.backlog() == 5


@pytest.mark.parametrize("delay_s", [0.0, 0.003, 0.3])
async def test_a_cursor_deleted_soon_after_its_first_ack_leaves_no_ledger(delay_s: float, cluster: Cluster) -> None:
    """The log is closed at each moment of the creation of its ledger."""

    async def test(cluster: Cluster) -> None:
        async with cluster.broker(age_min_minutes=10) as factory:
            log = await factory.open(NAME)
            await publish(log, *numbered(0, 1))
            for number in range(30):
                cursor = await log.open_cursor("sub", initial="earliest")
                cursor.ack_individual([Position(0, 0)])
                cluster.ledgers.delay_s = delay_s
                await trio.sleep(0.001 * number)
                await log.delete_cursor("sub")
                cluster.ledgers.delay_s = 0
            await trio.sleep(1)
            assert cluster.ledgers.listed() == {0}

    await test(cluster)


@pytest.mark.parametrize("step", ["create", "created"])
async def test_a_cursor_deleted_while_the_outcome_of_its_ledger_is_unknown_leaves_no_ledger(step, cluster):
    async def test(cluster: Cluster) -> None:
        async with cluster.broker(age_min_minutes=10) as factory:
            log = await factory.open(NAME)
            await publish(log, *numbered(0, 1))
            cursor = await log.open_cursor("sub", initial="earliest")
            cluster.ledgers.failures[step] = [MetadataUnavailableError("away")]
            cursor.ack_individual([Position(0, 0)])
            await trio.sleep(0.012)
            await log.delete_cursor("sub")
            await trio.sleep(1)
            assert cluster.ledgers.listed() == {0}

    await test(cluster)


async def test_closing_a_fenced_log_ends_the_wait_for_it(log: ManagedLedger) -> None:
    log.abandon()
    await log.close()
    with trio.fail_after(1):
        await log.closed.wait()


async def test_a_closed_log_takes_nothing_and_gives_nothing(cluster: Cluster, log: ManagedLedger) -> None:
    cursor = await log.open_cursor("sub", initial="earliest")
    sink = append(log, numbered(0, 5))
    cursor.ack_individual([])
    await log.close()
    assert sink.count == 5
    log.append([b"late"], sink)
    assert isinstance(sink.errors[0], ManagedLedgerClosedError)
    await raises(ManagedLedgerClosedError, log.read(Position(0, 0), 1, 1))
    await raises(ManagedLedgerClosedError, log.open_cursor("other"))
    assert cluster.ledgers.stored[0].last_entry_id == 4
    await log.close()


async def test_whatever_fails_every_confirmed_entry_is_read_once_and_in_order(cluster: Cluster) -> None:
    """AllAckedEntriesAreReadable, NoOutOfOrderEntries: a history of appends, failures, rollovers and changes of
    the owner."""
    rng = random.Random(9)
    confirmed: list[bytes] = []
    number = 0
    for _ in range(12):
        async with cluster.broker() as factory:
            log = await factory.open(NAME)
            for _ in range(10):
                sinks = []
                for _ in range(rng.randrange(1, 4)):
                    count = rng.randrange(1, 9)
                    sink = append(log, numbered(number, count))
                    sinks.append((sink, numbered(number, count)))
                    number += count
                kind = rng.randrange(6)
                await until(partial(is_open, log))
                writer = current(cluster, log)
                if kind == 0:
                    writer.confirm(rng.randint(-1, writer.last_pushed))
                    writer.store(rng.randint(-1, writer.last_pushed))
                    writer.fail(LedgerWriteError("no quorum"))
                elif kind == 1:
                    cluster.ledgers.failures["create"] = [NotEnoughBookiesError("none")]
                elif kind == 2:
                    cluster.ledgers.failures["created"] = [MetadataUnavailableError("lost")]
                elif kind == 3:
                    cluster.ledgers.failures["close"] = [MetadataUnavailableError("lost")]
                with trio.fail_after(10):
                    await until(partial(all_confirmed, sinks))
                for sink, payloads in sinks:
                    assert not sink.errors
                    assert len(sink.ids()) == len(payloads)
                    confirmed += payloads
                assert await read_all(log) == confirmed
                cluster.ledgers.failures.clear()
            if rng.random() < 0.5:
                kill(factory)
                await trio.lowlevel.checkpoint()
    async with cluster.broker() as factory:
        assert await read_all(await factory.open(NAME)) == confirmed
        await trio.sleep(1)
        assert cluster.ledgers.listed() == await cluster.named_ledgers()

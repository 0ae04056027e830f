from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from managed_ledger.session import MetadataSession
from quire.metadata.errors import (
    BadVersionError,
    MalformedMetadataError,
    MetadataUnavailableError,
    NodeExistsError,
    SessionExpiredError,
    UnsupportedLayoutError,
)
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.local.rocksdb import READS_IN_STEP, KeyValueStore, open_store
from quire.metadata.local.rows import load, row_key
from quire.metadata.store import ANY_VERSION, Create, Kind, Node, Op, Put
from quire.world.doors import NotSyncedError
from quire.world.real import real_world
from tests.support.refusals import raises, refuses
from tests.unit.metadata.local.by_hand import ByHand, Run

pytestmark = pytest.mark.real_clock

LAYOUT_KEY = b"\x00layout"
FULL = OSError(errno.ENOSPC, "full")


class Call:
    """A call in progress, and its outcome."""

    def __init__(self) -> None:
        self.outcome: Any = None

    async def run(self, call: Awaitable[Any]) -> None:
        try:
            self.outcome = await call
        except Exception as error:
            self.outcome = error
        if self.outcome is None:
            self.outcome = "done"


class Play:
    """A store whose doors are moved by hand."""

    def __init__(self, hand: ByHand, store: KeyValueStore, nursery: trio.Nursery) -> None:
        self.hand = hand
        self.store = store
        self._nursery = nursery

    async def call(self, call: Awaitable[Any]) -> Call:
        """Begin a call of the store, up to where it waits."""
        made = Call()
        self._nursery.start_soon(made.run, call, name="call")
        await wait_all_tasks_blocked()
        return made

    async def calls(self, *calls: Awaitable[Any]) -> list[Call]:
        return [await self.call(each) for each in calls]

    async def step(self) -> None:
        """Write what is queued, and let the callers hear of it."""
        self.hand.step()
        await wait_all_tasks_blocked()

    async def made(self, call: Awaitable[Any]) -> Any:
        """Begin a call, write what is queued, and return the outcome."""
        made = await self.call(call)
        await self.step()
        return made.outcome

    def fail(self, error: OSError | None = FULL) -> None:
        self.hand.failure = error

    def failed(self, error: OSError = FULL) -> Run:
        """Run the job over the queue, which fails; the loop is not told yet."""
        self.hand.failure = error
        run = self.hand.work()
        self.hand.failure = None
        return run

    def values(self) -> dict[str, bytes]:
        """Return the values on the disk by path."""
        return {path: node.value for path, node in load(self.hand).nodes.items()}


@pytest.fixture
async def play() -> AsyncIterator[Play]:
    hand = ByHand()
    store = await open_store(hand.world(), "/data")
    async with trio.open_nursery() as nursery:
        hand.batches.clear()
        yield Play(hand, store, nursery)
    await store.aclose()


@pytest.fixture
async def store(play: Play) -> KeyValueStore:
    return play.store


async def test_no_other_process_can_write_to_an_embedded_store_as_managed_ledgers_know(store: KeyValueStore) -> None:
    assert MetadataSession(store).is_exclusive
    assert not MetadataSession(MemoryStore(MemoryTree())).is_exclusive


# ------------------------------------------------------------------------------------------------ commit and visibility


async def test_a_write_is_answered_and_seen_only_when_it_is_synced(play: Play, store: KeyValueStore) -> None:
    watch = store.watch("/a")
    create = await play.call(store.create("/a", b"x"))
    run = play.hand.work()
    await wait_all_tasks_blocked()
    assert (create.outcome, await store.get("/a"), await store.children("/")) == (None, None, [])
    play.hand.report(run)
    assert await store.get("/a") == Node(b"x", 0)
    await wait_all_tasks_blocked()
    assert create.outcome == "/a"
    await watch.next()


async def test_all_writes_queued_meanwhile_are_one_synced_batch_and_build_on_each_other(play, store):
    calls = await play.calls(
        store.create("/a"), store.put("/a", b"1", 0), store.put("/a", b"2", 1), store.create("/a/b")
    )
    await play.step()
    assert [call.outcome for call in calls] == ["/a", 1, 2, "/a/b"]
    assert [set(batch) for batch in play.hand.batches] == [{row_key("/a"), row_key("/a/b")}]


async def test_writes_of_one_turn_of_the_event_loop_are_handed_over_together_when_all_were_planned(
    play, store, nursery
):
    play.hand.events.clear()

    async def write(path: str) -> None:
        play.hand.events.append("write planned")
        await store.create(path)

    for name in "abc":
        nursery.start_soon(write, f"/{name}")
    await wait_all_tasks_blocked()
    assert play.hand.events == ["write planned"] * 3 + ["write handed over"] * 3
    await play.step()


async def test_a_store_that_is_closed_writes_what_was_planned_in_this_turn(play: Play, store: KeyValueStore) -> None:
    assert await store.get("/a") is None  # so that the write need not read it
    planned = store.create("/a")
    planned.send(None)  # one turn of the event loop: planned, not handed over yet
    await store.aclose()
    assert row_key("/a") in play.hand.rows
    planned.close()


async def test_a_write_that_is_queued_while_another_is_synced_goes_with_the_next_batch(play, store):
    first = await play.call(store.create("/a"))
    run = play.hand.work()
    later = await play.calls(*(store.create(f"/a/{name}") for name in "xyz"))
    play.hand.report(run)
    await wait_all_tasks_blocked()
    assert [call.outcome for call in (first, *later)] == ["/a", None, None, None]
    await play.step()
    assert [call.outcome for call in later] == ["/a/x", "/a/y", "/a/z"]
    assert len(play.hand.batches) == 2


async def test_a_write_builds_on_the_last_one_under_way_when_an_earlier_one_is_reported(play, store):
    await play.made(store.create("/a"))
    calls = [await play.call(store.put("/a", b"1", 0))]
    first = play.hand.work()
    calls.append(await play.call(store.put("/a", b"2", 1)))
    play.hand.report(first)
    calls.append(await play.call(store.put("/a", b"3", 2)))
    await play.step()
    assert [call.outcome for call in calls] == [1, 2, 3]
    assert await store.get("/a") == Node(b"3", 3)


async def test_a_refusal_waits_for_the_write_that_caused_it(play: Play, store: KeyValueStore) -> None:
    first, second = await play.calls(store.create("/a"), store.create("/a"))
    assert second.outcome is None
    await play.step()
    assert first.outcome == "/a"
    assert isinstance(second.outcome, NodeExistsError)
    await raises(BadVersionError, store.put("/a", b"", 4))


async def test_a_refusal_whose_cause_failed_is_decided_again(play: Play, store: KeyValueStore) -> None:
    first, second = await play.calls(store.create("/a"), store.create("/a", b"mine"))
    play.fail()
    await play.step()
    assert isinstance(first.outcome, MetadataUnavailableError)
    play.fail(None)
    await play.step()
    assert second.outcome == "/a"
    assert await store.get("/a") == Node(b"mine", 0)


async def test_a_cancelled_caller_changes_nothing_of_what_others_see(play: Play, store: KeyValueStore) -> None:
    assert await store.get("/a") is None
    with trio.move_on_after(0):
        await store.create("/a", b"given up")
    assert await store.get("/a") is None
    assert await play.made(store.put("/a", b"next", 0)) == 1


async def test_ephemeral_nodes_cost_no_sync(play: Play, store: KeyValueStore) -> None:
    assert await play.made(store.create("/e", kind=Kind.EPHEMERAL)) == "/e"
    assert play.hand.batches == []


async def test_a_create_and_a_put_are_one_batch_of_two_rows(play: Play, store: KeyValueStore) -> None:
    ops: list[Op] = [Create(path="/l"), Put(path="/", value=b"list", version=ANY_VERSION)]
    assert await play.made(store.multi(ops)) == ["/l", "/"]
    assert [sorted(batch) for batch in play.hand.batches] == [sorted([row_key("/l"), row_key("/")])]


# ------------------------------------------------------------------------------------------------------------- failures


async def test_a_full_disk_fails_writes_changes_nothing_and_passes(play: Play, store: KeyValueStore) -> None:
    assert await play.made(store.create("/a", b"old")) == "/a"
    watch = store.watch("/a")
    play.fail()
    for _ in range(2):
        assert isinstance(await play.made(store.put("/a", b"new", 0)), MetadataUnavailableError)
        assert await store.get("/a") == Node(b"old", 0)
    play.fail(None)
    assert not store.expired.is_set()
    assert await play.made(store.put("/a", b"new", 0)) == 1
    assert await store.get("/a") == Node(b"new", 1)
    await watch.next()


async def test_writes_planned_over_a_failed_one_fail_with_it(play: Play, store: KeyValueStore) -> None:
    first = await play.call(store.create("/a"))
    failed = play.failed()
    # Queued before anybody knows of the failure; its run comes before the report, too.
    second = await play.call(store.create("/a/b"))
    refused = play.hand.work()
    play.hand.report(failed)
    third = await play.call(store.create("/c"))
    play.hand.report(refused)
    await play.step()
    assert [type(call.outcome) for call in (first, second)] == [MetadataUnavailableError] * 2
    assert third.outcome == "/c"
    assert await store.children("/") == ["c"]
    assert sorted(play.values()) == ["/", "/c"]


async def test_refused_and_fresh_writes_may_share_a_run(play: Play, store: KeyValueStore) -> None:
    first = await play.call(store.create("/a"))
    failed = play.failed()
    second = await play.call(store.create("/a/b"))
    play.hand.report(failed)
    third = await play.call(store.create("/a", b"third"))
    await play.step()
    assert [type(call.outcome) for call in (first, second)] == [MetadataUnavailableError] * 2
    assert third.outcome == "/a"
    assert play.values() == {"/": b"", "/a": b"third"}


async def test_what_a_failed_write_left_on_the_disk_is_written_over_by_the_next(play, store):
    await play.made(store.create("/a", b"old"))
    play.fail()
    play.hand.applies_what_fails = True
    await play.made(store.put("/a", b"half", 0))
    await play.made(store.create("/b"))
    assert row_key("/b") in play.hand.rows
    play.fail(None)
    await play.made(store.create("/c"))
    assert play.values() == {"/": b"", "/a": b"old", "/c": b""}
    play.hand.batches.clear()
    await play.made(store.create("/d"))
    assert list(play.hand.batches[0]) == [row_key("/d")]


async def test_writing_over_takes_the_newest_that_is_under_way(play: Play, store: KeyValueStore) -> None:
    await play.made(store.create("/a", b"old"))
    play.fail()
    await play.made(store.put("/a", b"failed", 0))
    play.fail(None)
    calls = await play.calls(store.put("/a", b"new", 0), store.create("/b"))
    await play.step()
    assert [call.outcome for call in calls] == [1, "/b"]
    assert play.values()["/a"] == b"new"


@pytest.mark.parametrize(
    "failure", [OSError(errno.EIO, "the disk is gone"), NotSyncedError(errno.ENOSPC, "the disk is gone")]
)
async def test_any_other_failure_ends_the_store(failure: OSError, play: Play, store: KeyValueStore) -> None:
    await play.made(store.create("/a"))
    watch = store.watch("/a")
    first = await play.call(store.put("/a", b"x", 0))
    failed = play.failed(failure)
    second, third = await play.calls(store.put("/a", b"y", 1), store.create("/a"))
    play.hand.report(failed)
    await play.step()
    assert [type(call.outcome) for call in (first, second)] == [MetadataUnavailableError] * 2
    assert isinstance(third.outcome, SessionExpiredError)
    assert store.expired.is_set()
    for call in (lambda: store.get("/a"), lambda: store.put("/a", b"", 0), lambda: watch.next()):
        await raises(SessionExpiredError, call(), "the disk is gone")
    await raises(SessionExpiredError, store.watch("/a").next())


# --------------------------------------------------------------------------------------------------------------- layout


async def test_a_newer_layout_is_refused_and_the_map_is_closed() -> None:
    hand = ByHand()
    hand.rows[LAYOUT_KEY] = bytes([0, 0, 0, 2])
    await raises(UnsupportedLayoutError, open_store(hand.world(), "/data"), "2")
    assert hand.closed
    assert hand.batches == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (LAYOUT_KEY, b"\0\1"),
        (row_key("/a/b"), bytes(17)),
        (row_key("/a"), bytes(16)),
        (row_key("/a"), b"\1" + bytes(16)),
        (b"\x01\x00\x02/a", bytes(17)),
        (b"\x01\x00\x01/\xff", bytes(17)),
        (b"\x01\x00\x01/a/", bytes(17)),
        (b"\x01\x00", bytes(17)),
    ],
    ids=repr,
)
def test_rows_that_make_no_tree_are_refused(key: bytes, value: bytes) -> None:
    hand = ByHand()
    hand.rows[LAYOUT_KEY] = bytes([0, 0, 0, 1])
    hand.rows[key] = value
    refuses(MalformedMetadataError, lambda: load(hand))


def test_nodes_without_a_layout_version_are_refused() -> None:
    hand = ByHand()
    hand.rows[row_key("/a")] = bytes(17)
    refuses(MalformedMetadataError, lambda: load(hand), "layout")


async def test_a_row_has_the_documented_bytes(play: Play, store: KeyValueStore) -> None:
    await play.made(store.create("/a/bc", b"data", make_parents=True))
    await play.made(store.put("/a/bc", b"more", 0))
    await play.made(store.create("/a/bc/n-", sequential=True))
    child = (b"\x01\x00\x03/a/bc/n-0000000000", bytes(17))
    assert play.hand.rows[LAYOUT_KEY] == bytes.fromhex("00000001")
    assert play.hand.rows[b"\x01\x00\x02/a/bc"] == bytes.fromhex("00 0000000000000001 0000000000000001") + b"more"
    assert list(play.hand.scan(b"\x01\x00\x03/a/bc/", b"\x01\x00\x03/a/bc0")) == [child]


async def test_a_closed_map_can_be_opened_again_in_the_real_world(tmp_path: Path) -> None:
    world = real_world(1)
    for number in range(3):
        store = await open_store(world, str(tmp_path / "metadata"))
        assert await store.put("/", b"x", number) == number + 1
        await raises(BlockingIOError, open_store(world, str(tmp_path / "metadata")))
        await store.aclose()


async def test_reads_cost_a_turn_of_the_event_loop_only_now_and_then_and_yet_hold_it_for_a_few_only(store, nursery):
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    nursery.start_soon(others)
    for _ in range(10 * READS_IN_STEP):
        await store.get("/nothing")
    assert 9 <= turns <= 11
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.get("/nothing")
    assert scope.cancelled_caught

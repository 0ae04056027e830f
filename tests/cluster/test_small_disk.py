"""A bookie on a disk of 64 MB: filled, read, emptied and filled again, round after round, without a restart.

The disk is a tmpfs of the test's own, so that the kernel refuses what does not fit.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from bookie.bookie import Bookie, open_bookie
from bookie.config import BookieConfig
from quire.metadata.ledger_ids import SequenceLedgerIds
from quire.metadata.ledger_metadata import Fragment, LedgerMetadata
from quire.metadata.ledgers import LedgerManager
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.service.log import Event
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Buffer
from quire.wire.bookkeeper.v2 import Rc
from quire.world.real import real_world
from tests.support.waiting import until
from tests.unit.bookie.build import Client, add_frames, cluster, entry

pytestmark = [pytest.mark.cluster, pytest.mark.real_clock(seconds=1200)]

SIZE_MB = 64
PAYLOAD = bytes(range(256)) * 256
"""64 KB."""
FULL = ("no room",)
"""Errors that a full disk logs: no write fails, and no checkpoint."""
CHECKPOINT_FAILED = "checkpoint failed"
LITTLE = 700 << 10
"""Bytes that are less than a checkpoint needs."""
ROUND_MAX_S = 60.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "quire-test", str(folder))
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("a disk cannot be mounted by this user")
    try:
        yield folder
    finally:
        subprocess.run(("umount", "--lazy", str(folder)), check=True)


def config_on(folder: Path) -> BookieConfig:
    return BookieConfig(
        bookie_id="small:1",
        journal_directories=(f"{folder}/journal",),
        ledger_directories=(f"{folder}/ledgers",),
        journal_size_max_mb=4,
        journal_prealloc_mb=1,
        write_cache_mb=8,
        entry_log_size_max=8 << 20,
        gc_wait_ms=200,
        flush_interval_ms=200,
        disk_check_interval_ms=100,
    )


class Small(Client):
    """A client that keeps no answers longer than it needs them."""

    def _write(self, parts: list[Buffer]) -> None:
        super()._write(parts)
        self.raw = b""


class Ledgers:
    """Ledgers of a test, known to the metadata as a cluster has them."""

    def __init__(self, store: MemoryStore, bookie: Bookie) -> None:
        rng = bookie.world.rng
        self._manager = LedgerManager(store, ids=SequenceLedgerIds(store, "/ledgers"), rng=rng)
        self._metadata = LedgerMetadata(
            ensemble_size=1,
            write_quorum=1,
            ack_quorum=1,
            fragments=(Fragment(first_entry_id=0, bookies=(bookie.config.id,)),),
        )
        self.stored: dict[int, int] = {}
        """Number of acknowledged entries by ledger."""

    async def fill(self, client: Client, bookie: Bookie) -> None:
        """Write ledgers of 20 entries until the bookie stays read-only."""
        while True:
            await self._until_refused(client)
            await trio.sleep(0.5)
            if bookie.read_only:
                return

    async def _until_refused(self, client: Client) -> None:
        """Write ledgers until an add is refused."""
        while True:
            ledger_id, _ = await self._manager.create(self._metadata)
            self.stored[ledger_id] = 0
            for first in range(0, 20, 5):
                (answer,) = await client.ask(add_frames(ledger_id, first, 5, PAYLOAD))
                assert isinstance(answer, v2.AddAcks)
                if answer.rc != Rc.OK:
                    assert answer.rc in (Rc.READ_ONLY, Rc.IO), answer
                    return
                self.stored[ledger_id] = first + 5

    async def fill_urgently(self, client: Client, free: Callable[[str], int], folder: str) -> None:
        """Write urgent entries until hardly any room is left, or one is refused."""
        ledger_id, _ = await self._manager.create(self._metadata)
        self.stored[ledger_id] = 0
        while free(folder) > LITTLE:
            added = await client.ask(add_frames(ledger_id, self.stored[ledger_id], 1, PAYLOAD, flags=v2.HIGH_PRIORITY))
            assert isinstance(added[0], v2.AddAcks)
            if added[0].rc != Rc.OK:
                return
            self.stored[ledger_id] += 1

    async def check(self, client: Client) -> int:
        """Read everything that was acknowledged; return the number of entries."""
        for ledger_id, count in self.stored.items():
            for entry_id in range(count):
                found = await client.read(ledger_id, entry_id)
                assert bytes(found.entry) == entry(ledger_id, entry_id, PAYLOAD), (ledger_id, entry_id)
        return sum(self.stored.values())

    async def delete(self, keep: int = 0) -> None:
        """Delete all ledgers but the newest `keep`."""
        await self.delete_these(sorted(self.stored)[: len(self.stored) - keep])

    async def delete_these(self, ledgers: list[int]) -> None:
        for ledger_id in ledgers:
            await self._manager.delete(ledger_id)
            del self.stored[ledger_id]


async def rounds(folder: Path, count: int) -> None:
    world = real_world()
    tree = MemoryTree()
    store = await cluster(tree, world)
    async with open_bookie(world, config_on(folder), store) as bookie:
        ledgers, client = Ledgers(store, bookie), Small(bookie)
        least = 0

        def has_room() -> bool:
            return not bookie.read_only and world.disk.free_bytes(str(folder)) > SIZE_MB << 19

        for number in range(count):
            with trio.fail_after(ROUND_MAX_S):
                await ledgers.fill(client, bookie)
                stored = await ledgers.check(client)
                least = least or stored // 2
                assert stored >= least, f"round {number}: {stored} entries fit, less than half of what fitted at first"
                await ledgers.delete(keep=1 if number % 2 else 0)
                await until(has_room)
                await ledgers.check(client)
    async with open_bookie(world, config_on(folder), store) as bookie:
        await ledgers.check(Small(bookie))


@pytest.mark.expect_error(*FULL)
async def test_a_small_disk_is_filled_read_emptied_and_filled_again(disk: Path) -> None:
    await rounds(disk, 3)


@pytest.mark.full
@pytest.mark.expect_error(*FULL)
async def test_a_small_disk_is_filled_and_emptied_a_hundred_times(disk: Path) -> None:
    await rounds(disk, 100)


async def compacted_rounds(folder: Path, count: int) -> None:
    """Fill the disk, delete two of three ledgers in each entry log, and write into the room of a compaction."""
    world = real_world()
    store = await cluster(MemoryTree(), world)
    config = replace(config_on(folder), force_when_full=True)
    async with open_bookie(world, config, store) as bookie:
        ledgers, client = Ledgers(store, bookie), Small(bookie)
        for _ in range(count):
            with trio.fail_after(ROUND_MAX_S):
                await ledgers.fill(client, bookie)
                await ledgers.check(client)
                kept = sorted(ledgers.stored)[::3]
                await ledgers.delete_these([each for each in ledgers.stored if each not in kept])
                before = sum(ledgers.stored.values())
                while (sum(ledgers.stored.values()) - before) * len(PAYLOAD) < SIZE_MB << 18:
                    await ledgers.fill(client, bookie)
                await ledgers.check(client)
                await ledgers.delete()
    async with open_bookie(world, config, store) as bookie:
        await ledgers.check(Small(bookie))


@pytest.mark.full
@pytest.mark.expect_error(*FULL)
async def test_a_full_disk_is_compacted_in_what_little_room_it_has(
    disk: Path, log_events: list[Event], expect_error: Callable[[str], None]
) -> None:
    """Every log has a ledger that exists, and so none is deleted without a compaction."""
    await compacted_rounds(disk, 5)
    # The copies may take the room of a checkpoint, which is then made again when they have replaced their logs.
    if any(event["level"] == "error" and CHECKPOINT_FAILED in event["event"] for event in log_events):
        expect_error(CHECKPOINT_FAILED)


@pytest.mark.full
async def test_a_disk_on_which_even_the_reserve_was_used_up_is_compacted_into_room_for_it(
    disk: Path, log_events: list[Event]
) -> None:
    """Entries of cursors and recoveries fill what adds leave, until a write fails; compaction alone frees room."""
    world = real_world()
    store = await cluster(MemoryTree(), world)
    config = replace(config_on(disk), force_when_full=True)
    async with open_bookie(world, config, store) as bookie:
        ledgers, client = Ledgers(store, bookie), Small(bookie)
        with trio.fail_after(ROUND_MAX_S):
            await ledgers.fill(client, bookie)
            await ledgers.fill_urgently(client, world.disk.free_bytes, str(disk))
            kept = sorted(ledgers.stored)[::3]
            await ledgers.delete_these([each for each in sorted(ledgers.stored)[:-1] if each not in kept])
            await until(lambda: not bookie.read_only and world.disk.free_bytes(str(disk)) > SIZE_MB << 18, within=50)
            await ledgers.check(client)
    errors = {str(event["event"]) for event in log_events if event["level"] == "error"}
    expected = (*FULL, CHECKPOINT_FAILED, "journal group not written")
    assert all(any(each in error for each in expected) for error in errors), errors
    log_events.clear()


@pytest.mark.expect_error(*FULL, "the bookie ends")
async def test_a_bookie_that_may_not_be_read_only_ends_when_its_disk_is_full(disk: Path) -> None:
    world = real_world()
    store = await cluster(MemoryTree(), world)
    config = replace(config_on(disk), read_only_mode_enabled=False)
    async with open_bookie(world, config, store) as bookie:
        with trio.fail_after(ROUND_MAX_S):
            await Ledgers(store, bookie).fill(Small(bookie), bookie)
            await bookie.disks.must_end.wait()

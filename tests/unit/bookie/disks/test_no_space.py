"""A bookie whose disk is full at any single step of its work: no acknowledged entry is lost, and it comes back."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
import trio

from bookie.bookie import Bookie
from quire.metadata.ledger_ids import SequenceLedgerIds
from quire.metadata.ledger_metadata import Fragment, LedgerMetadata
from quire.metadata.ledgers import LedgerManager
from quire.metadata.local.memory import MemoryStore
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.v2 import Rc
from simulation.machines import key_value
from simulation.machines.disk import SimDisk, SimFile
from simulation.machines.world import in_universe
from tests.support.effort import effort
from tests.support.waiting import until
from tests.unit.bookie.build import CONFIG, Client, add_frames
from tests.unit.bookie.machine import Machine

PAYLOAD = bytes(5000)
CONFIGURED = replace(
    CONFIG, journal_prealloc_mb=1, disk_reserve_mb=1, flush_interval_ms=500, disk_check_interval_ms=200, gc_wait_ms=2000
)
ALWAYS = 1 << 60
EXPECTED = {
    "no room: refusing adds except for acknowledgements and recovery",
    "checkpoint failed, retrying",
    "journal group not written, refusing its adds",
}


class Steps:
    """Counts the steps that need room on a disk, and refuses `count` of them from `first` on, half done."""

    def __init__(self, first: int, count: int) -> None:
        self.done = 0
        self._refused = range(first, first + count)

    def _is_refused(self) -> bool:
        self.done += 1
        return self.done - 1 in self._refused

    @contextmanager
    def counting(self) -> Iterator[Steps]:
        pwritev, preallocate, opened = SimFile.pwritev, SimFile.preallocate, SimDisk.open
        write = key_value._SimKeyValue.write

        def pwritev_or_not(file, parts, offset):
            if not self._is_refused():
                return pwritev(file, parts, offset)
            data = b"".join(parts)
            pwritev(file, [data[: len(data) // 1024 * 512]], offset)
            raise full(file._path)

        def preallocate_or_not(file, offset, size):
            if self._is_refused():
                raise full(file._path)
            preallocate(file, offset, size)

        def open_or_not(disk, path, *, create=False, **options):
            if create and not disk.exists(path) and self._is_refused():
                raise full(path)
            return opened(disk, path, create=create, **options)

        def write_or_not(store, batch, *, sync):
            if self._is_refused():
                raise full(store._path)
            write(store, batch, sync=sync)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SimFile, "pwritev", pwritev_or_not)
            patch.setattr(SimFile, "preallocate", preallocate_or_not)
            patch.setattr(SimDisk, "open", open_or_not)
            patch.setattr(key_value._SimKeyValue, "write", write_or_not)
            yield self


def full(path: str) -> OSError:
    return OSError(errno.ENOSPC, "No space left on device", path)


class Story:
    """Work of a bookie, and the entries that it acknowledged."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        machine.config = CONFIGURED
        self.stored: dict[int, list[int]] = {}
        self._next: dict[int, int] = {}
        self._ledgers: list[int] = []

    async def create(self, bookie: Bookie) -> None:
        """Create four ledgers, so that garbage collection keeps them."""
        store = MemoryStore(self.machine.tree)
        manager = LedgerManager(store, ids=SequenceLedgerIds(store, "/ledgers"), rng=bookie.world.rng)
        fragments = (Fragment(first_entry_id=0, bookies=(bookie.config.id,)),)
        metadata = LedgerMetadata(ensemble_size=1, write_quorum=1, ack_quorum=1, fragments=fragments)
        self._ledgers = [(await manager.create(metadata))[0] for _ in range(4)]

    async def add(self, client: Client, ledger_id: int, *, flags: int = 0) -> bool:
        first = self._next.get(ledger_id, 0)
        self._next[ledger_id] = first + 3
        (answer,) = await client.ask(add_frames(ledger_id, first, 3, PAYLOAD, flags=flags))
        assert isinstance(answer, v2.AddAcks)
        if answer.rc == Rc.OK:
            self.stored.setdefault(ledger_id, []).extend(range(first, first + 3))
        return answer.rc == Rc.OK

    async def work(self, bookie: Bookie, client: Client) -> None:
        """Add, flush, fence, and delete a ledger."""
        for number in range(6):
            await self.add(client, self._ledgers[number % 3])
            await self.add(client, self._ledgers[3], flags=v2.HIGH_PRIORITY)
            if number % 2:
                bookie.request_flush()
                await trio.sleep(0.3)
        await client.fence(self._ledgers[1])
        self.stored.pop(self._ledgers[2], None)
        with suppress(OSError):  # as in a round of garbage collection, which is repeated
            await bookie.storage.delete_ledger(self._ledgers[2])
        await trio.sleep(0.6)

    async def come_back(self, bookie: Bookie, client: Client) -> None:
        """Check that the bookie is writable, has everything, and takes more."""
        await until(lambda: not bookie.read_only, within=60)
        assert await self.add(client, self._ledgers[0])
        await self.check(client)

    async def check(self, client: Client) -> None:
        for ledger_id, entries in self.stored.items():
            await client.holds(ledger_id, entries, PAYLOAD)


async def run(first: int, count: int, *, crash: bool) -> int:
    """Refuse the steps while the bookie works; return how many there were."""
    steps = Steps(first, count)
    async with in_universe(7) as universe:
        story = Story(Machine(universe))
        async with story.machine.life(crash=crash) as (bookie, client):
            await story.create(bookie)
            with steps.counting():
                await story.work(bookie, client)
            if not crash:
                await story.come_back(bookie, client)
            assert not bookie.failed.is_set()
        async with story.machine.life(crash=True) as (bookie, client):
            await story.come_back(bookie, client)
    return steps.done


@pytest.mark.seeded
@pytest.mark.parametrize("crash", [False, True], ids=["alive", "crashed"])
@pytest.mark.parametrize("count", [1, 7, ALWAYS], ids=["one", "seven", "all-that-follow"])
async def test_a_disk_that_is_full_at_any_one_step_loses_nothing_that_was_acknowledged(
    count: int, crash: bool, log_events: list[dict[str, object]]
) -> None:
    total = await run(ALWAYS, 0, crash=False)
    assert total > 30
    for first in range(0, total, effort(quick=10, full=1)):
        await run(first, count, crash=crash)
    errors = {event["event"] for event in log_events if event["level"] == "error"}
    assert errors <= EXPECTED
    log_events.clear()

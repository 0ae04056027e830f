"""When compactions run. Covers bookie/gc/schedule.py, bookie/gc_config.py and bookie/garbage_rounds.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio

from bookie.bookie import Bookie
from bookie.config import BookieConfig
from bookie.db_ledger_storage.compaction.plan import CompactionKind, CompactionOptions
from bookie.db_ledger_storage.garbage_collector import Collected
from bookie.gc.schedule import AskedCompactions, CompactionSchedule
from bookie.gc_config import GcConfig
from bookie.metrics import register
from quire.metadata.errors import MetadataUnavailableError
from quire.metadata.ledger_ids import SequenceLedgerIds
from quire.metadata.ledgers import Fragment, LedgerManager, LedgerMetadata
from quire.metadata.local.memory import MemoryStore, MemoryTree
from quire.metadata.store import MetadataStore
from quire.service.metrics import Metrics
from quire.service.serve import ConnectionCounts
from simulation.machines.world import in_world
from tests.unit.bookie.build import CONFIG, Client, add_frames, opened

pytestmark = pytest.mark.seeded

DAY, HOUR = 86400, 3600


def test_minor_and_major_compactions_come_at_their_intervals() -> None:
    schedule = CompactionSchedule(GcConfig(), 0)
    assert schedule.due(HOUR - 1) is None
    assert schedule.due(HOUR) is CompactionKind.MINOR
    schedule.ran(CompactionKind.MINOR, HOUR)
    assert schedule.due(2 * HOUR - 1) is None
    assert schedule.due(DAY) is CompactionKind.MAJOR
    schedule.ran(CompactionKind.MAJOR, DAY)
    assert schedule.due(DAY + HOUR - 1) is None, "a major compaction has done a minor one's work"
    assert schedule.due(DAY + HOUR) is CompactionKind.MINOR


@pytest.mark.parametrize("off", [{"minor_interval_s": 0}, {"minor_threshold": 0}, {"minor_threshold": -1.0}])
def test_a_threshold_or_an_interval_of_zero_switches_a_compaction_off(off) -> None:
    schedule = CompactionSchedule(GcConfig(**off), 0)
    assert schedule.due(DAY - 1) is None
    assert schedule.due(DAY) is CompactionKind.MAJOR


def test_an_operator_and_a_full_disk_suspend_compactions_that_are_not_asked_for() -> None:
    schedule = CompactionSchedule(GcConfig(), 0)
    schedule.suspended.major = True
    assert schedule.due(DAY) is CompactionKind.MINOR
    assert not schedule.goes_on(CompactionKind.MAJOR, asked=False, full=False)
    assert schedule.goes_on(CompactionKind.MAJOR, asked=True, full=True)
    assert schedule.due(DAY, full=True) is None
    schedule.suspended.minor = True
    assert schedule.due(DAY) is None
    assert schedule.due(1, asked=AskedCompactions(), full=True) is CompactionKind.MAJOR
    assert schedule.due(1, asked=AskedCompactions(major=False)) is CompactionKind.MINOR
    assert schedule.due(DAY, asked=AskedCompactions(major=False, minor=False)) is None


def test_a_compaction_that_is_off_runs_when_asked_for_only_if_that_is_allowed() -> None:
    off = GcConfig(minor_interval_s=0, major_interval_s=0)
    assert CompactionSchedule(off, 0).due(DAY, asked=AskedCompactions()) is None
    assert (
        CompactionSchedule(replace(off, force_allow_compaction=True), 0).due(DAY, asked=AskedCompactions())
        is CompactionKind.MAJOR
    )
    assert CompactionSchedule(replace(off, force_allow_compaction=True), 0).due(DAY) is None


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"minor_interval_s": 299}, "minorCompactionInterval"),
        ({"major_interval_s": 299}, "majorCompactionInterval"),
        ({"minor_interval_s": DAY}, "majorCompactionInterval"),
        ({"minor_threshold": 0.8}, "majorCompactionThreshold"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(wrong, named: str) -> None:
    GcConfig().check_compaction()
    with pytest.raises(ValueError, match=named):
        GcConfig(**wrong).check_compaction()


def test_the_rate_counts_entries_or_bytes() -> None:
    assert GcConfig().compaction(1 << 30) == CompactionOptions(rate=1000)
    assert GcConfig(compaction_rate=7).compaction(1).rate == 7
    assert GcConfig(compaction_rate=7, compaction_rate_entries=0).compaction(1).rate == 0
    bytes_ = GcConfig(throttle_by_bytes=True, compaction_rate_bytes=9, target_log_size=True).compaction(100)
    assert (bytes_.rate, bytes_.by_bytes, bytes_.target_size) == (9, True, 100)


METADATA = LedgerMetadata(
    ensemble_size=1, write_quorum=1, ack_quorum=1, fragments=(Fragment(first_entry_id=0, bookies=("bookie:1",)),)
)
SMALL = replace(
    CONFIG,
    entry_log_size_max=1024 + 1400,
    compaction_rate_entries=0,
    gc_wait_ms=10_000,
    minor_interval_s=60,
    major_interval_s=300,
)
PAYLOAD = b"x" * 100


@asynccontextmanager
async def with_garbage(config: BookieConfig = SMALL) -> AsyncIterator[tuple[Bookie, Client, int]]:
    """A bookie with an entry log, of which one ledger that exists needs half; yield that ledger's id too."""
    tree = MemoryTree()
    async with in_world(1) as world, opened(world, tree, config) as bookie:
        store = MemoryStore(tree)
        manager = LedgerManager(store, ids=SequenceLedgerIds(store, "/ledgers"), rng=world.rng)
        living, _ = await manager.create(METADATA)
        client = Client(bookie)
        for ledger_id in (living, living + 1):
            await client.ask(add_frames(ledger_id, 0, 4, PAYLOAD))
        await bookie.checkpoint()
        await client.ask(add_frames(living, 4, 6, PAYLOAD))
        await bookie.checkpoint()
        yield bookie, client, living


def exposed(bookie: Bookie, success: str = "") -> dict[str, float]:
    """Return the values of the bookie's only directory by name; of series with `success`, those with this value."""
    metrics = Metrics()
    register(metrics, bookie, ConnectionCounts())
    lines = metrics.exposition().decode().splitlines()
    series = [line for line in lines if not line.startswith("#") and ("success" not in line or success in line)]
    return {line.split("{")[0]: float(line.split()[-1]) for line in series}


async def test_a_minor_compaction_comes_by_itself_and_is_told() -> None:
    async with with_garbage(replace(SMALL, minor_threshold=0.6)) as (bookie, client, living):
        await trio.sleep(50)
        shown = exposed(bookie, "true")
        assert shown["bookie_ENTRY_LOG_SPACE_BYTES"] > shown["bookie_ACTIVE_ENTRY_LOG_SPACE_BYTES"] > 400
        assert (shown["bookie_entry_log_usage_buckets_le_50"], shown["bookie_entry_log_usage_buckets_le_60"]) == (0, 1)
        assert (shown["bookie_ENTRY_LOG_COMPACT_RATIO"], shown["bookie_COMPACT_RUNTIME_count"]) == (0, 0)
        assert bookie.storage.stats.compactions == {CompactionKind.MINOR: 0, CompactionKind.MAJOR: 0}
        [usage] = bookie.storage.of(0).log_usages()
        assert 0.4 < usage.share < 0.6
        await trio.sleep(25)
        assert bookie.storage.stats.compactions == {CompactionKind.MINOR: 1, CompactionKind.MAJOR: 0}
        assert bookie.storage.of(0).log_usages() == []
        assert bookie.storage.stats.compacted_bytes > 400
        await client.holds(living, range(10), PAYLOAD)
        shown = exposed(bookie, "true")
        assert shown["bookie_MINOR_COMPACTION_TOTAL"] == 1
        assert shown["bookie_ACTIVE_ENTRY_LOG_TOTAL"] == shown["bookie_ENTRY_LOG_SPACE_BYTES"] == 0
        assert (shown["bookie_ENTRY_LOG_COMPACT_RATIO"], shown["bookie_COMPACT_RUNTIME_count"]) == (1, 1)


async def test_the_parts_of_a_round_are_timed_by_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    async with with_garbage() as (bookie, client, living):
        await trio.sleep(15)
        shown = exposed(bookie, "true")
        assert (shown["bookie_GC_LEDGER_RUNTIME_count"], shown["bookie_EXTRACT_META_RUNTIME_count"]) == (1, 1)

        async def read_instance_id(store: object, root: str) -> str:
            raise MetadataUnavailableError("away")

        monkeypatch.setattr("bookie.garbage.read_instance_id", read_instance_id)
        await trio.sleep(10)
        shown = exposed(bookie, "false")
        assert (shown["bookie_GC_LEDGER_RUNTIME_count"], shown["bookie_EXTRACT_META_RUNTIME_count"]) == (1, 0)
        assert (await client.read(living, -1)).rc == 0
        assert exposed(bookie, "true")["bookie_get_last_entry_in_ledger_count"] == 1


async def test_a_compaction_that_is_asked_for_comes_at_once() -> None:
    async with with_garbage() as (bookie, client, living):
        bookie.garbage.force(AskedCompactions(major=True, minor=False))
        assert bookie.garbage.forced
        await trio.sleep(5)
        assert not bookie.garbage.forced
        assert bookie.storage.stats.compactions == {CompactionKind.MINOR: 0, CompactionKind.MAJOR: 1}
        await client.holds(living, range(10), PAYLOAD)


async def test_a_compaction_that_is_asked_for_during_a_round_comes_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, going_on = trio.Event(), trio.Event()
    async with with_garbage() as (bookie, _, _):
        collect = bookie.garbage.collect

        async def slow(metadata: MetadataStore, instance_id: str) -> Collected:
            begun.set()
            await going_on.wait()
            return await collect(metadata, instance_id)

        monkeypatch.setattr(bookie.garbage, "collect", slow)
        bookie.garbage.hurry()
        await begun.wait()
        bookie.garbage.force(AskedCompactions(major=True, minor=False))
        going_on.set()
        await trio.sleep(5)
        assert bookie.storage.stats.compactions == {CompactionKind.MINOR: 0, CompactionKind.MAJOR: 1}
        assert not bookie.garbage.forced


async def test_a_round_that_ends_with_an_unforeseen_error_leaves_no_request_behind(
    monkeypatch: pytest.MonkeyPatch, expect_error: Callable[[str], None]
) -> None:
    async with with_garbage() as (bookie, _, _):

        async def wrong(metadata: MetadataStore, instance_id: str) -> Collected:
            raise KeyError("x")

        with monkeypatch.context() as patch:
            patch.setattr(bookie.garbage, "collect", wrong)
            bookie.garbage.force(AskedCompactions(major=True, minor=False))
            await trio.sleep(1)
        expect_error("background job failed")
        assert not bookie.garbage.forced, "a request that is never served would count as running for ever"
        bookie.garbage.force(AskedCompactions(major=True, minor=False))
        await trio.sleep(30)
        assert bookie.storage.stats.compactions == {CompactionKind.MINOR: 0, CompactionKind.MAJOR: 1}


async def test_suspended_compactions_do_not_come() -> None:
    async with with_garbage() as (bookie, _, _):
        bookie.garbage.schedule.suspended.major = True
        bookie.garbage.schedule.suspended.minor = True
        await trio.sleep(900)
        assert bookie.storage.stats.compactions == {CompactionKind.MINOR: 0, CompactionKind.MAJOR: 0}
        bookie.garbage.schedule.suspended.major = False
        await trio.sleep(15)
        assert bookie.storage.stats.compactions == {CompactionKind.MINOR: 0, CompactionKind.MAJOR: 1}


@pytest.mark.parametrize("may", [False, True])
async def test_a_compaction_of_a_full_directory_needs_its_bytes(monkeypatch, may: bool) -> None:
    async with with_garbage(replace(SMALL, force_when_full=True)) as (bookie, client, living):
        monkeypatch.setattr(bookie.disks, "may_compact", lambda _: may)
        monkeypatch.setattr(bookie.disks, "full_directory", lambda _: True)
        monkeypatch.setattr(type(bookie.disks), "is_full", property(lambda self: True))
        bookie.garbage.hurry()
        await trio.sleep(20)
        assert (bookie.storage.stats.compactions[CompactionKind.MAJOR] > 0) is may
        await client.holds(living, range(10), PAYLOAD)


def test_major_compactions_rest_while_a_disk_is_almost_full() -> None:
    schedule = CompactionSchedule(GcConfig(), 0)
    assert schedule.due(1e6, almost_full=True) is CompactionKind.MINOR
    assert schedule.due(1e6, asked=AskedCompactions(), almost_full=True) is CompactionKind.MAJOR
    assert not schedule.goes_on(CompactionKind.MAJOR, asked=False, full=False, almost_full=True)
    assert schedule.goes_on(CompactionKind.MINOR, asked=False, full=False, almost_full=True)


@pytest.mark.parametrize("allowed", [False, True])
async def test_a_full_disk_starts_compactions_only_if_that_is_allowed(monkeypatch, allowed: bool) -> None:
    async with with_garbage(replace(SMALL, force_when_full=allowed)) as (bookie, client, living):
        monkeypatch.setattr(type(bookie.disks), "is_full", property(lambda self: True))
        bookie.garbage.hurry()
        await trio.sleep(20)
        assert bookie.storage.stats.deleted_ledgers == 1
        assert (bookie.storage.stats.compactions[CompactionKind.MAJOR] > 0) is allowed
        await client.holds(living, range(10), PAYLOAD)


async def test_the_location_index_is_compacted_at_its_interval() -> None:
    async with with_garbage(replace(SMALL, location_compaction_interval_s=100)) as (bookie, _, _):
        await trio.sleep(90)
        assert bookie.storage.stats.location_compactions == 0
        await trio.sleep(150)
        assert bookie.storage.stats.location_compactions == 1


async def test_a_stop_breaks_a_compaction_off_and_the_next_life_goes_on() -> None:
    async with with_garbage(replace(SMALL, compaction_rate_entries=1)) as (bookie, _, _):
        bookie.garbage.force(AskedCompactions())
        await trio.sleep(1)
        begun = trio.current_time()
    assert trio.current_time() - begun < 5

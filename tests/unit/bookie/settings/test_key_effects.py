"""bookie/config.py: what a bookie does otherwise if one of its keys has another value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import trio

from bookie.bookie import Bookie
from quire.servers.bookie.config import BOOKIE
from quire.service.measuring.summaries import Times
from quire.service.metrics import Metrics
from quire.wire.bookkeeper import v2
from quire.world.doors import World
from simulation.machines.disk import SimDisk, SimFile
from simulation.machines.key_value import SimKeyValueMaker
from tests.unit.bookie.build import CONFIG, JOURNAL, LEDGERS, Client, add_frames, with_bookie
from tests.unit.bookie.settings.on_a_port import send, served

pytestmark = pytest.mark.seeded

SMALL = bytes(100)
PAYLOAD = bytes(4 << 10)


async def filled(bookie: Bookie, count: int, payload: bytes) -> Client:
    """Add entries to ledger 7, and let them go to an entry log."""
    client = Client(bookie)
    await client.ask(add_frames(7, 0, count, payload))
    await bookie.checkpoint()
    return client


@pytest.mark.parametrize(("wait_ms", "waits"), [(0, False), (500, True)])
async def test_journal_max_group_wait_lets_an_entry_wait_for_others(wait_ms: int, waits: bool) -> None:
    async with with_bookie(config=replace(CONFIG, journal_group_wait_ms=wait_ms)) as bookie:
        began = trio.current_time()
        await Client(bookie).add(7, 0)
        assert (trio.current_time() - began >= 0.5) is waits


@pytest.mark.parametrize(
    ("keys", "waits"),
    [
        ({}, True),
        ({"journal_group_entries": 3}, False),
        ({"journal_group_entries": 4}, True),
        ({"journal_group_bytes": 100}, False),
        ({"journal_flush_when_empty": True}, False),
    ],
)
async def test_a_group_of_the_journal_waits_until_it_is_large_enough(keys: dict[str, Any], waits: bool) -> None:
    async with with_bookie(config=replace(CONFIG, journal_group_wait_ms=500, **keys)) as bookie:
        began = trio.current_time()
        await Client(bookie).add(7, 0, 3)
        assert (trio.current_time() - began >= 0.5) is waits


@pytest.mark.parametrize("reuses", [True, False])
async def test_journal_files_are_written_again_if_that_is_wanted(reuses: bool) -> None:
    config = replace(CONFIG, journal_size_max_mb=1, journal_prealloc_mb=0, journal_backups_max=0, journal_reuse=reuses)
    async with with_bookie(config=config) as bookie:
        client = Client(bookie)
        seen: set[str] = set()
        for entry_id in range(12):
            await client.ask(add_frames(7, entry_id, 1, bytes(400_000)))
            await bookie.checkpoint()
            seen.update(bookie.world.disk.names(JOURNAL))
        await client.holds(7, range(12), bytes(400_000))
    assert any(name.endswith(".spare") for name in seen) is reuses


@pytest.mark.parametrize("removes", [True, False])
async def test_journal_remove_from_page_cache_writes_past_it(removes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    usual = SimDisk.open

    def noted(self: SimDisk, path: str, **options: Any) -> Any:
        if path.endswith(".txn") and options.get("create"):
            seen.append(options.get("direct", False))
        return usual(self, path, **options)

    monkeypatch.setattr(SimDisk, "open", noted)
    async with with_bookie(config=replace(CONFIG, journal_remove_from_page_cache=removes)):
        assert seen == [removes]


async def test_the_block_cache_of_the_location_index_has_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, int] = {}
    usual = SimKeyValueMaker.open

    def noted(self: SimKeyValueMaker, path: str, **options: Any) -> Any:
        seen[path.rpartition("/")[2]] = options["cache_bytes"]
        return usual(self, path, **options)

    monkeypatch.setattr(SimKeyValueMaker, "open", noted)
    async with with_bookie(config=replace(CONFIG, rocksdb_cache_bytes=3 << 20)):
        assert seen == {"locations": 3 << 20, "ledgers": 1 << 20}


@pytest.mark.parametrize(("size_mb", "kept_mb"), [(1, 1), (8, 4)])
async def test_the_read_cache_keeps_what_fits_into_its_size(size_mb: int, kept_mb: int) -> None:
    async with with_bookie(config=replace(CONFIG, read_cache_mb=size_mb)) as bookie:
        client = await filled(bookie, 1024, PAYLOAD)
        for entry_id in range(1024):
            await client.ask(v2.read_request(7, entry_id))
        assert kept_mb << 19 < bookie.storage.read_cache_bytes <= size_mb << 20


@pytest.mark.parametrize(("entries", "least", "most"), [(10, 90, 110), (1000, 1, 4)])
async def test_so_many_entries_are_read_ahead_at_a_time(entries: int, least: int, most: int) -> None:
    async with with_bookie(config=replace(CONFIG, read_ahead_entries=entries)) as bookie:
        client = await filled(bookie, 1000, SMALL)
        for entry_id in range(1000):
            await client.ask(v2.read_request(7, entry_id))
        assert least <= bookie.storage.stats.disk_reads <= most


@pytest.mark.parametrize(("size", "several"), [(16 << 10, True), (1 << 30, False)])
async def test_an_entry_log_ends_at_its_size(size: int, several: bool) -> None:
    async with with_bookie(config=replace(CONFIG, entry_log_size_max=size)) as bookie:
        client = Client(bookie)
        for ledger_id in range(8):
            await client.ask(add_frames(ledger_id, 0, 4, PAYLOAD))
        await bookie.checkpoint()
        logs = [name for name in bookie.world.disk.names(LEDGERS) if name.endswith(".log")]
        assert (len(logs) > 4) is several


@pytest.mark.parametrize(("size", "count"), [(16 << 10, 3), (5 << 20, 100)])
async def test_an_answer_to_a_batch_read_has_its_largest_size(size: int, count: int) -> None:
    async with with_bookie(config=replace(CONFIG, batch_read_size_max=size)) as bookie:
        client = await filled(bookie, 100, PAYLOAD)
        (answer,) = await client.ask(v2.batch_read_request(7, 0, 1, count_max=100, size_max=5 << 20))
        assert isinstance(answer, v2.BatchResponse)
        assert len(answer.entries) == count


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("urgent", [False, True])
async def test_reads_have_so_many_workers(workers: int, urgent: bool) -> None:
    key = "urgent_workers" if urgent else "read_workers"
    async with with_bookie(config=replace(CONFIG, **{key: workers})) as bookie:  # type: ignore[arg-type]
        client = await filled(bookie, 400, SMALL)
        flags = v2.HIGH_PRIORITY if urgent else 0
        client.send(b"".join(v2.read_request(7, entry_id, flags) for entry_id in range(400)))
        await client.take(400)
        readers = bookie._urgent_readers if urgent else bookie._readers
        assert len(readers.of(7)._lanes) == workers


@pytest.mark.parametrize("bytes_max", [0, 4 << 10])
async def test_reads_give_way_to_adds(bytes_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    advised: list[bool] = []

    def advise(self: SimFile, *, scattered: bool) -> None:
        advised.append(scattered)

    monkeypatch.setattr(SimFile, "advise", advise)
    config = replace(CONFIG, read_bytes_beside_adds=bytes_max, read_ahead_entries=1)
    async with with_bookie(config=config) as bookie:
        client = await filled(bookie, 900, SMALL)
        readers = bookie._readers.of(7)

        async def loads(first: int) -> int:
            """Return the number of workers that read 64 entries, which seem to come from the disk."""
            readers._sectors_per_read = 64
            client.send(b"".join(v2.read_request(7, entry_id) for entry_id in range(first, first + 64)))
            busy = sum([load > 0 for load in readers._loads])
            await client.take(64)
            return busy

        await trio.sleep(1)
        assert (await loads(0), advised) == (4, [])
        await client.add(7, 900)
        assert await loads(400) == (1 if bytes_max else 4)
        assert advised == ([True] if bytes_max else [])
        await trio.sleep(1)
        assert await loads(800) == 4
        assert advised == ([True, False] if bytes_max else [])


@pytest.mark.parametrize("bytes_max", [0, 100_000])
async def test_less_is_read_ahead_while_entries_are_added(bytes_max: int) -> None:
    config = replace(CONFIG, read_bytes_beside_adds=bytes_max, read_ahead_entries=1000)
    async with with_bookie(config=config) as bookie:
        client = await filled(bookie, 900, SMALL * 10)
        (storage,) = bookie.storage.directories

        def read_in_order(first: int) -> int:
            """Read as if the last read had ended there; return the bytes that came from the disk."""
            storage.reader._region_ends[7] = first
            before = storage.stats.disk_read_bytes
            storage.reader.read_run(7, first, 20, 1 << 20)
            return storage.stats.disk_read_bytes - before

        await trio.sleep(1)
        assert read_in_order(0) > 200_000, "while nothing is added"
        await client.add(7, 900)
        assert (read_in_order(400) < 100_000) is (bytes_max > 0)


@pytest.mark.parametrize(("size", "is_served"), [(8 << 10, False), (1 << 20, True)])
async def test_a_request_above_the_largest_frame_ends_its_connection(size: int, is_served: bool, world: World) -> None:
    async with served(world, frame_max=size) as (bookie, stream):
        await send(stream, add_frames(7, 0, 1, bytes(64 << 10)))
        buffer = memoryview(bytearray(100))
        try:
            received = await stream.receive_into(buffer)
        except OSError:
            received = 0
        assert (received > 0, bookie.stats.adds) == (is_served, int(is_served))


@pytest.mark.parametrize("window_s", [5.0, 60.0])
async def test_quantiles_are_those_of_the_window(window_s: float) -> None:
    metrics, times = Metrics(window_s=window_s), Times()
    metrics.summary("waits", "Waits.", (), lambda: [((), times)])
    await trio.sleep(1)
    metrics.exposition()
    times.observe(100.0)
    await trio.sleep(window_s)
    metrics.exposition()
    await trio.sleep(10)  # above the short window
    assert ('waits{quantile="0.5"} NaN' in metrics.exposition().decode()) is (window_s < 10)


@pytest.mark.parametrize(
    ("keys", "name", "found"),
    [
        ({"zkTimeout": 4000}, "session_timeout_s", 4.0),
        ({"zkRetryBackoffStartMs": 50}, "retry_first_s", 0.05),
        ({"zkRetryBackoffMaxMs": 3000}, "retry_max_s", 3.0),
        ({"zkServers": "a:2182,b"}, "servers", (("a", 2182), ("b", 2181))),
        ({"zkEnableSecurity": True, "quireZooKeeperAuth": "digest:u:p"}, "secure", True),
    ],
)
def test_the_session_of_the_metadata_has_what_its_key_says(keys: dict[str, Any], name: str, found: object) -> None:
    assert getattr(BOOKIE.build(keys).metadata.zookeeper_of_server, name) == found
    assert getattr(BOOKIE.build().metadata.zookeeper_of_server, name) != found


def test_the_root_of_the_ledgers_is_that_of_its_key() -> None:
    assert BOOKIE.build({"zkServers": "a", "zkLedgersRootPath": "/x"}).metadata.connect_string.ledgers_root == "/x"

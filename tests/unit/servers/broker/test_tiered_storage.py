"""quire/servers/broker/tiered_storage.py: files of offloaded ledgers give the ledger's bytes, or an error."""

from __future__ import annotations

import os
import random
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from managed_ledger.errors import ObjectError
from managed_ledger.tiers import ObjectPlace
from quire.client.packing import pack
from quire.offload.folder import discard, ledger_path, locked, topic_folder
from quire.offload.parquet import LedgerFile, OffloadedLedger, write_ledger
from quire.servers.broker import tiered_metrics, tiered_storage
from quire.servers.broker.config import BROKER
from quire.servers.broker.tiered_metrics import ObjectCounts, register_objects
from quire.servers.broker.tiered_storage import TieredStorage, counts_of, open_tiered_storage
from quire.service.errors import ConfigError
from quire.service.metrics import Metrics
from tests.support.waiting import until

pytestmark = pytest.mark.real_clock  # threads

NAME = "public/default/persistent/a+b"
TOPIC = "persistent://public/default/a b"
UIDS = [f"00000000-0000-0000-0000-00000000000{number}" for number in range(10)]


def entries_of(ledger_id: int) -> list[bytes]:
    rng = random.Random(ledger_id)
    return [
        pack([rng.randbytes(200)], batch=bool(number % 2))[0].encode("p", number, 1_700_000_000_000)
        for number in range(30)
    ]


def make(folder: Path, ledger_id: int, uid: str = "") -> ObjectPlace:
    """Write the file of a ledger with thirty entries, in groups of about ten."""
    entries, uid = entries_of(ledger_id), uid or UIDS[ledger_id]
    path = ledger_path(topic_folder(folder, TOPIC), ledger_id, uid)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w+b") as target:
        write_ledger(target, LedgerFile(topic=TOPIC, ledger_id=ledger_id, entries=30, uid=uid), [entries])
    return ObjectPlace(NAME, ledger_id, uid, 30, sum(map(len, entries)))


def path_of(folder: Path, place: ObjectPlace) -> Path:
    return ledger_path(topic_folder(folder, TOPIC), place.ledger_id, place.uid)


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TieredStorage:
    monkeypatch.setattr("quire.offload.parquet.GROUP_BYTES", 2500)
    return TieredStorage(tmp_path, are_first=True, deletion_lag_ms=0)


async def read_all(storage: TieredStorage, place: ObjectPlace) -> list[bytes]:
    found: list[bytes] = []
    reader = await storage.open(place)
    while len(found) < place.entries:
        found += [bytes(entry) for entry in await reader.read(len(found), place.entries - 1, size_max=1 << 20)]
    return found


async def test_entries_come_as_they_were(storage: TieredStorage, tmp_path: Path) -> None:
    places = [make(tmp_path, ledger_id) for ledger_id in range(5)]
    for place in places:
        await storage.verify(place)
        assert await read_all(storage, place) == entries_of(place.ledger_id)
    reader = await storage.open(places[0])
    assert [bytes(entry) for entry in await reader.read(7, 8, size_max=1)] == entries_of(0)[7:8]


async def test_many_readers_at_once_get_their_own_entries_from_few_files(
    storage: TieredStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiered_storage, "FILES_MAX", 2)
    places = [make(tmp_path, ledger_id) for ledger_id in range(5)]
    rng = random.Random(1)

    async def read(place: ObjectPlace) -> None:
        reader = await storage.open(place)
        entries = entries_of(place.ledger_id)
        for _ in range(10):
            first = rng.randrange(30)
            found = await reader.read(first, 29, size_max=1000)
            assert [bytes(entry) for entry in found] == entries[first : first + len(found)]
            assert len(storage._files) <= 2

    before = len(os.listdir("/proc/self/fd"))
    async with trio.open_nursery() as nursery:
        for place in places * 2:
            nursery.start_soon(read, place)
    # A thread that has answered may keep its file for a moment.
    await until(lambda: len(os.listdir("/proc/self/fd")) <= before + 2, "files that are not kept are closed")


@pytest.mark.parametrize("harm", ["missing", "short", "empty", "flipped", "swapped", "older", "folder"])
async def test_a_harmed_file_is_an_error(storage: TieredStorage, tmp_path: Path, harm: str) -> None:
    place, other = make(tmp_path, 1), make(tmp_path, 2)
    path, data = path_of(tmp_path, place), path_of(tmp_path, place).read_bytes()
    if harm == "missing":
        path.unlink()
    elif harm == "short":
        path.write_bytes(data[:-100])
    elif harm == "empty":
        path.write_bytes(b"")
    elif harm == "flipped":
        path.write_bytes(data[:2000] + bytes([data[2000] ^ 1]) + data[2001:])
    elif harm == "swapped":
        path.write_bytes(path_of(tmp_path, other).read_bytes())
    elif harm == "older":
        make(tmp_path, 1, UIDS[9])
        path_of(tmp_path, place._replace(uid=UIDS[9])).rename(path)
    else:
        path.unlink()
        path.mkdir()
    with pytest.raises(ObjectError, match=r"ledger-1-.*parquet"):
        await read_all(storage, place)
    with pytest.raises(ObjectError, match=r"ledger-1-.*parquet"):
        await storage.verify(place)
    path.rmdir() if harm == "folder" else path.unlink(missing_ok=True)
    path.write_bytes(data)
    assert await read_all(storage, place) == entries_of(1), "a file that was restored is read"


async def test_what_is_kept_of_a_file_proves_nothing_about_it(storage: TieredStorage, tmp_path: Path) -> None:
    place = make(tmp_path, 1)
    assert await read_all(storage, place) == entries_of(1)
    path_of(tmp_path, place).unlink()
    with pytest.raises(ObjectError):
        await storage.verify(place)


async def test_a_file_with_other_entries_than_the_ledger_is_not_verified(
    storage: TieredStorage, tmp_path: Path
) -> None:
    place = make(tmp_path, 1)
    with pytest.raises(ObjectError, match="and ledger 1 has"):
        await storage.verify(place._replace(size=place.size + 1))
    with pytest.raises(ObjectError, match="of another ledger"):
        await storage.verify(place._replace(entries=29))


async def test_a_log_that_is_not_of_a_topic_has_no_file(storage: TieredStorage) -> None:
    place = ObjectPlace("other", 1, UIDS[1], 30, 1)
    with pytest.raises(ObjectError, match="is not the path of a topic"):
        await storage.open(place)
    with pytest.raises(ObjectError, match="is not the path of a topic"):
        await storage.verify(place)


async def test_a_folder_that_does_not_answer_is_an_error_and_other_files_are_read(
    storage: TieredStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, other = make(tmp_path, 1), make(tmp_path, 2)
    answer = threading.Event()
    read = OffloadedLedger.read

    def hang(self: OffloadedLedger, *given: Any) -> list[bytes]:
        if self.file.ledger_id == 1:
            answer.wait(60)
        return read(self, *given)

    monkeypatch.setattr(OffloadedLedger, "read", hang)
    await storage.open(place)
    monkeypatch.setattr(tiered_storage, "READ_S", 0.05)
    try:
        for _ in range(2):
            with pytest.raises(ObjectError, match="did not answer in"):
                await read_all(storage, place)
        monkeypatch.setattr(tiered_storage, "READ_S", 30)
        assert await read_all(storage, other) == entries_of(2)
    finally:
        answer.set()
    assert await read_all(storage, place) == entries_of(1)


async def test_a_file_is_deleted_and_not_kept_open(storage: TieredStorage, tmp_path: Path) -> None:
    place, other = make(tmp_path, 1), make(tmp_path, 2)
    assert await read_all(storage, place) == entries_of(1)
    assert await read_all(storage, other) == entries_of(2)
    await storage.delete([place])
    assert not path_of(tmp_path, place).exists()
    assert list(storage._files) == [other]
    await storage.delete([place, place._replace(uid=UIDS[9])])
    with pytest.raises(ObjectError, match="ledger-1-"):
        await read_all(storage, place)
    assert await read_all(storage, other) == entries_of(2)


async def test_a_deletion_waits_for_an_offloading_and_fails_if_that_does_not_end(
    storage: TieredStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make(tmp_path, 1)
    monkeypatch.setattr(tiered_storage, "IN_USE_RETRY_S", 0.01)
    tries = 0

    def counted(*given: Any) -> bool:
        nonlocal tries
        tries += 1
        return discard(*given)

    monkeypatch.setattr(tiered_storage, "discard", counted)
    with ExitStack() as lock:
        lock.enter_context(locked(topic_folder(tmp_path, TOPIC)))
        monkeypatch.setattr(tiered_storage, "IN_USE_S", 0.05)
        with pytest.raises(ObjectError, match="while it is being offloaded"):
            await storage.delete([place])
        assert await read_all(storage, place) == entries_of(1)
        monkeypatch.setattr(tiered_storage, "IN_USE_S", 60)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(storage.delete, [place])
            await until(lambda: tries > 2)
            assert path_of(tmp_path, place).exists()
            lock.close()
    assert not path_of(tmp_path, place).exists()


async def test_a_deletion_that_cannot_be_made_says_why(storage: TieredStorage, tmp_path: Path) -> None:
    place = make(tmp_path, 1)
    with pytest.raises(ObjectError, match="is not the path of a topic"):
        await storage.delete([place._replace(log_name="other")])
    os.rename(tmp_path, tmp_path.with_name(f"{tmp_path.name}-elsewhere"))
    with pytest.raises(ObjectError, match="No such file"):
        await storage.delete([place])
    os.mkdir(tmp_path)
    with pytest.raises(ObjectError, match="is empty: mount it"):
        await storage.delete([place])


# Metrics


def samples(storage: TieredStorage) -> dict[str, float]:
    """Return what a scrape has, by name, namespace and status; of summaries the number."""
    metrics = Metrics()
    register_objects(metrics, counts_of(storage), "c")
    found = {}
    for family in text_string_to_metric_families(metrics.exposition().decode()):
        for each in family.samples:
            if each.name.startswith("brk_") and not each.name.endswith(("_sum", "_latency")):
                assert each.labels.pop("cluster") == "c"
                name = each.name.removeprefix("brk_ledgeroffloader_")
                found[f"{name} {' '.join(each.labels.values())}"] = each.value
    return found


async def test_reads_deletions_and_their_failures_are_counted(storage: TieredStorage, tmp_path: Path) -> None:
    place, other = make(tmp_path, 1), make(tmp_path, 2)
    assert samples(storage) == {}
    await read_all(storage, place)
    found = samples(storage)
    assert found["read_offload_error_total public/default"] == 0
    assert found["read_offload_index_latency_count public/default"] == 1
    assert found["read_offload_data_latency_count public/default"] >= 3
    counts = storage.counts.of(NAME)
    assert counts.bytes_read == place.size
    await storage.verify(place)
    assert counts.bytes_read == 2 * place.size

    path_of(tmp_path, place).unlink()
    storage._files.clear()
    for number, read in enumerate((storage.open, storage.verify), 1):
        with pytest.raises(ObjectError):
            await read(place)
        assert samples(storage)["read_offload_error_total public/default"] == number
    with pytest.raises(ObjectError):
        await storage.verify(other._replace(size=1))
    assert counts.read_errors == 3
    reader = await storage.open(other)
    path_of(tmp_path, other).write_bytes(b"")
    storage._files.clear()
    with pytest.raises(ObjectError):
        await reader.read(0, 1, size_max=1)
    with trio.CancelScope() as scope:
        scope.cancel()
        await reader.read(0, 1, size_max=1)
    assert counts.read_errors == 4, "a read that its user gave up is no failure"

    await storage.delete([place, other])
    os.rename(tmp_path, tmp_path.with_name(f"{tmp_path.name}-elsewhere"))
    with pytest.raises(ObjectError):
        await storage.delete([place])
    found = samples(storage)
    assert found["delete_offload_ops_total public/default succeed"] == 2
    assert found["delete_offload_ops_total public/default failed"] == 1


async def test_namespaces_above_the_bound_share_their_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiered_metrics, "NAMESPACES_MAX", 2)
    counts = ObjectCounts()
    for number in range(5):
        counts.of(f"public/n{number}/persistent/a").read_errors += 1
    counts.of("public/n0/persistent/b").read_errors += 1
    assert {name: found.read_errors for name, found in counts.namespaces.items()} == {
        "public/n0": 2,
        "public/n1": 1,
        "quire_rest": 3,
    }


async def test_the_rate_is_that_of_the_last_full_minute() -> None:
    counts = ObjectCounts().of(NAME)
    now = counts._began
    assert counts.rate(now) == 0
    counts.bytes_read = 640
    assert counts.rate(now + 10) == pytest.approx(64), "of the first minute as far as it goes"
    assert counts.rate(now + 64) == pytest.approx(10)
    counts.bytes_read += 6400
    assert counts.rate(now + 100) == pytest.approx(10)
    assert counts.rate(now + 128) == pytest.approx(100)
    assert counts.rate(now + 192) == 0


def test_a_broker_without_such_a_storage_has_no_series() -> None:
    metrics = Metrics()
    register_objects(metrics, counts_of(None), "c")
    assert [line for line in metrics.exposition().decode().splitlines() if not line.startswith("#")] == []


# Keys


async def test_the_storage_is_what_the_keys_say(tmp_path: Path) -> None:
    place = make(tmp_path, 1)
    given = {
        "managedLedgerOffloadDriver": "quire-parquet",
        "fileSystemURI": tmp_path.as_uri(),
        "managedLedgerDataReadPriority": "bookkeeper-first",
        "managedLedgerOffloadDeletionLagMs": 14400000,
    }
    storage = await open_tiered_storage(BROKER.build(given).tiered)
    assert storage is not None
    assert (storage.driver, storage.are_first, storage.deletion_lag_ms) == ("quire-parquet", False, 14400000)
    assert storage.are_deleted
    assert await read_all(storage, place) == entries_of(1)
    del given["managedLedgerDataReadPriority"], given["managedLedgerOffloadDeletionLagMs"]
    storage = await open_tiered_storage(BROKER.build(given).tiered)
    assert storage is not None
    assert (storage.are_first, storage.deletion_lag_ms) == (True, -1)
    storage = await open_tiered_storage(BROKER.build(given | {"quireDeleteTrimmedFiles": False}).tiered)
    assert storage is not None
    assert not storage.are_deleted
    assert await open_tiered_storage(BROKER.build().tiered) is None


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"managedLedgerOffloadDriver": "aws-s3"}, "managedLedgerOffloadDriver"),
        ({"managedLedgerOffloadDriver": "filesystem"}, "managedLedgerOffloadDriver"),
        ({"managedLedgerOffloadDriver": "quire-parquet"}, "fileSystemURI"),
        ({"managedLedgerOffloadDriver": "quire-parquet", "fileSystemURI": "hdfs://host:9000/a"}, "fileSystemURI"),
        ({"managedLedgerOffloadDriver": "quire-parquet", "fileSystemURI": "/mnt/a"}, "fileSystemURI"),
        ({"managedLedgerDataReadPriority": "fastest"}, "managedLedgerDataReadPriority"),
        ({"managedLedgerOffloadDeletionLagMs": -2}, "managedLedgerOffloadDeletionLagMs"),
    ],
)
def test_a_storage_that_there_is_not_is_refused(keys: dict[str, object], problem: str, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in keys.items()))
    with pytest.raises(ConfigError, match=problem):
        BROKER.load(conf)


async def test_a_broker_without_pyarrow_says_so_at_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiered_storage, "find_spec", lambda name: None)
    keys = {"managedLedgerOffloadDriver": "quire-parquet", "fileSystemURI": tmp_path.as_uri()}
    with pytest.raises(ConfigError, match="needs pyarrow"):
        await open_tiered_storage(BROKER.build(keys).tiered)
    assert await open_tiered_storage(BROKER.build().tiered) is None

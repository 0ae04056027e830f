"""quire.cli.backup, broker.admin.backup: a topic or metadata in a file, restored elsewhere, with kills at each step."""

from __future__ import annotations

import base64
import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import new_class
from typing import Any

import pulsar
import pytest
import trio

from quire.cli.admin import running
from quire.cli.admin.connection import AdminConnection
from quire.cli.admin.verbs import Request
from quire.cli.backup.file import ENTRY, HEADER, PART, SUBSCRIPTION, BackupReader
from quire.cli.backup.part_restore import EntryNumbers
from quire.cli.backup.topic_backup import position
from quire.metadata.ledger_ids import SequenceLedgerIds
from tests.support import web
from tests.support.admin_commands import admin
from tests.support.broker_process import BrokerCluster
from tests.support.process import start_all
from tests.support.server import StandaloneProcess, standalone
from tests.support.waiting import wait_until
from tests.support.zookeeper import ZooKeeperProcess, opened

TOPIC = "/admin/v2/persistent/public/default"


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    folder = tmp_path_factory.mktemp("first")
    conf = {
        "acknowledgmentAtBatchIndexLevelEnabled": "true",
        "brokerEntryMetadataInterceptors": "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor",
        "managedLedgerMinLedgerRolloverTimeMinutes": 0,
        "managedLedgerMaxEntriesPerLedger": 7,
    }
    with standalone(folder, conf) as server:
        fill(server)
        yield server


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    """Another cluster, whose ledgers have other ids."""
    conf = {
        "acknowledgmentAtBatchIndexLevelEnabled": "true",
        "managedLedgerMinLedgerRolloverTimeMinutes": 0,
        "managedLedgerMaxEntriesPerLedger": 3,
    }
    with standalone(tmp_path_factory.mktemp("second"), conf) as server:
        run(server, "topics create other")
        run(server, "topics create-subscription other -s held")
        yield server


def run(server: StandaloneProcess, words: str) -> str:
    code, out, err = admin(f"{words} --url {server.web}")
    assert code == 0, (words, err)
    return out


def fill(server: StandaloneProcess) -> None:
    """Make the topics a (single messages and batches, four subscriptions) and p (two partitions)."""
    run(server, "topics create-partitioned-topic p -p 2")
    client = pulsar.Client(server.url)
    schema = pulsar.schema.JsonSchema(Person)
    for name in ("all", "none", "holes", "parts"):
        client.subscribe(
            "a", name, pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest
        ).close()
    for batched in (False, True):
        producer = client.create_producer(
            "a",
            schema=schema,
            batching_enabled=batched,
            batching_max_publish_delay_ms=500,
            batching_max_messages=5,
            compression_type=pulsar.CompressionType.LZ4,
            properties={"made": "here"},
        )
        for number in range(20):
            producer.send_async(
                Person(name=f"n{number}" * 50), None, partition_key=f"k{number}", properties={"n": str(number)}
            )
        producer.flush()
        producer.close()
    run(server, "topics clear-backlog a -s all --yes")
    holes = client.subscribe("a", "holes", pulsar.ConsumerType.Shared)
    parts = client.subscribe("a", "parts", pulsar.ConsumerType.Shared, batch_index_ack_enabled=True)
    for consumer, chosen in ((holes, {1, 2, 3, 5, 9, 13}), (parts, {0, 1, 2, 21, 23, 27})):
        for number in range(40):
            message = consumer.receive(10_000)
            if number in chosen:
                consumer.acknowledge(message)
    for index, producer in enumerate([client.create_producer("p")] * 1):
        for number in range(10):
            producer.send(f"p{number}".encode(), partition_key=f"{index}{number}")
    client.subscribe("p", "s", initial_position=pulsar.InitialPosition.Earliest).close()
    client.close()
    run(server, "topics update-properties a -p owner=me")
    run(server, "topics update-subscription-properties a -s none -p why=test")
    run(server, "topic-policies set-retention a --time 3h --size 1G")
    run(server, "topic-policies set-max-consumers a -c 7")
    run(server, "topic-policies set-backlog-quota a --limit 10M --policy producer_request_hold")
    run(server, "topic-policies set-schema-compatibility-strategy a -s FULL")
    wait_until(lambda: json.loads(web.get(f"{server.web}{TOPIC}/a/maxConsumers").text or "0") == 7)


Person: Any = new_class(
    "Person", (pulsar.schema.Record,), {}, lambda fields: fields.update(name=pulsar.schema.String())
)


def contents(path: Path) -> list[Any]:
    """Return what a file has, with entries by number in place of their positions."""
    parts: list[dict[str, Any]] = []
    about: dict[str, Any] = {}
    with BackupReader(path) as file:
        file.verify()
        for record in file.records():
            if record.kind == HEADER:
                about = {key: record.json[key] for key in ("policies", "properties", "partitions")}
                about["schemas"] = [{**each, "timestamp": 0} for each in record.json["schemas"]]
            elif record.kind == PART:
                found = record.json
                index = found["properties"].pop("index", None)
                part = {key: found[key] for key in ("properties", "terminated", "subscriptions")}
                parts.append({**part, "subscriptions": sorted(part["subscriptions"]), "entries": [], "states": []})
                numbers = EntryNumbers()
                parts[-1]["numbers"] = numbers
                del index
            elif record.kind == SUBSCRIPTION:
                parts[-1]["states"].append(record.json)
            elif record.kind == ENTRY:
                ledger_id, entry_id, entry = record.entry
                numbers.add(ledger_id, entry_id)
                parts[-1]["entries"].append(entry)
    for part in parts:
        through = part.pop("numbers").through
        part["states"] = sorted(
            (
                each["name"],
                through(position(each["markDelete"])),
                merged([(through((low[0], low[1])), through((low[0], low[2]))) for low in each["ranges"]]),
                [(through((ledger, entry)), words) for ledger, entry, words in each["batches"]],
                each["properties"],
                each["numbers"],
            )
            for each in part["states"]
        )
    return [about, parts]


def merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges with those in one that follow each other: a range ends with its ledger."""
    found: list[tuple[int, int]] = []
    for first, last in ranges:
        if found and found[-1][1] + 1 == first:
            first = found.pop()[0]
        found.append((first, last))
    return found


@pytest.fixture(scope="module")
def saved(first: StandaloneProcess, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "a.backup"
    run(first, f"backup topic a {path}")
    return path


def test_a_topic_restored_on_another_cluster_is_the_same_byte_for_byte(
    saved: Path, first: StandaloneProcess, second: StandaloneProcess, tmp_path: Path
) -> None:
    about, [part] = contents(saved)
    assert len(part["entries"]) >= 24, "single messages and batches"
    assert {each[0]: each[1] for each in part["states"]} == {
        "all": len(part["entries"]),
        "none": 0,
        "holes": 0,
        "parts": 3,
    }
    by_name = {each[0]: each for each in part["states"]}
    assert by_name["holes"][2] == [(2, 4), (6, 6), (10, 10), (14, 14)], "ranges as numbers of their ends, from 1"
    assert by_name["parts"][3], "batches acknowledged in part"
    assert by_name["none"][4] == {"why": "test"}
    assert set(about["policies"]) == {"retention", "maxConsumers", "backlogQuotaMap", "schemaCompatibilityStrategy"}
    assert len(about["schemas"]) == 1
    assert part["properties"]["owner"] == "me"
    run(second, f"restore topic {saved}")
    run(second, f"backup topic a {tmp_path / 'again'}")
    [after] = contents(tmp_path / "again")[1]
    assert (len(after["entries"]), after["states"]) == (len(part["entries"]), part["states"])
    assert contents(tmp_path / "again") == contents(saved)
    client = pulsar.Client(second.url)
    consumer = client.subscribe("a", "parts", pulsar.ConsumerType.Shared, schema=pulsar.schema.JsonSchema(Person))
    got = sorted(int(consumer.receive(10_000).properties()["n"]) for _ in range(34))
    assert got == sorted([*range(3, 20), *(number for number in range(20) if number not in (1, 3, 7))])
    client.close()


def test_a_partitioned_topic_is_restored_under_another_name(
    first: StandaloneProcess, second: StandaloneProcess, tmp_path: Path
) -> None:
    run(first, f"backup topic p {tmp_path / 'p'}")
    run(second, f"restore topic {tmp_path / 'p'} --topic q")
    run(second, f"backup topic q {tmp_path / 'q'}")
    before, after = contents(tmp_path / "p"), contents(tmp_path / "q")
    assert after == before
    assert sum(len(part["entries"]) for part in before[1]) == 10
    assert json.loads(run(second, "topics get-partitioned-topic-metadata q --json"))["partitions"] == 2
    code, _, err = admin(f"restore topic {tmp_path / 'p'} --topic q --url {second.web}")
    assert (code, "q exists" in err) == (1, True), err


class KilledError(BaseException):
    """The process ends here."""


class Mortal(AdminConnection):
    """Connection of a process that is killed at a request: before it is made, or before its answer arrives."""

    left = 0
    after = False

    def send(self, request: Request) -> Any:
        Mortal.left -= 1
        if Mortal.left == 0 and not Mortal.after:
            raise KilledError
        try:
            return super().send(request)
        finally:
            if Mortal.left == 0:
                raise KilledError


@pytest.mark.parametrize("source", ["a", "p"])
def test_a_restore_that_is_killed_at_any_request_leaves_no_topic_that_looks_whole_and_goes_on(
    source: str,
    saved: Path,
    first: StandaloneProcess,
    second: StandaloneProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = saved
    if source == "p":
        path = tmp_path / "p"
        run(first, f"backup topic p {path}")
    monkeypatch.setattr(running, "open_connection", Mortal)
    monkeypatch.setattr("quire.cli.backup.part_restore.BODY_BYTES", 1000)
    wanted = contents(path)
    client = pulsar.Client(second.url, operation_timeout_seconds=1)
    killed = 0
    for step in range(1, 200, 2):  # half of them, since most requests are the same
        name = f"killed-{source}-{step}"
        Mortal.left, Mortal.after = step, step % 4 == 1
        try:
            code, _, err = admin(f"restore topic {path} --topic {name} --url {second.web}")
            assert code == 0, err
            Mortal.left = 0
            break
        except KilledError:
            killed += 1
        Mortal.left = 0
        if not whole(second, name, wanted):
            assert is_opened(second, name, wanted) or not has_clients(client, second, name)
            run(second, f"restore topic {path} --topic {name}")
        run(second, f"backup topic {name} {tmp_path / name}")
        assert contents(tmp_path / name) == wanted, step
    client.close()
    assert killed >= 5


def has_clients(client: pulsar.Client, server: StandaloneProcess, name: str) -> bool:
    """Return whether a topic takes a producer. One that does not exist is not made, and so not asked."""
    states = [web.get(f"{server.web}{TOPIC}/{each}/quireBackup") for each in (name, f"{name}-partition-0")]
    if all(each.status_code != 200 for each in states):
        return False
    try:
        client.create_producer(name)
    except pulsar.PulsarException:
        return False
    return True


def is_opened(server: StandaloneProcess, name: str, wanted: list[Any]) -> bool:
    """Return whether a topic, or each of its partitions, has clients: these are whole."""
    parts = [name] if not wanted[0]["partitions"] else [f"{name}-partition-0", f"{name}-partition-1"]
    states = [web.get(f"{server.web}{TOPIC}/{each}/quireBackup") for each in parts]
    return not any(each.status_code != 200 or each.json()["restoring"] for each in states)


def whole(server: StandaloneProcess, name: str, wanted: list[Any]) -> bool:
    """Return whether a restoration is complete: the answer to its last request was lost."""
    if not is_opened(server, name, wanted):
        return False
    if wanted[0]["partitions"]:
        node = web.get(
            f"{server.web}/admin/v2/quireNodes?after=/admin/partitioned-topics/public/default/persistent/{name[:-1]}"
        ).json()
        values = [base64.b64decode(value) for path, value in node["nodes"] if path.endswith(f"/{name}")]
        return bool(values) and b"quire.restoring" not in values[0]
    return True


@pytest.mark.parametrize("begin", ["ledger=-1&entry=0", "ledger=-1&entry=7", "entry=3", "ledger=0&entry=-1"])
def test_entries_before_the_first_ledger_are_those_from_the_first_on(first: StandaloneProcess, begin: str) -> None:
    path = f"{first.web}{TOPIC}/a/quireEntries"
    assert web.get(f"{path}?{begin}").content == web.get(path).content != b""


def test_a_restore_refuses_a_topic_that_exists(saved: Path, second: StandaloneProcess) -> None:
    code, _, err = admin(f"restore topic {saved} --topic other --url {second.web}")
    assert code == 1
    assert "409: persistent://public/default/other exists" in err


def test_each_flipped_bit_of_a_file_is_found(saved: Path, second: StandaloneProcess, tmp_path: Path) -> None:
    data = saved.read_bytes()
    rng = random.Random(15)
    places = {0, 8, 11, 12, 15, 16, 17, len(data) - 1, len(data) - 5, *rng.sample(range(len(data)), 60)}
    copy = tmp_path / "copy"
    for place in sorted(places):
        broken = bytearray(data)
        broken[place] ^= 1 << rng.randrange(8)
        copy.write_bytes(broken)
        code, out, err = admin(f"backup verify {copy}")
        assert (code, out) == (2, ""), (place, out)
        assert str(copy) in err
    for size in (0, 5, 12, 20, len(data) // 2, len(data) - 1):
        copy.write_bytes(data[:size])
        assert admin(f"backup verify {copy}")[0] == 2, size
    copy.write_bytes(data + b"x")
    assert admin(f"backup verify {copy}")[0] == 2
    copy.write_bytes(bytes(broken))
    assert admin(f"restore topic {copy} --topic broken --url {second.web}")[0] == 2
    assert "broken" not in run(second, "topics list public/default")


def test_a_file_is_never_replaced_and_what_a_killed_run_left_is(first: StandaloneProcess, tmp_path: Path) -> None:
    path = tmp_path / "f"
    (tmp_path / "f.partial").write_bytes(b"left by a killed run, and longer than the whole file will be" * 10_000)
    run(first, f"backup topic a {path}")
    assert not (tmp_path / "f.partial").exists()
    assert path.stat().st_mode & 0o077 == 0
    before = path.read_bytes()
    code, _, err = admin(f"backup topic a {path} --url {first.web}")
    assert (code, "exists: give another name" in err, path.read_bytes() == before) == (2, True, True)


def test_metadata_restored_into_an_empty_store_are_the_same(first: StandaloneProcess, tmp_path: Path) -> None:
    run(first, f"backup cluster {tmp_path / 'c'}")
    store = f"standalone:{tmp_path / 'data'}"
    assert admin(f"restore cluster {tmp_path / 'c'} --metadata-store {store}")[0] == 0
    assert admin(f"backup cluster {tmp_path / 'again'} --metadata-store {store}")[0] == 0
    before, after = nodes(tmp_path / "c"), nodes(tmp_path / "again")
    assert len(before) > 30
    assert after == before
    code, _, err = admin(f"restore cluster {tmp_path / 'c'} --metadata-store {store}")
    assert code == 1
    assert "the store is not empty: it has /" in err


def nodes(path: Path) -> dict[str, bytes]:
    with BackupReader(path) as file:
        file.verify()
        return dict(record.node for record in file.records() if record.kind == b"N")


@pytest.mark.full
def test_commands_killed_by_the_kernel_leave_neither_half_files_nor_half_topics(
    saved: Path, first: StandaloneProcess, second: StandaloneProcess, tmp_path: Path
) -> None:
    wanted = contents(saved)
    rng = random.Random(7)
    for number in range(12):
        name, path = f"hard-{number}", tmp_path / f"file-{number}"
        kill(["backup", "topic", "a", str(path), "--url", first.web], rng.uniform(0.3, 3))
        if path.exists():
            assert contents(path) == wanted
        kill(["restore", "topic", str(saved), "--topic", name, "--url", second.web], rng.uniform(0.3, 3))
        if not whole(second, name, wanted):
            code, _, err = admin(f"restore topic {saved} --topic {name} --url {second.web}")
            assert code == 0 or whole(second, name, wanted), err  # (the last request of the killed one was under way)
        run(second, f"backup topic {name} {path}.restored")
        assert contents(Path(f"{path}.restored")) == wanted


def kill(words: list[str], after_s: float) -> None:
    process = subprocess.Popen([sys.executable, "-m", "quire.cli.main", "admin", *words], stdout=subprocess.DEVNULL)
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()


async def next_id(zookeeper: ZooKeeperProcess) -> int:
    async with opened(zookeeper.config("/copy")) as restored:
        return await SequenceLedgerIds(restored).next_id()


@pytest.mark.full
@pytest.mark.real_clock(seconds=180)
def test_a_topic_and_metadata_are_restored_on_a_cluster_of_processes(
    saved: Path, first: StandaloneProcess, tmp_path: Path
) -> None:
    zookeeper = ZooKeeperProcess(tmp_path / "zookeeper").start()
    cluster = BrokerCluster(tmp_path / "cluster", zookeeper)
    try:
        cluster.start_bookies()
        brokers = [cluster.broker(acknowledgmentAtBatchIndexLevelEnabled="true") for _ in range(2)]
        start_all(*brokers)
        assert admin(f"restore topic {saved} --topic t --url {brokers[0].web}")[0] == 0
        assert admin(f"backup topic t {tmp_path / 'again'} --url {brokers[1].web}")[0] == 0
        assert contents(tmp_path / "again") == contents(saved)
        assert admin(f"backup cluster {tmp_path / 'c'} --url {brokers[0].web}")[0] == 0
        store = f"zk:127.0.0.1:{zookeeper.port}/copy"
        code, _, err = admin(f"restore cluster {tmp_path / 'c'} --metadata-store {store}")
        assert code == 0, err
        assert admin(f"backup cluster {tmp_path / 'd'} --metadata-store {store}")[0] == 0
        before, after = nodes(tmp_path / "c"), nodes(tmp_path / "d")
        assert after == before
        ledgers = [path for path in before if path.rpartition("/")[2].startswith("L") and "/ledgers/" in path]
        assert len(ledgers) > 3

        numbers = [
            int("".join(path.removeprefix("/ledgers/").replace("L", "").split("/")))
            for path in ledgers
            if path[-1].isdigit()
        ]
        assert trio.run(next_id, zookeeper) > max(numbers), "an id of a restored ledger is never given again"
    finally:
        cluster.end()
        zookeeper.kill()
    for broker in cluster.brokers:
        broker.check_log()

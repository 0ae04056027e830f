"""The offload pipeline as a process, against a real server: killed with SIGKILL at its steps, and its files read by
Spark and pyarrow alone."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Any

import pulsar
import pyarrow.dataset
import pytest

from quire.offload.folder import files, read_manifest, topic_folder
from quire.offload.parquet import OffloadedLedger
from quire.spark.pipelines.offload import main
from tests.spark.peer import quiet_client
from tests.spark.support import internal_stats
from tests.support import web
from tests.support.server import StandaloneProcess, standalone

CHECKOUT = Path(__file__).resolve().parents[2]
POINTS = ("prepared", "half", "written", "published", "completed", "listed")
KILLED = """
import os, signal, sys
from quire.spark.pipelines.offload import main
point, number = sys.argv[1], int(sys.argv[2])
seen = []
def kill(at, ledger):
    if at == point:
        seen.append(ledger)
        if len(seen) == number:
            os.kill(os.getpid(), signal.SIGKILL)
sys.exit(main(sys.argv[3:], observe=kill))
"""
PROCESS_S = 300
"""Seconds that a run of the pipeline may take on a busy machine."""
_PLACED = Struct("!qqI")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    """Run a server whose ledgers have 20 entries, and stay."""
    conf: dict[str, object] = {
        "managedLedgerMaxEntriesPerLedger": 20,
        "managedLedgerMinLedgerRolloverTimeMinutes": 0,
        "defaultRetentionTimeInMinutes": -1,
        "defaultRetentionSizeInMB": -1,
    }
    with standalone(tmp_path_factory.mktemp("offload"), conf) as running:
        yield running


def publish(client: pulsar.Client, topic: str, count: int) -> None:
    """Publish in every form: alone, in batches, compressed, with keys, properties and tombstones."""
    for kind, first in ((pulsar.CompressionType.NONE, 0), (pulsar.CompressionType.ZSTD, 1)):
        for batching in (False, True):
            producer = client.create_producer(
                topic, compression_type=kind, batching_enabled=batching, batching_max_messages=3,
                block_if_queue_full=True,
            )  # fmt: skip
            for number in range(first + 2 * batching, count, 4):
                producer.send_async(b"%d" % number, None, partition_key=f"k{number % 5}", properties={"n": str(number)})
            producer.flush()
            producer.close()


def stored(server: StandaloneProcess, topic: str) -> dict[tuple[int, int], bytes]:
    """Return all entries of a topic, as its broker reads them from the bookie."""
    found: dict[tuple[int, int], bytes] = {}
    place = (0, 0)
    url = f"{server.web}/admin/v2/{topic.replace('://', '/')}/quireEntries"
    while data := web.get(f"{url}?ledger={place[0]}&entry={place[1]}").content:
        at = 0
        while at < len(data):
            ledger, entry, size = _PLACED.unpack_from(data, at)
            at += _PLACED.size
            found[ledger, entry] = data[at : at + size]
            at += size
        place = (ledger, entry + 1)
    return found


def rebuilt(home: Path) -> dict[tuple[int, int], bytes]:
    """Return all entries of the files in a topic's folder; no ledger may have two."""
    found: dict[tuple[int, int], bytes] = {}
    for file in files(home):
        assert not file.temporary, file
        ledger = OffloadedLedger(file.path)
        at = 0
        while at < ledger.file.entries:
            for entry in ledger.read(at, ledger.file.entries - 1, 1 << 20):
                assert (file.ledger_id, at) not in found
                found[file.ledger_id, at] = entry
                at += 1
        ledger.close()
    return found


def arguments(server: StandaloneProcess, topic: str, out: Path) -> list[str]:
    return ["--service-url", server.url, "--admin-url", server.web, "--topic", topic, "--out", str(out)]


def run(server: StandaloneProcess, topic: str, out: Path, *more: str) -> None:
    """Run the pipeline in this process: a start of its own takes long on a busy machine."""
    assert main([*arguments(server, topic, out), *more]) == 0


def kill_at(server: StandaloneProcess, topic: str, out: Path, point: str, number: int) -> None:
    command = [sys.executable, "-c", KILLED, point, str(number), *arguments(server, topic, out)]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=PROCESS_S, check=False)
    assert done.returncode == -signal.SIGKILL, (done.returncode, done.stderr)


def received(client: pulsar.Client, topic: str) -> list[int]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(int(reader.read_next(10_000).data()))
    reader.close()
    return found


def check(server: StandaloneProcess, topic: str, out: Path) -> None:
    """Every closed ledger has one file, every entry of it is there byte for byte, and the list says so."""
    ledgers = internal_stats(server, topic)["ledgers"]
    assert [each["offloaded"] for each in ledgers] == [True] * (len(ledgers) - 1) + [False]
    closed = {each["ledgerId"] for each in ledgers[:-1]}
    home = topic_folder(out, topic)
    wanted = {place: entry for place, entry in stored(server, topic).items() if place[0] in closed}
    assert rebuilt(home) == wanted
    assert {each.ledger for each in read_manifest(home)} == closed


def test_a_killed_offload_is_continued_and_other_engines_read_its_files(
    spark: Any, small: StandaloneProcess, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = quiet_client(small.url)
    publish(client, topic, 200)
    kill_at(small, topic, tmp_path, "half", 2)
    command = [sys.executable, str(CHECKOUT / "scripts" / "pipelines" / "offload.py")]
    subprocess.run([*command, *arguments(small, topic, tmp_path)], timeout=PROCESS_S, check=True)
    check(small, topic, tmp_path)
    order = received(client, topic)
    assert sorted(order) == list(range(200))

    home = topic_folder(tmp_path, topic)
    paths = [str(home / each.path) for each in read_manifest(home)]
    last = internal_stats(small, topic)["ledgers"][-1]["ledgerId"]
    table = pyarrow.dataset.dataset(paths, format="parquet").to_table(columns=["value", "__ledger", "__properties"])
    numbers = [int(value) for value in table["value"].to_pylist()]
    assert order[: len(numbers)] == numbers, "in the order of the topic"
    assert [dict(pairs)["n"] for pairs in table["__properties"].to_pylist()] == [str(each) for each in numbers]
    frame = spark.read.parquet(*paths)
    rows = frame.where("__kind = 'message'").select("value", "__key", "__topic").orderBy(
        "__ledger", "__entry", "__batch"
    )  # fmt: skip
    found = rows.collect()
    assert [int(row["value"]) for row in found] == numbers
    assert {bytes(row["__key"]) for row in found} == {b"k%d" % each for each in range(5)}
    assert {row["__topic"] for row in found} == {topic}

    read = spark.read.format("quire").options(**{"service.url": small.url, "admin.url": small.web, "topic": topic})
    assert sorted(int(row["value"]) for row in read.load().select("value").collect()) == list(range(200))
    small.kill()
    small.start()
    assert received(client, topic) == order
    run(small, topic, tmp_path)
    assert "offloaded 0 ledgers" in capsys.readouterr().out
    publish(client, topic, 40)
    run(small, topic, tmp_path)
    assert "offloaded 0 ledgers" not in capsys.readouterr().out
    check(small, topic, tmp_path)
    assert internal_stats(small, topic)["ledgers"][-1]["ledgerId"] >= last
    run(small, topic, tmp_path, "--release")
    assert files(home) == []
    assert not any(each["offloaded"] for each in internal_stats(small, topic)["ledgers"])
    client.close()


@pytest.mark.full
@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("point", POINTS)
def test_wherever_it_is_killed_each_entry_is_there_once(
    small: StandaloneProcess, topic: str, tmp_path: Path, point: str, number: int
) -> None:
    if point == "listed":
        number = 1
    client = quiet_client(small.url)
    publish(client, topic, 400)
    kill_at(small, topic, tmp_path, point, number)
    if number == 3:
        small.kill()
        small.start()
    run(small, topic, tmp_path)
    check(small, topic, tmp_path)
    assert sorted(received(client, topic)) == list(range(400))
    client.close()


def test_a_topic_that_does_not_exist_is_an_error_in_one_line(
    small: StandaloneProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(small, "persistent://public/default/none", tmp_path / "out")) == 1
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1, shown
    assert "does not exist" in shown
    assert not (tmp_path / "out").exists()

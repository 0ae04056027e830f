"""`quire produce | consume | read | peek | perf | bench` as processes, on the server of this folder's tests."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pulsar
import pytest

from quire.cli.main import main
from quire.cli.messages.records import MessageRecord, to_json
from tests.support.admin_rest import Admin
from tests.support.server import StandaloneProcess, standalone

DEADLINE_S = 100


_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(
    ["quire.cli.messages.consume", "quire.cli.messages.peek", "quire.cli.messages.produce", "quire.cli.perf.bench"]
)


def become(words: tuple[str, ...], folder: Path, environment: dict[str, str]) -> None:
    """Turn a forked process into `quire WORDS`, with its input and outputs in files."""
    os.environ.update(environment)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.dup2(os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o600), number)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
    sys.argv = ["quire", *words]
    main()


class Quire:
    """The command line, with the addresses of a server in its environment."""

    def __init__(self, server: StandaloneProcess, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "QUIRE_SERVICE_URL": server.url,
            "QUIRE_ADMIN_URL": server.web,
            "COLUMNS": "200",
        }

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a command whose output is a pipe."""
        return subprocess.Popen(
            [sys.executable, "-m", "quire.cli.main", *words],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def __call__(self, *words: str, stdin: bytes = b"", code: int = 0) -> bytes:
        """Run a command to its end, in a process that has its modules loaded; return its output."""
        for name in ("stdout", "stderr"):
            (self.folder / name).unlink(missing_ok=True)
        (self.folder / "stdin").write_bytes(stdin)
        process = _forks.Process(target=become, args=(words, self.folder, self.environment))
        process.start()
        process.join(DEADLINE_S)
        output = (self.folder / "stdout").read_bytes()
        self.errors = (self.folder / "stderr").read_text()
        assert process.exitcode == code, (output[-1000:], self.errors)
        process.close()
        assert "Traceback" not in self.errors
        return output


@pytest.fixture
def quire(server: StandaloneProcess, tmp_path: Path) -> Quire:
    return Quire(server, tmp_path)


RECORDS = [
    MessageRecord(b"plain"),
    MessageRecord(b"\xff\x00\n", key=b"\xfe", properties=(("a", "1"), ("b", "\u00e9\n")), event_ms=1_700_000_000_000),
    MessageRecord(b"", key=b""),
    MessageRecord(None, key=b"k"),
    MessageRecord(b"many\nlines", properties=(("twice", "1"), ("twice", "2"))),
]


def test_json_lines_go_through_two_topics_byte_for_byte(quire: Quire, topic: str) -> None:
    lines = "".join(f"{to_json(each)}\n" for each in RECORDS).encode()
    quire("produce", topic, "--input", "json", "-db", stdin=lines)
    assert quire.errors == "5 messages successfully produced\n"
    first = quire("read", topic, "-m", "earliest", "--end", "--format", "json")
    quire("produce", f"{topic}-again", "--input", "json", stdin=first)
    again = quire("read", f"{topic}-again", "-m", "earliest", "--end", "--format", "json")
    told = [[line for line in map(json.loads, each.splitlines())] for each in (lines, first, again)]
    for line in told[1] + told[2]:
        assert line.pop("topic").startswith(topic)
        assert line.pop("id")
        assert line.pop("publish_time")
    key = lambda line: json.dumps(line, sort_keys=True)  # noqa: E731  (keys are batched apart, so the order changes)
    assert told[1] == told[0]
    assert sorted(told[2], key=key) == sorted(told[0], key=key)


def test_the_official_client_sees_what_the_flags_say(quire: Quire, client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "official", initial_position=pulsar.InitialPosition.Earliest)
    quire("produce", topic, "-m", "one,two", "-n", "2", "-k", "key", "-p", "a=1,b=2", "-z", "lz4", "-vs", "string")
    found = [consumer.receive(10_000) for _ in range(4)]
    assert [each.data() for each in found] == [b"one", b"two"] * 2
    assert {(each.partition_key(), str(each.properties())) for each in found} == {("key", "{'a': '1', 'b': '2'}")}
    assert {each.schema_version() for each in found} != {""}


def test_a_file_above_the_limit_goes_in_chunks(quire: Quire, client: pulsar.Client, topic: str, tmp_path: Path) -> None:
    consumer = client.subscribe(topic, "official", initial_position=pulsar.InitialPosition.Earliest)
    data = os.urandom(11 << 20)
    (tmp_path / "large").write_bytes(data)
    quire("produce", topic, "-f", str(tmp_path / "large"), code=2)
    assert "--chunking" in quire.errors
    quire("produce", topic, "-f", str(tmp_path / "large"), "--chunking")
    assert quire("consume", topic, "-s", "s", "-p", "Earliest", "--format", "raw", "--separator", "") == data
    assert consumer.receive(10_000).data() == data


def test_a_subscription_is_consumed_once_and_only_what_was_written(quire: Quire, topic: str, admin: Admin) -> None:
    consume = ("consume", topic, "-s", "s", "-p", "Earliest", "--end", "--format", "raw")
    assert quire(*consume) == b""
    quire("produce", topic, "-db", stdin=b"a\nb\nc\nd")
    assert quire("peek", topic, "-s", "s", "-n", "2", "--format", "raw") == b"a\nb\n"
    assert quire(*consume, "--no-ack") == b"a\nb\nc\nd\n"
    assert quire("consume", topic, "-s", "s", "-n", "3", "--format", "raw") == b"a\nb\nc\n"
    assert quire("peek", topic, "-s", "s", "-n", "9", "--format", "raw") == b"d\n"
    assert quire(*consume, "-t", "Shared") == b"d\n"
    assert quire(*consume) == b""
    assert admin.get(topic, "/stats")["subscriptions"]["s"]["msgBacklog"] == 0


def test_partitions_and_patterns(quire: Quire, topic: str, admin: Admin) -> None:
    admin.do("PUT", topic, "/partitions", json=3)
    quire(
        "produce", topic, "--input", "json", stdin=b"".join(b'{"value":"%d","key":"%d"}\n' % (n, n) for n in range(9))
    )
    found = quire("read", topic, "-m", "earliest", "--end", "--format", "json").splitlines()
    assert sorted(json.loads(line)["value"] for line in found) == [str(number) for number in range(9)]
    assert len({json.loads(line)["topic"] for line in found}) > 1
    pattern = topic.replace("t", "[t]", 1) if "/t" not in topic else topic[:-1] + "[" + topic[-1] + "]"
    words = ("-s", "s", "-p", "Earliest", "--end", "--format", "raw")
    assert len(quire("consume", pattern, "--regex", *words).splitlines()) == 9


def test_a_reader_starts_where_it_is_asked_to(quire: Quire, topic: str) -> None:
    quire("produce", topic, "-m", "a,b,c")
    lines = quire("read", topic, "-m", "earliest", "-n", "3", "--format", "json").splitlines()
    ids = [json.loads(line)["id"] for line in lines]
    middle = ("read", topic, "-m", ids[1], "--end", "--format", "raw")
    assert quire(*middle) == b"c\n"
    assert quire(*middle, "-i") == b"b\nc\n"
    assert quire("read", topic, "-m", "latest", "--end") == b""
    quire("read", topic, "-m", "nowhere", code=2)


def test_what_cannot_be_done_has_an_exit_code_and_one_line(quire: Quire, topic: str, tmp_path: Path) -> None:
    quire("read", f"{topic}-none", code=1)
    quire("peek", topic, "-s", "none", code=1)
    for words in (
        ("produce", topic, "-m", "a", "-f", "b"),
        ("produce", topic, "--input", "xml"),
        ("produce", topic, "-vs", "xml"),
        ("produce", topic, "-f", str(tmp_path / "none")),
        ("consume", topic),
        ("consume", topic, "-s", "s", "-t", "Odd"),
        ("consume", topic, "-s", "s", "--auth-plugin", "token", "--auth-params", ""),
    ):
        quire(*words, code=2)
        assert len(quire.errors.splitlines()) <= 2, quire.errors
    quire("produce", topic, "--input", "json", stdin=b'{"value":"a"}\n{"vaule":"b"}\n', code=2)
    assert "did you mean 'value'" in quire.errors


def test_a_signal_and_a_closed_pipe_end_in_order(quire: Quire, topic: str) -> None:
    quire("produce", topic, "-m", "a,b")
    with quire.start("read", topic, "-m", "earliest", "-n", "0", "--format", "raw") as reading:
        assert reading.stdout is not None
        assert reading.stdout.readline() == b"a\n"
        assert reading.stdout.readline() == b"b\n"
        reading.send_signal(signal.SIGINT)
        _, errors = reading.communicate(timeout=DEADLINE_S)
    assert (reading.returncode, errors) == (130, b"2 messages successfully read\n")
    with quire.start("read", topic, "-m", "earliest", "-n", "0", "--format", "raw") as reading:
        assert reading.stdout is not None
        assert reading.stdout.readline() == b"a\n"
        reading.stdout.close()
        assert reading.wait(DEADLINE_S) == 0
        assert reading.stderr is not None
        assert b"Traceback" not in reading.stderr.read()


def test_perf_measures_and_writes_its_files(quire: Quire, topic: str, tmp_path: Path) -> None:
    log, picture = tmp_path / "log.hlog", tmp_path / "picture.svg"
    produce = ("perf", "produce", topic, "-r", "500", "-m", "500", "--warmup-time", "0", "--report-interval", "0.4")
    lines = quire(*produce, "--histogram-file", str(log), "--picture", str(picture)).decode().splitlines()
    assert any(line.startswith("Throughput produced: ") for line in lines)
    assert any(line.startswith("Aggregated throughput stats --- 500 records sent --- ") for line in lines)
    assert lines[-2].startswith("Aggregated latency stats --- Latency: mean: ")
    assert lines[-1].startswith("Load generator stats --- ")
    assert len(log.read_text().splitlines()) >= 3
    assert picture.read_text().startswith("<svg")
    read = quire("perf", "read", topic, "-n", "500").decode()
    assert "Aggregated throughput stats --- 500 records received --- " in read
    consumed = quire("perf", "consume", topic, "-sp", "Earliest", "-m", "500").decode()
    assert "Aggregated throughput stats --- 500 records received --- " in consumed


def test_a_workload_receives_what_it_produces(quire: Quire) -> None:
    lines = quire("bench", "1-topic-1-partition-1kb", "--divide-rate", "100", "-time", "1").decode().splitlines()
    sent, received = (line.split(" --- ")[1].split()[0] for line in lines if "records" in line)
    assert sent == received
    assert int(sent) > 100


@pytest.fixture(scope="module")
def transactional(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with standalone(tmp_path_factory.mktemp("standalone"), {"transactionCoordinatorEnabled": "true"}) as running:
        yield running


def test_perf_of_transactions(transactional: StandaloneProcess, tmp_path: Path) -> None:
    quire = Quire(transactional, tmp_path)
    quire("produce", "in", "-db", "-m", "a,b,c,d,e")
    lines = quire("perf", "transaction", "--topics-c", "in", "--topics-p", "out", "-ntxn", "5").decode().splitlines()
    assert lines[0].startswith("Aggregated throughput stats --- 5 transaction executed --- "), lines
    assert lines[0].endswith(" --- 0 message send failed --- 5 message ack success --- 5 message send success")
    quire("perf", "transaction", "--topics-c", "none", "--topics-p", "out", "-nmc", "0", "-ntxn", "2", "-abort")
    assert quire("read", "out", "-m", "earliest", "--end", "--format", "raw").count(b"\n") == 5
    produced = quire("perf", "produce", "out", "-txn", "-nmt", "10", "-m", "40", "-r", "400").decode()
    assert (
        "--- Transaction: 4 transaction end successfully --- 0 transaction end failed --- 4 transaction open"
        in produced
    )
    found = httpx2.get(f"{transactional.web}/admin/v2/persistent/public/default/in/stats").json()
    assert found["subscriptions"]["sub"]["msgBacklog"] == 0

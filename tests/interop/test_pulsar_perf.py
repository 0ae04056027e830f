"""`quire perf` beside pulsar-perf 4.0.6 (the newest that Maven Central has) on one broker of Quire, the histogram logs
that HdrHistogram's own reader reads, and the commands on Apache Pulsar 4.2.4."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.servers.zookeeper.process import find_java
from tests.interop.secured import Secured
from tests.support.credentials import token
from tests.support.server import StandaloneProcess, standalone

ROUNDS = 5
SECONDS = 12
RATE = 200
DEADLINE_S = 110
FLOOR_MS = 0.5
"""Difference that always counts as agreement: wake-ups of a thread differ by as much."""
_LATENCIES = re.compile(r"Aggregated latency stats --- Latency: mean: +([\d.]+) ms - med: +([\d.]+) - 95pct: +([\d.]+)")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with standalone(tmp_path_factory.mktemp("standalone")) as running:
        yield running


def java(*words: str) -> list[str]:
    made = os.environ["QUIRE_INTEROP_PULSAR_PERF"]
    options = ["-Xmx384m", "-XX:+UseSerialGC", "-Dlog4j.configurationFile=log4j2-perf.xml"]
    return [find_java(), *options, "-cp", f"{made}/classes:{made}/lib/*", *words]


def ours(*words: str) -> list[str]:
    return [sys.executable, "-m", "quire.cli.main", *words]


def both(folder: Path, *commands: list[str]) -> list[tuple[float, ...]]:
    """Run commands at one time, so that they meet the same noise; return the mean, median and 95 % of each."""
    running = [
        subprocess.Popen(each, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for each in commands
    ]
    found = []
    for process in running:
        output, _ = process.communicate(timeout=DEADLINE_S)
        latencies = _LATENCIES.search(output)
        assert latencies is not None, output[-3000:]
        found.append(tuple(float(each) for each in latencies.groups()))
    return found


@pytest.mark.parametrize("command", ["produce"])
def test_the_latencies_of_both_agree_within_a_tenth(server: StandaloneProcess, tmp_path: Path, command: str) -> None:
    """The middle of some rounds, because a round of a busy machine has other figures for each process in it."""
    rounds = []
    for number in range(ROUNDS):
        flags = ("-u", server.url, "-r", str(RATE), "-time", str(SECONDS), f"perf-{number}")
        rounds.append(both(tmp_path, java("Perf", command, *flags), ours("perf", command, *flags)))
    for place, name in enumerate(("mean", "median", "95 %")):
        theirs = statistics.median(each[0][place] for each in rounds)
        mine = statistics.median(each[1][place] for each in rounds)
        print(f"{name}: pulsar-perf {theirs:.3f} ms, quire perf {mine:.3f} ms, of {rounds}")
        assert abs(mine - theirs) <= max(theirs / 10, FLOOR_MS), (name, rounds)


def test_a_log_is_read_by_the_originals_reader(server: StandaloneProcess, tmp_path: Path) -> None:
    log = tmp_path / "log.hlog"
    flags = ("-u", server.url, "-r", "500", "-time", "3", "--warmup-time", "0", "--report-interval", "1")
    done = subprocess.run(
        ours("perf", "produce", "logged", *flags, "--histogram-file", str(log)),
        capture_output=True, text=True, timeout=DEADLINE_S, check=True,
    )  # fmt: skip
    read = subprocess.run(
        java("Hdr", "read", str(log)), capture_output=True, text=True, timeout=DEADLINE_S, check=True
    ).stdout.splitlines()
    sent = re.search(r"(\d+) records sent", done.stdout)
    assert sent is not None
    assert sum(int(line.split()[1]) for line in read) == int(sent[1])
    assert max(int(line.split()[-1]) for line in read) / 1000 == float(done.stdout.split("Max:")[-1].split()[0])


def test_the_commands_work_on_apache_pulsar(tmp_path: Path) -> None:
    """With TLS, a token and the admin REST."""
    secured = Secured(tmp_path / "pulsar")
    (tmp_path / "admin.token").write_text(token("admin"))
    access = [
        "--service-url", secured.url, "--admin-url", secured.web, "--trust-cert-file", str(secured.authority.trust),
        "--auth-plugin", "token", "--auth-params", f"file://{tmp_path}/admin.token",
    ]  # fmt: skip

    def quire(*words: str, stdin: bytes = b"") -> bytes:
        done = subprocess.run(ours(*words, *access), input=stdin, capture_output=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    with secured.pulsar():
        consume = ("consume", "orders", "-s", "s", "-p", "Earliest", "--end", "--format", "raw")
        assert quire(*consume) == b""
        quire("produce", "orders", "-db", "-k", "key", "-p", "a=1", stdin=b"one\ntwo\nthree\n")
        assert quire("peek", "orders", "-s", "s", "-n", "2", "--format", "raw") == b"one\ntwo\n"
        assert quire(*consume) == b"one\ntwo\nthree\n"
        assert quire("read", "orders", "-m", "earliest", "--end", "--format", "raw") == b"one\ntwo\nthree\n"
        large = os.urandom(6 << 20)
        quire("produce", "large", "-c", "--input", "whole", stdin=large)
        assert quire("read", "large", "-m", "earliest", "--end", "--format", "raw", "--separator", "") == large
        assert b"500 records sent" in quire("perf", "produce", "load", "-np", "2", "-m", "500", "-r", "500")
        assert b"500 records received" in quire("perf", "consume", "load", "-sp", "Earliest", "-m", "500")
        assert b"500 records received" in quire("perf", "read", "load", "-n", "500")
        quire("produce", "in", "-db", "-m", "a,b,c")
        done = quire("perf", "transaction", "--topics-c", "in", "--topics-p", "out", "-ntxn", "3").decode()
        assert " 3 transaction end successfully --- 0 transaction end failed" in done
        assert quire("read", "out", "-m", "earliest", "--end", "--format", "raw").count(b"\n") == 3

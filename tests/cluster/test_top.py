"""`quire top` in a pseudo terminal with real keys, and once for scripts, on a real server."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

from tests.support.server import StandaloneProcess, standalone
from tests.support.terminal import WITHIN_S, Terminal


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with standalone(tmp_path_factory.mktemp("top"), {"statsUpdateFrequencyInSecs": 1}) as found:
        client = pulsar.Client(found.url)
        for name, count in (("quiet", 0), ("some", 3), ("many", 40)):
            client.subscribe(name, "late").close()
            producer = client.create_producer(name)
            for _ in range(count):
                producer.send(b"x" * 100)
        client.close()
        yield found


def test_keys_sort_filter_and_explain_in_a_terminal(server: StandaloneProcess) -> None:
    with Terminal("top", "--interval", "0.5", "--url", server.web) as terminal:
        terminal.shows(r"topics by rate.*many")
        terminal.press("l")
        terminal.shows(r"topics by lag.*> +many +0\.0 .* 40 .*some +0\.0")
        terminal.press("s")
        terminal.shows(r"standing still.*> +many +late +40 +no-consumers +40 entries wait")
        terminal.press("\x1b[B")
        terminal.shows(r"> +some +late")
        terminal.press("\r")
        terminal.shows(r"some  subscription late.*blocked \(no-consumers\).*Connect a consumer")
        terminal.press("\x1b")
        terminal.shows(r"standing still")
        terminal.press("b")
        terminal.shows(r"bookies.*standalone:3181 +writable")
        terminal.press("t/qui")
        terminal.shows(r"filter: qui_.*> +quiet")
        terminal.press("\rq")
        assert terminal.process.wait(WITHIN_S) == 0


def test_without_a_terminal_the_tables_or_the_answer_are_printed_once(server: StandaloneProcess) -> None:
    command = [sys.executable, "-m", "quire.cli.main", "top", "--url", server.web, "--sort", "lag"]
    done = subprocess.run([*command, "--count", "2"], capture_output=True, text=True, check=True, timeout=60)
    assert re.search(r"topics by lag\ntopic .*\nmany .*\nsome .*\n\nstanding still", done.stdout)
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True, timeout=60)
    found = json.loads(done.stdout)
    assert [row["backlog"] for row in found["topics"]][:2] == [40, 3]
    assert [row["cause"] for row in found["stuck"]] == ["no-consumers"] * 2
    assert 0 <= found["topics"][0]["ageSeconds"] < 600
    done = subprocess.run([*command, "--sort", "size"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (2, "quire top: --sort 'size' is none of rate, lag, age\n")


def test_a_broker_that_does_not_answer_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "quire.cli.main", "top", "--url", "http://127.0.0.1:9", "--once"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    assert "Check that a broker serves there" in done.stderr


@pytest.mark.full
def test_a_load_is_shown_live_in_a_terminal_and_ends_with_the_lines_of_the_original(server: StandaloneProcess) -> None:
    words = ("perf", "produce", "loaded", "-r", "100", "--service-url", server.url)
    with Terminal(*words) as terminal:
        for _ in range(3):  # it is drawn again and again, with curves of the last minute
            terminal.shows(r"msg/s.*99pct of all.*last minute.*[0-9.]+ ms.*[\u2581-\u2588]")
        terminal.process.send_signal(signal.SIGINT)
        terminal.shows(r"Aggregated throughput stats --- +\d+ records sent")
        terminal.process.wait(WITHIN_S)
    with Terminal(*words, "-time", "2", "--no-live") as terminal:
        assert "last minute" not in terminal.shows(r"Aggregated throughput stats.*Aggregated latency stats")

"""bench.demo.run and the way of `scripts/demo`, against a broker in memory."""

from __future__ import annotations

import io
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console

from bench.demo import run
from bench.demo.__main__ import demo
from bench.demo.files import Line, Tree
from bench.demo.report import PlainProgress
from bench.demo.run import is_batched, window_of
from bench.demo.server import DemoError, Server
from tests.support.demo_broker import FakeMessaging, FakeServer

TREE = Tree(
    {f"folder/file-{number}": b"".join(b"line %d\n" % line for line in range(40)) for number in range(12)}
    | {"empty": b"", "no-end": b"a\r\nb"},
    binary=2,
    links=1,
)


class FakeProcess(FakeServer):
    """What `demo` wants of a server besides starting and stopping it."""

    url = "pulsar://fake"
    start_s = (0.5,)


def go(server: FakeProcess, folder: Path, tree: Tree = TREE) -> tuple[int, str, FakeMessaging]:
    """The number of problems, and what was shown."""
    out = io.StringIO()
    console = Console(file=out, width=200)
    messaging = FakeMessaging(server)
    problems = demo(tree, cast(Server, server), messaging, folder, console, PlainProgress(console))
    return problems, out.getvalue(), messaging


def test_everything_comes_back_over_two_kills(tmp_path: Path) -> None:
    server = FakeProcess()
    problems, shown, messaging = go(server, tmp_path)
    assert problems == 0, shown
    assert server.kills >= 2
    assert messaging.batched == [False, True]
    figures = {line.split("│")[1].strip(): line.split("│")[2].strip() for line in shown.splitlines() if "│" in line}
    assert figures["files"] == "14"
    assert figures["left out"] == "2 binary, 1 links"
    assert figures["messages"] == "483"
    assert figures["lines"] == "482"
    assert figures["kills survived"] == "2"
    assert figures["differences"] == "0"
    assert int(figures["redeliveries"]) > 0


def test_a_lost_message_ends_in_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "STALL_S", 0.5)
    server = FakeProcess()
    server.lose = lambda line: line == Line("folder/file-3", 17, b"line 16\n")
    with pytest.raises(DemoError, match="nothing moves any more: still at 482"):
        go(server, tmp_path)


def test_lines_of_a_file_that_come_out_of_order_are_a_failure(tmp_path: Path) -> None:
    server = FakeProcess()
    server.swap = True
    problems, shown, _ = go(server, tmp_path)
    assert problems > 0
    assert "came after line" in shown


def test_a_changed_byte_is_a_difference(tmp_path: Path) -> None:
    server = FakeProcess()
    store = server._store
    server._store = lambda line: store(line._replace(payload=line.payload.replace(b"line 7\n", b"line 8\n")))  # type: ignore[method-assign]
    problems, shown, _ = go(server, tmp_path)
    assert problems == 12
    assert "folder/file-0: differs from byte" in shown


def test_an_error_in_the_servers_log_is_a_failure(tmp_path: Path) -> None:
    server = FakeProcess()
    server.errors = lambda: ["level=error event=oh"]  # type: ignore[method-assign]
    problems, shown, _ = go(server, tmp_path)
    assert problems == 1
    assert "server log: level=error event=oh" in shown


def test_a_tree_without_a_middle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="2 lines are too few"):
        go(FakeProcess(), tmp_path, Tree({"a": b"1\n2\n"}))


def test_the_window_leaves_a_middle() -> None:
    assert [window_of(total) for total in (20, 1000, 10**6)] == [1, 50, 1000]


def test_about_half_of_the_files_go_in_batches() -> None:
    batched = sum(is_batched(f"folder/file-{number}") for number in range(1000))
    assert 400 < batched < 600

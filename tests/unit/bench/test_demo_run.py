"""tools.demo.run and the way of `scripts/demo`, against a broker in memory."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console

from tests.support.demo_broker import FakeMessaging, FakeServer
from tests.support.refusals import refuses
from tools.demo import run
from tools.demo.__main__ import demo
from tools.demo.archive import Archived
from tools.demo.files import Line, Tree
from tools.demo.report import PlainProgress
from tools.demo.run import Progress, is_batched, window_of
from tools.demo.server import DemoError, Server

TREE = Tree(
    {f"folder/file-{number}": b"".join(b"line %d\n" % line for line in range(40)) for number in range(12)}
    | {"empty": b"", "no-end": b"a\r\nb"},
    binary=2,
    links=1,
)


class FakeProcess(FakeServer):
    """Parts of a server that `demo` uses besides starting and stopping it."""

    url = "pulsar://fake"
    start_s = (0.5,)


class FakeArchive:
    """Archives what the fake server has, `spoil`ed on purpose."""

    def __init__(self, server: FakeProcess) -> None:
        self.server = server
        self.held: int | None = None
        """Number of lines published when the hold was made."""
        self.consumed: int | None = None
        """Number of lines acknowledged when it was run."""
        self.spoil: Callable[[list[Line]], list[Line]] = lambda lines: lines

    def hold(self) -> None:
        assert self.server.alive.is_set()
        self.held = len(self.server.log)

    def run(self, progress: Progress) -> Archived:
        assert self.server.alive.is_set()
        self.consumed = len(self.server.acknowledged)
        return Archived(rows=len(self.server.log), files=3, rows_per_s=12345)

    def lines(self) -> Iterator[Line]:
        yield from self.spoil(list(self.server.log))


def go(
    server: FakeProcess, folder: Path, tree: Tree = TREE, archiving: FakeArchive | None = None
) -> tuple[int, str, FakeMessaging]:
    """Run the demo; return the number of problems, its output, and the messaging."""
    out = io.StringIO()
    console = Console(file=out, width=200)
    messaging = FakeMessaging(server)
    problems = demo(tree, cast(Server, server), messaging, folder, console, PlainProgress(console), archiving)
    return problems, out.getvalue(), messaging


def figures_of(shown: str) -> dict[str, str]:
    return {line.split("│")[1].strip(): line.split("│")[2].strip() for line in shown.splitlines() if "│" in line}


def test_everything_comes_back_over_two_kills(tmp_path: Path) -> None:
    server = FakeProcess()
    problems, shown, messaging = go(server, tmp_path)
    assert problems == 0, shown
    assert server.kills >= 2
    assert messaging.batched == [False, True]
    figures = figures_of(shown)
    assert figures["files"] == "14"
    assert figures["left out"] == "2 binary, 1 links"
    assert figures["messages"] == "483"
    assert figures["lines"] == "482"
    assert figures["kills survived"] == "2"
    assert figures["differences"] == "0"
    assert int(figures["redeliveries"]) > 0
    assert not any(name.startswith("archive") for name in figures)


def test_the_archive_is_held_before_the_first_line_and_made_after_the_last(tmp_path: Path) -> None:
    server = FakeProcess()
    archiving = FakeArchive(server)
    problems, shown, _ = go(server, tmp_path, archiving=archiving)
    assert problems == 0, shown
    assert archiving.held == 0
    assert archiving.consumed is not None
    assert archiving.consumed >= 483
    figures = figures_of(shown)
    assert figures["archived"] == f"{len(server.log)} rows, 3 Parquet files"
    assert figures["archived/s"] == "12345"
    assert figures["archive differences"] == "0"


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda lines: [line for line in lines if line.key != "empty"], "archive: empty: missing"),
        (
            lambda lines: [line for line in lines if line != Line("folder/file-3", 17, b"line 16\n")],
            "archive: folder/file-3: differs from byte",
        ),
        (
            lambda lines: [line._replace(payload=line.payload.replace(b"a\r\n", b"a\n")) for line in lines],
            "archive: no-end: differs from byte 1 on",
        ),
        (lambda lines: list(reversed(lines)), "archive: folder/file-3: line 40 came after line 0"),
        (lambda lines: [*lines, Line("other", 1, b"x")], "archive: other: delivered, but never published"),
    ],
)
def test_an_archive_that_is_not_what_was_published_is_a_failure(
    tmp_path: Path, spoil: Callable[[list[Line]], list[Line]], told: str
) -> None:
    server = FakeProcess()
    archiving = FakeArchive(server)
    archiving.spoil = spoil
    problems, shown, _ = go(server, tmp_path, archiving=archiving)
    assert problems > 0
    assert told in shown


def test_a_lost_message_ends_in_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "STALL_S", 0.5)
    server = FakeProcess()
    server.lose = lambda line: line == Line("folder/file-3", 17, b"line 16\n")
    refuses(DemoError, lambda: go(server, tmp_path), "nothing moves any more: still at 482")


def test_lines_of_a_file_that_come_out_of_order_are_a_failure(tmp_path: Path) -> None:
    server = FakeProcess()
    server.swap = True
    problems, shown, _ = go(server, tmp_path)
    assert problems > 0
    assert "came after line" in shown


def test_a_changed_byte_is_a_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = FakeProcess()
    store = server._store
    monkeypatch.setattr(
        server, "_store", lambda line: store(line._replace(payload=line.payload.replace(b"line 7\n", b"line 8\n")))
    )
    problems, shown, _ = go(server, tmp_path)
    assert problems == 12
    assert "folder/file-0: differs from byte" in shown


def test_an_error_in_the_servers_log_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = FakeProcess()
    monkeypatch.setattr(server, "errors", lambda: ["level=error event=oh"])
    problems, shown, _ = go(server, tmp_path)
    assert problems == 1
    assert "server log: level=error event=oh" in shown


def test_a_tree_without_a_middle_is_refused(tmp_path: Path) -> None:
    refuses(DemoError, lambda: go(FakeProcess(), tmp_path, Tree({"a": b"1\n2\n"})), "2 lines are too few")


def test_the_window_leaves_a_middle() -> None:
    assert [window_of(total) for total in (20, 1000, 10**6)] == [1, 50, 1000]


def test_about_half_of_the_files_go_in_batches() -> None:
    batched = sum(is_batched(f"folder/file-{number}") for number in range(1000))
    assert 400 < batched < 600

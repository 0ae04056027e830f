"""Warnings of several processes: only what is new is asked for, and what cannot be reached is named."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import trio

from broker.console.cluster_warnings import AGAIN_S, LogSource, WarningFeed, lines_in
from broker.errors import ServiceNotReadyError
from quire.service.latest.warnings import WarningRing


class FakeProcess:
    """Another process with a ring."""

    def __init__(self) -> None:
        self.ring = WarningRing()
        self.asked: list[str] = []
        self.error: Exception | None = None

    def warn(self, text: str, at: str) -> None:
        self.ring.keep({"timestamp": at, "level": "warning", "logger": "x", "event": text})

    async def fetch(self, path: str) -> Any:
        await trio.lowlevel.checkpoint()
        self.asked.append(path)
        if self.error is not None:
            raise self.error
        after = int(path.rpartition("=")[2])
        lines, left_off = self.ring.after(after)
        newest = lines[-1].number if lines else self.ring.newest
        return {"newest": newest, "left_off": left_off, "lines": [each.as_json() for each in lines]}


def feed_of(*processes: FakeProcess) -> tuple[WarningFeed, FakeProcess]:
    own = FakeProcess()

    async def sources() -> Iterable[LogSource]:
        await trio.lowlevel.checkpoint()
        return [LogSource("bookie", f"b{number}", each.fetch) for number, each in enumerate(processes)]

    return WarningFeed(lambda: "me", sources, own.ring), own


def events(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["source"], each["event"]) for each in found["lines"]]


async def test_lines_of_all_processes_come_in_the_order_of_their_times() -> None:
    first, second = FakeProcess(), FakeProcess()
    feed, own = feed_of(first, second)
    second.warn("one", "2026-01-01T00:00:01Z")
    first.warn("two", "2026-01-01T00:00:02Z")
    second.warn("three", "2026-01-01T00:00:03Z")
    own.warn("mine", "2026-01-01T00:00:09Z")
    await feed.refresh()
    assert events(feed.after(0)) == [("me", "mine"), ("b1", "one"), ("b0", "two"), ("b1", "three")]
    assert events(feed.after(3)) == [("b1", "three")]


async def test_only_new_lines_are_asked_for_and_not_too_often() -> None:
    process = FakeProcess()
    feed, own = feed_of(process)
    process.warn("a", "1")
    await feed.refresh()
    own.warn("mine", "2")
    await feed.refresh()
    assert process.asked == ["/quire/warnings?after=0"]
    assert events(feed.after(0)) == [("b0", "a"), ("me", "mine")]
    await trio.sleep(AGAIN_S + 0.1)
    await feed.refresh()
    assert process.asked[1:] == ["/quire/warnings?after=1"]


async def test_a_process_that_was_started_again_begins_again() -> None:
    process = FakeProcess()
    feed, _ = feed_of(process)
    for number in range(5):
        process.warn(str(number), "1")
    await feed.refresh()
    process.ring = WarningRing()
    process.warn("after the start", "2")
    await trio.sleep(AGAIN_S + 0.1)
    await feed.refresh()
    assert events(feed.after(5)) == [("b0", "after the start")]


@pytest.mark.parametrize("error", [OSError("refused"), ServiceNotReadyError("401"), ValueError("no JSON")])
async def test_a_process_that_cannot_be_reached_is_named_until_it_can(error: Exception) -> None:
    process = FakeProcess()
    feed, _ = feed_of(process)
    process.error = error
    await feed.refresh()
    assert feed.after(0)["sources"][1] == {"kind": "bookie", "name": "b0", "problem": str(error)}
    process.error = None
    await trio.sleep(AGAIN_S + 0.1)
    await feed.refresh()
    assert feed.after(0)["sources"][1]["problem"] == ""


def test_an_answer_of_another_shape_is_refused() -> None:
    wrong: Any
    for wrong in ([], {"lines": [{}], "newest": 1}, {"lines": None, "newest": 1}, None):
        with pytest.raises(ValueError, match="no list of warnings"):
            lines_in(wrong)


async def test_a_page_that_followed_an_earlier_process_gets_all_lines() -> None:
    feed, own = feed_of()
    own.warn("after the restart", "1")
    await feed.refresh()
    assert events(feed.after(1000)) == [("me", "after the restart")]

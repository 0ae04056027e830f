"""Streams of server-sent events: what changed is sent, problems are said, and they end with their page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from starlette.types import Message

from broker.admin.errors import OverloadedError
from broker.console.cluster_events import QUIET_S, STREAM_S, STREAMS_MAX, Streams
from quire.metadata.errors import MetadataUnavailableError


class FakePage:
    """A page that follows a stream for some seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.bodies: list[str] = []

    async def receive(self) -> Message:
        await trio.sleep(self.seconds)
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await trio.lowlevel.checkpoint()
        if message["type"] == "http.response.body" and message["body"]:
            self.bodies.append(message["body"].decode())

    async def follow(self, streams: Streams, ask: Callable[[], Awaitable[Any]]) -> list[str]:
        await streams.make(ask, 1.0)({"type": "http", "method": "GET"}, self.receive, self.send)
        return self.bodies


def answers(*values: Any) -> Callable[[], Awaitable[Any]]:
    """Return a function that gives these values one by one, and then the last one; errors are raised."""
    left = list(values)

    async def ask() -> Any:
        await trio.lowlevel.checkpoint()
        value = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(value, Exception):
            raise value
        return value

    return ask


async def test_a_value_is_sent_when_it_changed() -> None:
    sent = await FakePage(6.5).follow(Streams(), answers({"a": 1}, {"a": 1}, None, {"a": 2}))
    assert sent == ['event: data\ndata: {"a":1}\n\n', 'event: data\ndata: {"a":2}\n\n']


async def test_a_problem_is_said_and_the_stream_goes_on() -> None:
    sent = await FakePage(4.5).follow(Streams(), answers({"a": 1}, MetadataUnavailableError("away"), {"a": 1}))
    assert [each.split("\n")[0] for each in sent] == ["event: data", "event: problem", "event: data"]
    assert '"away"' in sent[1]


async def test_a_quiet_stream_shows_that_it_is_there() -> None:
    assert ": still here\n\n" in await FakePage(QUIET_S + 3).follow(Streams(), answers({"a": 1}))


async def test_a_stream_ends_with_its_page_and_at_the_latest_after_its_time() -> None:
    streams = Streams()
    start = trio.current_time()
    await FakePage(3).follow(streams, answers(1))
    assert trio.current_time() - start == pytest.approx(3)
    await FakePage(float("inf")).follow(streams, answers(1))
    assert trio.current_time() - start == pytest.approx(STREAM_S + 3, abs=2)
    assert streams.open == 0


async def test_no_more_streams_than_the_maximum_are_open() -> None:
    streams = Streams()
    streams.open = STREAMS_MAX
    with pytest.raises(OverloadedError):
        streams.make(answers(1), 1.0)


class StuckPage(FakePage):
    """A page that reads nothing, until it is gone."""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body" and message.get("more_body"):
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()


async def test_a_page_that_reads_nothing_keeps_one_value_and_ends_like_others() -> None:
    streams, asked = Streams(), list[float]()

    async def ask() -> Any:
        await trio.lowlevel.checkpoint()
        asked.append(trio.current_time())
        return len(asked)

    await StuckPage(100).follow(streams, ask)
    assert len(asked) == 1, "no value is made for a page that has not read the last one"
    await StuckPage(float("inf")).follow(streams, ask)
    assert (len(asked), streams.open) == (2, 0)


async def test_streams_that_end_make_room_for_others() -> None:
    streams = Streams()
    async with trio.open_nursery() as nursery:
        for _ in range(STREAMS_MAX):
            nursery.start_soon(FakePage(3).follow, streams, answers(1))
        await trio.sleep(1)
        assert streams.open == STREAMS_MAX
        with pytest.raises(OverloadedError):
            streams.make(answers(1), 1.0)
        await trio.sleep(3)
        streams.make(answers(1), 1.0)
        assert streams.open == 0

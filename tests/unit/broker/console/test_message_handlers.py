"""The message viewer over the REST: hostile messages neither hold the event loop nor hide others."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import trio

from broker.console.messages import handlers
from quire.client.compression import compress
from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.pulsar_frames import entry, send
from tests.unit.broker.counted_steps import CALLS_MAX, Steps
from tests.unit.broker.peers import Room, in_broker
from tests.unit.broker.rest import rest_of
from tests.unit.managed_ledger.fake_ledgers import InlineOffload

PATH = "/console/api/messages/public/default/orders"


async def stored(room: Room, *entries: bytes) -> None:
    peer = await room.connect()
    await peer.producer()
    for number, each in enumerate(entries):
        peer.stream.arrive(send(number, 1, stored=each))
        await peer.expect(pb.BaseCommand.SEND_RECEIPT)


async def looked(room: Room, query: str = "from=earliest") -> tuple[Any, float]:
    """Return the answer, and the calls in the longest step of any task."""
    async with rest_of(room, console=True) as rest:
        steps = Steps(trio.lowlevel.current_task(), real=False)
        trio.lowlevel.add_instrument(steps)
        found: list[Any] = []

        async def ask() -> None:
            found.append(await rest.get(f"{PATH}?{query}"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
        trio.lowlevel.remove_instrument(steps)
        sys.setprofile(None)
    return found[0], steps.longest


async def test_a_message_with_a_lone_surrogate_hides_no_other() -> None:
    async with in_broker() as room:
        await stored(room, entry(b'{"a":"\\ud800"}'), entry(b"ok"))
        found, _ = await looked(room)
        assert [each["value"]["text"] for each in found["messages"]] == ['{\n  "a": "?"\n}', "ok"]


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the jobs of workers, whose calls do not count as those of the event loop."""
    names: list[str] = []

    async def run(self: InlineOffload, job: Callable[[], Any], *, name: str = "") -> Any:
        await trio.lowlevel.checkpoint()
        counting = sys.getprofile()
        sys.setprofile(None)
        found = job()
        sys.setprofile(counting)
        names.append(name)
        return found

    monkeypatch.setattr(InlineOffload, "run", run)
    return names


async def test_messages_that_take_long_hold_no_step_of_the_event_loop(workers: list[str]) -> None:
    deep = b"[" * 300 + b"1," * 60_000 + b"1" + b"]" * 300
    batch = b"\0\0\0\x02\x18\0" * 9000
    async with in_broker() as room:
        await stored(
            room,
            *(entry(deep) for _ in range(3)),
            entry(batch, num_messages_in_batch=9000),
            entry(
                compress(pb.LZ4, batch), num_messages_in_batch=9000, compression=pb.LZ4, uncompressed_size=len(batch)
            ),
        )
        for query in (
            "from=earliest&limit=200",
            "limit=200",
            "from=earliest&text=nowhere",
            "from=earliest&shown=1000000",
        ):
            found, longest = await looked(room, query)
            assert found["looked"] >= 4
            assert longest <= CALLS_MAX, f"{query}: {longest:.0f} calls in one step"
        assert {"console message", "console rows"} <= set(workers)


async def test_one_answer_decompresses_no_more_than_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "READ_BYTES_MAX", 1 << 20)
    zeros = bytes(600_000)
    each = entry(compress(pb.LZ4, zeros), compression=pb.LZ4, uncompressed_size=len(zeros))
    async with in_broker() as room:
        await stored(room, *[each] * 6)
        found, _ = await looked(room)
        assert (len(found["messages"]), found["more"], found["later"] is None) == (2, True, False)

"""broker.topics.deduplication: a snapshot of as many producers as fit does not hold the event loop."""

from __future__ import annotations

import pytest
import trio

from broker.topics.deduplication.sequences import BYTES_PER_NAME, SNAPSHOT_BYTES_MAX
from tests.unit.broker.counted_steps import CALLS_MAX, Steps
from tests.unit.broker.peers import Room

NAME = "producer-{:05}"
FITTING = SNAPSHOT_BYTES_MAX // (BYTES_PER_NAME + len(NAME.format(0)))


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.full)])
@pytest.mark.broker(deduplication=True, deduplication_names_max=20_000)
async def test_a_snapshot_of_many_producers_does_not_hold_the_event_loop(real: bool, room: Room) -> None:
    peer = await room.connect()
    await peer.producer()
    await peer.publish(b"1")
    deduplication = (await room.topic()).deduplication
    assert deduplication is not None
    sequences = deduplication.sequences
    sequences.recover([(NAME.format(number), number) for number in range(20_000 - 1)], trio.current_time())
    steps = Steps(trio.lowlevel.current_task(), real=real)

    async def take() -> None:
        deduplication.take_snapshot((await room.topic()).ledger.last_confirmed)

    trio.lowlevel.add_instrument(steps)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
    await trio.sleep(2)
    trio.lowlevel.remove_instrument(steps)
    stored = deduplication._cursor.store
    assert stored is not None
    assert stored.bytes_written > SNAPSHOT_BYTES_MAX // 2
    assert FITTING // 2 < len(deduplication._cursor.properties) <= FITTING
    assert steps.longest <= (0.010 if real else CALLS_MAX), f"{steps.longest} in one step of {steps.where}"

"""Fuzzed frames of both versions at a bookie in memory. tests/cluster/test_fuzzed_frames.py has its port."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
import trio.testing

from bookie.bookie import Bookie
from bookie.server import serve_client
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.v2 import Rc
from tests.support.fuzzing.bookie_frames import conversation
from tests.unit.bookie.build import Client, add_frame, entry
from tests.unit.world.pipes import pipe_pair


@pytest.mark.seeded
@pytest.mark.parametrize("seed", [1, 2])
async def test_fuzzed_frames_are_handled_and_a_good_client_beside_them_is_served(
    bookie: Bookie, client: Client, log_events: list[dict[str, Any]], seed: int
) -> None:
    rng = random.Random(seed)
    number = 0
    while bookie.stats.frames < 3000:
        near, far = pipe_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_client, bookie, far)
            near.send_nowait((b"".join(conversation(rng, 30)[1]),))
            assert await client.ask(add_frame(1, number)) == [v2.AddAcks(Rc.OK, 1, number, number)]
            if rng.random() < 0.7:
                await trio.testing.wait_all_tasks_blocked()  # all of it is handled
            near.close()
        number += 1
    for each in range(number):
        [answer] = await client.ask(v2.read_request(1, each))
        assert isinstance(answer, v2.ReadResponse)
        assert bytes(answer.entry) == entry(1, each)
    assert number > 50


async def test_each_request_counts_once(bookie: Bookie, client: Client) -> None:
    await client.ask(add_frame(1, 0) + add_frame(1, 1) + v2.read_request(1, 0), answers=2)
    assert bookie.stats.frames == 3

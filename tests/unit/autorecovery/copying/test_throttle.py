"""The throttle."""

from __future__ import annotations

import trio

from autorecovery.copying.throttle import Throttle


async def test_no_more_than_the_rate_passes_in_the_long_run() -> None:
    throttle = Throttle(100)
    began = trio.current_time()
    for _ in range(50):
        await throttle.take(40)
    assert 18 <= trio.current_time() - began <= 20


async def test_what_was_not_used_is_kept_for_a_second_only() -> None:
    throttle = Throttle(100)
    await trio.sleep(60)
    began = trio.current_time()
    for _ in range(6):
        await throttle.take(100)
    assert 4 <= trio.current_time() - began <= 5


async def test_without_a_rate_everything_passes_at_once() -> None:
    began = trio.current_time()
    for rate in (0, -1):
        await Throttle(rate).take(10**12)
    assert trio.current_time() == began

from __future__ import annotations

import trio

from quire.world.doors import World
from simulation import Universe


async def test_a_paused_host_does_nothing_and_goes_on_where_it_stood(universe: Universe) -> None:
    ticks: list[tuple[str, float]] = []

    async def main(world: World, stop: trio.Event) -> None:
        async def tick(name: str) -> None:
            while True:
                await trio.sleep(1.0)
                ticks.append((name, trio.current_time()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(tick, "a")
            await tick("b")

    host, other = universe.host("host"), universe.host("other")
    host.start(main)
    await trio.sleep(1.5)
    host.pause()
    assert host.paused
    assert not other.paused
    await trio.sleep(10)
    host.resume()
    await trio.sleep(1.2)
    assert sorted(ticks[:2]) == [("a", 1.0), ("b", 1.0)]
    assert sorted(ticks[2:4]) == [("a", 11.5), ("b", 11.5)]
    assert sorted(ticks[4:]) == [("a", 12.5), ("b", 12.5)]


async def test_others_run_on_while_a_host_is_paused(universe: Universe) -> None:
    log: list[str] = []

    async def main(world: World, stop: trio.Event) -> None:
        for _ in range(3):
            await trio.sleep(1.0)
            log.append("paused one")

    async def other_main(world: World, stop: trio.Event) -> None:
        for _ in range(3):
            await trio.sleep(1.0)
            log.append("other")

    host, other = universe.host("host"), universe.host("other")
    host.start(main)
    other.start(other_main)
    await trio.sleep(0.5)
    host.pause()
    await other.wait_down()
    host.resume()
    await host.wait_down()
    assert log == ["other"] * 3 + ["paused one"] * 3


async def test_a_paused_host_can_crash(universe: Universe) -> None:
    async def main(world: World, stop: trio.Event) -> None:
        await trio.sleep_forever()

    host = universe.host("host")
    host.start(main)
    await trio.sleep(1)
    host.pause()
    await host.crash()
    assert (host.paused or host.running) is False


async def test_a_history_may_end_with_a_host_paused(universe: Universe) -> None:
    async def main(world: World, stop: trio.Event) -> None:
        await trio.sleep_forever()

    host = universe.host("host")
    host.start(main)
    await trio.sleep(1.5)
    host.pause()

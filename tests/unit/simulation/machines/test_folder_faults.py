"""Covers simulation/machines: folder_faults.py and blocking.py, with the disk, the maps and the workers of a host."""

from __future__ import annotations

import errno
from functools import partial

import pytest
import trio

from quire.world.doors import GivenUpError, Lane, World
from simulation import Universe, run
from simulation.machines.host import Host


def write_both(world: World, done: list[str]) -> None:
    for folder in ("/a", "/b"):
        world.disk.make_dirs(folder)
        file = world.disk.open(f"{folder}/file", create=True)
        file.pwrite(b"data", 0)
        file.sync()
        done.append(folder)


def on_host(seed: int, test) -> None:
    """Run `test(host, world)` on a host."""

    async def main(universe: Universe) -> None:
        host = universe.host("host")

        async def server(world: World, stop: trio.Event) -> None:
            await test(host, world)

        host.start(server)
        await host.wait_down()

    run(seed, main)


async def hangs_in_the_middle(host: Host, world: World) -> None:
    done: list[str] = []
    await world.offload.run(partial(write_both, world, done))
    host.disk.folders.hang("/b")
    done.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(world.offload.run, partial(write_both, world, done)))
        await trio.sleep(60)
        assert done == ["/a"]
        assert await world.offload.run(partial(world.disk.read, "/a/file")) == b"data"
        host.disk.folders.mend("/b")
        await trio.sleep(1)
        assert done == ["/a", "/b"]


async def is_given_up(host: Host, world: World) -> None:
    host.disk.folders.hang("/b")
    done: list[str] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(_expect_given_up, world, done))
        await trio.sleep(60)
        world.offload.give_up()
    assert done == ["/a", "given up"]


async def _expect_given_up(world: World, done: list[str]) -> None:
    with pytest.raises(GivenUpError):
        await world.offload.run(partial(write_both, world, done))
    done.append("given up")


async def fails_alone(host: Host, world: World) -> None:
    done: list[str] = []
    await world.offload.run(partial(write_both, world, done))
    for harm, expected in ((host.disk.folders.break_, errno.EIO), (host.disk.folders.fill, errno.ENOSPC)):
        harm("/b")
        done.clear()
        with pytest.raises(OSError, match="/b/file") as caught:
            await world.offload.run(partial(lengthen, world, done))
        assert caught.value.errno == expected
        assert done == ["/a"]
        host.disk.folders.mend("/b")
    await world.offload.run(partial(lengthen, world, done))
    assert done == ["/a", "/a", "/b"]


def lengthen(world: World, done: list[str]) -> None:
    for folder in ("/a", "/b"):
        file = world.disk.open(f"{folder}/file")
        file.pwrite(b"x", file.size())
        done.append(folder)


async def is_not_for_the_event_loop(host: Host, world: World) -> None:
    world.disk.make_dirs("/b")
    host.disk.folders.hang("/b")
    with pytest.raises(AssertionError, match="event loop"):
        world.disk.names("/b")


@pytest.mark.parametrize("test", [hangs_in_the_middle, is_given_up, fails_alone, is_not_for_the_event_loop])
def test_a_fault_of_one_folder(test) -> None:
    on_host(1, test)


async def crash_among_hanging_jobs(universe: Universe) -> None:
    done: list[str] = []
    host = universe.host("host")
    host.disk.folders.hang("/b")

    async def server(world: World, stop: trio.Event) -> None:
        lane: Lane[int] = world.offload.lane(
            "lane", lambda items: write_both(world, done), lambda *_: done.append("told")
        )
        lane.put(1)
        await world.offload.run(partial(write_both, world, done))

    host.start(server)
    await trio.sleep(60)
    assert done == ["/a", "/a"]
    await host.crash()
    host.disk.folders.mend("/b")
    await trio.sleep(60)
    assert done == ["/a", "/a"]


def test_a_crash_ends_the_jobs_that_hang() -> None:
    run(1, crash_among_hanging_jobs)

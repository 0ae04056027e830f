"""The same seed gives the same history: twice in this process, and in others under other hash seeds.

As a script it prints the digests of the seeds in its arguments.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio

import simulation
from simulation import Universe, run, run_world

ROOT = Path(simulation.__file__).parents[1]


async def story(universe: Universe) -> str:
    """Run a journal server that is killed now and then, and a client that continues to send to it."""

    async def server(world, stop):
        world.disk.make_dirs("/data")
        file = world.disk.open("/data/journal", create=True)
        world.disk.sync_dir("/data")
        index = world.key_value.open("/data/index")
        end = [file.size()]

        def write(items):
            end[0] += file.pwritev(items, end[0])
            file.sync()
            batch = index.batch()
            batch.put(b"%d" % end[0], b"")
            index.write(batch, sync=world.rng.random() < 0.5)

        lane = world.offload.lane(
            "journal", write, lambda items, result, error: universe.trace.event("server", "Acked", items=len(items))
        )
        listener = await world.network.listen("0.0.0.0", 6650)
        async with trio.open_nursery() as nursery:

            async def serve(stream):
                buffer = bytearray(4096)
                try:
                    while count := await stream.receive_into(memoryview(buffer)):
                        lane.put(bytes(buffer[:count]))
                except OSError:
                    pass
                stream.close()

            async def accept():
                while True:
                    nursery.start_soon(serve, await listener.accept(), name="serve")

            nursery.start_soon(accept, name="accept")
            await stop.wait()
            nursery.cancel_scope.cancel()
        await lane.aclose()

    async def client(world, stop):
        while not stop.is_set():
            try:
                stream = await world.network.connect("server", 6650)
                while not stop.is_set():
                    stream.send_nowait([bytes(world.rng.randint(1, 2000))])
                    await trio.sleep(0.002)
                    await stream.wait_writable()
            except OSError:
                await trio.sleep(0.02)

    hosts = [universe.host("server"), universe.host("client-1"), universe.host("client-2")]
    for host, main in zip(hosts, (server, client, client), strict=True):
        host.start(main)
    for _ in range(4):
        await trio.sleep(universe.rng.uniform(0.02, 0.1))
        await hosts[0].crash(lose_unsynced=universe.rng.random() < 0.8)
        await trio.sleep(universe.rng.uniform(0.0, 0.05))
        await hosts[0].restart()
    await trio.sleep(0.05)
    for host in hosts:
        await host.stop()
    assert universe.trace.count > 100
    return universe.trace.digest()


def digests(*seeds: int) -> list[str]:
    return [run(seed, story, steps=True) for seed in seeds]


def test_one_seed_one_history_and_another_seed_another():
    first = digests(*range(8))
    assert digests(*range(8)) == first
    assert len(set(first)) == 8


def test_other_processes_with_other_hash_seeds_agree():
    here = digests(3, 4)
    for hash_seed in ("1", "2"):
        output = subprocess.run(
            [sys.executable, __file__, "3", "4"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        assert output.split() == here


async def counted(universe: Universe) -> tuple[int, float]:
    await story(universe)
    return len(universe.hosts["server"].crashes), trio.current_time()


def test_watching_the_steps_changes_nothing_but_the_trace():
    assert run(5, counted, steps=True) == run(5, counted)


async def answer(world) -> int:
    return 42


async def fail(world) -> None:
    raise KeyError("mine")


def test_run_world_gives_the_result_or_the_error_itself():
    assert run_world(1, answer) == 42
    with pytest.raises(KeyError, match="mine"):
        run_world(1, fail)


if __name__ == "__main__":
    print(*digests(*map(int, sys.argv[1:])))

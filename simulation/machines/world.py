"""Universe: hosts, the network between them, the history; all from one seed."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from quire.world.doors import World
from simulation.machines.host import Host, source
from simulation.machines.network import SimNetwork
from simulation.machines.scheduler import HOST, Pauses, is_deterministic, run_seeded
from simulation.machines.trace import Trace

T = TypeVar("T")


class Universe:
    """Everything in a run, made from `seed` by `run`. Without one, disks and maps of its hosts can still be tested."""

    def __init__(self, seed: int, *, keep: bool = False) -> None:
        self.seed = seed
        self.trace = Trace(keep=keep)
        self.rng = self.derive("universe")
        """For the nemesis and the workload; hosts have their own."""
        self.network = SimNetwork(self.derive("network"), self.trace)
        self.hosts: dict[str, Host] = {}
        self.pauses = Pauses()
        self._nursery: trio.Nursery | None = None

    @property
    def nursery(self) -> trio.Nursery:
        """Return the nursery of the hosts. Tasks started here (the nemesis, checkers) need a `name=`."""
        assert self._nursery is not None, "the universe is not running: use simulation.run"
        return self._nursery

    def derive(self, *names: str) -> random.Random:
        """Return a seeded source of choices for a name."""
        return source(self.seed, *names)

    def host(self, name: str) -> Host:
        """Return the host of that name, made at the first request."""
        return self.hosts.get(name) or Host(self, name)

    def add(self, host: Host) -> None:
        assert host.name not in self.hosts, f"two hosts are called {host.name}"
        self.hosts[host.name] = host

    async def live(self, main: Callable[[Universe], Awaitable[T]], limit_s: float) -> T:
        """Run `main`, then end every running host. Raises TooSlowError after `limit_s` virtual seconds."""
        async with self.living(limit_s):
            return await main(self)

    @asynccontextmanager
    async def living(self, limit_s: float) -> AsyncIterator[None]:
        """Let hosts run while entered, in a seeded loop; end those that still run at its exit.

        Raises TooSlowError after `limit_s` virtual seconds.
        """
        if not is_deterministic():
            raise RuntimeError("a universe lives in a loop that takes its choices from a seed: see `deterministic`")
        failure = None
        with trio.fail_after(limit_s):
            async with trio.open_nursery() as self._nursery:
                try:
                    yield
                except Exception as error:
                    failure = error  # raised outside the nursery, so that it is not wrapped in an exception group
                finally:
                    for host in self.hosts.values():
                        host.resume()  # otherwise its tasks could not even be cancelled
                for host in self.hosts.values():
                    host.end()
                self._nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure


def run(
    seed: int,
    main: Callable[[Universe], Awaitable[T]],
    *,
    keep: bool = False,
    steps: bool = False,
    limit_s: float = 3600.0,
) -> T:
    """Run `main(universe)` under virtual time and a seeded scheduler; return its result.

    `keep` keeps the lines of the trace; `steps` adds every step of every task to it: slow, but it shows where two
    histories differ. After `limit_s` virtual seconds the run ends with TooSlowError: otherwise tasks that all wait for
    each other, without any deadline, would hang forever."""
    universe = Universe(seed, keep=keep)
    on_step = (lambda name: universe.trace.event("", "Step", task=name)) if steps else None
    return run_seeded(seed, lambda: universe.live(main, limit_s), on_step=on_step)


def run_world(seed: int, main: Callable[[World], Awaitable[T]]) -> T:
    """Run `main(world)` on the only host of a universe; for tests that need a World and no story."""

    async def story(universe: Universe) -> T:
        results: list[T] = []
        failures: list[Exception] = []

        async def on_host(world: World, stop: trio.Event) -> None:
            try:
                results.append(await main(world))
            except Exception as error:
                failures.append(error)

        host = universe.host("host")
        host.start(on_host)
        await host.wait_down()
        if failures:
            raise failures[0]
        return results[0]

    return run(seed, story)


@asynccontextmanager
async def in_universe(seed: int, *, keep: bool = False, limit_s: float = 3600.0) -> AsyncIterator[Universe]:
    """Enter a universe in a loop that is seeded already; the arguments are those of `run`."""
    universe = Universe(seed, keep=keep)
    async with universe.living(limit_s):
        yield universe


@asynccontextmanager
async def on_host(universe: Universe, name: str = "host") -> AsyncIterator[World]:
    """Switch a host on, and off at the exit. The caller's own task does not end when the host crashes."""
    worlds: list[World] = []
    on = trio.Event()

    async def idle(world: World, stop: trio.Event) -> None:
        worlds.append(world)
        on.set()
        await stop.wait()

    host = universe.host(name)
    host.start(idle)
    await on.wait()
    token = HOST.set(name)
    try:
        yield worlds[0]
    finally:
        HOST.reset(token)
    await host.stop()


@asynccontextmanager
async def in_world(seed: int) -> AsyncIterator[World]:
    """Enter the World of the only host of a universe, in a loop that is seeded already."""
    async with in_universe(seed) as universe, on_host(universe) as world:
        yield world

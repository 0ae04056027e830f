"""Host: one machine, which crashes and comes back. Its disk and its maps outlive its incarnations."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol, TypeAlias

import trio

from quire.world.doors import World
from quire.world.faults import Faults
from simulation.machines.disk import SimDisk
from simulation.machines.disk_image import DiskImage, Dropped
from simulation.machines.key_value import MapImages, SimKeyValueMaker
from simulation.machines.network import HostNetwork, SimNetwork
from simulation.machines.offload import SimOffload
from simulation.machines.power import Power
from simulation.machines.scheduler import HOST, Pauses
from simulation.machines.trace import Trace

Main: TypeAlias = Callable[[World, trio.Event], Awaitable[None]]
"""Main function of a host: takes its World and the event that asks it to stop; returning ends the incarnation."""

_EPOCH_MS = 1_767_225_600_000
"""Wall clock at virtual time 0: 2026-01-01T00:00:00Z."""
_UNWIND_S = 3600.0
"""Virtual seconds in which a crashed host's tasks must have ended."""


class _SimClock:
    def __init__(self, skew_ms: int) -> None:
        self._skew_ms = skew_ms

    def wall_ms(self) -> int:
        return _EPOCH_MS + self._skew_ms + round(trio.current_time() * 1000)


class HostUniverse(Protocol):
    """Universe as used by a host."""

    @property
    def network(self) -> SimNetwork: ...

    @property
    def trace(self) -> Trace: ...

    @property
    def pauses(self) -> Pauses: ...

    @property
    def nursery(self) -> trio.Nursery:
        """Return the nursery of the hosts' tasks."""

    def derive(self, *names: str) -> random.Random:
        """Return a seeded source of choices for a name."""

    def add(self, host: Host) -> None:
        """Add a new host."""


class Host:
    """A machine of `universe`. At most one incarnation of it lives at a time."""

    def __init__(self, universe: HostUniverse, name: str) -> None:
        self.name = name
        self.disk = DiskImage()
        """Its disk, and damage to it: `flip`, `cut`, `limit`, `fail_syncs`, and that of single `folders`."""
        self.maps = MapImages()
        self.slowness = 1.0
        """Factor by which its disks are slower than usual."""
        self._hangs_until = 0.0
        self.incarnation = 0
        self.crashes: list[Dropped] = []
        """Losses of each crash, in order."""
        self._universe = universe
        self._rng = universe.derive(name)
        self._power = Power()
        self._power.on = False
        self._offload: SimOffload | None = None
        self._dying = False
        self._scope: trio.CancelScope | None = None
        self._main: Main | None = None
        self._stop = trio.Event()
        self._down = trio.Event()
        self._down.set()
        universe.add(self)

    @property
    def running(self) -> bool:
        """Return whether an incarnation lives."""
        return self._power.on

    def world(self, nursery: trio.Nursery | None = None) -> World:
        """Switch the machine on and make the World of this incarnation; its lanes run in `nursery`. `start` also runs
        `main`."""
        return self._make(self._switch_on(), nursery)

    @property
    def paused(self) -> bool:
        return self.name in self._universe.pauses

    def pause(self) -> None:
        """Stop the process in place, as SIGSTOP does: its peers see no change, its clock continues."""
        if self._power.on and not self.paused:
            self._universe.trace.event(self.name, "HostPaused")
            self._universe.pauses.pause(self.name)

    def resume(self) -> None:
        """Resume it; no effect if it is not paused."""
        if self.paused:
            self._universe.trace.event(self.name, "HostResumed")
            self._universe.pauses.resume(self.name)

    def slow(self, factor: float) -> None:
        """Slow down each job of this host's workers, which do the disk operations, by `factor` from now on."""
        self.slowness = factor
        if self._offload is not None:
            self._offload.slowness = factor

    def hang(self, seconds: float) -> None:
        """Make the disk hang: no job that a worker begins within the next `seconds` ends before they are over."""
        self._hangs_until = trio.current_time() + seconds
        if self._offload is not None:
            self._offload.hangs_until = self._hangs_until

    def _switch_on(self) -> Power:
        assert not self._power.on, f"{self.name} is running"
        self.incarnation += 1
        self._power = Power(self._blown)
        self._universe.trace.event(self.name, "HostStarted", incarnation=self.incarnation)
        return self._power

    def _make(self, power: Power, nursery: trio.Nursery | None) -> World:
        trace = self._universe.trace
        # Each door draws from its own source, so that another draw in one does not change the choices of others.
        rngs = [
            self._universe.derive(f"{self.name}/{self.incarnation}/{door}") for door in ("world", "offload", "clock")
        ]
        disk = SimDisk(self.disk, power, trace, self.name)
        faults = Faults()
        self._offload = SimOffload(rngs[1], power, trace, self.name, nursery, faults, self.disk.folders)
        self._offload.slowness = self.slowness
        self._offload.hangs_until = self._hangs_until
        return World(
            clock=_SimClock(rngs[2].randint(-50, 50)),
            disk=disk,
            key_value=SimKeyValueMaker(self.maps, disk, power, trace, self.name),
            network=HostNetwork(self._universe.network, self.name, power),
            offload=self._offload,
            rng=rngs[0],
            faults=faults,
        )

    def start(self, main: Main) -> None:
        """Switch on and run `main(world, stop)` in a task of its own. An error that leaves it ends the whole run."""
        assert self._down.is_set(), f"{self.name} is running, or its crashed tasks still are: await wait_down()"
        self._main = main
        self._stop = trio.Event()
        self._down = trio.Event()
        self._scope = trio.CancelScope()
        # On from now: a crash before the task's first step must find an incarnation to kill.
        power = self._switch_on()
        self._universe.nursery.start_soon(self._live, main, power, name=f"{self.name}/{self.incarnation}")

    async def _live(self, main: Main, power: Power) -> None:
        assert self._scope is not None
        HOST.set(self.name)
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    power.check()
                    await main(self._make(power, nursery), self._stop)
                    self.end()
                    nursery.cancel_scope.cancel()
        except BaseException:
            # Exceptions that unwind in a dead host (PowerCut, Cancelled, and their consequences) are dropped.
            if power.on:
                raise
        finally:
            self.end()
            self._down.set()

    def crash_after(self, changes: int) -> None:
        """Crash after `changes` more changes to disk or maps: before the next one, even within a job."""
        self._power.fuse = changes

    def crash_at_sync(self, syncs: int) -> None:
        """Crash when `syncs` more files were synced: before the next sync, after its writes."""
        self._power.sync_fuse = syncs

    def cut_power(self, *, lose_unsynced: bool = True) -> None:
        """Crash at this instant. Without `lose_unsynced` only the process dies, as by SIGKILL: the page cache stays.

        Its tasks unwind afterwards; `wait_down` waits for them.
        """
        if not self._power.on:
            return
        self.resume()
        if self._offload is not None:
            self._dying = True
            self._offload.tear(self._rng)
            self._dying = False
        self._die(lose_unsynced)

    def _blown(self) -> None:
        """Crash for the fuse of `crash_after`, in the middle of some job, or of a job which `cut_power` tears."""
        if not self._dying:
            self._die(lose_unsynced=True)

    def _die(self, lose_unsynced: bool) -> None:
        self._power.on = False
        dropped = Dropped()
        if lose_unsynced:
            dropped = replace(self.disk.crash(self._rng), batches=self.maps.crash(self._rng))
        self.crashes.append(dropped)
        self._universe.trace.event(
            self.name,
            "HostCrashed",
            writes=dropped.writes,
            bytes=dropped.bytes,
            names=dropped.names,
            batches=dropped.batches,
        )
        self._universe.network.lose_host(self.name, self._rng)
        if self._scope is not None:
            self._scope.cancel()
        if self._offload is not None:
            self._offload.wake()

    async def crash(self, *, lose_unsynced: bool = True) -> Dropped:
        """Cut the power, and wait until the incarnation has ended. Return the losses."""
        self.cut_power(lose_unsynced=lose_unsynced)
        await self.wait_down()
        return self.crashes[-1] if self.crashes else Dropped()

    async def restart(self, main: Main | None = None) -> None:
        """Start again, with the same main unless another is given."""
        await self.wait_down()
        main = main or self._main
        assert main is not None, f"{self.name} was never started"
        self.start(main)

    async def stop(self) -> None:
        """Ask `main` to stop, and wait until it has."""
        self._stop.set()
        await self._down.wait()

    async def wait_down(self) -> None:
        """Wait until no task of an incarnation is left: after a crash at once, else until it ends."""
        if self._power.on:
            await self._down.wait()
            return
        with trio.move_on_after(_UNWIND_S):
            await self._down.wait()
            return
        raise AssertionError(f"{self.name} crashed, but some of its tasks wait on, behind a shield")

    def end(self) -> None:
        """End the process in good order: the peers see the end of their streams; the page cache stays."""
        self.resume()
        if self._power.on:
            self._power.on = False
            self._universe.trace.event(self.name, "HostStopped")
            self._universe.network.lose_host(self.name, None)


def source(seed: int, *names: str) -> random.Random:
    """Return a source of choices for each name, the same in every process (no `hash()` in it)."""
    return random.Random("/".join((str(seed), *names)))

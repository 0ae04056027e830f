"""Simulation: the doors to the world, made from one seed. Not shipped.

`run(seed, main)` runs `main(universe)`; `universe.host(name)` is a machine that can `start`, `crash` and `restart`.
"""

from simulation.machines.disk_image import DiskImage, Dropped
from simulation.machines.host import Host, Main
from simulation.machines.network import SimNetwork
from simulation.machines.power import PowerCut
from simulation.machines.scheduler import run_seeded
from simulation.machines.trace import Trace
from simulation.machines.world import Universe, run, run_world

__all__ = [
    "DiskImage",
    "Dropped",
    "Host",
    "Main",
    "PowerCut",
    "SimNetwork",
    "Trace",
    "Universe",
    "run",
    "run_seeded",
    "run_world",
]

"""The doors to the world, made from one seed; not shipped.

`run(seed, main)` runs `main(universe)`; `universe.host(name)` is a machine that can `start`, `crash` and `restart`.
"""

from simulation.disk import DiskImage, Dropped
from simulation.host import Host, Main
from simulation.network import SimNetwork
from simulation.power import PowerCut
from simulation.scheduler import run_seeded
from simulation.trace import Trace
from simulation.world import Universe, run, run_world

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

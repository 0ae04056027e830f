"""The simulated machine: scheduler, clock, disk, network, power."""

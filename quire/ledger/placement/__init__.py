"""Which bookies a new fragment gets, and in which order the copies of an entry are read.

A policy is pure but for its generator: it asks for the cluster as it is now, and decides. `make_placement` makes the
configured one; `random_placement` one for a list of bookies that somebody else knows.
"""

from __future__ import annotations

from quire.ledger.placement.guarded import GuardedPlacement, fixed_cluster
from quire.ledger.placement.policy import Adherence, Cluster, EnsemblePlacementPolicy, PlacementConfig, ReadHealth
from quire.ledger.placement.random_policy import RandomPolicy, choose_ensemble, replace_bookies
from quire.ledger.placement.registry import PolicyFactory, load_policy, make_placement, random_placement

__all__ = [
    "Adherence",
    "Cluster",
    "EnsemblePlacementPolicy",
    "GuardedPlacement",
    "PlacementConfig",
    "PolicyFactory",
    "RandomPolicy",
    "ReadHealth",
    "choose_ensemble",
    "fixed_cluster",
    "load_policy",
    "make_placement",
    "random_placement",
    "replace_bookies",
]

"""Choice of bookies for a new fragment, and of the order in which the copies of an entry are read.

A policy is pure except for its random generator: it gets the current cluster and decides. `make_placement` creates the
configured policy; `random_placement` creates one for a given list of bookies.
"""

from __future__ import annotations

from quire.ledger.placement.guarded import GuardedPlacement, fixed_cluster
from quire.ledger.placement.policy import Adherence, Cluster, EnsemblePlacementPolicy, PlacementConfig, ReadHealth
from quire.ledger.placement.random_policy import RandomPolicy, choose_ensemble, replace_bookies
from quire.ledger.placement.registry import PolicyFactory, load_policy, make_placement, make_plain, random_placement

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
    "make_plain",
    "random_placement",
    "replace_bookies",
]

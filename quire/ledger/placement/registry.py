"""Placement policies by name: ours, the original's class names for them, and `module:Class` of other packages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TypeAlias, cast

from quire.ledger.errors import PlacementPolicyError
from quire.ledger.placement.guarded import GuardedPlacement, fixed_cluster
from quire.ledger.placement.policy import Cluster, EnsemblePlacementPolicy, PlacementConfig
from quire.ledger.placement.rack_aware import RackAwarePolicy
from quire.ledger.placement.random_policy import RandomPolicy
from quire.ledger.placement.region_aware import RegionAwarePolicy
from quire.ledger.placement.zone_aware import ZoneAwarePolicy
from quire.world.doors import Rng

PolicyFactory: TypeAlias = Callable[[PlacementConfig, Callable[[], Cluster], Rng], EnsemblePlacementPolicy]

POLICIES: dict[str, PolicyFactory] = {
    "random": RandomPolicy,
    "rack-aware": RackAwarePolicy,
    "region-aware": RegionAwarePolicy,
    "zone-aware": ZoneAwarePolicy,
}

JAVA_NAMES = {
    "org.apache.bookkeeper.client.DefaultEnsemblePlacementPolicy": "random",
    "org.apache.bookkeeper.client.RackawareEnsemblePlacementPolicy": "rack-aware",
    "org.apache.bookkeeper.client.RegionAwareEnsemblePlacementPolicy": "region-aware",
    "org.apache.bookkeeper.client.ZoneawareEnsemblePlacementPolicy": "zone-aware",
}

METHODS = ("new_ensemble", "replace_bookie", "read_order", "adherence")


def load_policy(name: str) -> PolicyFactory:
    """Return the factory of the named policy; an empty name is the default. PlacementPolicyError."""
    name = name.strip() or PlacementConfig().policy
    factory = POLICIES.get(JAVA_NAMES.get(name, name))
    if factory is not None:
        return factory
    module_name, colon, class_name = name.partition(":")
    if not colon:
        known = ", ".join([*POLICIES, *JAVA_NAMES])
        raise PlacementPolicyError(f"ensemblePlacementPolicy={name} is unknown: use one of {known}, or module:Class")
    try:
        made = getattr(import_module(module_name), class_name)
    except Exception as error:  # the import of a foreign module may raise anything
        raise PlacementPolicyError(f"ensemblePlacementPolicy={name} cannot be loaded: {error!r}") from error
    missing = [method for method in METHODS if not callable(getattr(made, method, None))]
    if missing or not isinstance(made, type):
        raise PlacementPolicyError(
            f"ensemblePlacementPolicy={name} is no placement policy" + (f": no {', '.join(missing)}" if missing else "")
        )
    return cast(PolicyFactory, made)


def make_placement(config: PlacementConfig, cluster: Callable[[], Cluster], rng: Rng) -> EnsemblePlacementPolicy:
    """Return the configured policy, guarded; PlacementPolicyError. `cluster` is `BookieWatcher.cluster`."""
    factory = load_policy(config.policy)
    try:
        policy = factory(config, cluster, rng)
    except PlacementPolicyError:
        raise
    except Exception as error:  # a foreign constructor may raise anything
        raise PlacementPolicyError(f"ensemblePlacementPolicy={config.policy} cannot be created: {error!r}") from error
    return GuardedPlacement(policy, cluster, opportunistic_striping=config.opportunistic_striping)


def make_plain(config: PlacementConfig, cluster: Callable[[], Cluster], rng: Rng) -> EnsemblePlacementPolicy:
    """Return the configured policy without its guard, for questions whose answers are not used: nothing is logged.

    PlacementPolicyError.
    """
    return load_policy(config.policy)(config, cluster, rng)


def random_placement(available: Callable[[], Iterable[str]], rng: Rng) -> EnsemblePlacementPolicy:
    """Return a random policy for a given list of bookies, e.g. one fixed bookie, or those of a test or simulator."""
    return make_placement(PlacementConfig(policy="random"), fixed_cluster(available), rng)

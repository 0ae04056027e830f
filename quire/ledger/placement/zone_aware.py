"""ZoneAwarePolicy: spreads every write set over zones, and copies within one zone over its upgrade domains.

    location = /zone/upgrade-domain       anything else: unknown, and such a bookie is not used while this is strict

A write set spans desiredNumZonesPerWriteQuorum zones, or as many as possible, but at least minNumZonesPerWriteQuorum.
Its bookies in one zone are in different upgrade domains if possible, and never all in the same one, so that a zone can
be upgraded domain by domain. A write set may lose a zone, and its ledger must find a replacement then: the quorum must
be larger than the minimum, and the ensemble a multiple of the quorum, so that the sets that wrap around are as good.

Without enforceStrictZoneawarePlacement bookies are drawn at random, and only the rating says what they meet.

Source: BookKeeper's ZoneawareEnsemblePlacementPolicyImpl. The original draws place by place without backtracking; this
searches (search.py), for many zones before few, and for different domains before two. The original does not order
reads by health; we do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import product

from quire.ledger.errors import NotEnoughBookiesError, PlacementPolicyError
from quire.ledger.placement.drawing import candidates, check_candidates, shuffled
from quire.ledger.placement.policy import Adherence, Cluster, PlacementConfig, ReadHealth
from quire.ledger.placement.random_policy import check_replacements, with_replacements
from quire.ledger.placement.reading import read_order
from quire.ledger.placement.search import Labels, Search, covers, windows
from quire.world.doors import Rng

UNKNOWN = "/default-zone/default-upgradedomain"
"""Location of a bookie whose location does not have two parts."""


class ZoneAwarePolicy:
    """Placement policy over zones and upgrade domains."""

    def __init__(self, config: PlacementConfig, cluster: Callable[[], Cluster], rng: Rng) -> None:
        """Create the policy. PlacementPolicyError if fewer zones are desired than required."""
        if config.min_zones_per_write_quorum > config.desired_zones_per_write_quorum:
            raise PlacementPolicyError(
                f"minNumZonesPerWriteQuorum is {config.min_zones_per_write_quorum}, more than "
                f"desiredNumZonesPerWriteQuorum, {config.desired_zones_per_write_quorum}"
            )
        self._config = config
        self._cluster = cluster
        self._rng = rng

    def new_ensemble(
        self,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        exclude: Collection[str] = (),
        custom_metadata: Sequence[tuple[str, bytes]] = (),
    ) -> tuple[str, ...]:
        cluster = self._cluster()
        if self._config.strict_zones:
            self._check(ensemble_size, write_quorum)
        pool = self._pool(cluster, exclude)
        check_candidates(ensemble_size, pool)
        if not self._config.strict_zones:
            return tuple(pool[:ensemble_size])
        return tuple(self._choose([None] * ensemble_size, pool, cluster, write_quorum))

    def replace_bookie(
        self,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        ensemble: Sequence[str],
        failed: Mapping[int, str],
        exclude: Collection[str] = (),
        custom_metadata: Sequence[tuple[str, bytes]] = (),
    ) -> tuple[str, ...]:
        cluster = self._cluster()
        pool = self._pool(cluster, [*exclude, *ensemble])
        check_replacements(len(failed), len(pool))
        if not self._config.strict_zones:
            return with_replacements(ensemble, failed, pool)
        labels = [None if index in failed else zone_and_domain(each, cluster) for index, each in enumerate(ensemble)]
        return with_replacements(ensemble, failed, self._choose(labels, pool, cluster, write_quorum))

    def read_order(self, ensemble: Sequence[str], write_set: Sequence[int], health: ReadHealth) -> list[int]:
        return read_order(self._cluster(), ensemble, write_set, health, self._config.reorder_threshold_pending)

    def adherence(self, ensemble: Sequence[str], write_quorum: int, ack_quorum: int) -> Adherence:
        config, cluster = self._config, self._cluster()
        labels = [zone_and_domain(each, cluster) for each in ensemble]
        if len(ensemble) % write_quorum or write_quorum <= config.min_zones_per_write_quorum or UNKNOWN in labels:
            return Adherence.FAIL
        sets = windows(labels, write_quorum)
        if not all(_spans(each, config.min_zones_per_write_quorum) and _two_domains(each) for each in sets):
            return Adherence.FAIL
        desired = min(write_quorum, config.desired_zones_per_write_quorum)
        strict = all(_spans(each, desired) and _own_domains(each) for each in sets)
        return Adherence.MEETS_STRICT if strict else Adherence.MEETS_SOFT

    def _check(self, ensemble_size: int, write_quorum: int) -> None:
        """Raise PlacementPolicyError for sizes with which a lost zone could not be replaced."""
        if ensemble_size % write_quorum:
            raise PlacementPolicyError(
                f"E={ensemble_size} is not a multiple of Qw={write_quorum}, which enforceStrictZoneawarePlacement needs"
            )
        if write_quorum <= self._config.min_zones_per_write_quorum:
            raise PlacementPolicyError(
                f"Qw={write_quorum} is not larger than minNumZonesPerWriteQuorum="
                f"{self._config.min_zones_per_write_quorum}, which enforceStrictZoneawarePlacement needs"
            )

    def _pool(self, cluster: Cluster, exclude: Collection[str]) -> list[str]:
        """Return the bookies that may be chosen, in the order of a draw."""
        bookie_ids = candidates(cluster, exclude)
        if self._config.strict_zones:
            bookie_ids = [each for each in bookie_ids if zone_and_domain(each, cluster) != UNKNOWN]
        return shuffled(bookie_ids, cluster, self._config, self._rng)

    def _choose(self, labels: Labels, pool: Sequence[str], cluster: Cluster, write_quorum: int) -> list[str]:
        """Choose bookies for the open places of `labels`, which are locations; NotEnoughBookiesError."""
        config = self._config
        queues: dict[str, list[int]] = {}
        for rank, bookie_id in enumerate(pool):
            queues.setdefault(zone_and_domain(bookie_id, cluster), []).append(rank)
        known = len({_zone(each) for each in [*queues, *labels] if each is not None})
        least = config.min_zones_per_write_quorum
        most = min(write_quorum, config.desired_zones_per_write_quorum, max(known, least))

        def prefer(place: int, labels: Labels, label: str) -> tuple[int, ...]:
            near = [_zone(each) for each in labels[max(0, place - most + 1) : place] if each is not None]
            return (_zone(label) in near, label in labels)

        for zones, domains in product(range(most, least - 1, -1), (_own_domains, _two_domains)):

            def fits(labels: Labels, zones: int = zones, domains: Callable[[Labels], bool] = domains) -> bool:
                return _spans(labels, zones) and domains(labels)

            ranks = Search(labels, queues, write_quorum, fits, prefer).run()
            if ranks is not None:
                return [pool[rank] for rank in ranks]
        raise NotEnoughBookiesError(
            f"{len(pool)} bookies in {known} zones are available: no write set of {write_quorum} of them spans {least} "
            "zones as minNumZonesPerWriteQuorum, and two upgrade domains of each of them"
        )


def zone_and_domain(bookie_id: str, cluster: Cluster) -> str:
    """Return the location of a bookie, UNKNOWN unless it is a zone and an upgrade domain."""
    found = cluster.locations.get(bookie_id, UNKNOWN)
    return found if found.count("/") == 2 else UNKNOWN


def _zone(label: str) -> str:
    return label.split("/", 2)[1]


def _spans(labels: Labels, zones: int) -> bool:
    return covers(zones)([None if each is None else _zone(each) for each in labels])


def _own_domains(labels: Labels) -> bool:
    """Return whether no two bookies of a write set share an upgrade domain of a zone."""
    known = [each for each in labels if each is not None]
    return len(set(known)) == len(known)


def _two_domains(labels: Labels) -> bool:
    """Return whether several bookies of a write set in one zone are not all in one upgrade domain of it.

    An open place may still bring the second domain.
    """
    if None in labels:
        return True
    known = [each for each in labels if each is not None]
    return all(
        len({other for other in known if _zone(other) == _zone(each)}) > 1
        for each in known
        if sum(_zone(other) == _zone(each) for other in known) > 1
    )

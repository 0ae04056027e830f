"""RegionAwarePolicy: spreads copies over regions as evenly as their sizes allow, and over racks within each region.

Why this is hard: three requirements meet in each write set (regions for durability, even shares, racks), write sets
overlap and wrap around, and regions differ in size. A greedy choice misses ensembles that exist.

    region = first part of a location      regions_to_write: only these; empty for all
    durability: with regions to write named, no minRegions - 1 regions together hold an ack quorum of any write set

Each region gets its share of the ensemble (some, drawn at random, get one more if it does not divide). The places are
laid out so that every write set spans as many regions as possible. A single region is handled by the rack-aware policy.

A replacement comes from the rack of the failed bookie, else its region, else another region; among those, from the
bookies that keep the write sets spread as far as possible.

Source: BookKeeper's RegionAwareEnsemblePlacementPolicy, RRTopologyAwareCoverageEnsemble. The rating is ours: the
original's requirement is MEETS_SOFT; MEETS_STRICT also requires that no two bookies of a write set share a rack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from quire.ledger.errors import NotEnoughBookiesError, PlacementPolicyError
from quire.ledger.placement.drawing import candidates, check_candidates, shuffled
from quire.ledger.placement.policy import Adherence, Cluster, PlacementConfig, ReadHealth
from quire.ledger.placement.rack_aware import choose_racks, is_default, rack_adherence, racks_wanted
from quire.ledger.placement.random_policy import check_replacements, with_replacements
from quire.ledger.placement.reading import read_order
from quire.ledger.placement.search import Fits, Labels, Prefer, Search, covers, windows
from quire.ledger.placement.topology import DEFAULT_REGION_AND_RACK, region_of
from quire.world.doors import Rng


class RegionAwarePolicy:
    """Placement policy over regions."""

    def __init__(self, config: PlacementConfig, cluster: Callable[[], Cluster], rng: Rng) -> None:
        """Create the policy. PlacementPolicyError if the configuration requires more regions than it names."""
        named = len(config.regions_to_write)
        if 0 < named < config.min_regions_for_durability:
            raise PlacementPolicyError(
                f"reppMinimumRegionsForDurability is {config.min_regions_for_durability}, "
                f"reppRegionsToWrite names {named}"
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
        pool = self._pool(cluster, exclude)
        check_candidates(ensemble_size, pool)
        durable = durability(write_quorum, ack_quorum, self._config)
        by_region: dict[str, list[str]] = {}
        for bookie_id in pool:
            by_region.setdefault(region(bookie_id, cluster), []).append(bookie_id)
        if len(by_region) == 1:
            chosen = choose_racks(pool, cluster, ensemble_size, write_quorum, self._config)
            regions = [region(each, cluster) for each in chosen]
            if not all(map(durable, windows(regions, write_quorum))):
                raise _too_few_regions(by_region, write_quorum, ack_quorum)
        else:
            lines = {name: rack_by_rack(members, cluster) for name, members in by_region.items()}
            found = spread(lines, ensemble_size, write_quorum, durable)
            if found is None or not self._racks_suffice(found, cluster, write_quorum):
                found = self._fill(
                    [None] * ensemble_size, pool, cluster, write_quorum, durable, not_again(write_quorum)
                )
            if found is None:
                raise _too_few_regions(by_region, write_quorum, ack_quorum)
            chosen = found
        return tuple(chosen)

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
        locations = [location(each, cluster) for each in ensemble]
        labels: Labels = [None if index in failed else each for index, each in enumerate(locations)]
        durable = durability(write_quorum, ack_quorum, self._config)

        def prefer(place: int, labels: Labels, label: str) -> tuple[int, ...]:
            own = locations[place]
            return (label != own, region_of(label) != region_of(own), label in labels)

        chosen = self._fill(labels, pool, cluster, write_quorum, durable, prefer)
        if chosen is None:
            regions = dict.fromkeys([region(each, cluster) for each in pool])
            raise _too_few_regions(regions, write_quorum, ack_quorum)
        return with_replacements(ensemble, failed, chosen)

    def read_order(self, ensemble: Sequence[str], write_set: Sequence[int], health: ReadHealth) -> list[int]:
        cluster = self._cluster()
        threshold = self._config.reorder_threshold_pending
        if not self._config.own_location:
            return read_order(cluster, ensemble, write_set, health, threshold)
        own = region_of(self._config.own_location)
        return read_order(cluster, ensemble, write_set, health, threshold, lambda each: region(each, cluster) != own)

    def adherence(self, ensemble: Sequence[str], write_quorum: int, ack_quorum: int) -> Adherence:
        cluster = self._cluster()
        locations = [location(each, cluster) for each in ensemble]
        if self._config.enforce_min_racks_per_write_quorum and any(map(is_default, locations)):
            return Adherence.FAIL
        durable = durability(write_quorum, ack_quorum, self._config)
        regions = [region_of(each) for each in locations]
        if not all(map(durable, windows(regions, write_quorum))):
            return Adherence.FAIL
        if len(set(regions)) == 1 and all(region(each, cluster) == regions[0] for each in cluster.writable):
            return rack_adherence(ensemble, cluster, write_quorum, self._config)
        if not all(map(covers(min(2, write_quorum)), windows(regions, write_quorum))):
            return Adherence.FAIL
        apart = all(map(covers(write_quorum), windows(locations, write_quorum)))
        return Adherence.MEETS_STRICT if apart else Adherence.MEETS_SOFT

    def _pool(self, cluster: Cluster, exclude: Collection[str]) -> list[str]:
        """Return the bookies that may be chosen, in the order of a draw."""
        config = self._config
        bookie_ids = candidates(cluster, exclude)
        if config.regions_to_write:
            bookie_ids = [each for each in bookie_ids if region(each, cluster) in config.regions_to_write]
        if config.enforce_min_racks_per_write_quorum:
            bookie_ids = [each for each in bookie_ids if not is_default(location(each, cluster))]
        return shuffled(bookie_ids, cluster, config, self._rng)

    def _racks_suffice(self, ensemble: Sequence[str], cluster: Cluster, write_quorum: int) -> bool:
        """Return whether the ensemble spans the enforced number of racks, if enforced."""
        if not self._config.enforce_min_racks_per_write_quorum:
            return True
        fits = covers(racks_wanted(write_quorum, self._config))
        return all(map(fits, windows([location(each, cluster) for each in ensemble], write_quorum)))

    def _fill(
        self, labels: Labels, pool: Sequence[str], cluster: Cluster, write_quorum: int, durable: Fits, prefer: Prefer
    ) -> list[str] | None:
        """Choose bookies of `pool` for the open places of `labels`, which are locations, with as many regions in a
        write set as possible.

        None if no choice is durable and on the enforced number of racks.
        """
        queues: dict[str, list[int]] = {}
        for rank, bookie_id in enumerate(pool):
            queues.setdefault(location(bookie_id, cluster), []).append(rank)
        racks = covers(racks_wanted(write_quorum, self._config))
        enforce = self._config.enforce_min_racks_per_write_quorum
        known = {region_of(label) for label in [*queues, *labels] if label is not None}
        for goal in range(min(write_quorum, len(known)), 0, -1):
            spans = covers(goal)

            def fits(labels: Labels, spans: Fits = spans) -> bool:
                regions = [None if label is None else region_of(label) for label in labels]
                return spans(regions) and durable(regions) and (not enforce or racks(labels))

            ranks = Search(labels, queues, write_quorum, fits, prefer).run()
            if ranks is not None:
                return [pool[rank] for rank in ranks]
        return None


def location(bookie_id: str, cluster: Cluster) -> str:
    """Return the location of a bookie; the default region and rack if it is unknown."""
    found = cluster.locations.get(bookie_id)
    return DEFAULT_REGION_AND_RACK if found is None or is_default(found) else found


def region(bookie_id: str, cluster: Cluster) -> str:
    return region_of(location(bookie_id, cluster))


def durability(write_quorum: int, ack_quorum: int, config: PlacementConfig) -> Fits:
    """Return a test whether a write set survives: any min_regions - 1 regions hold fewer than Qa of its bookies, so
    that a confirmed entry is in one more region.

    PlacementPolicyError if the quorums can never satisfy that.
    """
    wanted = config.min_regions_for_durability
    if not config.regions_to_write or wanted <= 1:
        return lambda regions: True
    if ack_quorum < wanted or ack_quorum <= write_quorum - write_quorum // wanted:
        raise PlacementPolicyError(
            f"Qw={write_quorum}, Qa={ack_quorum} cannot survive with reppMinimumRegionsForDurability={wanted}: "
            f"Qa must be at least {max(wanted, write_quorum - write_quorum // wanted + 1)}"
        )

    def fits(regions: Labels) -> bool:
        largest = Counter([name for name in regions if name is not None]).most_common(wanted - 1)
        return sum([count for _, count in largest]) < ack_quorum

    return fits


def not_again(write_quorum: int) -> Prefer:
    """Return a preference for locations in a region that the write set does not have yet."""

    def prefer(place: int, labels: Labels, label: str) -> tuple[int, ...]:
        before = labels[max(0, place - write_quorum + 1) : place]
        return (region_of(label) in [region_of(each) for each in before if each is not None],)

    return prefer


def rack_by_rack(bookie_ids: Sequence[str], cluster: Cluster) -> list[str]:
    """Return the bookies of one region in an order whose every prefix is spread over the racks.

    It takes the first one of each rack, then the second ones, and so on, each time in the given order.
    """
    seen: Counter[str] = Counter()
    keyed: list[tuple[int, int, str]] = []
    for place, bookie_id in enumerate(bookie_ids):
        rack = location(bookie_id, cluster)
        keyed.append((seen[rack], place, bookie_id))
        seen[rack] += 1
    return [bookie_id for _, _, bookie_id in sorted(keyed)]


def shares(sizes: Mapping[str, int], ensemble_size: int) -> dict[str, int]:
    """Return how many bookies each region provides, as equal as sizes allow; the first regions provide one more if
    needed.

    >>> shares({"a": 1, "b": 9, "c": 9}, 6)
    {'a': 1, 'b': 3, 'c': 2}
    """
    given = dict.fromkeys(sizes, 0)
    left = ensemble_size
    while left:
        for name, size in sizes.items():
            if left and given[name] < size:
                given[name] += 1
                left -= 1
    return given


def spread(
    lines: Mapping[str, Sequence[str]], ensemble_size: int, write_quorum: int, durable: Fits
) -> list[str] | None:
    """Choose an ensemble from the regions' lists of bookies, each taken from its front; None if none is durable."""
    goal = min(write_quorum, len(lines))

    def prefer(place: int, labels: Labels, name: str) -> tuple[int, ...]:
        return (name in labels[max(0, place - goal + 1) : place], labels.count(name))

    order = list(lines)
    even = shares({name: len(line) for name, line in lines.items()}, ensemble_size)
    for most in (even, {name: len(line) for name, line in lines.items()}):
        # A candidate's rank only decides which region is tried first: the order of the draw, in turn.
        queues = {name: [turn * len(order) + order.index(name) for turn in range(most[name])] for name in order}
        for regions_each in range(goal, 0, -1):
            spans = covers(regions_each)

            def fits(regions: Labels, spans: Fits = spans) -> bool:
                return spans(regions) and durable(regions)

            ranks = Search([None] * ensemble_size, queues, write_quorum, fits, prefer).run()
            if ranks is not None:
                return [lines[order[rank % len(order)]][rank // len(order)] for rank in ranks]
    return None


def _too_few_regions(regions: Collection[str], write_quorum: int, ack_quorum: int) -> NotEnoughBookiesError:
    return NotEnoughBookiesError(
        f"the bookies available, in {len(regions)} regions, make no ensemble whose ack quorums of {ack_quorum} of "
        f"{write_quorum} span reppMinimumRegionsForDurability regions and the racks that are enforced"
    )

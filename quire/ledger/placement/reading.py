"""Order in which the bookies of a write set are asked for an entry. Pure.

    this region (the first two) -> one of another region -> the rest of this region -> other regions
    -> read-only -> slow (failed lately, or far more to do than the least busy) -> not registered

Within one kind the order of the write set is kept; among the slow ones the oldest failure comes first.

Source: BookKeeper's RackawareEnsemblePlacementPolicyImpl.reorderReadSequence, RegionAwareEnsemblePlacementPolicy. Here
failed bookies and overloaded ones are one kind, behind the read-only ones, which are healthy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from quire.ledger.placement.policy import Cluster, ReadHealth

LOCAL, REMOTE, READ_ONLY, SLOW, UNAVAILABLE = range(5)

LOCAL_BEFORE_REMOTE = 2
"""Bookies of the own region asked before the first of another region, so that another region is asked in time."""


def read_order(
    cluster: Cluster,
    ensemble: Sequence[str],
    write_set: Sequence[int],
    health: ReadHealth,
    threshold_pending: int = 0,
    is_remote: Callable[[str], bool] | None = None,
) -> list[int]:
    """Return `write_set`, a list of ensemble indices, in the order in which to ask.

    `threshold_pending` as in PlacementConfig; `is_remote` returns whether a bookie is in another region, if that is
    known.
    """
    members = cluster.members
    if is_remote is None and not threshold_pending:
        for index in write_set:
            bookie_id = ensemble[index]
            if bookie_id not in members or health.failed_at(bookie_id) is not None:
                break
        else:
            return list(write_set)  # all are healthy, as nearly always
    busy: float = float("inf")
    if threshold_pending:
        busy = min([health.pending(ensemble[index]) for index in write_set]) + threshold_pending
    keyed: list[tuple[int, float, int, int]] = []
    for place, index in enumerate(write_set):
        bookie_id = ensemble[index]
        failed_at = health.failed_at(bookie_id)
        if bookie_id not in members and bookie_id not in cluster.read_only:
            kind = UNAVAILABLE
        elif failed_at is not None or (threshold_pending and health.pending(bookie_id) >= busy):
            kind = SLOW
        elif bookie_id not in members:
            kind = READ_ONLY
        else:
            kind = REMOTE if is_remote is not None and is_remote(bookie_id) else LOCAL
        keyed.append((kind, failed_at or 0.0, place, index))
    keyed.sort()
    order = [index for _, _, _, index in keyed]
    local = sum(1 for kind, *_ in keyed if kind == LOCAL)
    if local > LOCAL_BEFORE_REMOTE and local < len(keyed) and keyed[local][0] == REMOTE:
        order.insert(LOCAL_BEFORE_REMOTE, order.pop(local))
    return order

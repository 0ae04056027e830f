"""GuardedPlacement: wrapper of any policy, used by the ledger client. It adds:

- bookies in quarantine are chosen only if there are not enough others
- with opportunistic striping, fewer than E bookies if there are no more, but at least Qw
- answers of the policy are checked: a duplicate, unknown or excluded bookie would cost entries
- an ensemble that violates the policy is logged, once for each state of the cluster
- a ledger whose custom metadata names groups of bookies gets bookies of these groups

Source: BookKeeper's BookieWatcherImpl, LedgerCreateOp.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from quire.ledger.errors import NotEnoughBookiesError, PlacementPolicyError
from quire.ledger.placement.isolation import groups_of, left_out
from quire.ledger.placement.policy import Adherence, Cluster, EnsemblePlacementPolicy, ReadHealth
from quire.service.log import get_logger

log = get_logger(__name__)


class GuardedPlacement:
    """An EnsemblePlacementPolicy around another one."""

    def __init__(
        self,
        policy: EnsemblePlacementPolicy,
        cluster: Callable[[], Cluster],
        *,
        opportunistic_striping: bool = False,
    ) -> None:
        self._policy = policy
        self._cluster = cluster
        self._opportunistic = opportunistic_striping
        self._told: Cluster | None = None

    def new_ensemble(
        self,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        exclude: Collection[str] = (),
        custom_metadata: Sequence[tuple[str, bytes]] = (),
    ) -> tuple[str, ...]:
        """Choose an ensemble.

        With opportunistic striping it may be shorter than `ensemble_size`; its length is then the ledger's E.
        """
        assert 0 < ack_quorum <= write_quorum <= ensemble_size, f"E={ensemble_size}, Qw={write_quorum}, Qa={ack_quorum}"
        exclude = frozenset(exclude) | self._left_out(ensemble_size, custom_metadata)
        error: NotEnoughBookiesError | None = None
        for size in range(ensemble_size, (write_quorum if self._opportunistic else ensemble_size) - 1, -1):
            for excluded in self._exclusions(exclude):
                try:
                    chosen = self._policy.new_ensemble(size, write_quorum, ack_quorum, excluded, custom_metadata)
                except NotEnoughBookiesError as refusal:
                    error = refusal
                    continue
                self._check(chosen, size, chosen, exclude)
                self._tell(chosen, write_quorum, ack_quorum)
                return chosen
        assert error is not None, "a policy either answers or refuses"
        raise _with_groups(error, custom_metadata)

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
        exclude = frozenset(exclude) | self._left_out(ensemble_size, custom_metadata)
        error: NotEnoughBookiesError | None = None
        for excluded in self._exclusions(exclude):
            try:
                changed = self._policy.replace_bookie(
                    ensemble_size, write_quorum, ack_quorum, ensemble, failed, excluded, custom_metadata
                )
            except NotEnoughBookiesError as refusal:
                error = refusal
                continue
            newcomers = [each for index, each in enumerate(changed) if index in failed]
            kept = [index for index, each in enumerate(changed) if index not in failed and each != ensemble[index]]
            if kept:
                raise PlacementPolicyError(f"the placement policy replaced bookies that did not fail, at {kept}")
            self._check(changed, len(ensemble), newcomers, exclude.union(ensemble))
            self._tell(changed, write_quorum, ack_quorum)
            return changed
        assert error is not None, "a policy either answers or refuses"
        raise _with_groups(error, custom_metadata)

    def _left_out(self, ensemble_size: int, custom_metadata: Sequence[tuple[str, bytes]]) -> frozenset[str]:
        groups = groups_of(custom_metadata)
        if groups is None:
            return frozenset()
        cluster = self._cluster()
        return left_out(groups, cluster.groups, cluster.members, ensemble_size)

    def read_order(self, ensemble: Sequence[str], write_set: Sequence[int], health: ReadHealth) -> list[int]:
        return self._policy.read_order(ensemble, write_set, health)

    def adherence(self, ensemble: Sequence[str], write_quorum: int, ack_quorum: int) -> Adherence:
        return self._policy.adherence(ensemble, write_quorum, ack_quorum)

    def _exclusions(self, exclude: frozenset[str]) -> list[frozenset[str]]:
        quarantined = self._cluster().quarantined
        return [exclude | quarantined, exclude] if quarantined - exclude else [exclude]

    def _check(self, ensemble: Sequence[str], size: int, newcomers: Sequence[str], exclude: frozenset[str]) -> None:
        members = self._cluster().members
        wrong = [each for each in newcomers if each in exclude or each not in members]
        if wrong or len(ensemble) != size or len(set(ensemble)) != size:
            raise PlacementPolicyError(
                f"the placement policy answered {list(ensemble)} where {size} distinct bookies are wanted"
                + (f", of which {wrong} may not be chosen" if wrong else "")
            )

    def _tell(self, ensemble: Sequence[str], write_quorum: int, ack_quorum: int) -> None:
        if len(ensemble) < 2 or self._policy.adherence(ensemble, write_quorum, ack_quorum) is not Adherence.FAIL:
            return
        cluster = self._cluster()
        if self._told is not cluster:
            self._told = cluster
            log.warning(
                "ensemble does not adhere to the placement policy",
                bookies=",".join(ensemble),
                write_quorum=write_quorum,
                writable=len(cluster.writable),
                quarantined=len(cluster.quarantined),
            )


def _with_groups(error: NotEnoughBookiesError, custom_metadata: Sequence[tuple[str, bytes]]) -> NotEnoughBookiesError:
    """Return the error with the groups that the ledger may be on, which are the likely reason."""
    groups = groups_of(custom_metadata)
    if groups is None:
        return error
    return NotEnoughBookiesError(
        f"{error}; only bookies of the groups {groups} are used (persistence/bookieAffinity of the namespace): add "
        "bookies to them at /admin/v2/bookies/racks-info, or change the affinity"
    )


def fixed_cluster(available: Callable[[], Iterable[str]]) -> Callable[[], Cluster]:
    """Return a cluster of the bookies that `available` currently names, without racks and read-only bookies."""
    now = Cluster(writable=())

    def cluster() -> Cluster:
        nonlocal now
        writable = tuple(sorted(set(available())))
        if writable != now.writable:
            now = Cluster(writable=writable)
        return now

    return cluster

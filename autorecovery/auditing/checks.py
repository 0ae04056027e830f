"""The periodic checks of all ledgers by the auditor.

    check_ledgers     reads copies of every fragment from each of its members; bad ones are marked
    check_placement   counts closed ledgers that violate the placement policy; marks them if configured to
    check_replicas    asks every bookie for its list of entries; counts, logs and marks closed ledgers that lack some

In the original the last one only counts. Each check reads the metadata once, some hundred ledgers at a time. It raises
MetadataError when it cannot be finished, and is then made again.

Source: BookKeeper's AuditorCheckAllLedgersTask, AuditorPlacementPolicyCheckTask, AuditorReplicasCheckTask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Final, Protocol

import trio

from autorecovery.auditing.bookie_index import LedgerListing, all_ids, read_or_none
from autorecovery.auditing.metrics import AuditorStats
from autorecovery.config import AutoRecoveryConfig
from autorecovery.entry_lists import ListEntries
from autorecovery.errors import CheckStuckError, ListOfEntriesError
from autorecovery.fragments import BadFragment
from autorecovery.marks.underreplication import UnderreplicatedLedgers
from autorecovery.replicas import Shortage, compare
from quire.ledger.placement.policy import Adherence
from quire.metadata.ledgers import NO_ENTRY, LedgerMetadata, LedgerState
from quire.service.log import get_logger
from quire.wire.bookkeeper.availability import Availability
from quire.world.tasks import for_each

log = get_logger(__name__)

LISTS_AT_ONCE: Final = 100
"""Ledgers whose lists of entries are requested at once."""
TOLD_MAX: Final = 20
"""Ledgers of one check that are named in the log; further ones are only counted."""


class Checker(Protocol):
    """Checks the copies of a ledger: `LedgerChecker` implements this."""

    async def check(self, ledger_id: int, metadata: LedgerMetadata, *, percentage: int = 0) -> Sequence[BadFragment]:
        """Return the fragments with members that lack copies they should have."""


class Adheres(Protocol):
    """Rates an ensemble: `EnsemblePlacementPolicy.adherence` implements this."""

    def __call__(self, ensemble: Sequence[str], write_quorum: int, ack_quorum: int, /) -> Adherence: ...


class Telling:
    """Bounded number of warnings about single ledgers."""

    def __init__(self, event: str) -> None:
        self._event = event
        self.count = 0

    def tell(self, ledger_id: int, **more: object) -> None:
        self.count += 1
        if self.count <= TOLD_MAX:
            log.warning(self._event, ledger=ledger_id, **more)

    def end(self) -> None:
        if self.count > TOLD_MAX:
            log.warning(self._event, more_ledgers=self.count - TOLD_MAX)


async def check_ledgers(
    ledgers: LedgerListing,
    marks: UnderreplicatedLedgers,
    checker: Checker,
    config: AutoRecoveryConfig,
    stats: AuditorStats,
) -> int:
    """Read copies of every fragment; return how many ledgers were marked. CheckStuckError."""
    telling = Telling("a ledger has bad copies")
    wait_s = config.open_ledger_wait_ms / 1000 or inf

    async def check(ledger_id: int) -> None:
        metadata = await read_or_none(ledgers, ledger_id)
        if metadata is not None:
            found = await checker.check(ledger_id, metadata, percentage=config.verification_percentage)
            stats.ledgers_checked += 1
            stats.fragments_per_ledger.observe(len(metadata.fragments))
            stats.bookies_per_ledger.observe(
                len({each for fragment in metadata.fragments for each in fragment.bookies})
            )
            if found:
                bookies = list(dict.fromkeys(bookie_id for fragment in found for bookie_id in fragment.bookies))
                telling.tell(ledger_id, found="; ".join(map(str, found[:3])))
                await marks.mark(ledger_id, bookies)
        moving.deadline = trio.current_time() + wait_s

    try:
        ids = await all_ids(ledgers)
        with trio.move_on_after(wait_s) as moving:
            await for_each(ids, check, at_once=config.open_ledgers_max, name="check of ledgers")
    finally:
        telling.end()
    if moving.cancelled_caught:
        raise CheckStuckError(f"no check of a ledger made progress within {wait_s:g} s")
    return telling.count


async def check_placement(
    ledgers: LedgerListing,
    marks: UnderreplicatedLedgers,
    adheres: Adheres,
    config: AutoRecoveryConfig,
    stats: AuditorStats,
    wall_ms: Callable[[], int],
) -> int:
    """Check where closed ledgers are placed; return how many violate the policy."""
    elapsed = Telling("a ledger lacks copies for longer than underreplicatedLedgerRecoveryGracePeriod")
    if config.recovery_grace_period_s:
        latest = wall_ms() - 1000 * config.recovery_grace_period_s
        async for mark in marks.list():
            if mark.ctime_ms is not None and mark.ctime_ms < latest:
                elapsed.tell(mark.ledger_id, replicas=",".join(mark.replicas), since_ms=mark.ctime_ms)
        elapsed.end()
    telling = Telling("a ledger does not adhere to the placement policy")
    softly = 0

    async def look(ledger_id: int) -> None:
        nonlocal softly
        metadata = await read_or_none(ledgers, ledger_id)
        if metadata is None or metadata.state is not LedgerState.CLOSED:
            return
        worst, fragment = worst_placed(metadata, adheres)
        if worst is Adherence.MEETS_SOFT:
            softly += 1
        elif worst is Adherence.FAIL:
            telling.tell(ledger_id, bookies=",".join(fragment), write_quorum=metadata.write_quorum)
            if config.repair_placement:
                await marks.mark(ledger_id, ())

    await for_each(await all_ids(ledgers), look, at_once=config.open_ledgers_max, name="placement check")
    telling.end()
    stats.not_adhering, stats.softly_adhering, stats.grace_elapsed = telling.count, softly, elapsed.count
    return telling.count


def worst_placed(metadata: LedgerMetadata, adheres: Adheres) -> tuple[Adherence, tuple[str, ...]]:
    """Return how well the worst fragment fits the policy, and its ensemble (pure)."""
    order = (Adherence.FAIL, Adherence.MEETS_SOFT, Adherence.MEETS_STRICT)
    found = [
        (adheres(fragment.bookies, metadata.write_quorum, metadata.ack_quorum), fragment.bookies)
        for fragment in metadata.fragments
    ]
    return min(found, key=lambda each: order.index(each[0]))


async def check_replicas(
    ledgers: LedgerListing, marks: UnderreplicatedLedgers, list_entries: ListEntries, stats: AuditorStats
) -> int:
    """Compare closed ledgers with the lists of their bookies; return how many ledgers lack entries.

    Ledgers that are already marked and bookies that do not answer are left out.
    """
    counts = dict.fromkeys(Shortage, 0)
    telling = Telling("a ledger lacks entries")
    silent: set[str] = set()

    async def look(ledger_id: int) -> None:
        if await marks.read(ledger_id) is not None:
            return
        metadata = await read_or_none(ledgers, ledger_id)
        if metadata is None or metadata.state is not LedgerState.CLOSED or metadata.last_entry_id == NO_ENTRY:
            return
        lists: dict[str, Availability] = {}
        for bookie_id in dict.fromkeys(each for fragment in metadata.fragments for each in fragment.bookies):
            if bookie_id in silent:
                continue
            try:
                lists[bookie_id] = await list_entries(bookie_id, ledger_id)
            except ListOfEntriesError as error:
                if bookie_id not in silent:
                    silent.add(bookie_id)
                    log.warning(
                        "a bookie does not list its entries", bookie=bookie_id, ledger=ledger_id, reason=str(error)
                    )
        found = compare(metadata, lists)
        if not found.missing:
            return
        # Read the metadata once more: the ledger may be deleted by now, or other bookies may hold it.
        if await read_or_none(ledgers, ledger_id) != metadata:
            return
        counts[found.shortage] += 1
        worst = found.missing[0]
        telling.tell(
            ledger_id, bookie=worst.bookie_id, entries=worst.entries, first=worst.example, worst=found.shortage.name
        )
        await marks.mark(ledger_id, list(dict.fromkeys(each.bookie_id for each in found.missing)))

    await for_each(await all_ids(ledgers), look, at_once=LISTS_AT_ONCE, name="replicas check")
    telling.end()
    stats.no_replica = counts[Shortage.NO_REPLICA]
    stats.below_ack_quorum = counts[Shortage.BELOW_ACK_QUORUM]
    stats.below_write_quorum = counts[Shortage.BELOW_WRITE_QUORUM]
    return telling.count

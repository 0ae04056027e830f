"""LedgerRepair: restores the copies of one ledger, as far as possible now. The worker chooses the ledger and the next
try.

check its fragments (ledger_checker)
    bad and closed                        -> replicate (replicator)
    bad and open, or its last fragment    -> close, unless its writer changes the ensemble by itself: that fences
    lost a member and is not closed          the writer, and the copies are made in the next round
check again
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from autorecovery.config import AutoRecoveryConfig
from autorecovery.copying.metrics import WorkerStats
from autorecovery.copying.placement_moves import adhering
from autorecovery.copying.replicator import ENTRIES_AT_ONCE, Replicator
from autorecovery.copying.throttle import Throttle
from autorecovery.entry_lists import entry_lists
from autorecovery.errors import StillBadError
from autorecovery.fragments import BadFragment, LostReason, fragments_of, must_be_closed
from autorecovery.ledger_checker import LedgerChecker
from quire.ledger.client import LedgerClient
from quire.ledger.errors import (
    LedgerError,
    LedgerReadError,
    NoCopyLeftError,
    NoSuchEntryError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
)
from quire.metadata.ledgers import LedgerMetadata, LedgerState
from quire.service.log import get_logger
from quire.wire.bookkeeper.entry import DIGEST_TYPES
from quire.world.doors import World

log = get_logger(__name__)


class LedgerRepair:
    """Calls for different ledgers may overlap."""

    def __init__(self, world: World, client: LedgerClient, config: AutoRecoveryConfig, stats: WorkerStats) -> None:
        self._client = client
        self._config = config
        self._stats = stats
        self._password = config.password.encode()
        self._digest_type = DIGEST_TYPES[config.digest_type]
        self._checker = LedgerChecker(
            client,
            rng=world.rng,
            password=self._password,
            digest_type=self._digest_type,
            reads_max=config.checker_reads_max,
            list_entries=entry_lists(client),
        )
        self._replicator = Replicator(
            client,
            self._checker,
            throttle=Throttle(config.rate_bytes),
            batch_entries=max(ENTRIES_AT_ONCE, config.batch_entries),
        )

    async def repair(self, ledger_id: int, marked: Collection[str]) -> bool:
        """Repair what can be repaired. True: everything is good; False: the ledger must be closed before the rest.

        `marked`: bookies that the mark names.

        Raises the reason why something cannot be repaired: LedgerError (NoSuchLedgerError), StillBadError,
        MetadataError.
        """
        metadata, lac = await self._look(ledger_id)
        bad = await self._check(ledger_id, metadata, lac, marked)
        closed = [each for each in bad if each.fragment.closed]
        failures: list[LedgerError] = []
        for each in closed:
            try:
                self._stats.copied.add(await self._replicator.replicate(metadata, each))
            except NoSuchLedgerError:
                raise
            except LedgerError as error:
                failures.append(error)
                # Bookies delete their data of a ledger that was deleted in the meantime: NoSuchLedgerError then.
                await self._client.read_metadata(ledger_id)
                self._tell(each, error)
        await self._move_misplaced(ledger_id, metadata, [each.fragment.first for each in bad])
        there = self._checker.registered()
        if len(closed) < len(bad) or must_be_closed(metadata, lac, there):
            return False
        if not failures:
            metadata, lac = await self._look(ledger_id)
            bad = await self._check(ledger_id, metadata, lac, marked)
        if bad:
            raise failures[0] if failures else StillBadError(str(bad[0]))
        return True

    async def _look(self, ledger_id: int) -> tuple[LedgerMetadata, int]:
        """Read the metadata, and how far a ledger that is not closed is confirmed; if unknown, up to its last fragment.

        Raises: NoSuchLedgerError, MetadataError.
        """
        metadata = await self._client.read_metadata(ledger_id)
        if metadata.state is LedgerState.CLOSED:
            return metadata, metadata.last_entry_id
        try:
            reader = await self._client.open(
                ledger_id, password=metadata.password_or(self._password), recover=False, digest_type=self._digest_type
            )
        except LedgerReadError as error:
            log.info("cannot read the last confirmed entry of the ledger", ledger=ledger_id, reason=str(error))
            return metadata, metadata.fragments[-1].first_entry_id - 1
        reader.close()
        return reader.metadata, reader.last_entry_id

    async def _check(
        self, ledger_id: int, metadata: LedgerMetadata, lac: int, marked: Collection[str]
    ) -> list[BadFragment]:
        """Find bad copies.

        Marked bookies are read completely, or asked for their lists: a sample may miss what another check found.
        """
        percentage = self._config.verification_percentage
        whole, listed = (marked, ()) if percentage else ((), marked)
        return await self._checker.check(
            ledger_id, metadata, percentage=percentage, lac=lac, whole=whole, listed=listed
        )

    def _tell(self, bad: BadFragment, error: LedgerError) -> None:
        """Log why a fragment stays as it is."""
        if isinstance(error, LedgerReadError):
            self._stats.unreadable += 1
        if isinstance(error, NoSuchEntryError | NoCopyLeftError):
            log.error(
                "entries are lost: no member has them", ledger=bad.ledger_id, fragment=str(bad), reason=str(error)
            )
        elif not isinstance(error, NotEnoughBookiesError):
            log.warning("fragment cannot be replicated now", ledger=bad.ledger_id, fragment=str(bad), reason=str(error))

    async def close_if_needed(self, ledger_id: int, marked: Collection[str]) -> None:
        """Close a ledger, unless its writer has changed the ensemble. LedgerError, MetadataError."""
        metadata, lac = await self._look(ledger_id)
        if metadata.state is LedgerState.CLOSED:
            return
        if not must_be_closed(metadata, lac, self._checker.registered()):
            bad = await self._check(ledger_id, metadata, lac, marked)
            if all([each.fragment.closed for each in bad]):
                return
        log.warning("closing an open ledger, bookies of its last fragment are lost", ledger=ledger_id)
        reader = await self._client.open(
            ledger_id, password=metadata.password_or(self._password), recover=True, digest_type=self._digest_type
        )
        reader.close()

    # --- misplaced copies

    async def _move_misplaced(self, ledger_id: int, metadata: LedgerMetadata, but: Sequence[int]) -> None:
        """Move members of closed fragments whose ensemble violates the placement policy, if configured.

        Fragments that begin at the entries `but` are left out.
        """
        if not self._config.repair_placement:
            return
        for fragment in fragments_of(ledger_id, metadata):
            if not fragment.closed or fragment.first in but:
                continue
            ensemble = adhering(self._client.placement, metadata, fragment.bookies)
            if ensemble is None:
                continue
            moved = {i: LostReason.MISPLACED for i, each in enumerate(ensemble) if each != fragment.bookies[i]}
            bad = BadFragment(fragment=fragment, faults=moved)
            try:
                self._stats.copied.add(await self._replicator.replicate(metadata, bad, ensemble=ensemble))
            except NoSuchLedgerError:
                raise
            except LedgerError as error:
                self._tell(bad, error)

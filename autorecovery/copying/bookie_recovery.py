"""BookieRecovery: moves every copy that some bookies have, or had, to other bookies, for `quire shell recover`.

    every closed fragment that names one of them     its copies are read from any member, and written to other bookies
    the open end of a ledger that names one          the ledger is closed by recovery first, which fences its writer
    a ledger that is open elsewhere                  only its closed fragments are moved

The bookies may be running: then they serve as sources like the others. Source: BookKeeperAdmin.recoverBookieData.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from autorecovery.copying.replicator import Copied, Replicator
from autorecovery.fragments import BadFragment, Fault, LostReason, fragments_of
from autorecovery.ledger_checker import LedgerChecker
from quire.ledger.client import LedgerClient
from quire.metadata.ledgers import LedgerMetadata, LedgerState
from quire.wire.bookkeeper.entry import DigestType


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerPlan:
    """Plan for one ledger."""

    ledger_id: int
    state: LedgerState
    fence: bool
    """True if the ledger must be closed first."""
    fragments: tuple[BadFragment, ...]
    """Fragments with the places that must be replaced.

    If the ledger must be closed first, only what is known before that.
    """


class BookieRecovery:
    """Recovery of some bookies, which receive no copies."""

    def __init__(
        self,
        client: LedgerClient,
        checker: LedgerChecker,
        replicator: Replicator,
        bookies: Collection[str],
        *,
        password: bytes = b"",
        digest_type: DigestType = DigestType.CRC32,
    ) -> None:
        """`password` and `digest_type`: for ledgers whose metadata has none."""
        self._client = client
        self._checker = checker
        self._replicator = replicator
        self._bookies = frozenset(bookies)
        self._password = password
        self._digest_type = digest_type

    def concerns(self, metadata: LedgerMetadata) -> bool:
        """Return whether the ledger names one of the bookies."""
        return any([bookie in self._bookies for each in metadata.fragments for bookie in each.bookies])

    def plan(self, ledger_id: int, metadata: LedgerMetadata) -> LedgerPlan:
        """Return what `recover` would do."""
        closed = metadata.state is LedgerState.CLOSED
        fence = not closed and any([each in self._bookies for each in metadata.fragments[-1].bookies])
        registered = self._checker.registered()
        found: list[BadFragment] = []
        for fragment in fragments_of(ledger_id, metadata):
            faults: dict[int, Fault] = {
                index: LostReason.LOST if registered is not None and each not in registered else LostReason.MISPLACED
                for index, each in enumerate(fragment.bookies)
                if each in self._bookies
            }
            if faults and (fragment.closed or fence):
                found.append(BadFragment(fragment=fragment, faults=faults))
        return LedgerPlan(ledger_id=ledger_id, state=metadata.state, fence=fence, fragments=tuple(found))

    async def recover(self, ledger_id: int) -> Copied:
        """Move the bookies' copies of this ledger. Errors of `Replicator.replicate`, LedgerRecoveryError."""
        metadata = await self._client.read_metadata(ledger_id)
        plan = self.plan(ledger_id, metadata)
        if plan.fence:
            password = metadata.password_or(self._password)
            reader = await self._client.open(ledger_id, password=password, recover=True, digest_type=self._digest_type)
            reader.close()
            metadata = await self._client.read_metadata(ledger_id)
            plan = self.plan(ledger_id, metadata)
        done = Copied()
        for bad in plan.fragments:
            done.add(await self._replicator.replicate(metadata, bad, exclude=self._bookies))
        return done

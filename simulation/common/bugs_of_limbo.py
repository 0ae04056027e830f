"""Bugs to plant in bookies that lost data and copy it back; see bugs.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bookie.db_ledger_storage.entry_reader import EntryReader
from bookie.errors import NoEntryError, NoLedgerError
from bookie.integrity.check import DataIntegrity
from bookie.integrity.peers import OtherCopies
from bookie.limbo import epochs, losses
from quire.metadata.ledger_metadata import LedgerState
from quire.metadata.ledgers import LedgerManager
from simulation.common.patching import Patch


def _limbo_denied() -> list[Patch]:
    """A bookie in limbo denies entries that it has lost."""

    def absent(self: EntryReader, ledger_id: int, entry_id: int) -> None:
        if self._ledgers.get(ledger_id) is None:
            raise NoLedgerError(f"ledger {ledger_id} is unknown here")
        raise NoEntryError(f"entry {entry_id} of ledger {ledger_id} is not here")

    return [(EntryReader, "_raise_absent", absent), (EntryReader, "_is_limbo", lambda self, ledger_id: False)]


def _limbo_ended_early() -> list[Patch]:
    """Limbo ends when a ledger is closed, before its entries are copied, as in the original."""

    async def settle(self: DataIntegrity, manager: LedgerManager, peers: OtherCopies, ledger_id: int) -> bool:
        stored = await manager.read(ledger_id)
        if stored is not None and stored.value.state is not LedgerState.CLOSED:
            await peers.close_ledger(ledger_id, stored.value)
        return True

    return [(DataIntegrity, "_settle", settle)]


def _old_image_trusted() -> list[Patch]:
    """An older image of a folder counts as the newest."""

    def trusting(stored: int | None, found: Mapping[str, int | None]) -> list[str]:
        return []

    return [(epochs, "outdated", trusting)]


def _kill_forgotten() -> list[Patch]:
    """A bookie that was killed without a journal of its entries starts as if nothing was lost."""

    def nothing(mark: bytes, boot: bytes, *, journaled: bool, synced: bool) -> str:
        return ""

    return [(losses, "loss_of", nothing)]


BUGS_OF_LIMBO: dict[str, Callable[[], list[Patch]]] = {
    "limbo-denied": _limbo_denied,
    "limbo-ended-early": _limbo_ended_early,
    "old-image-trusted": _old_image_trusted,
    "kill-forgotten": _kill_forgotten,
}
"""Bugs by name; the docstring describes each."""

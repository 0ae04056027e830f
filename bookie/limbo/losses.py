"""Losses: reasons why a starting bookie may lack data that it acknowledged, and what that means for the start.

    a folder without cookie, of a bookie that the cluster knows     it was emptied, or its disk replaced
    no cookie anywhere, but ledgers name the bookie                 the same, and its cookie was deleted. If all of them
                                                                    are closed it starts in any case: nothing ends early
    a folder older than the cluster's epoch (epochs.py)             an image of a disk was put back
    a part of the journal skipped                                   skipReplayJournalInvalidRecord
    not shut down, and the machine restarted since                  only with journalSyncData=false
    not shut down                                                   only with journalWriteData=false
    the file `limboPending`                                         a start after a loss was interrupted

A bookie that went on with such folders would deny entries that it acknowledged, and a recovery could end a ledger
before them. So it does not start, unless dataIntegrityChecking is set: then every ledger that names it is put into
limbo first (preboot.py). A kill with an intact journal is no loss, and neither is a power cut with journalSyncData. The
file DIRTY has the value that journalWriteData had in the run that ended.

The note `limboPending` is written before anything else that a loss changes, and removed when all ledgers are in limbo:
a crash at any step in between starts from the loss again.

Source: BookKeeper's DataIntegrityCookieValidation, UncleanShutdownDetectionImpl, EmbeddedServer. Epochs, skipped parts
of the journal and deleted cookies are ours; the original goes on with those.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from bookie.config import BookieConfig
from bookie.cookie import LIMBO_PENDING_FILE, rebuild_command
from bookie.directories.storage import LedgerStorage
from bookie.errors import CookieMismatchError
from bookie.limbo.boot import boot_id, is_unjournaled, loss_of
from bookie.limbo.epochs import EPOCH_FILE, Epochs
from bookie.limbo.preboot import named_by, put_into_limbo
from bookie.recovery import Starts, last_mark_path, plan, seal_path_of
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger
from quire.world.doors import World

log = get_logger(__name__)


class Losses:
    """Losses that a start finds. `folders`: the bookie's `current` folders."""

    def __init__(self, world: World, config: BookieConfig, metadata: MetadataStore, folders: Sequence[str]) -> None:
        self._world = world
        self._config = config
        self._metadata = metadata
        self._stamps = config.integrity_check and config.integrity_stamp
        self._pending = f"{config.ledger_directory}/current/{LIMBO_PENDING_FILE}"
        self.epochs = Epochs(world, metadata, folders, root=config.ledgers_root, bookie_id=config.id)
        self.lacking: tuple[str, ...] = ()
        """Folders without a cookie, of a bookie that the cluster knows. Set by the check of the cookies."""
        self.is_new = False
        """True if the cluster has no cookie of the bookie."""
        self.reasons: list[str] = []
        """For the log; empty: nothing was lost."""

    async def may_lack(self) -> bool:
        """Return whether folders without a cookie are used again. OSError."""
        if self._stamps:
            return True
        return await self._world.offload.run(partial(self._world.disk.exists, self._pending), name="limbo")

    async def returns(self) -> bool:
        """Return whether a bookie without any cookie is no new one: ledgers name it.

        CookieMismatchError if it may not go on like this. MetadataError, OSError.
        """
        self.is_new = True
        config = self._config
        root, rng = config.ledgers_root, self._world.rng
        open_one, any_one = await named_by(self._metadata, rng, root, config.id)
        if any_one is None:
            return False
        reason = (
            f"the folders are empty, but ledger {any_one if open_one is None else open_one} names bookie {config.id}"
        )
        if open_one is not None and not self._stamps:
            raise CookieMismatchError(f"{reason}: its data and its cookie were deleted. {self._remedy()}")
        self.reasons.append(reason)
        await self._world.offload.run(self._note, name="limbo")
        return True

    async def find(self) -> None:
        """Find losses that the folders show. After the check of the cookies.

        CookieMismatchError if one must not be passed over. MetadataError, OSError.
        """
        config, run = self._config, self._world.offload.run
        outdated = [] if self.is_new else await self.epochs.outdated()
        if self.lacking:
            self.reasons.append(f"no cookie in {', '.join(self.lacking)}")
        elif outdated and not config.integrity_check:
            raise CookieMismatchError(
                f"{outdated[0]}/{EPOCH_FILE} is older than bookie {config.id} was when it last ran: an image of its "
                f"disk was put back, and what was acknowledged since is missing. Put the newest disk back; or rebuild "
                f"it. "
                f"{self._remedy()}"
            )
        if outdated and not self.lacking:
            self.reasons.append(f"an older image of {', '.join(outdated)}")
        if not self.reasons:
            self.reasons += await run(self._recorded, name="limbo")

    async def plan(self) -> Starts:
        """Find losses, and where replay begins (see `recovery.plan`). Nothing is changed but for the note of a loss.

        Raises what `find` raises; JournalDamagedError.
        """
        await self.find()
        if self.reasons:
            await self._world.offload.run(self._note, name="limbo")
        start = await plan(self._world, self._config)
        if start.skips and self._config.integrity_check:
            self.reasons.append("a damaged part of the journal is skipped")
            await self._world.offload.run(self._note, name="limbo")
        if not self.reasons:
            return start
        # Indexes may have to be created again, and forgotten fences may be missing.
        none = (False,) * len(start.served)
        return start._replace(served=none, sealed=none)

    async def settle(self, storage: LedgerStorage, stamp: Callable[[], Awaitable[None]]) -> None:
        """After a loss, put the ledgers into limbo and `stamp` the folders; begin an epoch. MetadataError, OSError."""
        if self.reasons:
            await self._into_limbo(storage)
            await stamp()
            await self._world.offload.run(self._forget_note, name="limbo")
        await self.epochs.advance()

    async def _into_limbo(self, storage: LedgerStorage) -> None:
        """Put all ledgers that name the bookie into limbo, durably."""
        log.warning("data may be lost, ledgers are put into limbo", reasons="; ".join(self.reasons))
        await self._world.offload.run(partial(storage.limbo.set_needs_check, needed=True), name="limbo")
        config = self._config
        count = await put_into_limbo(self._metadata, self._world.rng, config.ledgers_root, config.id, storage.limbo)
        await storage.flush()
        log.info("ledgers put into limbo", ledgers=count)

    def _note(self) -> None:
        """Make the loss known to every later start, until `settle`; forget marks into a journal that is gone."""
        disk, config = self._world.disk, self._config
        disk.make_dirs(f"{config.ledger_directory}/current")
        disk.write_atomic(self._pending, "; ".join(self.reasons).encode())
        gone = [i for i, each in enumerate(config.journal_directories) if f"{each}/current" in self.lacking]
        for directory, folder in enumerate(config.ledger_directories if gone else ()):
            for journal in gone:
                for path in (last_mark_path(config, journal, directory), seal_path_of(config, journal, directory)):
                    if disk.exists(path):
                        disk.unlink(path)
            disk.sync_dir(f"{folder}/current")

    def _forget_note(self) -> None:
        self._world.disk.unlink(self._pending)
        self._world.disk.sync_dir(f"{self._config.ledger_directory}/current")

    def _recorded(self) -> list[str]:
        """Return the reasons that files record. Blocking. CookieMismatchError as `_was_cut`."""
        found = [self._was_cut()]
        if self._world.disk.exists(self._pending):
            found.append("the start after an earlier loss was interrupted")
        return [reason for reason in found if reason]

    def _was_cut(self) -> str:
        """Return why the bookie lacks data if it ended without a stop, "" if it does not. Blocking.

        CookieMismatchError if it may not go on without the data.
        """
        disk, config = self._world.disk, self._config
        for folder in config.ledger_directories:
            try:
                mark = disk.read(f"{folder}/current/DIRTY")
            except FileNotFoundError:
                continue
            lost = loss_of(mark, boot_id(disk), journaled=config.journal_write, synced=config.journal_sync)
            if lost and config.integrity_check:
                return lost
            if lost and is_unjournaled(mark):
                raise CookieMismatchError(f"{folder}: {lost}, so it has lost acknowledged entries. {self._remedy()}")
        return ""

    def _remedy(self) -> str:
        return (
            f"Use {rebuild_command(self._config.id)}; or start it with dataIntegrityChecking=true and "
            "dataIntegrityStampMissingCookies=true, and it copies its data from the other bookies"
        )

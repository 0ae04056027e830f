"""UnderreplicatedLedgers: marks on ledgers that lack copies, and the locks of the workers that repair them.

Marks are created and merged by compare-and-set. A repair ends by deleting the mark at the version it began with: if the
ledger was marked again in the meantime, the mark stays. A lock only saves work; two workers on one ledger do no harm.

The layout is in quire/metadata/marks.py. Source: BookKeeper's ZkLedgerUnderreplicationManager.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, MutableSequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum

from autorecovery.errors import IncompatibleUnderreplicationError
from autorecovery.marks.tree import MarkTree
from quire.metadata import marks as form
from quire.metadata import paths
from quire.metadata.errors import (
    BadVersionError,
    MalformedMetadataError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from quire.metadata.local import ephemerals
from quire.metadata.marks import Underreplicated
from quire.metadata.store import Delete, Kind, MetadataStore, Versioned, Watch
from quire.service.log import get_logger
from quire.world.doors import Rng

__all__ = ["CheckTime", "LockedLedger", "Underreplicated", "UnderreplicatedLedgers"]


log = get_logger(__name__)


class CheckTime(Enum):
    """Checks whose last run time is recorded."""

    ALL_LEDGERS = "checkallledgersctime"
    PLACEMENT = "placementpolicycheckctime"
    REPLICAS = "replicascheckctime"


@dataclass(frozen=True, slots=True)
class LockedLedger:
    """A marked ledger that we have locked."""

    ledger_id: int
    version: int
    """Version of the mark, read after the lock was taken."""
    replicas: tuple[str, ...]
    """Bookies whose copies are missing, as marked."""


class UnderreplicatedLedgers:
    """Marks of one cluster. All calls raise MetadataError; after MetadataUnavailableError the caller may retry."""

    def __init__(
        self,
        store: MetadataStore,
        *,
        root: str = "/ledgers",
        rng: Rng,
        wall_ms: Callable[[], int],
        owner: str,
        store_mark_time: bool = True,
    ) -> None:
        """`owner` is stored in the locks for operators: host or bookie id of the worker."""
        self._store = store
        self._tree = MarkTree(store, root)
        self._rng = rng
        self._wall_ms = wall_ms
        self._owner = owner
        self._store_mark_time = store_mark_time
        self._candidates: MutableSequence[int] = []
        """Ledgers that had a mark and no lock at the last search, in random order."""

    async def prepare(self) -> None:
        """Create the nodes that the originals expect; existing ones stay. IncompatibleUnderreplicationError."""
        await self._tree.make(self._tree.layout, form.LAYOUT)
        await self._tree.make(self._tree.ledgers)
        await self._tree.make(self._tree.locks)
        node = await self._store.get(self._tree.layout)
        try:
            form.check_layout(b"" if node is None else node.value)
        except MalformedMetadataError as error:
            raise IncompatibleUnderreplicationError(f"{self._tree.layout}: {error}") from error

    # --- the switch

    async def is_enabled(self) -> bool:
        return await self._store.get(self._tree.disable) is None

    async def enable(self) -> bool:
        """Enable auto recovery; return False if it was enabled already."""
        try:
            await self._store.delete(self._tree.disable)
        except NoNodeError:
            return False
        return True

    async def disable(self) -> bool:
        """Disable auto recovery in every process, until `enable`; return False if it was disabled already."""
        return await self._tree.make(self._tree.disable)

    async def wait_enabled(self) -> None:
        watch = self.watch_enabled()
        try:
            while not await self.is_enabled():
                await watch.next()
        finally:
            watch.close()

    def watch_enabled(self) -> Watch:
        """Watch that reports when auto recovery was enabled or disabled."""
        return self._store.watch(self._tree.disable)

    # --- marks

    async def mark(self, ledger_id: int, missing: Collection[str]) -> None:
        """Mark the ledger as lacking the copies of `missing`, in addition to existing marks.

        Writes nothing if they are known.
        """
        while True:
            ctime_ms = self._wall_ms() if self._store_mark_time else None
            try:
                # Most ledgers have no mark yet: one call.
                await self._tree.create_mark(ledger_id, form.encode_mark(dict.fromkeys(missing), ctime_ms))
                return
            except NodeExistsError:
                node = await self._tree.mark(ledger_id)
            except NoNodeError:
                continue  # (a worker that finished removed the folder)
            if node is None:
                continue
            merged = _merged(ledger_id, node.value, missing, ctime_ms)
            if merged is None:
                return
            try:
                await self._store.put(self._tree.mark_path(ledger_id), merged, node.version)
                return
            except (NoNodeError, BadVersionError):
                continue  # Another auditor has marked it, or a worker has finished it.

    async def unmark(self, ledger_id: int) -> None:
        """Delete the mark, whatever its value; no effect if there is none."""
        try:
            await self._store.delete(self._tree.mark_path(ledger_id))
        except NoNodeError:
            pass
        await self._tree.prune(ledger_id)

    async def read(self, ledger_id: int) -> Underreplicated | None:
        """Return the mark of a ledger; None if it has none."""
        node = await self._store.get(self._tree.mark_path(ledger_id))
        return None if node is None else _decoded(ledger_id, node.value)

    async def count(self) -> int:
        """Return the approximate number of marked ledgers: folders are counted."""
        count = 0
        async for _ in self._tree.ids():
            count += 1
        return count

    async def list(
        self, *, missing: str | None = None, excluding: str | None = None
    ) -> AsyncGenerator[Underreplicated, None]:
        """Yield all marks by ascending ledger id: those that name `missing`, if given, and do not name `excluding`.

        Marks that are created or deleted in the meantime may be seen or not. Close the iterator (`aclosing`) if not all
        are wanted.
        """
        async with aclosing(self._tree.ids()) as ids:
            async for ledger_id in ids:
                found = await self.read(ledger_id)
                if found is None or (missing is not None and missing not in found.replicas):
                    continue
                if excluding is None or excluding not in found.replicas:
                    yield found

    # --- locks

    async def lock_next(self, skip: Collection[int] = ()) -> LockedLedger | None:
        """Lock some marked ledger that is not locked and not in `skip`; None if there is none now.

        The ledger is chosen at random, so that workers rarely collide.
        """
        found_now = False
        while True:
            while self._candidates:
                ledger_id = self._candidates.pop()
                if ledger_id in skip or await self._tree.mark(ledger_id) is None:
                    continue
                locked = await self._lock(ledger_id)
                if locked is not None:
                    return locked
            if found_now:
                return None
            taken = await self._tree.locked()
            self._candidates = [ledger_id async for ledger_id in self._tree.ids() if ledger_id not in taken]
            self._rng.shuffle(self._candidates)
            found_now = True

    async def _lock(self, ledger_id: int) -> LockedLedger | None:
        """Lock a ledger; None if another worker holds it, or has finished it."""
        path = self._tree.lock_path(ledger_id)
        try:
            await self._store.create(path, form.encode_owner(self._owner), kind=Kind.EPHEMERAL, make_parents=True)
        except NodeExistsError:
            return None
        # Read the mark after the lock was taken, to see the changes of the previous owner.
        node = await self._tree.mark(ledger_id)
        if node is not None:
            return LockedLedger(ledger_id, node.version, _decoded(ledger_id, node.value).replicas)
        await ephemerals.drop(self._store, path)
        return None

    async def lock_unmarked(self, ledger_id: int) -> bool:
        """Lock a ledger that has no mark; return False if it has one, or another process holds it. See `unlock`."""
        path = self._tree.lock_path(ledger_id)
        if await self._tree.mark(ledger_id) is not None:
            return False
        try:
            await self._store.create(path, form.encode_owner(self._owner), kind=Kind.EPHEMERAL, make_parents=True)
        except NodeExistsError:
            return False
        if await self._tree.mark(ledger_id) is None:
            return True
        await self.unlock(ledger_id)
        return False

    async def unlock(self, ledger_id: int) -> None:
        """Release what `lock_unmarked` locked; no effect if the lock was lost."""
        await ephemerals.drop(self._store, self._tree.lock_path(ledger_id))

    async def wait_for_work(self, skip: Collection[int] = ()) -> None:
        """Wait until there is a marked, unlocked ledger not in `skip`; another worker may still lock it first."""
        await self._tree.wait_for_work(skip)

    async def done(self, locked: LockedLedger) -> bool:
        """Delete the mark of a repaired ledger, and the lock.

        Return False if it was marked again since it was locked: the mark stays, and the ledger must be checked again.
        """
        ledger_id = locked.ledger_id
        mark, lock = self._tree.mark_path(ledger_id), self._tree.lock_path(ledger_id)
        try:
            # In one call, if nothing prevents it. A lock that belongs to another worker by now is of no use to that
            # worker either.
            folder = Delete(path=paths.parent(mark))
            await self._store.multi([Delete(path=mark, version=locked.version), folder, Delete(path=lock)])
        except (BadVersionError, NoNodeError, NotEmptyError):
            gone = await self._delete_mark(locked)
            await self.release(locked)
            if gone:
                await self._tree.prune(ledger_id)
            return gone
        await self._tree.prune(ledger_id, above=True)
        return True

    async def _delete_mark(self, locked: LockedLedger) -> bool:
        try:
            await self._store.delete(self._tree.mark_path(locked.ledger_id), locked.version)
        except NoNodeError:
            return True
        except BadVersionError:
            return False
        return True

    async def release(self, locked: LockedLedger) -> None:
        """Release the ledger; no effect if the lock was lost."""
        await ephemerals.drop(self._store, self._tree.lock_path(locked.ledger_id))

    async def locked_by(self, ledger_id: int) -> str | None:
        """Return the worker that repairs the ledger, according to the lock; None if there is none."""
        node = await self._store.get(self._tree.lock_path(ledger_id))
        return None if node is None else form.decode_owner(node.value)

    # --- the delay, and the times of checks

    async def recovery_delay(self, default: int = 0) -> int:
        """Return the delay after which a lost bookie's ledgers are copied, in seconds; `default` where none is set."""
        found = await self.read_recovery_delay()
        return default if found is None else found.value

    async def read_recovery_delay(self) -> Versioned[int] | None:
        """As `recovery_delay`, with its version.

        The version also grows when the same value is set again, which requests an audit.
        """
        node = await self._store.get(self._tree.delay)
        return None if node is None else Versioned(form.decode_delay(node.value), node.version)

    async def set_recovery_delay(self, seconds: int) -> None:
        """Set the delay. 0, or the previous value, makes the auditor look for lost bookies now."""
        assert seconds >= 0, f"a delay of {seconds} s"
        await self._tree.put(self._tree.delay, form.encode_delay(seconds))

    async def audit_now(self) -> None:
        """Make the auditor look for lost bookies now, by setting the delay again to its value."""
        await self.set_recovery_delay((await self.begin_recovery_delay(0)).value)

    async def begin_recovery_delay(self, seconds: int) -> Versioned[int]:
        """Return the delay; set it to `seconds` if none was set, or it cannot be read."""
        while True:
            try:
                found = await self.read_recovery_delay()
            except MalformedMetadataError as error:
                log.warning("recovery delay unreadable, setting it again", seconds=seconds, reason=str(error))
                await self.set_recovery_delay(seconds)
                continue
            if found is not None:
                return found
            await self._tree.make(self._tree.delay, form.encode_delay(seconds))

    def watch_recovery_delay(self) -> Watch:
        return self._store.watch(self._tree.delay)

    async def check_time(self, check: CheckTime) -> int | None:
        """Return the time of the last check, in milliseconds since 1970; None for never."""
        node = await self._store.get(paths.join(self._tree.base, check.value))
        return None if node is None else form.decode_check_time(node.value)

    async def set_check_time(self, check: CheckTime, wall_ms: int) -> None:
        """Store the time at which the check was done."""
        await self._tree.put(paths.join(self._tree.base, check.value), form.encode_check_time(wall_ms))


def _decoded(ledger_id: int, value: bytes) -> Underreplicated:
    """Decode a mark. A mark that cannot be read counts all the same: the worker finds out which copies are missing."""
    try:
        return form.decode_mark(ledger_id, value)
    except MalformedMetadataError as error:
        log.warning(
            "mark of a ledger is damaged, checking its copies anyway",
            ledger=ledger_id,
            reason=str(error),
        )
        return Underreplicated(ledger_id, (), None)


def _merged(ledger_id: int, value: bytes, missing: Collection[str], ctime_ms: int | None) -> bytes | None:
    try:
        return form.merge_mark(value, missing, ctime_ms)
    except MalformedMetadataError as error:
        log.warning("mark of a ledger is damaged, writing it again", ledger=ledger_id, reason=str(error))
        return form.encode_mark(dict.fromkeys(missing), ctime_ms)

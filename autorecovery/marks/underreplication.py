"""UnderreplicatedLedgers: marks on ledgers that lack copies, and the locks of those who repair them.

Marks are made and merged by compare-and-set. A repair ends with deleting the mark at the version it began with: if somebody
marked the ledger again meanwhile, the mark stays. A lock only saves work; two workers on one ledger do no harm.

The layout is in format.py. Source: BookKeeper's ZkLedgerUnderreplicationManager.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, MutableSequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum

from autorecovery.errors import IncompatibleUnderreplicationError
from autorecovery.marks import format as form
from autorecovery.marks.format import Underreplicated
from autorecovery.marks.tree import MarkTree
from quire.metadata import paths
from quire.metadata.errors import (
    BadVersionError,
    MalformedMetadataError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from quire.metadata.local import ephemerals
from quire.metadata.store import Delete, Kind, MetadataStore, Versioned, Watch
from quire.service.log import get_logger
from quire.world.doors import Rng

__all__ = ["CheckTime", "LockedLedger", "Underreplicated", "UnderreplicatedLedgers"]


log = get_logger(__name__)


class CheckTime(Enum):
    """Checks of which it is kept when they were done last."""

    ALL_LEDGERS = "checkallledgersctime"
    PLACEMENT = "placementpolicycheckctime"
    REPLICAS = "replicascheckctime"


@dataclass(frozen=True, slots=True)
class LockedLedger:
    """A marked ledger whose lock we took."""

    ledger_id: int
    version: int
    """Of the mark, after the lock was taken."""
    replicas: tuple[str, ...]
    """Bookies whose copies are missing, as marked."""


class UnderreplicatedLedgers:
    """The marks of one cluster. All calls raise MetadataError; MetadataUnavailableError: ask again."""

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
        """`owner` stands in the locks, for operators: host, or bookie id, of the worker."""
        self._store = store
        self._tree = MarkTree(store, root)
        self._rng = rng
        self._wall_ms = wall_ms
        self._owner = owner
        self._store_mark_time = store_mark_time
        self._candidates: MutableSequence[int] = []
        """Ledgers that had a mark and no lock when they were last looked for, in an order of chance."""

    async def prepare(self) -> None:
        """Make what the originals expect to find; fine if it is there. IncompatibleUnderreplicationError."""
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
        """Let auto recovery work; False if it did anyway."""
        try:
            await self._store.delete(self._tree.disable)
        except NoNodeError:
            return False
        return True

    async def disable(self) -> bool:
        """Let auto recovery rest, in every process, until `enable`; False if it did anyway."""
        return await self._tree.make(self._tree.disable)

    async def wait_enabled(self) -> None:
        watch = self.watch_enabled()
        try:
            while not await self.is_enabled():
                await watch.next()
        finally:
            watch.close()

    def watch_enabled(self) -> Watch:
        """Tells when it was enabled or disabled."""
        return self._store.watch(self._tree.disable)

    # --- marks

    async def mark(self, ledger_id: int, missing: Collection[str]) -> None:
        """The ledger lacks the copies of `missing`, beside those marked before. Nothing is written if that is known."""
        while True:
            ctime_ms = self._wall_ms() if self._store_mark_time else None
            try:
                # Most have no mark yet: one call.
                await self._tree.create_mark(ledger_id, form.encode_mark(dict.fromkeys(missing), ctime_ms))
                return
            except NodeExistsError:
                node = await self._tree.mark(ledger_id)
            except NoNodeError:
                continue  # (a worker that was done with it took the folder away)
            if node is None:
                continue
            merged = _merged(ledger_id, node.value, missing, ctime_ms)
            if merged is None:
                return
            try:
                await self._store.put(self._tree.mark_path(ledger_id), merged, node.version)
                return
            except (NoNodeError, BadVersionError):
                continue  # Another auditor marked it, or a worker was done with it.

    async def unmark(self, ledger_id: int) -> None:
        """Forget the mark, whatever it says; fine if there is none."""
        try:
            await self._store.delete(self._tree.mark_path(ledger_id))
        except NoNodeError:
            pass
        await self._tree.prune(ledger_id)

    async def read(self, ledger_id: int) -> Underreplicated | None:
        """The mark of a ledger; None if it has none."""
        node = await self._store.get(self._tree.mark_path(ledger_id))
        return None if node is None else _decoded(ledger_id, node.value)

    async def count(self) -> int:
        """How many ledgers are marked, about: folders are counted."""
        count = 0
        async for _ in self._tree.ids():
            count += 1
        return count

    async def list(
        self, *, missing: str | None = None, excluding: str | None = None
    ) -> AsyncGenerator[Underreplicated, None]:
        """All marks, by growing ledger id: those that name `missing`, if that is given, and do not name `excluding`. Marks
        that come or go meanwhile may be seen or not. Close it (`aclosing`) if not all are wanted."""
        async with aclosing(self._tree.ids()) as ids:
            async for ledger_id in ids:
                found = await self.read(ledger_id)
                if found is None or (missing is not None and missing not in found.replicas):
                    continue
                if excluding is None or excluding not in found.replicas:
                    yield found

    # --- locks

    async def lock_next(self, skip: Collection[int] = ()) -> LockedLedger | None:
        """Lock some marked ledger that nobody has locked and that is not in `skip`; None if there is none now. Which one
        is chance, so that workers get out of each other's way."""
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
        """None if somebody else has it, or had it and is done."""
        path = self._tree.lock_path(ledger_id)
        try:
            await self._store.create(path, form.encode_owner(self._owner), kind=Kind.EPHEMERAL, make_parents=True)
        except NodeExistsError:
            return None
        # Read after the lock was taken: what whoever had it a moment ago did is seen.
        node = await self._tree.mark(ledger_id)
        if node is not None:
            return LockedLedger(ledger_id, node.version, _decoded(ledger_id, node.value).replicas)
        await ephemerals.drop(self._store, path)
        return None

    async def wait_for_work(self, skip: Collection[int] = ()) -> None:
        """Until there is a marked ledger, not in `skip`, that nobody has locked; others may be faster to lock it."""
        await self._tree.wait_for_work(skip)

    async def done(self, locked: LockedLedger) -> bool:
        """The ledger has all its copies: take the mark away, and the lock. False if it was marked again since it was
        locked: the mark stays, somebody has to look at it anew."""
        ledger_id = locked.ledger_id
        mark, lock = self._tree.mark_path(ledger_id), self._tree.lock_path(ledger_id)
        try:
            # In one call, if nothing is in the way; a lock that is another's by now is of no use to him either.
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
        """Give the ledger to others; fine if the lock was lost."""
        await ephemerals.drop(self._store, self._tree.lock_path(locked.ledger_id))

    async def locked_by(self, ledger_id: int) -> str | None:
        """Who repairs the ledger, as the lock says; None if nobody does."""
        node = await self._store.get(self._tree.lock_path(ledger_id))
        return None if node is None else form.decode_owner(node.value)

    # --- the delay, and the times of checks

    async def recovery_delay(self, default: int = 0) -> int:
        """How long a lost bookie is waited for, in seconds; `default` where nobody has said it yet."""
        found = await self.read_recovery_delay()
        return default if found is None else found.value

    async def read_recovery_delay(self) -> Versioned[int] | None:
        """The same with its version, which grows when the same value is set again: that asks for an audit now."""
        node = await self._store.get(self._tree.delay)
        return None if node is None else Versioned(form.decode_delay(node.value), node.version)

    async def set_recovery_delay(self, seconds: int) -> None:
        """Say it. 0, or what it was, makes the auditor look for lost bookies now."""
        assert seconds >= 0, f"a delay of {seconds} s"
        await self._tree.put(self._tree.delay, form.encode_delay(seconds))

    async def audit_now(self) -> None:
        """Have the auditor look for lost bookies now: the delay is set again to what it is."""
        await self.set_recovery_delay((await self.begin_recovery_delay(0)).value)

    async def begin_recovery_delay(self, seconds: int) -> Versioned[int]:
        """What it is; `seconds` from now on, if nobody had said it, or nobody can read it."""
        while True:
            try:
                found = await self.read_recovery_delay()
            except MalformedMetadataError as error:
                log.warning("the recovery delay cannot be read, it is set anew", seconds=seconds, reason=str(error))
                await self.set_recovery_delay(seconds)
                continue
            if found is not None:
                return found
            await self._tree.make(self._tree.delay, form.encode_delay(seconds))

    def watch_recovery_delay(self) -> Watch:
        return self._store.watch(self._tree.delay)

    async def check_time(self, check: CheckTime) -> int | None:
        """When a check was last done, in milliseconds since 1970; None for never."""
        node = await self._store.get(paths.join(self._tree.base, check.value))
        return None if node is None else form.decode_check_time(node.value)

    async def set_check_time(self, check: CheckTime, wall_ms: int) -> None:
        """Note when it was done."""
        await self._tree.put(paths.join(self._tree.base, check.value), form.encode_check_time(wall_ms))


def _decoded(ledger_id: int, value: bytes) -> Underreplicated:
    """A mark that cannot be read is one all the same: what the ledger lacks is for the worker to find out."""
    try:
        return form.decode_mark(ledger_id, value)
    except MalformedMetadataError as error:
        log.warning(
            "the mark of a ledger is damaged, its copies are looked at all the same",
            ledger=ledger_id,
            reason=str(error),
        )
        return Underreplicated(ledger_id, (), None)


def _merged(ledger_id: int, value: bytes, missing: Collection[str], ctime_ms: int | None) -> bytes | None:
    try:
        return form.merge_mark(value, missing, ctime_ms)
    except MalformedMetadataError as error:
        log.warning("the mark of a ledger is damaged, it is written anew", ledger=ledger_id, reason=str(error))
        return form.encode_mark(dict.fromkeys(missing), ctime_ms)

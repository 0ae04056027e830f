"""ReplicationWorker: takes marked ledgers, several at once, and restores their copies.

    wait until auto recovery is enabled
    lock any marked ledger, and remember the version of its mark
    repair it (ledger_repair)
        no such ledger          -> delete the mark
        everything is good      -> delete the mark, at the remembered version
        it has to be closed     -> keep the lock for openLedgerRereplicationGracePeriod: its writer may change the
                                   ensemble. Then, if nothing has changed, close it
        something is bad still  -> keep the lock for a time that doubles, up to lockReleaseOfFailedLedgerGracePeriod,
                                   so that other ledgers come first; then any worker may try

Losing the lock (session) does no harm: all changes are compare-and-set, and copies are written before the metadata
names them.

Source: BookKeeper's ReplicationWorker. Ours works on several ledgers at once, as most of a ledger's time is waiting.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial

import trio

from autorecovery.at_once import until_available
from autorecovery.config import AutoRecoveryConfig
from autorecovery.copying.ledger_repair import LedgerRepair
from autorecovery.copying.metrics import WorkerStats
from autorecovery.copying.throttle import Throttle
from autorecovery.errors import StillBadError
from autorecovery.marks.underreplication import LockedLedger, UnderreplicatedLedgers
from quire.ledger.client import LedgerClient
from quire.ledger.errors import LedgerError, NoSuchLedgerError
from quire.metadata.errors import MetadataError, SessionExpiredError
from quire.service.log import get_logger
from quire.world.doors import World

log = get_logger(__name__)

LEDGERS_AT_ONCE = 8
"""Ledgers that one worker repairs at the same time."""
DEFERRED_MAX = 10_000
"""Locks that one worker keeps while it waits; at this number it takes no new ledgers."""
FAILURES_KEPT = 10_000
"""Maximum number of ledgers whose failure count is kept."""
FIRST_SHARE = 32
"""Fraction of lockReleaseOfFailedLedgerGracePeriod for which a ledger is kept after its first failure."""


class ReplicationWorker:
    """One worker. `run` works until it is cancelled or the session has ended permanently."""

    def __init__(
        self,
        world: World,
        client: LedgerClient,
        marks: UnderreplicatedLedgers,
        config: AutoRecoveryConfig,
        *,
        stats: WorkerStats | None = None,
    ) -> None:
        self.stats = stats or WorkerStats()
        self._marks = marks
        self._config = config
        self._repairs = LedgerRepair(world, client, config, self.stats)
        self._tasks = Throttle(config.metadata_rate)
        self._mine: dict[int, None] = {}
        """Ledgers whose lock we hold."""
        self._deferred = trio.Semaphore(DEFERRED_MAX)
        self._unsure = False
        """True if we may hold a lock that we do not know of."""
        self._looking = trio.Lock()
        self._waiting = trio.CancelScope()
        """Scope of the wait for work.

        It skips the ledgers held when it began, so it is cancelled when a lock is released.
        """
        self._failures: OrderedDict[int, int] = OrderedDict()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Work until cancelled. SessionExpiredError (in a group) if the store continues without a session."""
        async with trio.open_nursery() as later, trio.open_nursery() as nursery:
            task_status.started()
            for number in range(LEDGERS_AT_ONCE):
                nursery.start_soon(self._work, later, name=f"replication {number}")

    async def _work(self, later: trio.Nursery) -> None:
        """Repair one ledger after the other."""
        while True:
            try:
                await self._marks.wait_enabled()
                if self._unsure:
                    self._unsure = False
                    await self._drop_orphans()
                locked = await self._marks.lock_next(self._mine)
                if locked is None:
                    async with self._looking:
                        with trio.CancelScope() as self._waiting:
                            await self._marks.wait_for_work(tuple(self._mine))
                    continue
            except SessionExpiredError:
                raise
            except MetadataError as error:
                log.warning("cannot take a ledger", reason=str(error))
                self._unsure = True
                await self._pause()
                continue
            self._mine[locked.ledger_id] = None
            await self._tasks.take(1)
            if not await self._repair(locked, later):
                await self._pause()

    async def _drop_orphans(self) -> None:
        """Release locks that were created although the answer was lost: while this session lives no other worker can
        take these ledgers.

        If such a lock was created at this very moment, two workers may repair the ledger, which does no harm.
        """
        async for each in self._marks.list():
            if each.ledger_id not in self._mine:
                await self._marks.release(LockedLedger(each.ledger_id, 0, each.replicas))

    async def _pause(self) -> None:
        await trio.sleep(self._config.backoff_ms / 1000)

    # --- one ledger

    async def _repair(self, locked: LockedLedger, later: trio.Nursery) -> bool:
        """Repair one ledger; return whether to take the next one at once: it was done, or the failure is not ours."""
        ledger_id = locked.ledger_id
        wait_s: float | None = None
        began = trio.current_time()
        try:
            try:
                open_ones = not await self._repairs.repair(ledger_id, locked.replicas)
                if not open_ones:
                    await self._done(locked)
                else:
                    wait_s = self._config.open_ledger_grace_period_ms / 1000
                    self.stats.deferred += 1
                    log.info("leaving an open ledger to its writer for now", ledger=ledger_id, seconds=wait_s)
            except NoSuchLedgerError:
                log.info("marked ledger was deleted", ledger=ledger_id)
                await self._marks.unmark(ledger_id)
            self.stats.repairs.observe(1000 * (trio.current_time() - began))
            if wait_s is None:
                return True
        except SessionExpiredError:
            raise
        except (LedgerError, StillBadError, MetadataError) as error:
            self.stats.repairs_failed.observe(1000 * (trio.current_time() - began))
            wait_s = self._failed(ledger_id)
            open_ones = False
            if not isinstance(error, StillBadError):
                log.warning("ledger cannot be repaired now", ledger=ledger_id, reason=str(error), retry_s=wait_s)
        finally:
            if wait_s is None:
                await self._release(locked)
        if wait_s is not None:
            await self._deferred.acquire()
            later.start_soon(self._later, locked, wait_s, open_ones, name=f"lock of ledger {ledger_id}")
        return open_ones

    async def _done(self, locked: LockedLedger) -> None:
        """Delete the mark of a ledger whose copies are all good, unless it was changed in the meantime."""
        if await self._marks.done(locked):
            self._failures.pop(locked.ledger_id, None)
            self.stats.ledgers += 1
            log.info("ledger replicated", ledger=locked.ledger_id)

    # --- locks kept for a while

    def _failed(self, ledger_id: int) -> float:
        """Return how long to keep a ledger that failed once more, in seconds."""
        self.stats.failed += 1
        failures = self._failures.pop(ledger_id, 0) + 1
        self._failures[ledger_id] = failures
        if len(self._failures) > FAILURES_KEPT:
            self._failures.popitem(last=False)
        longest = self._config.failed_lock_release_ms / 1000
        doublings = min(failures - 1, FIRST_SHARE.bit_length() - 1)  # a power of more would overflow after some days
        return float(longest / FIRST_SHARE * 2**doublings)

    async def _later(self, locked: LockedLedger, wait_s: float, open_ones: bool) -> None:
        """Keep the lock for `wait_s`; then close the ledger unless its writer has changed the ensemble; then release
        the lock.
        """
        try:
            await trio.sleep(wait_s)
            if open_ones and await self._marks.is_enabled():
                await self._repairs.close_if_needed(locked.ledger_id, locked.replicas)
        except SessionExpiredError:
            raise
        except NoSuchLedgerError:
            log.info("marked ledger was deleted", ledger=locked.ledger_id)
        except (LedgerError, MetadataError) as error:
            log.warning("cannot close an open ledger now", ledger=locked.ledger_id, reason=str(error))
        finally:
            self._deferred.release()
        await self._release(locked)

    async def _release(self, locked: LockedLedger) -> None:
        """Release the lock for other workers.

        A lock that is held without work would keep the ledger from every worker, so it is released as soon as the
        service can be reached.
        """
        try:
            await until_available(partial(self._marks.release, locked))
        except SessionExpiredError:
            raise
        except MetadataError as error:
            log.warning("lock cannot be released", ledger=locked.ledger_id, reason=str(error))
        self._mine.pop(locked.ledger_id, None)
        self._waiting.cancel()

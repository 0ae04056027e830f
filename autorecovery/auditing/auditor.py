"""The auditor: finds ledgers that lack copies, and marks them.

    available, readonly, cookies --> AuditSchedule --> audit: index of all ledgers; ledgers of lost bookies are marked
    lostBookieRecoveryDelay      -->
    time                         --> the same; and the checks of all ledgers (`checks`), one at a time
    returns, notes of writers    --> the affected ledgers are compared with the lists of bookies (`missed_copies`)

While the node `disable` exists everything is suspended. An auditor writes only marks, merged by compare-and-set. So it
may be stopped anywhere, and another auditor may work at the same time.

Source: BookKeeper's Auditor, AuditorBookieCheckTask.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from math import inf
from typing import Final

import trio

from autorecovery.at_once import RETRY_S, first_change, first_of, for_each, until_available
from autorecovery.auditing.bookie_index import BookieIndex, read_index
from autorecovery.auditing.checks import Adheres, Checker, check_ledgers, check_placement, check_replicas
from autorecovery.auditing.listed_copies import ListedCopies
from autorecovery.auditing.lost_bookies import AuditSchedule, lost_of
from autorecovery.auditing.metrics import AuditorStats
from autorecovery.auditing.missed_copies import MissedCopies, StoredLedgers
from autorecovery.auditing.registrations import Registrations
from autorecovery.config import AutoRecoveryConfig
from autorecovery.entry_lists import ListEntries
from autorecovery.errors import AutoRecoveryError
from autorecovery.marks.underreplication import CheckTime, UnderreplicatedLedgers
from quire.metadata.errors import MalformedMetadataError, MetadataError, SessionExpiredError
from quire.metadata.store import MetadataStore, Watch
from quire.service.log import get_logger

log = get_logger(__name__)

CHECK_RETRY_S: Final = 60.0
"""Seconds from a check of all ledgers that could not be finished to the next try."""


def wait_before_check(interval_s: float, last_ms: int | None, now_ms: int) -> float:
    """Return the seconds until a check is due that was last made at `last_ms`, None for never (pure)."""
    if last_ms is None:
        return 0.0
    return max(0.0, interval_s - max(0, now_ms - last_ms) / 1000)


class Auditor:
    """One auditor; its election calls `run`. Each run begins with nothing known."""

    def __init__(
        self,
        store: MetadataStore,
        ledgers: StoredLedgers,
        marks: UnderreplicatedLedgers,
        config: AutoRecoveryConfig,
        *,
        wall_ms: Callable[[], int],
        root: str = "/ledgers",
        checker: Checker | None = None,
        adheres: Adheres | None = None,
        list_entries: ListEntries | None = None,
        stats: AuditorStats | None = None,
    ) -> None:
        """`ledgers` is a ledger client, `adheres` its `placement.adherence`, `list_entries` a function made by
        `entry_lists`.

        Checks that need `checker`, `adheres` or `list_entries` are left out without it.
        """
        self._store = store
        self._root = root
        self._registrations = Registrations(store, root)
        self._ledgers = ledgers
        self._marks = marks
        self._config = config
        self._wall_ms = wall_ms
        self._checker = checker
        self._adheres = adheres
        self._list_entries = list_entries
        self.stats = stats or AuditorStats()
        self._schedule = AuditSchedule(0)
        self._changed = trio.Event()
        """Set, and replaced, when the schedule may have changed."""
        self._one_check = trio.Lock()

    async def run(self) -> None:
        """Work as the auditor until cancelled. SessionExpiredError; IncompatibleUnderreplicationError."""
        await until_available(self._marks.prepare)
        delay = await until_available(
            partial(self._marks.begin_recovery_delay, self._config.lost_bookie_recovery_delay_s)
        )
        self._schedule = AuditSchedule(delay.value)
        watches = self._registrations.watches()
        try:
            await self._look_at_bookies()
            self._tell(self._check_bookies)
            await first_of(
                partial(self._follow_bookies, watches),
                partial(self._follow_delay, delay.version),
                self._follow_time,
                self._audits,
                *self._missed_copies(),
                *self._all_checks(),
                name="auditor",
            )
        finally:
            for watch in watches:
                watch.close()

    def _missed_copies(self) -> list[Callable[[], Awaitable[None]]]:
        if self._list_entries is None or self._checker is None:
            return []
        copies = ListedCopies(self._ledgers, self._marks, self._list_entries, self._checker)
        at_once = self._config.open_ledgers_max
        missed = MissedCopies(
            self._store, self._ledgers, self._marks, copies, self.stats, root=self._root, at_once=at_once
        )
        return [missed.run]

    def _all_checks(self) -> list[Callable[[], Awaitable[None]]]:
        config = self._config
        jobs = (
            (CheckTime.ALL_LEDGERS, config.ledger_check_interval_s, self._check_ledgers if self._checker else None),
            (CheckTime.PLACEMENT, config.placement_check_interval_s, self._check_placement if self._adheres else None),
            (
                CheckTime.REPLICAS,
                config.replicas_check_interval_s,
                self._check_replicas if self._list_entries else None,
            ),
        )
        return [
            partial(self._checks, check, interval_s, job)
            for check, interval_s, job in jobs
            if interval_s and job is not None
        ]

    # --- schedule

    async def _look_at_bookies(self) -> None:
        present, known = await until_available(self._registrations.read)
        self._tell(lambda now: self._schedule.registered(now, present, known))

    async def _follow_bookies(self, watches: Sequence[Watch]) -> None:
        while True:
            await first_change(watches)
            await self._look_at_bookies()

    async def _follow_time(self) -> None:
        interval_s = self._config.bookie_check_interval_s or inf
        while True:
            await trio.sleep(interval_s)
            self._tell(self._check_bookies)

    def _check_bookies(self, now: float) -> None:
        if not self._schedule.check(now):
            self.stats.checks_skipped += 1

    async def _follow_delay(self, version: int) -> None:
        watch = self._marks.watch_recovery_delay()
        try:
            while True:
                try:
                    found = await until_available(self._marks.read_recovery_delay)
                except MalformedMetadataError as error:
                    log.warning("cannot read the recovery delay, keeping the previous one", error=str(error))
                    found = None
                if found is not None and found.version != version:
                    version = found.version
                    log.info("recovery delay", seconds=found.value)
                    self._tell(partial(self._schedule.delay_set, delay_s=found.value))
                await watch.next()
        finally:
            watch.close()

    def _tell(self, event: Callable[[float], object]) -> None:
        schedule, stats = self._schedule, self.stats
        waiting, delayed, cancelled = schedule.waiting, schedule.delayed, schedule.cancelled
        now = trio.current_time()
        event(now)
        stats.audits_delayed += schedule.delayed - delayed
        stats.audits_cancelled += schedule.cancelled - cancelled
        if schedule.waiting != waiting:
            log.info(
                "lost bookies",
                waiting=",".join(sorted(schedule.waiting)),
                audit_in_s=max(0.0, schedule.due - now) if schedule.due < inf else -1,
            )
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    # --- lost bookies

    async def _audits(self) -> None:
        schedule = self._schedule
        while True:
            if schedule.due > trio.current_time():
                with trio.move_on_at(schedule.due):
                    await self._changed.wait()
                continue
            await until_available(self._marks.wait_enabled)
            if schedule.due > trio.current_time():
                continue  # (they have returned in the meantime)
            schedule.begun()
            try:
                done = await self._while_enabled(self._audit_bookies)
            except SessionExpiredError:
                raise
            except MetadataError as error:
                log.warning("audit of bookies failed, retrying", error=str(error))
                self.stats.audits_failed += 1
                schedule.failed(trio.current_time() + RETRY_S)
            else:
                if not done:
                    schedule.failed(trio.current_time())
            self._wake()

    async def _audit_bookies(self) -> None:
        """Mark the ledgers of all lost bookies."""
        started = trio.current_time()
        index = await read_index(self._ledgers, at_once=self._config.open_ledgers_max)
        self.stats.index_creations.observe(_ms_since(started))
        # Read the registrations once more: reading all ledgers takes a while.
        present, _ = await self._registrations.read()
        lost = lost_of(index.bookies, present, self._schedule.held(trio.current_time()))
        if lost:
            await self._publish(index, lost)
            self.stats.publications.observe(_ms_since(started))
        self.stats.marked_now = await self._marks.count()
        self.stats.audits.observe(_ms_since(started))
        log.info("audit of bookies", ledgers=index.ledgers, lost=",".join(lost), marked=self.stats.marked_now)

    async def _publish(self, index: BookieIndex, lost: list[str]) -> None:
        for bookie_id in lost:
            log.warning(
                "bookie lost", bookie=bookie_id, ledgers=index.count(bookie_id), payload_bytes=index.bytes_of(bookie_id)
            )
            self.stats.underreplicated.observe(index.count(bookie_id))
            self.stats.underreplicated_bytes.observe(index.bytes_of(bookie_id))

        async def mark(found: tuple[int, tuple[str, ...]]) -> None:
            await self._marks.mark(*found)

        await for_each(index.of(lost).items(), mark, at_once=self._config.open_ledgers_max, name="marks")

    # --- checks of all ledgers

    async def _checks(self, check: CheckTime, interval_s: float, job: Callable[[], Awaitable[None]]) -> None:
        """Check all ledgers periodically, counted from the last check by any auditor."""
        while True:
            try:
                last_ms = await until_available(partial(self._marks.check_time, check))
            except MalformedMetadataError as error:
                log.warning("time of the last check unknown, running it now", error=str(error))
                last_ms = None
            await trio.sleep(wait_before_check(interval_s, last_ms, self._wall_ms()))
            await self._until_no_audit_waits()
            await until_available(self._marks.wait_enabled)
            async with self._one_check:
                done = await self._check(check, job)
            if done:
                await until_available(partial(self._marks.set_check_time, check, self._wall_ms()))
            else:
                await trio.sleep(min(interval_s, CHECK_RETRY_S))

    async def _until_no_audit_waits(self) -> None:
        """Wait until no audit is pending: a bookie in its recovery delay would count as bad."""
        if self._schedule.due < inf:
            self.stats.checks_skipped += 1
        while self._schedule.due < inf:
            await self._changed.wait()

    async def _check(self, check: CheckTime, job: Callable[[], Awaitable[None]]) -> bool:
        try:
            return await self._while_enabled(job)
        except SessionExpiredError:
            raise
        except (MetadataError, AutoRecoveryError) as error:
            log.warning("check of all ledgers could not be finished", check=check.value, error=str(error))
            if check is CheckTime.ALL_LEDGERS:
                self.stats.ledger_checks_failed += 1
            return False

    async def _check_ledgers(self) -> None:
        assert self._checker is not None, "there is a checker"
        started = trio.current_time()
        bad = await check_ledgers(self._ledgers, self._marks, self._checker, self._config, self.stats)
        self.stats.ledger_checks.observe(_ms_since(started))
        log.info("check of all ledgers", bad=bad)

    async def _check_placement(self) -> None:
        assert self._adheres is not None, "there is a policy"
        started = trio.current_time()
        bad = await check_placement(self._ledgers, self._marks, self._adheres, self._config, self.stats, self._wall_ms)
        self.stats.placement_checks.observe(_ms_since(started))
        log.info("placement check", bad=bad, softly_adhering=self.stats.softly_adhering)

    async def _check_replicas(self) -> None:
        assert self._list_entries is not None, "lists can be requested"
        started = trio.current_time()
        bad = await check_replicas(self._ledgers, self._marks, self._list_entries, self.stats)
        self.stats.replicas_checks.observe(_ms_since(started))
        log.info("replicas check", bad=bad)

    async def _while_enabled(self, job: Callable[[], Awaitable[None]]) -> bool:
        """Run the job; return False if auto recovery was disabled before it was done."""
        done = False
        watch = self._marks.watch_enabled()

        async def until_disabled() -> None:
            while await until_available(self._marks.is_enabled):
                await watch.next()

        async def do() -> None:
            nonlocal done
            await job()
            done = True

        try:
            await first_of(do, until_disabled, name="auditor's job")
        finally:
            watch.close()
        return done


def _ms_since(started: float) -> float:
    return (trio.current_time() - started) * 1000

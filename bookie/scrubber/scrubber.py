"""Scrubber of one bookie: rounds over all ledger directories, in small steps at a low rate.

    for each directory   header and map of each log that is no longer written, and its entries without rows: strays.py
                         each ledger: its metadata gives the digest -> rows.py -> damaged entries -> healing.py

A round goes on where it was after a restart. Steps give way to reads and flushes, but not for ever. The metadata is
read anew for each ledger, with a deadline; without it only the index is checked, and nothing healed.

Source: BookKeeper's ScrubberService, which ends the bookie when it finds damage. Here the bookie goes on: the damage is
reported and healed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import trio

from bookie.bookie import Bookie
from bookie.db_ledger_storage.entry_log_format import HEADER_LENGTH
from bookie.db_ledger_storage.storage import DbLedgerStorage
from bookie.errors import BookieError, LogMissingError
from bookie.integrity.copying import Copier
from bookie.integrity.peers import OpenCopies
from bookie.limbo.preboot import ledger_manager
from bookie.scrubber.directory_reads import DirectoryHangsError, DirectoryReads
from bookie.scrubber.healing import Healer
from bookie.scrubber.logs import log_damage
from bookie.scrubber.pace import pace_of
from bookie.scrubber.record import FILE_NAME, ScrubRecord, decode, encode
from bookie.scrubber.rows import check_rows
from bookie.scrubber.strays import find_strays, needed
from quire.metadata.errors import MalformedMetadataError, MetadataError, UnsupportedLayoutError
from quire.metadata.ledger_metadata import LedgerMetadata
from quire.metadata.ledgers import LedgerManager
from quire.metadata.store import MetadataStore
from quire.service.log import get_logger
from quire.wire.bookkeeper.entry import Digest, digest_of

log = get_logger(__name__)

T = TypeVar("T")

SAVE_EVERY_S: Final = 60.0
RETRY_S: Final = 600.0
"""Seconds between two tries to heal, or after a round that was interrupted."""
HEALED_TOGETHER: Final = 500
"""Damaged entries of a ledger that are healed before the rest of it is read."""
METADATA_S: Final = 30.0
YIELDS_MAX: Final = 100
"""Times that a step waits for reads and flushes, about a second together."""
HEALING: Final = "an entry is damaged, the ledger is to be healed from other bookies"
ALONE: Final = "an entry is damaged, and there is no other bookie with a copy"
RECORDS_FOR_ONE: Final = 10
"""Heads of records that cost as much of the rate as one entry."""
_YIELD_S: Final = 0.01
_LEDGERS_PER_STEP: Final = 100
_LOG_PAUSE_S: Final = 0.01


@dataclass(slots=True)
class ScrubCounts:
    """Counters since the start of the bookie."""

    rounds: int = 0
    entries: int = 0
    bytes: int = 0
    unverified: int = 0
    strays: int = 0
    """Entries in a log without a row in the index, of ledgers that the bookie should have..."""
    rows_written: int = 0
    """...and those of them that were intact, and got a row."""
    damaged: int = 0
    """Damaged entries that were found..."""
    healed: int = 0
    """...and that are good again."""
    running: bool = False
    last_failure: str = ""
    """Why the last round was interrupted, or a ledger was not healed; empty if nothing failed."""


class Scrubber:
    """Scrubber of one bookie. `peers`: opened while there is something to heal; None: there is no other bookie, so that
    damage is only reported."""

    def __init__(self, bookie: Bookie, metadata: MetadataStore, peers: OpenCopies | None) -> None:
        self._bookie = bookie
        self._metadata = metadata
        self._open_peers = peers
        self._healer = Healer(bookie)
        self._copier = Copier(bookie)
        self._pace = pace_of(bookie)
        self._asked = trio.Event()
        self._saved_at = 0.0
        self._loaded = False
        self._reads: DirectoryReads | None = None
        self.records = [ScrubRecord() for _ in bookie.storage.directories]
        """Findings by directory."""
        self.counts = ScrubCounts()

    def ask(self) -> None:
        """Begin a round soon, whatever the interval."""
        self._asked.set()

    @property
    def rate(self) -> int:
        """Return the entries that a scrub reads per second. Set it until the next start."""
        return self._pace.rate

    @rate.setter
    def rate(self, rate: int) -> None:
        self._pace.rate = rate

    @property
    def bytes_copied(self) -> int:
        """Return the bytes that were copied from other bookies."""
        return self._healer.bytes

    async def run(self) -> None:
        """Scrub when a round is due. Restarted by its caller after an unforeseen error."""
        await self._load()
        async with trio.open_nursery() as nursery:
            self._reads = DirectoryReads(self._bookie.world.offload, nursery, self.ask)
            while True:
                await self._work_once()

    async def _work_once(self) -> None:
        self.counts.running = False
        await self._until_due()
        self.counts.running = True
        try:
            if self._is_due():
                self._asked = trio.Event()
                await self._round()
            else:
                await self._heal_again()
        except (BookieError, MetadataError, OSError) as error:
            self.counts.last_failure = str(error)
            log.warning("scrub interrupted, it goes on later", reason=str(error))
            self.counts.running = False
            with trio.move_on_after(RETRY_S):
                await self._asked.wait()

    # --- when

    def _is_due(self) -> bool:
        return self._wait_s() <= 0

    def _usable(self) -> list[tuple[int, DbLedgerStorage]]:
        """Return number and storage of the directories that can be used, and whose reads end."""
        reasons, hanging = self._bookie.directories.reasons, self._hanging
        directories = enumerate(self._bookie.storage.directories)
        return [(index, each) for index, each in directories if not reasons[index] and index not in hanging]

    @property
    def _hanging(self) -> set[int]:
        return set() if self._reads is None else self._reads.hanging

    async def _run(self, index: int, job: Callable[[], T]) -> T:
        """Run a step, a blocking read of a directory, when its time has come. DirectoryHangsError, and what the job
        raises."""
        assert self._reads is not None, "the scrubber runs"
        await trio.sleep_until(self._pace.free_at)
        began = trio.current_time()
        try:
            return await self._reads.run(index, job)
        finally:
            self._pace.stepped(began, trio.current_time())

    def _is_unfinished(self) -> bool:
        return any([self.records[index].position >= 0 for index, _ in self._usable()])

    def _wait_s(self) -> float:
        if self._asked.is_set() or self._is_unfinished():
            return 0
        interval = self._bookie.config.scrub_interval_s
        began = [self.records[index].round_began_ms for index, _ in self._usable()]
        if interval <= 0 or not began:
            return float("inf")
        # A wall clock that was put back must not put off the next round for longer than the interval.
        return min((min(began) - self._bookie.world.clock.wall_ms()) / 1000 + interval, interval)

    async def _until_due(self) -> None:
        wait = self._wait_s()
        if wait > 0:
            if any([record.damages for record in self.records]):
                wait = min(wait, RETRY_S)
            with trio.move_on_after(wait):
                await self._asked.wait()

    async def _give_way(self, entries: float) -> None:
        """Wait as the rate says, and while clients read or a flush is due."""
        await trio.sleep(self._pace.delay(trio.current_time(), entries))
        bookie = self._bookie
        for _ in range(YIELDS_MAX):
            if not bookie.reads_in_flight and not any([each.flush_due for each in bookie.storage.directories]):
                return
            await trio.sleep(_YIELD_S)

    # --- what

    async def _round(self) -> None:
        """Finish the round of each directory that can be used, or begin one. BookieError, MetadataError, OSError."""
        bookie = self._bookie
        if not self._is_unfinished():
            self.counts.last_failure = ""
            for index, _ in self._usable():
                self.records[index].begin_round(bookie.world.clock.wall_ms())
                log.info("scrub begins", directory=bookie.config.ledger_directories[index])
        manager = await ledger_manager(self._metadata, bookie.world.rng, bookie.config.ledgers_root)
        for index, storage in self._usable():
            record = self.records[index]
            if record.position < 0:
                continue
            try:
                if record.position == 0:
                    await self._check_logs(index, storage, manager)
                await self._check_ledgers(index, storage, manager)
            except DirectoryHangsError:
                folder = bookie.config.ledger_directories[index]
                self.counts.last_failure = f"{folder}: a read does not end"
                log.error("scrub of a directory stopped, its disk does not answer a read", directory=folder)
                continue
            record.end_round(bookie.world.clock.wall_ms())
            await self._save(index)
            log.info(
                "scrub done",
                directory=bookie.config.ledger_directories[index],
                entries=record.entries,
                unverified=record.unverified,
                damaged=record.damaged_entries,
                damaged_logs=len(record.damaged_logs),
            )
        if not self._hanging:
            self.counts.rounds += 1

    async def _check_logs(self, index: int, storage: DbLedgerStorage, manager: LedgerManager) -> None:
        parts, record = storage.parts, self.records[index]
        logs = parts.logs.inactive_ids()
        record.keep_logs(set(logs))
        for log_id in logs:
            if log_id < record.next_log:
                continue  # read in this round, before a restart
            await self._give_way(0)
            await trio.sleep(_LOG_PAUSE_S)
            await self._check_strays(index, storage, manager, log_id)
            record.next_log = log_id + 1
            look = partial(log_damage, self._bookie.world.disk, parts.folder, log_id)
            reason = await self._run(index, look)
            if record.log_read(log_id, self._bookie.world.clock.wall_ms(), reason):
                log.error(
                    "an entry log has a damaged header or map; its entries are found by the index",
                    entry_log=f"{log_id:x}",
                    directory=parts.folder,
                    reason=reason,
                )
            await self._save_sometimes(index)

    async def _check_strays(self, index: int, storage: DbLedgerStorage, manager: LedgerManager, log_id: int) -> None:
        """Write the missing rows of entries that are in a log. DirectoryHangsError, BookieError, OSError."""
        at = HEADER_LENGTH
        while at >= 0:
            try:
                step = await self._run(index, partial(find_strays, storage.parts, log_id, at, self._pace.step_bytes))
            except LogMissingError:
                return  # compaction or garbage collection has deleted it
            at = step.next_at
            await self._give_way(step.records / RECORDS_FOR_ONE)
            for ledger_id in dict.fromkeys([each.ledger_id for each in step.strays]):
                metadata = await self._read(manager, ledger_id)
                if metadata is None:
                    continue
                strays = [each for each in step.strays if each.ledger_id == ledger_id]
                good, bad = needed(strays, metadata, self._bookie.config.id, _digest(metadata))
                if good or bad:
                    log.warning(
                        "entries without a row in the index, those that are intact get one",
                        ledger=ledger_id,
                        entry_log=f"{log_id:x}",
                        directory=storage.parts.folder,
                        entries=len(good) + len(bad),
                        intact=len(good),
                        first=min([*good, *bad]),
                    )
                    self.counts.strays += len(good) + len(bad)
                    self.counts.rows_written += len(good)
                    await self._copier.store(ledger_id, good, storage)

    async def _check_ledgers(self, index: int, storage: DbLedgerStorage, manager: LedgerManager) -> None:
        record = self.records[index]
        while True:
            look = partial(storage.parts.locations.ledgers_from, record.position, _LEDGERS_PER_STEP)
            ledgers = await self._run(index, look)
            for ledger_id in ledgers:
                await self._check_ledger(index, storage, manager, ledger_id)
                record.position = ledger_id + 1
                await self._save_sometimes(index)
            if not ledgers:
                return
            await self._give_way(0)

    async def _check_ledger(self, index: int, storage: DbLedgerStorage, manager: LedgerManager, ledger_id: int) -> None:
        record, counts = self.records[index], self.counts
        if storage.master_key(ledger_id) is None:
            return  # deleted, or left by an earlier process: garbage collection drops its rows
        metadata = await self._read(manager, ledger_id)
        digest = _digest(metadata)
        entry_id = 0
        while entry_id >= 0:
            rows_max = self._pace.rows_max
            look = partial(check_rows, storage.parts, ledger_id, entry_id, rows_max, digest, self._pace.step_bytes)
            step = await self._run(index, look)
            entry_id = step.next_entry
            counts.entries += step.entries
            counts.bytes += step.bytes
            counts.damaged += len(step.damages)
            unverified = step.entries - step.verified - len(step.damages)
            counts.unverified += unverified
            record.entries += step.entries
            record.unverified += unverified
            if record.found(step.damages):
                first = step.damages[0]
                log.error(
                    ALONE if self._open_peers is None else HEALING,
                    ledger=ledger_id,
                    entry=first.entry_id,
                    entry_log=f"{first.log_id:x}" if first.log_id >= 0 else "none",
                    directory=storage.parts.folder,
                    reason=first.reason,
                )
            await self._give_way(step.entries)
            if len(record.damages.get(ledger_id, ())) >= HEALED_TOGETHER and ledger_id not in record.lost:
                await self._heal(index, storage, ledger_id, metadata)
        if ledger_id in record.damages:
            await self._save(index)
            await self._heal(index, storage, ledger_id, metadata)

    async def _read(self, manager: LedgerManager, ledger_id: int) -> LedgerMetadata | None:
        """Return the metadata of a ledger; None if it is deleted or cannot be read now."""
        try:
            with trio.fail_after(METADATA_S):
                stored = await manager.read(ledger_id)
        except (MetadataError, MalformedMetadataError, UnsupportedLayoutError, trio.TooSlowError) as error:
            self.counts.last_failure = f"metadata of ledger {ledger_id}: {error}"
            return None
        return None if stored is None else stored.value

    # --- healing

    async def _heal_again(self) -> None:
        """Try once more to heal what is damaged. BookieError, MetadataError, OSError."""
        bookie = self._bookie
        manager = await ledger_manager(self._metadata, bookie.world.rng, bookie.config.ledgers_root)
        for index, storage in self._usable():
            for ledger_id in list(self.records[index].damages):
                await self._heal(index, storage, ledger_id, await self._read(manager, ledger_id))

    async def _heal(
        self, index: int, storage: DbLedgerStorage, ledger_id: int, metadata: LedgerMetadata | None
    ) -> None:
        """Heal one ledger, as far as possible. BookieError, OSError."""
        record = self.records[index]
        damages = dict(record.damages[ledger_id])
        if storage.master_key(ledger_id) is None:
            record.healed(ledger_id, damages)  # deleted
            return
        if metadata is None:
            record.lost[ledger_id] = "its metadata cannot be read, or it is being deleted"
            return
        if self._open_peers is None:
            record.lost[ledger_id] = "there is no other bookie with a copy"
            await self._save(index)
            return
        try:
            async with AsyncExitStack() as stack:
                peers = await stack.enter_async_context(self._open_peers())
                good, reason = await self._healer.heal(peers, storage, ledger_id, metadata, _digest(metadata), damages)
        except (BookieError, MetadataError) as error:
            good, reason = [], str(error)
        record.healed(ledger_id, good)
        self.counts.healed += len(good)
        for log_id in {damages[entry_id].log_id for entry_id in good}:
            storage.healed(log_id)
        if good:
            log.info("damaged entries healed by copies from other bookies", ledger=ledger_id, entries=len(good))
        if reason:
            self.counts.last_failure = f"ledger {ledger_id}: {reason}"
            if ledger_id not in record.lost:
                log.error(
                    "damaged entries cannot be healed now, their ledger stays marked",
                    ledger=ledger_id,
                    entries=len(damages) - len(good),
                    reason=reason,
                )
            record.lost[ledger_id] = reason
        await self._save(index)

    # --- record

    def _path(self, index: int) -> str:
        return f"{self._bookie.config.ledger_directories[index]}/current/{FILE_NAME}"

    async def _load(self) -> None:
        if self._loaded:
            return
        for index in range(len(self.records)):
            path = self._path(index)
            try:
                data = await self._bookie.world.offload.run(
                    partial(self._bookie.world.disk.read, path), name="scrub record"
                )
            except FileNotFoundError:
                continue
            except OSError as error:
                log.warning("what the scrubber found before cannot be read", file=path, reason=str(error))
                continue
            record = decode(data)
            if record is None:
                log.warning("what the scrubber found before is damaged, and forgotten", file=path)
            else:
                self.records[index] = record
        self._loaded = True

    async def _save_sometimes(self, index: int) -> None:
        if trio.current_time() >= self._saved_at + SAVE_EVERY_S:
            await self._save(index)

    async def _save(self, index: int) -> None:
        """Keep what was found. A failure is only logged: the next round finds it again."""
        disk, path, data = self._bookie.world.disk, self._path(index), encode(self.records[index])
        self._saved_at = trio.current_time()
        try:
            await self._bookie.world.offload.run(partial(disk.write_atomic, path, data), name="scrub record")
        except OSError as error:
            log.warning("what the scrubber found cannot be saved", file=path, reason=str(error))


def _digest(metadata: LedgerMetadata | None) -> Digest | None:
    """Return what verifies the ledger's entries; None if it is not known."""
    if metadata is None or not metadata.password_known:
        return None
    return digest_of(metadata.digest_type, metadata.password)

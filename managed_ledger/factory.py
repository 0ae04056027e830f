"""Factory of managed ledgers, one per broker: opens them, shares them, and runs their housekeeping.

async with open_factory(world, metadata, ledger_client, config) as factory:
    managed_ledger = await factory.open("public/default/persistent/orders")
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import trio

from cursors.config import CursorConfig
from cursors.cursor_store import CursorStore
from cursors.doors import Ledgers
from cursors.errors import CursorClosedError, CursorDamagedError
from cursors.flusher import Flusher
from cursors.opening import cursor_path
from cursors.position_info import NO_LEDGER, decode_node
from cursors.services import CursorServices as CursorServices
from managed_ledger.config import MIB, LogConfigSource, ManagedLedgerConfig, standard_config
from managed_ledger.entry_cache import CacheBudget
from managed_ledger.errors import ManagedLedgerUnavailableError, NoSuchManagedLedgerError, ObjectError
from managed_ledger.leaving import Leaving
from managed_ledger.managed_ledger import ManagedLedger
from managed_ledger.offloading import trimmed
from managed_ledger.opening import open_log
from managed_ledger.services import ClosedLog, Services
from managed_ledger.stored_list import StoredList, log_path
from managed_ledger.tiers import Objects, delete_objects, deleted_driver
from quire.ledger.errors import LedgerError, NoSuchLedgerError
from quire.metadata.errors import MetadataError, NoNodeError
from quire.metadata.store import Delete, MetadataStore
from quire.service.gate import Gate
from quire.service.log import get_logger
from quire.service.measuring.summaries import Histogram
from quire.world.doors import World

log = get_logger(__name__)

LEDGERS_SHOWN = 500
"""Ledgers of a deleted log that its line names."""

TICK_S = 1.0
REST_S = 5.0
"""Time between two rounds in which idle writers give back memory."""
HOUSE_LOGS_MAX = 500
"""Logs of a round that are looked at in one step of the event loop: about a millisecond."""
LEFT_MAX = 20
"""Ledgers left per tick because of a full disk: each takes a little room of the metadata."""
TRIM_LOOKS_MAX = 500
"""Logs examined per tick for ledgers to trim: some milliseconds."""
TRIM_LEDGERS_MAX = 50
"""Ledgers created per tick so that the last one of a log without an open ledger can be trimmed."""
OPENS_MAX = 64
"""Logs opened concurrently: enough to keep bookies and metadata busy, few enough that they do not time out together."""
RECOVERIES_MAX = 256
"""Cursors recovered concurrently, over all those logs."""
ENDED_MAX = 100_000
"""Names of ended logs that are kept."""


class ManagedLedgerFactory:
    """Factory that opens each log once. The tasks of all logs run in the nursery, which outlives them; see
    `open_factory`.

    `config_of` is called with the name of a log to be opened and returns its configuration; None: `config` applies to
    all."""

    def __init__(
        self,
        world: World,
        metadata: MetadataStore,
        ledger_client: Ledgers,
        config: ManagedLedgerConfig,
        nursery: trio.Nursery,
        cursor_config: CursorConfig | None = None,
        *,
        config_of: Callable[[str], Awaitable[LogConfigSource]] | None = None,
        no_room: Callable[[], str] = str,
        objects: Objects | None = None,
    ) -> None:
        """Take the parts it uses; `no_room` and `objects` as in `Services`."""
        cursor_config = cursor_config or CursorConfig(
            ensemble_size=config.ensemble_size, write_quorum=config.write_quorum, ack_quorum=config.ack_quorum
        )
        self.budget = CacheBudget(*_cache(config))
        self.cursor_times = Histogram()
        """Times in milliseconds to store acknowledgements in ledgers of cursors."""
        self._flusher = Flusher(cursor_config.flush_delay_ms / 1000)
        self._services = Services(
            world=world,
            metadata=metadata,
            ledgers=ledger_client,
            nursery=nursery,
            config=config,
            budget=self.budget,
            cursors=CursorServices(
                persist_times=self.cursor_times,
                world=world,
                metadata=metadata,
                ledgers=ledger_client,
                nursery=nursery,
                flusher=self._flusher,
                config=cursor_config,
            ),
            recoveries=Gate(RECOVERIES_MAX),
            on_gone=self._gone,
            no_room=no_room,
            objects=objects,
        )
        self._config_of = config_of
        self._open: dict[str, ManagedLedger] = {}
        self._opens = Gate(OPENS_MAX)
        self._busy: dict[str, _Reservation] = {}
        """Names being opened, closed or deleted."""
        self._ended: set[str] = set()
        """Names of logs that were open, or nearly: a write of theirs may be on its way when they are opened again."""
        self._ended_is_full = False
        """True if there were more: every log counts as one of them."""

    @property
    def ledgers(self) -> Ledgers:
        """Return the ledgers that the logs are made of."""
        return self._services.ledgers

    @property
    def objects(self) -> Objects | None:
        """Return the storage of offloaded ledgers."""
        return self._services.objects

    @property
    def config(self) -> ManagedLedgerConfig:
        return self._services.config

    @property
    def managed_ledgers(self) -> dict[str, ManagedLedger]:
        """Return the open ones, by name; not to be changed."""
        return self._open

    async def run(self) -> None:
        """Roll by age, evict, trim and flush, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._flusher.run, name="cursor flusher")
            nursery.start_soon(self._keep_house, name="managed ledger housekeeping")
            if (objects := self._services.objects) is not None:
                leaving = Leaving(self._services, objects, self._open.values)
                nursery.start_soon(leaving.run, name="offloaded ledgers leave bookies")

    async def _keep_house(self) -> None:
        trimmed_at = rested_at = trio.current_time()
        to_trim: deque[ManagedLedger] = deque()
        while True:
            await trio.sleep(TICK_S)
            now = trio.current_time()
            self.budget.evict_old(now)
            if not to_trim and now - trimmed_at >= self._services.config.retention_check_s:
                trimmed_at = now
                to_trim.extend(self._open.values())
            _trim_some(to_trim)
            left = LEFT_MAX if self._services.no_room() else 0
            rests = now - rested_at >= REST_S
            if rests:
                rested_at = now
            for count, managed_ledger in enumerate(list(self._open.values()), 1):
                if not count % HOUSE_LOGS_MAX:
                    await trio.lowlevel.checkpoint()
                managed_ledger.check_age(now)
                if left and managed_ledger.make_room():
                    left -= 1
                if rests:
                    managed_ledger.rest()

    def options_changed(self, config: ManagedLedgerConfig) -> None:
        """Obey other values of the keys that can be changed: those of the cache."""
        self.budget.at_most(*_cache(config))

    async def open(self, name: str, *, create: bool = True, config: LogConfigSource | None = None) -> ManagedLedger:
        """Return the log `tenant/namespace/persistent/<escaped topic>`; concurrent callers get the same object.

        `config` is the answer of `config_of`, if the caller has it. At most OPENS_MAX are opened at a time. Raises
        NoSuchManagedLedgerError without `create`, and other ManagedLedgerError; CursorError; errors of `config_of`.
        """
        while True:
            await self._free(name)
            managed_ledger = self._open.get(name)
            if managed_ledger is not None and managed_ledger.is_usable:
                return managed_ledger
            if managed_ledger is not None:
                await self._finish_close(name, managed_ledger)
                continue
            with self._reserved(name):
                source = await self._log_config(name) if config is None or self._config_of is None else config
                is_first = name not in self._ended and not self._ended_is_full
                try:
                    async with self._opens:
                        managed_ledger = await open_log(self._services, name, source, create=create, is_first=is_first)
                except BaseException:
                    self._has_ended(name)
                    raise
                if managed_ledger.is_usable:
                    self._open[name] = managed_ledger
                return managed_ledger

    async def _log_config(self, name: str) -> LogConfigSource:
        return standard_config(self._services.config) if self._config_of is None else await self._config_of(name)

    async def stored_properties(self, name: str, cursor: str) -> dict[str, int]:
        """Return the numbers stored with the position of a cursor of a log that is not open; none without the cursor.

        The cursor's ledger is fenced. Raises CursorError, MetadataError."""
        path = cursor_path(log_path(name), cursor)
        try:
            stored = await CursorStore(self._services.cursors, path, name, cursor, _nothing).recover()
        except CursorClosedError:
            return {}
        return stored.properties

    async def delete(self, name: str, *, also: Sequence[int] = ()) -> None:
        """Close the log and delete it: ledgers, their objects, cursors, node, and `also` these ledgers.

        Raises NoSuchManagedLedgerError, ManagedLedgerFencedError, ManagedLedgerUnavailableError (incomplete: call it
        again)."""
        await self._free(name)
        managed_ledger = self._open.get(name)
        with self._reserved(name):
            if managed_ledger is not None:
                await managed_ledger.close()
            try:
                await self._delete(name, also)
            except (LedgerError, MetadataError, ObjectError) as error:
                raise ManagedLedgerUnavailableError(f"{name} cannot be deleted: {error}") from error

    async def _delete(self, name: str, also: Sequence[int]) -> None:
        """Store the intent, which empties the log and names every ledger and object of it; delete these; then the nodes
        in one write."""
        services, path = self._services, log_path(name)
        stored = StoredList(services.metadata, services.ledgers, standard_config(services.config), name)
        if not await stored.read():
            raise NoSuchManagedLedgerError(f"there is no log {name}")
        cursor_paths = [f"{path}/{component}" for component in await services.metadata.children(path)]
        doomed = [info.ledger_id for info in stored.value.ledgers] + list(also)
        log.info("deleting the ledgers of a log", managed_ledger=name, ledgers=_shown(doomed))
        for each in cursor_paths:
            doomed += await self._cursor_ledgers(each)
        await stored.put(trimmed(stored.value, doomed, driver=deleted_driver(services.objects)))
        for ledger_id in stored.value.deleting:
            try:
                await services.ledgers.delete(ledger_id)
            except NoSuchLedgerError:
                pass
        await delete_objects(services.objects, stored)
        await services.metadata.multi(
            [*(Delete(path=each) for each in cursor_paths), Delete(path=path, version=stored.version)]
        )

    async def _cursor_ledgers(self, path: str) -> list[int]:
        found = await self._services.metadata.get(path)
        if found is None:
            raise NoNodeError(f"{path} vanished")
        try:
            node, _ = decode_node(found.value)
        except CursorDamagedError as error:
            log.error("deleting an unreadable cursor; its ledgers may remain", path=path, reason=str(error))
            return []
        return [each for each in (node.ledger_id, node.previous_ledger_id, *node.deleting) if each != NO_LEDGER]

    async def close(self) -> None:
        """Close all logs concurrently; the caller sets the deadline. Correctness does not need it."""
        async with trio.open_nursery() as nursery:
            for name, managed_ledger in list(self._open.items()):
                nursery.start_soon(managed_ledger.close, name=f"close {name}")

    async def _free(self, name: str) -> None:
        while name in self._busy:
            await self._busy[name].over()

    async def _finish_close(self, name: str, managed_ledger: ManagedLedger) -> None:
        """Wait until a close under way is done; no caller opens the log before that."""
        await managed_ledger.closed.wait()
        self._gone(managed_ledger)

    def _reserved(self, name: str) -> _Reservation:
        return _Reservation(self._busy, name)

    def _has_ended(self, name: str) -> None:
        if len(self._ended) < ENDED_MAX:
            self._ended.add(name)
        else:
            self._ended_is_full = True

    def _gone(self, managed_ledger: ClosedLog) -> None:
        self._has_ended(managed_ledger.name)
        if self._open.get(managed_ledger.name) is managed_ledger:
            del self._open[managed_ledger.name]


def _nothing() -> None:
    pass


def _trim_some(logs: deque[ManagedLedger]) -> None:
    """Trim the first of these logs, as many as one tick may take."""
    ledgers = TRIM_LEDGERS_MAX
    for _ in range(min(TRIM_LOOKS_MAX, len(logs))):
        managed_ledger = logs.popleft()
        if not managed_ledger.is_usable or (needs := managed_ledger.trim_needs()) < 0:
            continue
        ledgers -= needs
        managed_ledger.want_trim()
        if not ledgers:
            break


class _Reservation:
    """Reservation of a name that is being opened or deleted; other callers wait."""

    __slots__ = ("_busy", "_done", "_name")

    def __init__(self, busy: dict[str, _Reservation], name: str) -> None:
        self._busy = busy
        self._name = name
        self._done: trio.Event | None = None
        """Set at the end; None: no other task waits."""

    def __enter__(self) -> None:
        self._busy[self._name] = self

    async def over(self) -> None:
        """Wait until the name is free again."""
        if self._done is None:
            self._done = trio.Event()
        await self._done.wait()

    def __exit__(self, *_: object) -> None:
        del self._busy[self._name]
        if self._done is not None:
            self._done.set()


@asynccontextmanager
async def open_factory(
    world: World,
    metadata: MetadataStore,
    ledger_client: Ledgers,
    config: ManagedLedgerConfig,
    cursor_config: CursorConfig | None = None,
    *,
    config_of: Callable[[str], Awaitable[LogConfigSource]] | None = None,
    no_room: Callable[[], str] = str,
    objects: Objects | None = None,
) -> AsyncIterator[ManagedLedgerFactory]:
    """Run a factory with its tasks. On exit, unless cancelled, every log is closed."""
    async with trio.open_nursery() as nursery:
        factory = ManagedLedgerFactory(
            world,
            metadata,
            ledger_client,
            config,
            nursery,
            cursor_config,
            config_of=config_of,
            no_room=no_room,
            objects=objects,
        )
        nursery.start_soon(factory.run, name="managed ledgers")
        try:
            yield factory
            await factory.close()
        finally:
            nursery.cancel_scope.cancel()


def _cache(config: ManagedLedgerConfig) -> tuple[int, float, float]:
    """Return the limit, the watermark and the age in seconds of the caches."""
    return config.cache_size_mb * MIB, config.cache_watermark, config.cache_age_ms / 1000


def _shown(ledger_ids: Sequence[int]) -> str:
    """Return ledger ids for a log line, as `quire salvage` takes them; not more than LEDGERS_SHOWN."""
    shown = ",".join(map(str, ledger_ids[:LEDGERS_SHOWN]))
    return shown if len(ledger_ids) <= LEDGERS_SHOWN else f"{shown},..."

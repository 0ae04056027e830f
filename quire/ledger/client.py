"""LedgerClient: creates, opens, recovers, lists and deletes ledgers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

import trio

from quire.ledger import metadata_updates
from quire.ledger.bookies.deadlines import DeadlineWheel
from quire.ledger.bookies.health import BookieHealth
from quire.ledger.bookies.link import BookieLink
from quire.ledger.bookies.pool import BookieClient
from quire.ledger.bookies.watcher import BookieWatcher
from quire.ledger.context import Afterwards, LedgerConfig, LedgerContext
from quire.ledger.errors import LedgerUnauthorizedError, NoSuchLedgerError
from quire.ledger.placement import Cluster, EnsemblePlacementPolicy, make_placement, random_placement
from quire.ledger.reading.copies import LedgerCopies
from quire.ledger.reading.last_confirmed import LastConfirmed, ask_last_confirmed
from quire.ledger.reading.reader import LedgerReader
from quire.ledger.recovery.recovery import recover as recover_ledger
from quire.ledger.writing import creation as ledger_creation
from quire.ledger.writing.creation import NewLedger
from quire.ledger.writing.writer import AdvancedLedgerWriter, LedgerWriter
from quire.metadata.ledgers import LedgerManager, LedgerMetadata, LedgerState
from quire.metadata.store import Op, Versioned
from quire.wire.bookkeeper.entry import Digest, DigestType, master_key
from quire.world.doors import World

TICKS_PER_TIMEOUT = 16


def no_ops(ledger_id: int) -> Sequence[Op]:
    return ()


class LedgerClient:
    """One per process; its handles share the connections to bookies. Made by `open_client`, `open_ledger_client`, or with a nursery
    that owns its tasks: `nursery` must outlive every handle, and is cancelled by its owner."""

    def __init__(
        self,
        world: World,
        ledgers: LedgerManager,
        connect: Callable[[str], BookieLink],
        bookies: Callable[[], list[str]] | BookieWatcher,
        *,
        nursery: trio.Nursery,
        config: LedgerConfig | None = None,
        placement: EnsemblePlacementPolicy | None = None,
        health: BookieHealth | None = None,
    ) -> None:
        """`connect` makes a link to a bookie id, and may raise BookieUnavailableError. `bookies` names those that may be chosen,
        at random; or it is a watcher, and ensembles are chosen as `config.placement` says. `placement` overrules both.
        `health`: where what is learned of bookies is kept, if others are to know. PlacementPolicyError."""
        config = config or LedgerConfig()
        watcher = None
        if callable(bookies):
            placement = placement or random_placement(bookies, world.rng)
        else:
            watcher = bookies
            placement = placement or make_placement(config.placement, watcher.cluster, world.rng)
        wheel = DeadlineWheel(min(config.add_timeout_s, config.read_timeout_s) / TICKS_PER_TIMEOUT, world.faults)
        self._context = LedgerContext(
            ledgers=ledgers,
            bookies=BookieClient(connect, wheel, config.read_timeout_s, protocol=config.protocol),
            placement=placement,
            watcher=watcher,
            rng=world.rng,
            wheel=wheel,
            afterwards=Afterwards(world.faults),
            nursery=nursery,
            config=config,
            health=health or BookieHealth(config.reads.failure_memory_s),
            faults=world.faults,
        )
        nursery.start_soon(wheel.run, name="ledger deadlines")
        nursery.start_soon(self._context.afterwards.run, name="ledger reports")

    async def create(
        self,
        *,
        ensemble_size: int = 1,
        write_quorum: int = 1,
        ack_quorum: int = 1,
        digest_type: DigestType = DigestType.CRC32C,
        password: bytes = b"",
        custom_metadata: Sequence[tuple[str, bytes]] = (),
        ledger_id: int | None = None,
        deferred_sync: bool = False,
        high_priority: bool = False,
        also: Callable[[int], Sequence[Op]] = no_ops,
    ) -> LedgerWriter:
        """A new, empty ledger, with the next id or the one given. With `deferred_sync` bookies acknowledge entries before they
        are synced, see `OpenLedger`. The ops that `also` answers for the id are stored in the same write, all or nothing.

        `high_priority`: bookies that are read-only take its entries all the same, as long as they can.

        IncorrectParameterError, NotEnoughBookiesError, LedgerExistsError (of an id that was given), ClientClosedError,
        MetadataError (with `.index` above 0 if it is of those ops).
        """
        wanted = NewLedger(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            digest_type=digest_type,
            password=password,
            custom_metadata=tuple(custom_metadata),
            ledger_id=ledger_id,
        )
        made, metadata = await ledger_creation.create(self._context, wanted, also)
        return LedgerWriter(self._context, made, metadata, deferred_sync=deferred_sync, high_priority=high_priority)

    async def create_adv(
        self,
        *,
        ensemble_size: int = 1,
        write_quorum: int = 1,
        ack_quorum: int = 1,
        digest_type: DigestType = DigestType.CRC32C,
        password: bytes = b"",
        custom_metadata: Sequence[tuple[str, bytes]] = (),
        ledger_id: int | None = None,
        deferred_sync: bool = False,
        also: Callable[[int], Sequence[Op]] = no_ops,
    ) -> AdvancedLedgerWriter:
        """The same for a writer whose entry ids the application gives."""
        wanted = NewLedger(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            digest_type=digest_type,
            password=password,
            custom_metadata=tuple(custom_metadata),
            ledger_id=ledger_id,
        )
        made, metadata = await ledger_creation.create(self._context, wanted, also)
        return AdvancedLedgerWriter(self._context, made, metadata, deferred_sync=deferred_sync)

    # --- reading

    async def open(
        self,
        ledger_id: int,
        *,
        password: bytes = b"",
        recover: bool,
        digest_type: DigestType = DigestType.CRC32C,
    ) -> LedgerReader:
        """A reader of the ledger. With `recover` its writer is fenced and it is closed first, so that its end is final;
        without, an open ledger is read up to what its bookies know to be confirmed, and can be followed.

        `digest_type` is for ledgers whose metadata does not tell. NoSuchLedgerError, LedgerUnauthorizedError, MetadataError;
        LedgerRecoveryError with `recover`; without, LedgerReadError if too few bookies of an open ledger answer.
        """
        stored = await self._stored(ledger_id)
        metadata = stored.value
        if metadata.password_known and metadata.password != password:
            raise LedgerUnauthorizedError(f"ledger {ledger_id} has another password")
        digest = Digest(metadata.digest_type if metadata.password_known else digest_type, password)
        if recover and metadata.state is not LedgerState.CLOSED:
            stored = Versioned(await recover_ledger(self._context, ledger_id, digest, password), stored.version)
            metadata = stored.value
        if metadata.state is LedgerState.CLOSED:
            end = LastConfirmed(metadata.last_entry_id, metadata.length)
        else:
            end = await ask_last_confirmed(self._context, ledger_id, metadata, digest)
        return LedgerReader(self._context, ledger_id, stored, digest, end)

    async def open_no_recovery(
        self, ledger_id: int, *, password: bytes = b"", digest_type: DigestType = DigestType.CRC32C
    ) -> LedgerReader:
        """`open` without `recover`: for who follows a ledger that somebody else writes."""
        return await self.open(ledger_id, password=password, recover=False, digest_type=digest_type)

    # --- repair

    @property
    def cluster(self) -> Cluster | None:
        """The bookies as they are known now; None where their ids were given."""
        return None if self._context.watcher is None else self._context.watcher.cluster()

    @property
    def placement(self) -> EnsemblePlacementPolicy:
        """What chooses bookies."""
        return self._context.placement

    @property
    def health(self) -> BookieHealth:
        """What is known of bookies from what they answered."""
        return self._context.health

    def copies(
        self,
        ledger_id: int,
        metadata: LedgerMetadata,
        *,
        password: bytes = b"",
        digest_type: DigestType = DigestType.CRC32C,
    ) -> LedgerCopies:
        """The copies that single bookies have of a ledger. The password is in its metadata; `password` and `digest_type`
        are for those that do not tell."""
        if metadata.password_known:
            password, digest_type = metadata.password, metadata.digest_type
        return LedgerCopies(self._context, ledger_id, Digest(digest_type, password), master_key(password))

    async def replace_members(
        self, ledger_id: int, first: int, last: int, members: Mapping[int, tuple[str, str]]
    ) -> LedgerMetadata:
        """Name other bookies in the fragment of the entries `first` to `last`, of which nothing more can come: by index, the old
        member and the new one, which must have every entry of that index on its disk. Returns the metadata as it then
        stands. FragmentChangedError, NoSuchLedgerError, MetadataError."""
        rule = partial(metadata_updates.replace_members, first=first, last=last, members=members)
        return (await metadata_updates.update(self._context, ledger_id, rule)).value

    # --- ledgers as a whole

    async def read_metadata(self, ledger_id: int) -> LedgerMetadata:
        """What is stored of a ledger. NoSuchLedgerError, MetadataError."""
        return (await self._stored(ledger_id)).value

    async def read_stored(self, ledger_id: int) -> Versioned[LedgerMetadata]:
        """The same with its version, and when it was stored. NoSuchLedgerError, MetadataError."""
        return await self._stored(ledger_id)

    async def _stored(self, ledger_id: int) -> Versioned[LedgerMetadata]:
        stored = await self._context.ledgers.read(ledger_id)
        if stored is None:
            raise NoSuchLedgerError(f"ledger {ledger_id} has no metadata")
        return stored

    async def list_ledgers(self, first: int = 0) -> AsyncIterator[int]:
        """Every ledger id from `first` on, growing. Ledgers that come or go meanwhile may be seen or not. MetadataError."""
        async for ledger_id in self._context.ledgers.ledger_ids(first):
            yield ledger_id

    async def delete(self, ledger_id: int) -> None:
        """Delete the ledger's metadata; fine if it is gone. Bookies free the space in their own time. An open ledger may be
        deleted too: its writer goes on until it changes the ensemble or closes. MetadataError."""
        await self._context.ledgers.delete(ledger_id)

    def close(self) -> None:
        """Give up all connections. What is under way fails or is forgotten."""
        self._context.bookies.close()


@asynccontextmanager
async def open_ledger_client(
    world: World,
    ledgers: LedgerManager,
    connect: Callable[[str], BookieLink],
    bookies: Callable[[], list[str]] | BookieWatcher,
    config: LedgerConfig | None = None,
    *,
    placement: EnsemblePlacementPolicy | None = None,
    health: BookieHealth | None = None,
) -> AsyncIterator[LedgerClient]:
    """A ledger client whose tasks end with the block. What the block raises is raised as it is, in no group."""
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        try:
            client = LedgerClient(
                world,
                ledgers,
                connect,
                bookies,
                nursery=nursery,
                config=config,
                placement=placement,
                health=health,
            )
            try:
                yield client
            finally:
                client.close()
        except Exception as error:
            failure = error
        finally:
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure

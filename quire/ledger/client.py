"""LedgerClient: creates, opens, recovers, lists and deletes ledgers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial

import trio

from quire.ledger import metadata_updates
from quire.ledger.bookies.deadlines import DeadlineWheel
from quire.ledger.bookies.health import BookieHealth
from quire.ledger.bookies.link import BookieLink
from quire.ledger.bookies.pool import BookieClient
from quire.ledger.bookies.watcher import BookieWatcher
from quire.ledger.client_stats import ClientStats
from quire.ledger.context import Afterwards, LedgerConfig, LedgerContext
from quire.ledger.errors import NoSuchLedgerError
from quire.ledger.placement import Cluster, EnsemblePlacementPolicy, make_placement, random_placement
from quire.ledger.reading.copies import LedgerCopies
from quire.ledger.reading.opened import open_reader
from quire.ledger.reading.reader import LedgerReader
from quire.ledger.writing import creation as ledger_creation
from quire.ledger.writing.advanced_writer import AdvancedLedgerWriter
from quire.ledger.writing.creation import NewLedger
from quire.ledger.writing.writer import LedgerWriter
from quire.metadata.ledgers import LedgerManager, LedgerMetadata
from quire.metadata.store import Op, Versioned
from quire.wire.bookkeeper.entry import DigestType, digest_of, master_key
from quire.world.doors import World

TICKS_PER_TIMEOUT = 16


def no_ops(ledger_id: int) -> Sequence[Op]:
    return ()


class LedgerClient:
    """Client of a ledger cluster: creates, opens, lists and deletes ledgers.

    Its handles share the connections to bookies.

    A process needs one. Create it with `open_client` or `open_ledger_client`, or with a nursery of your own, which must
    outlive every handle and must be cancelled by its owner.
    """

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
        """Create a client.

        Args:
            world: Doors to clock, network and random numbers.
            ledgers: Ledger metadata.
            connect: Opens a link to a bookie id; may raise BookieUnavailableError.
            bookies: A function that returns the ids of available bookies, which are then chosen at random, or a
                watcher, with ensembles chosen by `config.placement`.
            nursery: Owner of the client's tasks.
            config: Limits and choices; None for the defaults.
            placement: Policy that overrides `bookies` and `config` for choosing ensembles.
            health: Health records to share with other parts of the process; None for new ones.

        Raises:
            PlacementPolicyError: The configured policy cannot be loaded or created.
        """
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
        """Create a new, empty ledger.

        Args:
            ensemble_size: Number of bookies (E) that store the ledger.
            write_quorum: Number of bookies (Qw) that store each entry.
            ack_quorum: Number of bookies (Qa) that must acknowledge an entry before it is confirmed.
            digest_type: Checksum of entries.
            password: Needed to read the ledger and for digests with a key.
            custom_metadata: Names and values stored with the ledger's metadata.
            ledger_id: Id of the ledger; None for the next free one.
            deferred_sync: Bookies acknowledge entries before they are synced; see `OpenLedger`.
            high_priority: Read-only bookies accept entries of this ledger too, while they have room.
            also: Returns, for the new id, metadata operations that are stored in the same write, all or nothing.

        Returns:
            The writer of the new ledger. Nothing else may append to it.

        Raises:
            IncorrectParameterError: The arguments contradict each other.
            NotEnoughBookiesError: Fewer than `ensemble_size` bookies are available.
            PlacementPolicyError: The placement policy gave an invalid answer.
            LedgerExistsError: `ledger_id` is in use.
            ClientClosedError: The client is closed.
            MetadataError: The metadata service failed; `.index` is above 0 if one of the operations of `also` did.
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
        """Create a new, empty ledger whose entry ids the application assigns.

        Args:
            ensemble_size: As for `create`, and so are the others.
            write_quorum: See `create`.
            ack_quorum: See `create`.
            digest_type: See `create`.
            password: See `create`.
            custom_metadata: See `create`.
            ledger_id: See `create`.
            deferred_sync: See `create`.
            also: See `create`.

        Returns:
            The writer of the new ledger.

        Raises:
            LedgerError: As `create`.
            MetadataError: As `create`.
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
        """Open a ledger for reading.

        With `recover`, the ledger's writer is fenced and the ledger is closed first, so its end is final. Without it,
        an open ledger is read up to the last entry that its bookies know to be confirmed, and can be followed.

        Args:
            ledger_id: Id of the ledger.
            password: Password the ledger was created with.
            recover: Fence and close the ledger first.
            digest_type: Used for ledgers whose metadata has no digest type.

        Returns:
            A reader of the ledger.

        Raises:
            NoSuchLedgerError: The ledger has no metadata.
            LedgerUnauthorizedError: The password is wrong.
            LedgerRecoveryError: With `recover`: the end of the ledger cannot be determined now; try again later.
            LedgerReadError: Without `recover`: too few bookies of an open ledger answer.
            MetadataError: The metadata service failed.
        """
        stored = await self.read_stored(ledger_id)
        return await open_reader(self._context, ledger_id, stored, password, digest_type, recover=recover)

    async def recover(self, ledger_id: int) -> tuple[int, int]:
        """Fence and close a ledger without a password, unless it is closed, and return its end.

        Cheaper than `open` with `recover`, if no entry is to be read now.

        Args:
            ledger_id: Id of the ledger.

        Returns:
            Last entry, -1 if it has none, and payload bytes; both final.

        Raises:
            LedgerError: As `open` with `recover`.
            MetadataError: The metadata service failed.
        """
        found = await self._context.ledgers.read_or_end(ledger_id)
        if isinstance(found, tuple):
            return found
        stored = _existing(ledger_id, found)
        reader = await open_reader(self._context, ledger_id, stored, b"", DigestType.CRC32C, recover=True)
        return reader.last_entry_id, reader.length

    async def open_no_recovery(
        self, ledger_id: int, *, password: bytes = b"", digest_type: DigestType = DigestType.CRC32C
    ) -> LedgerReader:
        """Open a ledger without recovery, to follow a ledger that another client writes.

        Args:
            ledger_id: Id of the ledger.
            password: Password the ledger was created with.
            digest_type: Used for ledgers whose metadata has no digest type.

        Returns:
            A reader of the ledger.

        Raises:
            LedgerError: As `open` with `recover=False`.
            MetadataError: The metadata service failed.
        """
        return await self.open(ledger_id, password=password, recover=False, digest_type=digest_type)

    # --- repair

    @property
    def cluster(self) -> Cluster | None:
        """Bookies as known now; None if the client was given a function instead of a watcher."""
        return None if self._context.watcher is None else self._context.watcher.cluster()

    @property
    def placement(self) -> EnsemblePlacementPolicy:
        """Policy that chooses bookies."""
        return self._context.placement

    @property
    def bookies(self) -> BookieClient:
        """Connections to the bookies, for questions that are not about entries."""
        return self._context.bookies

    @property
    def health(self) -> BookieHealth:
        """Health of the bookies as seen from their answers."""
        return self._context.health

    @property
    def stats(self) -> ClientStats:
        """Counts and times of what this client did."""
        return self._context.stats

    def copies(
        self,
        ledger_id: int,
        metadata: LedgerMetadata,
        *,
        password: bytes = b"",
        digest_type: DigestType = DigestType.CRC32C,
    ) -> LedgerCopies:
        """Give access to the copies of a ledger on single bookies, for checks and repair.

        Args:
            ledger_id: Id of the ledger.
            metadata: Metadata of the ledger.
            password: Used if the metadata has no password.
            digest_type: Used if the metadata has no password.

        Returns:
            Reads and writes of single copies.
        """
        if metadata.password_known:
            password, digest_type = metadata.password, metadata.digest_type
        return LedgerCopies(self._context, ledger_id, digest_of(digest_type, password), master_key(password))

    async def replace_members(
        self, ledger_id: int, first: int, last: int, members: Mapping[int, tuple[str, str]]
    ) -> LedgerMetadata:
        """Replace members of a closed fragment in the metadata. Call it after the copies were written.

        Args:
            ledger_id: Id of the ledger.
            first: First entry of the fragment.
            last: Last entry of the fragment, inclusive.
            members: Old and new bookie by index. The new one must have every entry of that index on its disk.

        Returns:
            The metadata as stored afterwards.

        Raises:
            FragmentChangedError: The fragment has other entries or members by now.
            NoSuchLedgerError: The ledger is deleted.
            MetadataError: The metadata service failed.
        """
        rule = partial(metadata_updates.replace_members, first=first, last=last, members=members)
        return (await metadata_updates.update(self._context, ledger_id, rule)).value

    async def add_members(
        self, ledger_id: int, known: LedgerMetadata, ensembles: Mapping[int, tuple[str, ...]], *, ack_quorum: int
    ) -> LedgerMetadata:
        """Add members to all fragments of a closed ledger that is not striped. Call it after the copies were written.

        Args:
            ledger_id: Id of the ledger.
            known: Metadata by which the entries were copied.
            ensembles: Members by first entry of the fragment, the present ones first; as many for each fragment.
            ack_quorum: Ack quorum that the ledger then has; 1 to the number of members.

        Returns:
            The metadata as stored afterwards; ensemble and write quorum are the number of members.

        Raises:
            FragmentChangedError: The ledger has other members by now.
            NoSuchLedgerError: The ledger is deleted.
            MetadataError: The metadata service failed.
        """
        rule = partial(metadata_updates.add_members, known=known, ensembles=ensembles, ack_quorum=ack_quorum)
        return (await metadata_updates.update(self._context, ledger_id, rule)).value

    # --- ledgers as a whole

    async def read_metadata(self, ledger_id: int) -> LedgerMetadata:
        """Read a ledger's metadata.

        Args:
            ledger_id: Id of the ledger.

        Returns:
            The stored metadata.

        Raises:
            NoSuchLedgerError: The ledger has no metadata.
            MetadataError: The metadata service failed.
        """
        return (await self.read_stored(ledger_id)).value

    async def read_stored(self, ledger_id: int) -> Versioned[LedgerMetadata]:
        """Read a ledger's metadata with its version and its time of storage.

        Args:
            ledger_id: Id of the ledger.

        Returns:
            The stored metadata with its version.

        Raises:
            NoSuchLedgerError: The ledger has no metadata.
            MetadataError: The metadata service failed.
        """
        return _existing(ledger_id, await self._context.ledgers.read(ledger_id))

    async def list_ledgers(self, first: int = 0) -> AsyncGenerator[int, None]:
        """List ledger ids in ascending order. Ledgers that are created or deleted in the meantime may be listed or not.

        Args:
            first: Lowest id to list.

        Returns:
            A generator of the ids. Close it if you leave it early (`contextlib.aclosing`).

        Raises:
            MetadataError: The metadata service failed.
        """
        async with aclosing(self._context.ledgers.ledger_ids(first)) as found:
            async for ledger_id in found:
                yield ledger_id

    async def delete(self, ledger_id: int) -> None:
        """Delete the ledger's metadata; no effect if it does not exist. Bookies free the space later.

        An open ledger may be deleted too: its writer continues until it changes the ensemble or closes.

        Args:
            ledger_id: Id of the ledger.

        Raises:
            MetadataError: The metadata service failed.
        """
        with self._context.stats.deletes.timed():
            await self._context.ledgers.delete(ledger_id)

    def close(self) -> None:
        """Close all connections. Pending requests fail or are forgotten."""
        self._context.bookies.close()


def _existing(ledger_id: int, stored: Versioned[LedgerMetadata] | None) -> Versioned[LedgerMetadata]:
    if stored is None:
        raise NoSuchLedgerError(f"ledger {ledger_id} has no metadata")
    return stored

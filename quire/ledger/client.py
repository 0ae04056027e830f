"""LedgerClient: creates, opens, recovers and deletes ledgers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import trio

from quire.ledger.bookie_client import BookieClient
from quire.ledger.context import Afterwards, LedgerConfig, LedgerContext
from quire.ledger.deadlines import DeadlineWheel
from quire.ledger.errors import LedgerUnauthorizedError, NoSuchLedgerError
from quire.ledger.last_confirmed import LastConfirmed, read_last_confirmed
from quire.ledger.link import BookieLink
from quire.ledger.placement import choose_ensemble
from quire.ledger.reader import EntryReads, LedgerReader
from quire.ledger.recovery import recover
from quire.ledger.striping import Striping
from quire.ledger.writer import LedgerWriter
from quire.metadata.ledgers import Fragment, LedgerManager, LedgerMetadata, LedgerState
from quire.metadata.store import Op
from quire.wire.bookkeeper.entry import Digest, DigestType
from quire.world.doors import World

TICKS_PER_TIMEOUT = 16


def no_ops(ledger_id: int) -> Sequence[Op]:
    return ()


class LedgerClient:
    """One per process; its handles share the connections to bookies. Made by `open_ledger_client`, or with a nursery that
    owns its tasks: `nursery` must outlive every handle, and is cancelled by its owner."""

    def __init__(
        self,
        world: World,
        ledgers: LedgerManager,
        connect: Callable[[str], BookieLink],
        bookies: Callable[[], list[str]],
        *,
        nursery: trio.Nursery,
        config: LedgerConfig | None = None,
    ) -> None:
        """`connect` makes a link to a bookie id, and may raise BookieUnavailableError; `bookies` tells which may be chosen."""
        config = config or LedgerConfig()
        wheel = DeadlineWheel(min(config.add_timeout_s, config.read_timeout_s) / TICKS_PER_TIMEOUT)
        self._context = LedgerContext(
            ledgers=ledgers,
            bookies=BookieClient(connect, wheel, config.read_timeout_s),
            available=bookies,
            rng=world.rng,
            wheel=wheel,
            afterwards=Afterwards(),
            nursery=nursery,
            config=config,
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
        also: Callable[[int], Sequence[Op]] = no_ops,
    ) -> LedgerWriter:
        """A new, empty ledger. The ops that `also` answers for its id are stored in the same write, all or nothing.

        NotEnoughBookiesError, MetadataError (with `.index` above 0 if it is of those ops).
        """
        context = self._context
        ensemble = choose_ensemble(context.available(), ensemble_size, context.rng)
        metadata = LedgerMetadata(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            fragments=(Fragment(0, ensemble),),
            digest_type=digest_type,
            password=password,
            custom_metadata=tuple(custom_metadata),
        )
        ledger_id, _ = await context.ledgers.create(metadata, also=also)
        return LedgerWriter(context, ledger_id, metadata)

    async def open(
        self,
        ledger_id: int,
        *,
        password: bytes = b"",
        recover: bool,
        digest_type: DigestType = DigestType.CRC32C,
    ) -> LedgerReader:
        """A reader of the ledger. With `recover` its writer is fenced and it is closed first, so that its end is final;
        without, an open ledger is read up to what its bookies know to be confirmed.

        `digest_type` is for ledgers whose metadata does not tell. NoSuchLedgerError, LedgerUnauthorizedError,
        LedgerRecoveryError, MetadataError.
        """
        stored = await self._context.ledgers.read(ledger_id)
        if stored is None:
            raise NoSuchLedgerError(f"ledger {ledger_id} has no metadata")
        metadata = stored.value
        if metadata.password_known and metadata.password != password:
            raise LedgerUnauthorizedError(f"ledger {ledger_id} has another password")
        digest = Digest(metadata.digest_type if metadata.password_known else digest_type, password)
        if recover and metadata.state is not LedgerState.CLOSED:
            metadata = await self._recover(ledger_id, digest, password)
        if metadata.state is LedgerState.CLOSED:
            end = LastConfirmed(metadata.last_entry_id, metadata.length)
        else:
            end = await read_last_confirmed(self._context, ledger_id, metadata, digest, password, fence=False)
        reads = EntryReads(self._context, ledger_id, digest, Striping(metadata.ensemble_size, metadata.write_quorum))
        return LedgerReader(reads, ledger_id, metadata, last_entry_id=end.lac, length=end.length)

    async def _recover(self, ledger_id: int, digest: Digest, password: bytes) -> LedgerMetadata:
        return await recover(self._context, ledger_id, digest, password)

    async def delete(self, ledger_id: int) -> None:
        """Delete the ledger's metadata; fine if it is gone. Bookies free the space in their own time. MetadataError."""
        await self._context.ledgers.delete(ledger_id)

    def close(self) -> None:
        """Give up all connections. What is under way fails or is forgotten."""
        self._context.bookies.close()


@asynccontextmanager
async def open_ledger_client(
    world: World,
    ledgers: LedgerManager,
    connect: Callable[[str], BookieLink],
    bookies: Callable[[], list[str]],
    config: LedgerConfig | None = None,
) -> AsyncIterator[LedgerClient]:
    """A ledger client whose tasks end with the block. What the block raises is raised as it is, in no group."""
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        client = LedgerClient(world, ledgers, connect, bookies, nursery=nursery, config=config)
        try:
            yield client
        except Exception as error:
            failure = error
        finally:
            client.close()
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure

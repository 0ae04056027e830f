"""The ledger list of a log in the metadata store: every change of it is a compare-and-set.

What holds: the compare-and-set of the list proves that the log is ours: whoever loses it is fenced
(ManagedLedgerFencedError). A new ledger and the list that names it become durable in one write, so that no ledger of a
log is ever without a name: in the list, or, if it was made ahead, among those to be deleted. After `give_up` nothing is
written. Callers are inside `held` from reading `value` to storing what they made of it. A write of which no answer came, since
the metadata were away or the caller was cancelled, is looked for before the next one: our own write is no other owner's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from cursors.doors import CustomMetadata, Ledgers, Reader, Writer
from managed_ledger.config import LogConfigSource
from managed_ledger.errors import LedgerIdOrderError, ManagedLedgerDamagedError, ManagedLedgerFencedError
from managed_ledger.ledger_list import LedgerList, decode, encode
from quire.metadata.errors import BadVersionError, MetadataUnavailableError, NodeExistsError, NoNodeError
from quire.metadata.store import Check, Create, MetadataStore, Op, Put
from quire.service.rare_lock import RareLock

IDS_PASSED_MAX = 256
LIST_BYTES_MAX = 900_000
"""Above this no ledger is added but by an open: ZooKeeper refuses values of a million bytes (jute.maxbuffer)."""
_NO_NODE = -1
_COMPONENT = ("component", b"managed-ledger")
_APPLICATION = ("application", b"pulsar")


class StoredList:
    """The list as last read or written."""

    __slots__ = (
        "_bytes",
        "_given_up",
        "_ledgers",
        "_lock",
        "_metadata",
        "_unlearned",
        "_version",
        "config",
        "name",
        "value",
    )

    def __init__(self, metadata: MetadataStore, ledgers: Ledgers, config: LogConfigSource, name: str) -> None:
        self.config = config
        self._metadata = metadata
        self._ledgers = ledgers
        self.name = name
        self._version = _NO_NODE
        self._given_up = ""
        self._bytes = 0
        self._unlearned: dict[bytes, LedgerList] | None = None
        """Values whose writing may have happened, and what the list is to be for us if it did; None: there are none."""
        self.value = LedgerList()
        self._lock = RareLock()

    @property
    def _path(self) -> str:
        """Made when it is needed: one for each log would be kept for ever."""
        return log_path(self.name)

    def held(self) -> _Held:
        """Alone with the list as it is stored, inside `async with`. ManagedLedgerFencedError, MetadataError."""
        return _Held(self._lock, self._learn)

    async def read(self) -> bool:
        """Read it; False if the log does not exist. ManagedLedgerDamagedError, MetadataError."""
        node = await self._metadata.get(self._path)
        if node is None:
            self.value, self._version = LedgerList(), _NO_NODE
            return False
        try:
            self.value, self._version = decode(node.value), node.version
        except ManagedLedgerDamagedError as error:
            raise ManagedLedgerDamagedError(f"{self._path}: {error}") from error
        self._bytes = len(node.value)
        return True

    @property
    def is_full(self) -> bool:
        """The stored value has nearly the size that the metadata service refuses."""
        return self._bytes > LIST_BYTES_MAX

    async def new_ledger(self, closed: LedgerList) -> Writer:
        """Make a ledger and store the list `closed` with it at the end, in one write. ManagedLedgerFencedError,
        LedgerIdOrderError; other LedgerError and MetadataError: nothing was stored that another try would not mend."""
        return await self._make(closed, closed.opened)

    async def ledger_ahead(self) -> Writer:
        """Make a ledger that is not of the list yet: in the same write the list names it as to be deleted, so that it cannot
        leak. `value.opened` takes it in. Raises as `new_ledger`."""
        return await self._make(self.value, lambda ledger_id: self.value.also_deleting([ledger_id]))

    async def _make(self, before: LedgerList, naming: Callable[[int], LedgerList]) -> Writer:
        attempts: dict[int, LedgerList] = {}

        def also(ledger_id: int) -> list[Op]:
            self._check_kept()
            if before.ledgers and ledger_id <= before.ledgers[-1].ledger_id:
                raise LedgerIdOrderError(f"{self.name}: {ledger_id} comes after {before.ledgers[-1].ledger_id}")
            attempt = attempts[ledger_id] = naming(ledger_id)
            value = encode(attempt)
            self._bytes = len(value)
            # If nobody hears that it happened, it made a ledger that nobody writes to: it leaves the list again.
            self._doubt(value, attempt.without([ledger_id]))
            if self._version == _NO_NODE:
                return [Create(path=self._path, value=value, make_parents=True)]
            return [Put(path=self._path, value=value, version=self._version)]

        try:
            writer = await self._create(also)
        except MetadataUnavailableError:
            await self._learn()
            raise
        except (BadVersionError, NoNodeError, NodeExistsError) as error:
            raise self._fenced(error) from error
        self._happened(attempts[writer.ledger_id])
        return writer

    async def _create(self, also: Callable[[int], list[Op]]) -> Writer:
        """Ids at or below the last one of the list are passed over, IDS_PASSED_MAX at most: those that are free where metadata
        were restored, and the counter of ids was not."""
        passed = 0
        while True:
            config = self.config()
            try:
                return await self._ledgers.create(
                    ensemble_size=config.ensemble_size,
                    write_quorum=config.write_quorum,
                    ack_quorum=config.ack_quorum,
                    custom_metadata=ledger_metadata(self.name),
                    also=also,
                )
            except LedgerIdOrderError:
                passed += 1
                if passed > IDS_PASSED_MAX:
                    raise

    async def open_ahead(self, closed: LedgerList, ledger_id: int) -> None:
        """Store the list `closed` with this ledger, made ahead, at the end. Raises as `put`."""
        await self._put(closed.opened(ledger_id), closed.also_deleting([ledger_id]), ())

    async def put(self, value: LedgerList, *ops: Op) -> None:
        """Store the list, and do `ops` with it. ManagedLedgerFencedError; MetadataUnavailableError: nothing changed, as far as we
        could learn."""
        await self._put(value, value, ops)

    async def _put(self, value: LedgerList, if_unheard: LedgerList, ops: tuple[Op, ...]) -> None:
        self._check_kept()
        data = encode(value)
        self._bytes = len(data)
        self._doubt(data, if_unheard)
        version = self._version
        try:
            await self._metadata.multi([Put(path=self._path, value=data, version=version), *ops])
        except MetadataUnavailableError:
            await self._learn()
            if self._version == version:
                raise
            self.value = value
            return
        except (BadVersionError, NoNodeError) as error:
            self._unlearned = None
            if error.index:
                raise
            raise self._fenced(error) from error
        self._happened(value)

    def _happened(self, value: LedgerList) -> None:
        self.value = value
        self._version += 1
        self._unlearned = None

    def _doubt(self, value: bytes, if_unheard: LedgerList) -> None:
        if self._unlearned is None:
            self._unlearned = {}
        self._unlearned[value] = if_unheard

    async def _learn(self) -> None:
        """What came of the writes that no answer came of. ManagedLedgerFencedError, MetadataError (nothing was learned)."""
        if not self._unlearned:
            return
        node = await self._metadata.get(self._path)
        version = _NO_NODE if node is None else node.version
        if node is not None and version == self._version + 1 and node.value in self._unlearned:
            self._happened(self._unlearned[node.value])
        elif version != self._version:
            raise self._fenced("the list was changed by another")
        self._unlearned = None

    async def check(self) -> None:
        """Read the list again: ManagedLedgerFencedError if it is not as we stored it."""
        self._check_kept()
        node = await self._metadata.get(self._path)
        if node is None or node.version != self._version:
            raise self._fenced("the list was changed by another")

    def proof(self) -> Check:
        """For a write elsewhere that may happen only while the log is ours: the list is as we stored it.
        ManagedLedgerFencedError if we know that it is not ours."""
        self._check_kept()
        return Check(path=self._path, version=self._version)

    async def recover(self, ledger_id: int) -> Reader:
        """Open a ledger of the log with recovery: its end is final on return. LedgerError, MetadataError."""
        return await self._ledgers.open(ledger_id, recover=True)

    def change_of(self, change: Callable[[LedgerList], LedgerList]) -> None:
        """Change the value in memory; it is stored with the next write."""
        self.value = change(self.value)

    def give_up(self, reason: str) -> None:
        """The log is not ours any more: whatever is still under way stores nothing that was not on its way."""
        self._given_up = self._given_up or reason

    def _check_kept(self) -> None:
        if self._given_up:
            raise self._fenced(self._given_up)

    @property
    def version(self) -> int:
        return self._version

    def _fenced(self, reason: object) -> ManagedLedgerFencedError:
        return ManagedLedgerFencedError(f"{self.name} was taken over: {reason}")


class _Held:
    """See `StoredList.held`."""

    __slots__ = ("_learn", "_lock")

    def __init__(self, lock: RareLock, learn: Callable[[], Awaitable[None]]) -> None:
        self._lock = lock
        self._learn = learn

    async def __aenter__(self) -> None:
        await self._lock.__aenter__()
        try:
            await self._learn()
        except BaseException:
            await self._lock.__aexit__()
            raise

    async def __aexit__(self, *_: object) -> None:
        await self._lock.__aexit__()


def log_path(name: str) -> str:
    """The node of the log `tenant/namespace/persistent/<escaped topic>`."""
    return f"/managed-ledgers/{name}"


def ledger_metadata(name: str) -> CustomMetadata:
    """What a data ledger says of itself, as the original writes it."""
    return [_COMPONENT, ("pulsar/managed-ledger", name.encode()), _APPLICATION]

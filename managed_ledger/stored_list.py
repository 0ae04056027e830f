"""The ledger list of a log in the metadata store: every change of it is a compare-and-set.

What holds: the compare-and-set of the list proves ownership of the log: a broker that loses it is fenced
(ManagedLedgerFencedError). A new ledger and the list that names it become durable in one write, so that no ledger of a
log is ever without a name: in the list, or, if it was made ahead, among those to be deleted. After `give_up` nothing is
written. Callers are inside `held` from reading `value` to storing what they made of it. A write of which no answer
came, since the metadata were away or the caller was cancelled, is looked for before the next one, so that an own write
is not taken for another owner's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from cursors.doors import CustomMetadata, Ledgers, ReadOnlyLedger, Writer
from managed_ledger.config import LogConfigSource
from managed_ledger.errors import LedgerIdOrderError, ManagedLedgerDamagedError, ManagedLedgerFencedError
from managed_ledger.ledger_list import LedgerList, decode, encode
from quire.metadata.errors import BadVersionError, MetadataUnavailableError, NodeExistsError, NoNodeError
from quire.metadata.store import Check, Create, MetadataStore, Op, Put
from quire.service.rare_lock import RareLock

IDS_PASSED_MAX = 256
LIST_BYTES_MAX = 900_000
"""Size above which only an open adds a ledger: ZooKeeper refuses values of a million bytes (jute.maxbuffer)."""
_NO_NODE = -1
_EMPTY = LedgerList()
_COMPONENT = ("component", b"managed-ledger")
_APPLICATION = ("application", b"pulsar")


class StoredList:
    """The ledger list as last read or written."""

    __slots__ = (
        "_bytes",
        "_given_up",
        "_ledgers",
        "_lock",
        "_metadata",
        "_unlearned",
        "_version",
        "amend",
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
        """Values of writes with unknown outcome, and the list that each would make; None: there are none."""
        self.value = _EMPTY
        self.amend: Callable[[LedgerList], LedgerList] = _as_it_is
        """Returns the list to store in place of each."""
        self._lock: RareLock | None = None
        """Set from the first change on: most lists are only read."""

    @property
    def _path(self) -> str:
        """Made when it is needed: one for each log would be kept for ever."""
        return log_path(self.name)

    def held(self) -> _Held:
        """Lock the stored list inside `async with`. Raises ManagedLedgerFencedError, MetadataError."""
        lock = self._lock
        if lock is None:
            lock = self._lock = RareLock()
        return _Held(lock, self._learn)

    async def read(self) -> bool:
        """Read it; return False if the log does not exist. Raises ManagedLedgerDamagedError, MetadataError."""
        node = await self._metadata.get(self._path)
        if node is None:
            self.value, self._version = _EMPTY, _NO_NODE
            return False
        try:
            self.value, self._version = decode(node.value), node.version
        except ManagedLedgerDamagedError as error:
            raise ManagedLedgerDamagedError(f"{self._path}: {error}") from error
        self._bytes = len(node.value)
        return True

    @property
    def is_full(self) -> bool:
        """Return whether the stored value has nearly the size that the metadata service refuses."""
        return self._bytes > LIST_BYTES_MAX

    async def new_ledger(self, closed: LedgerList) -> Writer:
        """Create a ledger and store the list `closed` with it at the end, in one write.

        Raises ManagedLedgerFencedError, LedgerIdOrderError; other LedgerError and MetadataError: nothing was stored
        that a retry would not correct."""
        return await self._make(closed, closed.opened)

    async def ledger_ahead(self) -> Writer:
        """Create a ledger that is not in the list yet.

        The same write names it for deletion in the list, so that it cannot leak. `value.opened` moves it into the list.
        Raises as `new_ledger`."""
        return await self._make(self.value, lambda ledger_id: self.value.also_deleting([ledger_id]))

    async def _make(self, before: LedgerList, naming: Callable[[int], LedgerList]) -> Writer:
        attempts: dict[int, LedgerList] = {}

        def also(ledger_id: int) -> list[Op]:
            self._check_kept()
            if before.ledgers and ledger_id <= before.ledgers[-1].ledger_id:
                raise LedgerIdOrderError(f"{self.name}: {ledger_id} comes after {before.ledgers[-1].ledger_id}")
            attempt = attempts[ledger_id] = self.amend(naming(ledger_id))
            value = encode(attempt)
            self._bytes = len(value)
            # If the answer is lost, it may have created a ledger without a writer, which is removed from the list
            # again.
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
        """Create a ledger, skipping at most IDS_PASSED_MAX ids that are not above the last one of the list.

        Such ids are free after metadata were restored without the counter of ids."""
        passed = 0
        while True:
            config = self.config()
            try:
                return await self._ledgers.create(
                    ensemble_size=config.ensemble_size,
                    write_quorum=config.write_quorum,
                    ack_quorum=config.ack_quorum,
                    custom_metadata=[*ledger_metadata(self.name), *config.placement],
                    also=also,
                )
            except LedgerIdOrderError:
                passed += 1
                if passed > IDS_PASSED_MAX:
                    raise

    async def open_ahead(self, closed: LedgerList, ledger_id: int) -> None:
        """Store the list `closed` with this ledger, made ahead, at the end. Raises as `put`."""
        await self._put(closed.opened(ledger_id), closed.also_deleting([ledger_id]), ())

    async def update(self, change: Callable[[LedgerList], LedgerList]) -> None:
        """Store what `change` makes of the list, if it returns another object. Raises as `put`, and as `change`."""
        async with self.held():
            changed = change(self.value)
            if changed is not self.value:
                await self.put(changed)

    async def put(self, value: LedgerList, *ops: Op) -> None:
        """Store the list, and execute `ops` with it.

        Raises ManagedLedgerFencedError; MetadataUnavailableError: nothing changed, as far as known."""
        await self._put(value, value, ops)

    async def _put(self, value: LedgerList, if_unheard: LedgerList, ops: tuple[Op, ...]) -> None:
        self._check_kept()
        value, if_unheard = self.amend(value), self.amend(if_unheard)
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
        """Find out the outcome of unanswered writes. Raises ManagedLedgerFencedError, MetadataError (still unknown)."""
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
        """Read the list again. Raises ManagedLedgerFencedError if it has changed since it was stored."""
        self._check_kept()
        node = await self._metadata.get(self._path)
        if node is None or node.version != self._version:
            raise self._fenced("the list was changed by another")

    def proof(self) -> Check:
        """Return the check for a write elsewhere that may happen only while this broker has the log: the list is
        unchanged.

        Raises ManagedLedgerFencedError if the log is known to be lost."""
        self._check_kept()
        return Check(path=self._path, version=self._version)

    async def recover(self, ledger_id: int) -> ReadOnlyLedger:
        """Open a ledger of the log with recovery; its end is final on return. Raises LedgerError, MetadataError."""
        return await self._ledgers.open(ledger_id, recover=True)

    def change_of(self, change: Callable[[LedgerList], LedgerList]) -> None:
        """Change the value in memory; it is stored with the next write."""
        self.value = change(self.value)

    def give_up(self, reason: str) -> None:
        """Give up the log: pending calls store nothing that was not already on its way."""
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


def _as_it_is(value: LedgerList) -> LedgerList:
    return value


def log_path(name: str) -> str:
    """The node of the log `tenant/namespace/persistent/<escaped topic>`."""
    return f"/managed-ledgers/{name}"


def ledger_metadata(name: str) -> CustomMetadata:
    """Return the custom metadata of a data ledger, as the original writes it."""
    return [_COMPONENT, ("pulsar/managed-ledger", name.encode()), _APPLICATION]

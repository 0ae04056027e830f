"""The ledger list of a log in the metadata store: every change of it is a compare-and-set.

What holds: the compare-and-set of the list proves that the log is ours: whoever loses it is fenced
(ManagedLedgerFencedError). A new ledger and the list that names it become durable in one write, so that no ledger of a
log is ever without a name. Callers hold `lock` from reading `value` to storing what they made of it.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from cursors.doors import CustomMetadata, Ledgers, Writer
from managed_ledger.config import ManagedLedgerConfig
from managed_ledger.errors import LedgerIdOrderError, ManagedLedgerFencedError
from managed_ledger.ledger_list import LedgerList, decode, encode
from quire.metadata.errors import BadVersionError, MetadataUnavailableError, NodeExistsError, NoNodeError
from quire.metadata.store import Create, MetadataStore, Op, Put

_NO_NODE = -1


class StoredList:
    """The list as last read or written."""

    def __init__(self, metadata: MetadataStore, ledgers: Ledgers, config: ManagedLedgerConfig, name: str) -> None:
        self._metadata = metadata
        self._ledgers = ledgers
        self._config = config
        self._name = name
        self._path = log_path(name)
        self._version = _NO_NODE
        self.value = LedgerList()
        self.lock = trio.Lock()

    async def read(self) -> bool:
        """Read it; False if the log does not exist. ManagedLedgerDamagedError, MetadataError."""
        node = await self._metadata.get(self._path)
        if node is None:
            self.value, self._version = LedgerList(), _NO_NODE
            return False
        self.value, self._version = decode(node.value), node.version
        return True

    async def new_ledger(self, closed: LedgerList) -> Writer:
        """Make a ledger and store the list `closed` with it at the end, in one write. ManagedLedgerFencedError,
        LedgerIdOrderError; other LedgerError and MetadataError: nothing was stored that another try would not mend."""
        attempts: dict[int, LedgerList] = {}

        def also(ledger_id: int) -> list[Op]:
            if closed.ledgers and ledger_id <= closed.ledgers[-1].ledger_id:
                raise LedgerIdOrderError(f"{self._name}: {ledger_id} comes after {closed.ledgers[-1].ledger_id}")
            attempts[ledger_id] = closed.opened(ledger_id)
            value = encode(attempts[ledger_id])
            if self._version == _NO_NODE:
                return [Create(path=self._path, value=value, make_parents=True)]
            return [Put(path=self._path, value=value, version=self._version)]

        config = self._config
        try:
            writer = await self._ledgers.create(
                ensemble_size=config.ensemble_size,
                write_quorum=config.write_quorum,
                ack_quorum=config.ack_quorum,
                custom_metadata=ledger_metadata(self._name),
                also=also,
            )
        except MetadataUnavailableError:
            await self._learn_outcome(attempts)
            raise
        except (BadVersionError, NoNodeError, NodeExistsError) as error:
            raise self._fenced(error) from error
        self.value = attempts[writer.ledger_id]
        self._version += 1
        return writer

    async def _learn_outcome(self, attempts: dict[int, LedgerList]) -> None:
        """The outcome of a write is unknown: read what is there. If it happened, it made a ledger that nobody writes to,
        which leaves the list with the next write."""
        node = await self._metadata.get(self._path)
        if node is None and self._version == _NO_NODE:
            return
        if node is not None and node.version == self._version:
            return
        for ledger_id, attempt in attempts.items():
            if node is not None and node.version == self._version + 1 and node.value == encode(attempt):
                self.value = attempt.without([ledger_id])
                self._version = node.version
                return
        raise self._fenced("the list was changed by another")

    async def put(self, value: LedgerList, *ops: Op) -> None:
        """Store the list, and do `ops` with it. ManagedLedgerFencedError; MetadataUnavailableError: nothing changed."""
        data = encode(value)
        try:
            await self._metadata.multi([Put(path=self._path, value=data, version=self._version), *ops])
        except MetadataUnavailableError:
            node = await self._metadata.get(self._path)
            if node is None or node.version not in (self._version, self._version + 1):
                raise self._fenced("the list was changed by another") from None
            if node.version == self._version:
                raise
            if node.value != data:
                raise self._fenced("the list was changed by another") from None
        except (BadVersionError, NoNodeError) as error:
            if error.index:
                raise
            raise self._fenced(error) from error
        self.value = value
        self._version += 1

    async def check(self) -> None:
        """Read the list again: ManagedLedgerFencedError if it is not as we stored it."""
        node = await self._metadata.get(self._path)
        if node is None or node.version != self._version:
            raise self._fenced("the list was changed by another")

    def change_of(self, change: Callable[[LedgerList], LedgerList]) -> None:
        """Change the value in memory; it is stored with the next write."""
        self.value = change(self.value)

    @property
    def version(self) -> int:
        return self._version

    def _fenced(self, reason: object) -> ManagedLedgerFencedError:
        return ManagedLedgerFencedError(f"{self._name} was taken over: {reason}")


def log_path(name: str) -> str:
    """The node of the log `tenant/namespace/persistent/<escaped topic>`."""
    return f"/managed-ledgers/{name}"


def ledger_metadata(name: str) -> CustomMetadata:
    """What a data ledger says of itself, as the original writes it."""
    return [
        ("component", b"managed-ledger"),
        ("pulsar/managed-ledger", name.encode()),
        ("application", b"pulsar"),
    ]

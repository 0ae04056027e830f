"""Entries of one planned range from bookies, read ahead by one request. Runs on the loop.

What a bookie cannot judge ends the reading there, and the broker continues: messages of transactions, which may have
been aborted, and entries that brokers do not deliver (markers, unreadable metadata). So both ways give equal rows.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

import trio

from quire.client.deliveries import Deliveries
from quire.client.message_id import MessageId
from quire.ledger.errors import LedgerError
from quire.ledger.reading.known import KnownReader
from quire.metadata.ledger_metadata import LedgerMetadata
from quire.spark.admin import Admin
from quire.spark.errors import SourceUnavailableError, SparkSourceError
from quire.spark.options.parse import Options
from quire.spark.planning.stored import StoredLedger, stored_ledgers
from quire.spark.planning.tasks import TopicRange
from quire.spark.reading.row_run import RowRun, plain_run
from quire.spark.runtime import LeasedClient, credentials_of, runtime
from quire.wire.pulsar.entry_features import MARKER, TRANSACTION, UNREADABLE, EntryFeatures

_log = logging.getLogger(__name__)

READ_BYTES = 1 << 20
"""Bytes of one request. Two are kept in memory: the one in use and the next."""
FORGET_S = 60.0
"""Time for which bookies that failed are not asked again by this process, if the broker can be asked instead."""
ENSEMBLES_MAX = 1000
FOR_BROKERS = MARKER | TRANSACTION | UNREADABLE
"""Features of entries that only a broker knows how to deliver, if at all."""

_failed_at: dict[tuple[str, ...], float] = {}
"""Ensembles that could not be read, and when, in trio's time of this process's loop."""
_noted = False


class BookieEntries:
    """Entries of the ledgers that a task reads from bookies. Close it, also after an error."""

    def __init__(self, work: TopicRange, options: Options) -> None:
        self._partition = work.partition
        self._options = options
        self._ledgers = {ledger.ledger_id: ledger for ledger in work.stored}
        self._features = EntryFeatures()
        self._lease: LeasedClient[KnownReader] | None = None
        self._ahead: _Fetch | None = None
        self._left: set[int] = set()
        """Ledgers that are left to the broker from now on."""
        self._refreshed: set[int] = set()

    async def receive(self, due: MessageId, last: int) -> Deliveries | RowRun | None:
        """Return entries of a ledger from `due` on, up to `last` (inclusive); None if the broker has to be asked. A run
        of plain messages comes as one.

        Raises SourceUnavailableError: no copy of an entry can be read, and the option `readVia` excludes the broker."""
        ledger = self._ledgers.get(due.ledger_id)
        if ledger is None or due.ledger_id in self._left or self._is_avoided(ledger.metadata, due.entry_id):
            return None
        while True:
            try:
                payloads = await self._read(ledger, due.entry_id, last)
                break
            except LedgerError as error:
                found = await self._after(error, ledger, due)
                if found is None:
                    return None
                ledger = found
        count = len(payloads)
        run = plain_run(due.ledger_id, due.entry_id, payloads)
        if run is not None:
            if due.entry_id + count <= last:
                self._fetch(ledger, due.entry_id + count, last)
            return run
        unusual = [index for index, features in self._features.unusual(payloads) if features & FOR_BROKERS]
        if unusual:
            count = unusual[0]
            self._left.add(due.ledger_id)
            if not count:
                return None
        elif due.entry_id + count <= last:
            self._fetch(ledger, due.entry_id + count, last)
        return Deliveries(
            [due.ledger_id] * count,
            list(range(due.entry_id, due.entry_id + count)),
            [bytes(payload) for payload in payloads[:count]],
        )

    async def raw(self, ledger_id: int, first: int, last: int) -> Sequence[memoryview]:
        """Return entries as stored, whatever they are: from `first` on, up to `last`; none if they cannot be read."""
        ledger = self._ledgers.get(ledger_id)
        if ledger is None or self._is_avoided(ledger.metadata, first):
            return ()
        try:
            return await self._read(ledger, first, last)
        except LedgerError as error:
            _log.info("entry %d:%d of %s was not read from bookies: %s", ledger_id, first, self._partition, error)
            return ()

    def close(self) -> None:
        """Release the connections. Idempotent."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.scope.cancel()
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()

    async def _read(self, ledger: StoredLedger, first: int, last: int) -> Sequence[memoryview]:
        """Return payloads, those read ahead if they are the ones. Raises LedgerError."""
        if self._lease is None:
            self._lease = await runtime().lease_bookies()
        ahead, self._ahead = self._ahead, None
        if ahead is None or not ahead.has(ledger, first, last):
            if ahead is not None:
                ahead.scope.cancel()
            return await self._lease.client.read(ledger.ledger_id, ledger.metadata, first, last, READ_BYTES)
        await ahead.done.wait()
        if ahead.error is not None:
            raise ahead.error
        return ahead.payloads

    def _fetch(self, ledger: StoredLedger, first: int, last: int) -> None:
        assert self._lease is not None, "leased by the read before"
        self._ahead = _Fetch(ledger, first, last)
        task = partial(self._ahead.run, self._lease.client)
        self._lease.client.start(task, f"entries of ledger {ledger.ledger_id}")

    async def _after(self, error: LedgerError, ledger: StoredLedger, due: MessageId) -> StoredLedger | None:
        """Return the ledger to read again, with newer metadata; None to ask the broker. Raises
        SourceUnavailableError."""
        if self._options.read_via == "bookies":
            if ledger.ledger_id not in self._refreshed:
                self._refreshed.add(ledger.ledger_id)
                stats = await trio.to_thread.run_sync(self._ask, abandon_on_cancel=True)
                found = stored_ledgers(stats).get(ledger.ledger_id)
                if found is None:
                    # Deleted or offloaded since: what is missing is reported as the broker's way does it.
                    self._left.add(ledger.ledger_id)
                    return None
                if found.metadata.fragments != ledger.metadata.fragments:
                    self._ledgers[ledger.ledger_id] = found
                    return found
            raise SourceUnavailableError(
                f"{self._partition}: entry {due.ledger_id}:{due.entry_id} cannot be read from its bookies: {error}. "
                "Executors must reach the bookies; with the option readVia=auto such entries are read through the "
                "broker"
            ) from error
        self._left.add(ledger.ledger_id)
        if len(_failed_at) >= ENSEMBLES_MAX:
            _failed_at.clear()
        _failed_at[ledger.metadata.fragment_at(due.entry_id).bookies] = trio.current_time()
        _note(f"entry {due.ledger_id}:{due.entry_id} of {self._partition}: {error}")
        return None

    def _is_avoided(self, metadata: LedgerMetadata, entry_id: int) -> bool:
        failed_at = _failed_at.get(metadata.fragment_at(entry_id).bookies)
        return failed_at is not None and self._options.read_via == "auto" and trio.current_time() < failed_at + FORGET_S

    def _ask(self) -> dict[str, object]:
        """Return the topic's present state, with the metadata of ledgers. Blocking."""
        options = self._options
        admin = Admin(
            options.admin_url,
            timeout_s=options.operation_timeout_ms / 1000,
            tls=options.tls,
            credentials=credentials_of(options),
        )
        try:
            return admin.internal_stats(self._partition, metadata=True)
        except SparkSourceError as error:
            if error.passing:
                raise
            return {}  # the topic is gone: the broker's way reports it
        finally:
            admin.close()


class _Fetch:
    """Entries that are being read before they are wanted."""

    def __init__(self, ledger: StoredLedger, first: int, last: int) -> None:
        self._ledger, self._first, self._last = ledger, first, last
        self.scope = trio.CancelScope()
        self.done = trio.Event()
        self.payloads: Sequence[memoryview] = ()
        self.error: LedgerError | None = None

    def has(self, ledger: StoredLedger, first: int, last: int) -> bool:
        return (self._ledger, self._first) == (ledger, first) and self._last <= last

    async def run(self, reader: KnownReader) -> None:
        ledger = self._ledger
        try:
            with self.scope:
                self.payloads = await reader.read(
                    ledger.ledger_id, ledger.metadata, self._first, self._last, READ_BYTES
                )
        except LedgerError as error:
            self.error = error
        finally:
            self.done.set()


def forget() -> None:
    """Forget which bookies failed, and that it was logged."""
    global _noted
    _noted = False
    _failed_at.clear()


def _note(reason: str) -> None:
    """Log once per process that entries come from the broker although bookies have them."""
    global _noted
    if not _noted:
        _noted = True
        _log.warning("bookies cannot be read, entries are read through the broker instead: %s", reason)

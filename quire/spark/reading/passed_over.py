"""Entries that brokers do not deliver: messages of aborted transactions, and the marks of their ends.

A reader only sees that they are missing, as it would if they were lost. So each of them is read by itself, from its
bookies or over the brokers' REST interface: a broker that delivered a later entry, or reported an earlier one as the
last message, passed over an entry of a transaction because it was aborted.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import trio

from quire.spark.admin import Admin
from quire.spark.errors import SparkSourceError
from quire.spark.options.parse import Options
from quire.spark.planning.logs import LedgerRange
from quire.spark.reading.bookie_entries import BookieEntries
from quire.spark.runtime import credentials_of
from quire.wire.pulsar.entry_features import MARKER, TRANSACTION, features_of

_log = logging.getLogger(__name__)

ASK_TIMEOUT_S = 10.0


class PassedOver:
    """Check of the entries of one partition."""

    def __init__(self, partition: str, options: Options) -> None:
        self._partition = partition
        self._options = options

    async def lost(self, missing: Sequence[LedgerRange], bookies: BookieEntries | None) -> list[LedgerRange]:
        """Return the entries from the first one on that is not of a transaction, or does not exist; none if all of
        them were passed over rightly. An entry about which nothing can be learnt counts as lost."""
        for number, part in enumerate(missing):
            at = part.first
            while at <= part.last:
                found = await self._count(part._replace(first=at), bookies)
                if not found:
                    return [part._replace(first=at), *missing[number + 1 :]]
                at += found
        return []

    async def _count(self, part: LedgerRange, bookies: BookieEntries | None) -> int:
        """Return the number of entries at the start of `part` that are of transactions, as far as was looked; 0 if the
        first is not."""
        payloads = () if bookies is None else await bookies.raw(*part)
        for number, payload in enumerate(payloads):
            if not features_of(payload, check=True) & (MARKER | TRANSACTION):
                return number
        if payloads:
            return len(payloads)
        found = await trio.to_thread.run_sync(self._ask, part.ledger_id, part.first, abandon_on_cancel=True)
        return int(found)

    def _ask(self, ledger_id: int, entry_id: int) -> bool:
        """Return whether an entry is there and of a transaction, as a broker says. Blocking."""
        options = self._options
        admin = Admin(
            options.admin_url,
            timeout_s=min(options.operation_timeout_ms / 1000, ASK_TIMEOUT_S),
            tls=options.tls,
            credentials=credentials_of(options),
        )
        try:
            return admin.is_of_transaction(self._partition, ledger_id, entry_id)
        except SparkSourceError as error:
            _log.info("entry %d:%d of %s was not looked at: %s", ledger_id, entry_id, self._partition, error)
            return False
        finally:
            admin.close()

"""Parts that all calls about transactions use: the service, numbers of the path, states of logs."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from broker.admin.openapi.parameters import INT64_MAX
from broker.admin.requests import AdminCall
from broker.admin.stats.internal_stats import read_metadata, stats_of_log
from broker.errors import ServiceNotReadyError
from broker.transactions.record_log import RecordLog
from broker.transactions.service import TransactionService
from broker.transactions.txn_id import TxnId
from quire.service.web.parameters import PathNumber

_MOST: Final = PathNumber("most", "First half of the id of a transaction.", 0, INT64_MAX)
_LEAST: Final = PathNumber("least", "Second half of the id of a transaction.", 0, INT64_MAX)
BASE: Final = "/admin/v3/transactions"


def service_of(call: AdminCall) -> TransactionService:
    """Return the transactions of this broker. Raises ServiceNotReadyError where they are off."""
    found = call.administration.transactions
    if not isinstance(found, TransactionService):
        raise ServiceNotReadyError("This Broker is not configured with transactionCoordinatorEnabled=true.")
    return found


def txn_of(call: AdminCall) -> TxnId:
    """Return the transaction of the path. Raises ParameterError."""
    return TxnId(call.number(_MOST), call.number(_LEAST))


async def log_stats(call: AdminCall, records: RecordLog, metadata: bool) -> dict[str, Any]:
    """Return the name and the state of a log of records. `metadata`: with those of its ledgers."""
    administration = call.administration
    read = partial(read_metadata, administration.metadata, administration.ledgers_root)
    found = await stats_of_log(records.ledger, read, show_metadata=metadata)
    return {"managedLedgerName": records.name.managed_ledger_path, "managedLedgerInternalStats": found.log_as_json()}

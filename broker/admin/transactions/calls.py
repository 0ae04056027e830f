"""Parts that all calls about transactions use: the service, numbers of the path, states of logs."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from broker.admin.errors import MalformedRequestError
from broker.admin.requests import INT64_MAX, AdminCall
from broker.admin.stats.internal_stats import read_metadata, stats_of_log
from broker.errors import ServiceNotReadyError
from broker.transactions.record_log import RecordLog
from broker.transactions.service import TransactionService
from broker.transactions.txn_id import TxnId

BASE: Final = "/admin/v3/transactions"


def service_of(call: AdminCall) -> TransactionService:
    """Return the transactions of this broker. Raises ServiceNotReadyError where they are off."""
    found = call.administration.transactions
    if not isinstance(found, TransactionService):
        raise ServiceNotReadyError("This Broker is not configured with transactionCoordinatorEnabled=true.")
    return found


def number(call: AdminCall, name: str, text: str | None = None) -> int:
    """Return a number of the path, or of `text`. Raises MalformedRequestError."""
    text = call.part(name) if text is None else text
    if not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) > INT64_MAX:
        raise MalformedRequestError(f"{name} is not a number: {text[:100]!a}")
    return int(text)


def txn_of(call: AdminCall) -> TxnId:
    """Return the transaction of the path. Raises MalformedRequestError."""
    return TxnId(number(call, "most"), number(call, "least"))


async def log_stats(call: AdminCall, records: RecordLog) -> dict[str, Any]:
    """Return the name and the state of a log of records."""
    administration = call.administration
    read = partial(read_metadata, administration.metadata, administration.ledgers_root)
    found = await stats_of_log(records.ledger, read, show_metadata=call.flag("metadata"))
    return {"managedLedgerName": records.name.managed_ledger_path, "managedLedgerInternalStats": found.log_as_json()}

"""Errors of transactions, with their codes on the wire. Source: Pulsar's CoordinatorException and its subclasses."""

from __future__ import annotations

from broker.errors import BrokerError
from quire.wire.pulsar import PulsarApi_pb2 as pb


class CoordinatorNotFoundError(BrokerError):
    """This broker has not that coordinator, or it is being opened or closed. Passing: clients look it up again."""

    passing = True

    code = pb.TransactionCoordinatorNotFound


class TransactionNotFoundError(BrokerError):
    """The coordinator knows no such transaction, or it is over. Permanent."""

    code = pb.TransactionNotFound


class InvalidStatusError(BrokerError):
    """The transaction is in another state than the request needs. Permanent."""

    code = pb.InvalidTxnStatus


class ConflictError(BrokerError):
    """A message is acknowledged already, or in another transaction that is open. Permanent for this transaction."""

    code = pb.TransactionConflict

"""Records of the logs of transactions, as entries (pure).

An entry holds one record, or several behind a magic number and a version, which Pulsar writes where
transactionLogBatchedWriteEnabled or transactionPendingAckBatchedWriteEnabled is set. Source: Pulsar's
TxnLogBufferedWriter, TransactionLogDataSerializer, MLPendingAckStore.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct

from google.protobuf.message import DecodeError

from broker.transactions.txn_id import TxnId
from quire.ledger.position import Position
from quire.wire.pulsar.TransactionFormats_pb2 import (
    BatchedPendingAckMetadataEntry,
    BatchedTransactionMetadataEntry,
    PendingAckMetadataEntry,
    TransactionMetadataEntry,
)
from quire.world.doors import Buffer

_BATCHED = Struct("!HH")
_MAGIC = 0x0E01
INDIVIDUAL = 0
CUMULATIVE = 1


class RecordError(Exception):
    """An entry of a log of transactions cannot be read. Permanent."""


def _is_batched(entry: bytes) -> bool:
    return len(entry) >= _BATCHED.size and _BATCHED.unpack_from(entry)[0] == _MAGIC


def coordinator_records(entry: Buffer) -> Sequence[TransactionMetadataEntry]:
    """Return the records of an entry of a coordinator's log. Raises RecordError."""
    packed = bytes(entry)
    try:
        if _is_batched(packed):
            return tuple(BatchedTransactionMetadataEntry.FromString(packed[_BATCHED.size :]).transaction_logs)
        return (TransactionMetadataEntry.FromString(packed),)
    except DecodeError as error:
        raise RecordError(f"an entry of a log of transactions cannot be read: {error}") from None


def pending_ack_records(entry: Buffer) -> Sequence[PendingAckMetadataEntry]:
    """Return the records of an entry of a subscription's log. Raises RecordError."""
    packed = bytes(entry)
    try:
        if _is_batched(packed):
            return tuple(BatchedPendingAckMetadataEntry.FromString(packed[_BATCHED.size :]).pending_ack_logs)
        return (PendingAckMetadataEntry.FromString(packed),)
    except DecodeError as error:
        raise RecordError(f"an entry of a log of acknowledgements cannot be read: {error}") from None


def txn_of(record: TransactionMetadataEntry | PendingAckMetadataEntry) -> TxnId:
    return TxnId(record.txnid_most_bits, record.txnid_least_bits)


def coordinator_record(txn: TxnId, op: int, now_ms: int, max_id: int) -> TransactionMetadataEntry:
    """Return a record of a coordinator, for the caller to complete."""
    return TransactionMetadataEntry(
        metadata_op=TransactionMetadataEntry.TransactionMetadataOp.Name(op),
        txnid_least_bits=txn.least,
        txnid_most_bits=txn.most,
        last_modification_time=now_ms,
        max_local_txn_id=max_id,
    )


def pending_ack_record(
    txn: TxnId, op: str, ack_type: int, acks: Iterable[tuple[Position, Sequence[int], int]] = ()
) -> bytes:
    """Return a record of a subscription. `op`: ACK, COMMIT or ABORT. `acks`: entry, ack set, size of the batch."""
    record = PendingAckMetadataEntry(
        pending_ack_op=op, ack_type=ack_type, txnid_least_bits=txn.least, txnid_most_bits=txn.most
    )
    for position, words, batch_size in acks:
        record.pending_ack_metadata.add(
            ledgerId=position.ledger_id, entryId=position.entry_id, ack_set=words, batch_size=batch_size
        )
    return bytes(record.SerializeToString())

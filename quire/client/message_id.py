"""MessageId: position of a message, in the form that official clients write into files and properties."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from google.protobuf.message import DecodeError

from quire.wire.pulsar.PulsarApi_pb2 import MessageIdData

_U64 = 0xFFFF_FFFF_FFFF_FFFF
_SIGN = 1 << 63


class _Fields(NamedTuple):  # a NamedTuple cannot have constants
    ledger_id: int
    entry_id: int
    partition: int = -1
    batch_index: int = -1


class MessageId(_Fields):
    """Position in a topic. Ordered as the topic is, within one partition.

    `partition` is -1 if the topic has none or it does not matter. `batch_index` is the message's number in its batch;
    -1: the whole entry."""

    __slots__ = ()

    EARLIEST: ClassVar[MessageId]
    """Position before everything. As the last message id of a topic: the topic is empty."""
    LATEST: ClassVar[MessageId]
    """Position behind everything."""

    def to_bytes(self, batch_size: int = 0) -> bytes:
        """Serialize to MessageIdData, as official clients do.

        Args:
            batch_size: messages in the entry, if it is a batch.

        Returns:
            The serialized message id.
        """
        data = MessageIdData(ledgerId=self.ledger_id & _U64, entryId=self.entry_id & _U64)
        if self.partition >= 0:
            data.partition = self.partition
        if self.batch_index >= 0:
            data.batch_index = self.batch_index
        if batch_size > 0:
            data.batch_size = batch_size
        return bytes(data.SerializeToString())

    @classmethod
    def from_bytes(cls, data: bytes) -> MessageId:
        """Parse what `to_bytes` returns.

        Raises:
            ValueError: `data` is not a message id.

        Example:
            Raises:
                ValueError: `data` is not a message id.

            Example:
                Raises:
                    ValueError: `data` is not a message id.

                Example:
                    >>> MessageId.from_bytes(MessageId(3, 7, batch_index=2).to_bytes())
                    MessageId(ledger_id=3, entry_id=7, partition=-1, batch_index=2)
        """
        try:
            parsed = MessageIdData.FromString(data)
        except DecodeError as error:
            raise ValueError(f"not a message id: {error}") from None
        if not parsed.IsInitialized():
            raise ValueError("not a message id: ledger or entry is missing")
        return cls.of(parsed)

    @classmethod
    def of(cls, data: MessageIdData) -> MessageId:
        """Convert the wire's form, where -1 is 2^64-1."""
        return cls(signed(data.ledgerId), signed(data.entryId), data.partition, data.batch_index)

    @classmethod
    def parse(cls, text: str) -> MessageId:
        """Parse "ledger:entry" or "ledger:entry:batch".

        Raises:
            ValueError: `text` has neither form.

        Example:
            Raises:
                ValueError: `text` has neither form.

            Example:
                Raises:
                    ValueError: `text` has neither form.

                Example:
                    >>> MessageId.parse("12:0")
                    MessageId(ledger_id=12, entry_id=0, partition=-1, batch_index=-1)
        """
        parts = text.split(":")
        try:
            numbers = [int(part) for part in parts]
        except ValueError:
            numbers = []
        if len(numbers) not in (2, 3):
            raise ValueError(f"{text!r} is not a message id: write ledger:entry or ledger:entry:batch, such as 12:0")
        ledger_id, entry_id, *batch = numbers
        if min(numbers) < -1 or max(numbers) >= _SIGN:
            raise ValueError(f"{text!r} is not a message id: its numbers are from -1 to 2^63-1")
        return cls(ledger_id, entry_id, batch_index=batch[0] if batch else -1)

    def __str__(self) -> str:
        text = f"{self.ledger_id}:{self.entry_id}"
        return text if self.batch_index < 0 else f"{text}:{self.batch_index}"


MessageId.EARLIEST = MessageId(-1, -1)
MessageId.LATEST = MessageId(_SIGN - 1, _SIGN - 1)


def signed(value: int) -> int:
    """Convert an unsigned 64-bit id of the wire to a signed one.

    >>> signed(2**64 - 1), signed(5)
    (-1, 5)
    """
    return value - (1 << 64) if value & _SIGN else value

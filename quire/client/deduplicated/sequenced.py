"""Producer whose caller chooses the sequence ids, for deduplication by the broker.

A topic with deduplication stores a send once for each producer name: one whose lowest id is not above the highest id
that it has of that name is answered and dropped. So a caller that gives the same rows the same ids under the same name
may send them as often as it likes.

Source: Pulsar's CommandSend (sequence_id, highest_sequence_id) and MessageDeduplication.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from struct import Struct

import trio

from quire.client.attachment import Home
from quire.client.packing import Packed
from quire.client.producer import Producer
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.client_splitter import ReceiptRun
from quire.wire.pulsar.frames import SendEncoder, encode, encode_varint

SEQUENCE_ID_MAX = (1 << 63) - 1
"""Largest sequence id: brokers keep them as signed numbers of 64 bits."""

_SIZE = Struct("!I")
_UNKNOWN = -1
"""Number of an entry whose receipt came before; `Producer.receipts` ignores it."""


@dataclass(frozen=True, slots=True)
class Numbered(Packed):
    """An entry with the ids of its first and last message."""

    lowest_id: int
    highest_id: int

    def encode(self, producer_name: str, sequence_id: int, publish_ms: int) -> bytes:
        """Return the entry with its own ids, whatever `sequence_id` is."""
        highest = b"\xc0\x01" + encode_varint(self.highest_id)  # field 24 of MessageMetadata
        packed = Packed(self.count, self.size, self.fields + highest, self.payload)
        return packed.encode(producer_name, self.lowest_id, publish_ms)


class SequencedProducer(Producer):
    """Producer with a given name and given sequence ids, opened by `Client.sequenced_producer`.

    `Producer` counts messages from 0; this class translates between these numbers and the ids on the wire."""

    _continues = False

    def __init__(
        self,
        home: Home,
        topic: str,
        name: str,
        pending_bytes_max: int,
        pending_max: int,
        schema: pb.Schema | None = None,
    ) -> None:
        if not name:
            raise ValueError("a producer with sequence ids of its caller needs a name of its caller")
        super().__init__(home, topic, name, pending_bytes_max, pending_max, schema)
        self._sequenced = _SequencedSends(self._producer_id)
        self._sends = self._sequenced
        self._numbers: dict[int, int] = {}
        """Number of each entry without receipt, by its lowest id."""
        self._last_id = -1
        """Highest id that was queued."""
        self._turn = trio.Lock()

    async def send_numbered(self, entries: Sequence[Numbered]) -> None:
        """Queue entries whose ids ascend, over all calls; see `send`. Tasks that send at the same time take turns.

        Raises:
            ValueError: the ids do not ascend; nothing is queued.
            ClientError: see `send`. The ids of entries that were not queued can be given again.
        """
        async with self._turn:
            await self._send_numbered(entries)

    async def _send_numbered(self, entries: Sequence[Numbered]) -> None:
        last = self._last_id
        for entry in entries:
            if not last < entry.lowest_id <= entry.highest_id <= SEQUENCE_ID_MAX:
                raise ValueError(f"ids {entry.lowest_id} to {entry.highest_id} do not follow {last}")
            last = entry.highest_id
        numbers = list(accumulate([entry.count for entry in entries], initial=self._next))[:-1]
        for number, entry in zip(numbers, entries, strict=True):
            self._numbers[entry.lowest_id] = number
            self._sequenced.ids[number] = (entry.lowest_id, entry.highest_id)
        try:
            await self.send(entries)
        finally:
            for number, entry in zip(numbers, entries, strict=True):
                if number < self._next:
                    self._last_id = entry.highest_id
                else:
                    del self._numbers[entry.lowest_id]
                    del self._sequenced.ids[number]

    def receipts(self, run: ReceiptRun) -> None:
        """Handle receipts: translate their ids, and forget those that are answered."""
        before = self._first
        numbers = [self._numbers.get(sequence_id, _UNKNOWN) for sequence_id in run.sequence_ids]
        run.sequence_ids = numbers
        super().receipts(run)
        for number in numbers:
            if before <= number < self._first:
                del self._numbers[self._sequenced.ids.pop(number)[0]]


class _SequencedSends(SendEncoder):
    """Encoder of SENDs with the ids of `ids`, by the number of the entry."""

    __slots__ = ("_id", "ids")

    def __init__(self, producer_id: int) -> None:
        super().__init__(producer_id)
        self._id = producer_id
        self.ids: dict[int, tuple[int, int]] = {}

    def frames(self, first_sequence_id: int, counts: Sequence[int], entries: Sequence[bytes]) -> list[bytes]:
        parts: list[bytes] = []
        number = first_sequence_id
        for count, entry in zip(counts, entries, strict=True):
            command = pb.BaseCommand(type=pb.BaseCommand.SEND)
            command.send.producer_id = self._id
            command.send.sequence_id, command.send.highest_sequence_id = self.ids[number]
            command.send.num_messages = count
            head = encode(command)
            parts += (_SIZE.pack(len(head) - 4 + len(entry)) + head[4:], entry)
            number += count
        return parts

"""One producer: its pending sends, and receipts in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import trio

from broker import replies
from broker.connections.client_versions import refusal_code
from broker.dispatch.consumer import NO_PROPERTIES
from broker.ends import End, Life
from broker.topics.entry_screen import DELAYED, REFUSED, why_refused
from broker.topics.ports import ProducerClient, ProducerHome, StoringHome
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.wire.pulsar.entry_features import PUBLISHED_ALIKE, EntryFeatures, features_of
from quire.wire.pulsar.entry_features import TRANSACTION as OF_TRANSACTION
from quire.wire.pulsar.frames import ReceiptEncoder
from quire.wire.pulsar.metadata import delay_of, metadata_span, read_metadata
from quire.wire.pulsar.splitter import CHUNK, MARKER, SHADOW, TRANSACTION, SendRun
from quire.world.doors import Buffer

NOT_SERVED: Final = TRANSACTION | MARKER | SHADOW
"""SENDs with these flags are refused, or looked at one by one."""


class SendRules(NamedTuple):
    """Rules for messages that the policies of a topic add to those of broker.conf."""

    entry_size_max: int
    """Largest entry, metadata included; 0: no other limit. Parts of chunked messages may be larger."""
    encrypted: bool
    """True if only encrypted messages are taken."""

    def concerns(self, size: int) -> bool:
        """Return whether a run of entries of so many bytes has to be looked at."""
        return self.encrypted or 0 < self.entry_size_max < size

    def refusal(self, entry: Buffer, *, chunk: bool) -> str:
        """Return why an entry is not taken, "" if it is. Source: Pulsar's Producer.checkAndStartPublish,
        AbstractTopic.isExceedMaximumMessageSize."""
        if self.encrypted and not read_metadata(entry).encryption_keys:
            return "Messages must be encrypted"
        if not chunk and 0 < self.entry_size_max < len(entry):
            return f"Exceed maximum message size: an entry of {len(entry)} bytes on a topic with {self.entry_size_max}"
        return ""


class Producer:
    """Object registered under a producer id of a connection."""

    __slots__ = (
        "_deferred",
        "_has_failed",
        "_receipts",
        "answered",
        "budget",
        "bytes_in",
        "chunks_in",
        "connection",
        "draining",
        "encrypted",
        "epoch",
        "features",
        "life",
        "messages_in",
        "name",
        "producer_id",
        "properties",
        "sent",
        "since",
        "topic",
    )

    def __init__(
        self,
        connection: ProducerClient[Producer],
        topic: ProducerHome[Producer],
        producer_id: int,
        name: str,
        epoch: int,
    ) -> None:
        self.connection = connection
        self.budget = connection.publishing
        self.topic = topic
        self.producer_id = producer_id
        self.name = name
        self.epoch = epoch
        self.life = Life.OPEN
        self.draining = False
        """It is cut when everything it sent is answered; what fails until then is not told."""
        self.encrypted = False
        """True if its client says that it encrypts."""
        self.messages_in = self.bytes_in = self.chunks_in = 0
        self.since = trio.current_time()
        """Time of the event loop at which it was made."""
        self.properties: Mapping[str, str] = NO_PROPERTIES
        """Properties that the client gave it."""
        self.sent = 0
        """Number of sends given to the managed ledger."""
        self.answered = 0
        """Number of those that are durable or failed."""
        self._deferred: list[tuple[int, bytes | None, bool]] | None = None
        """Frames to be sent when so many sends are answered; None: it is cut. True: only if nothing failed."""
        self._has_failed = False
        """True if any send of it failed."""
        self._receipts: ReceiptEncoder | None = None
        """Set from the first receipt on: of thousands of producers, most are idle."""
        self.features: EntryFeatures | None = None
        """Set from the first entry on."""

    def made_features(self) -> EntryFeatures:
        """Return `features`, made now: a call for each run would be one too many."""
        self.features = EntryFeatures(PUBLISHED_ALIKE)
        return self.features

    def _made_receipts(self) -> ReceiptEncoder:
        self._receipts = ReceiptEncoder(self.producer_id, self.topic.name.partition)
        return self._receipts

    def is_replaced_by(self, connection: ProducerClient[Producer], producer_id: int, epoch: int) -> bool:
        """Return whether a new producer of its name takes its place: one of its own client, or it is dead. Source:
        Pulsar's Producer.isSuccessorTo."""
        same = self.connection is connection and self.producer_id == producer_id
        return (same and epoch > self.epoch) or self.connection.closed

    def count(self, run: SendRun, size: int) -> int:
        """Count a run that is stored now, for the producer and its topic. Return its messages."""
        topic, messages = self.topic, sum(run.counts)
        self.messages_in += messages
        self.bytes_in += size
        topic.messages_in += messages
        topic.bytes_in += size
        topic.published_at = trio.current_time()
        if run.flags & CHUNK:
            self.chunks_in += messages
            topic.chunks_in += messages
        return messages

    def accepted(
        self, run: SendRun, in_transaction: Callable[[Buffer], str] | None = None
    ) -> Iterator[tuple[SendRun, int]]:
        """Yield the parts of `run` that may be stored, with their features. `in_transaction`: returns why a message of
        a transaction may not; None: none may.

        Each has to be published before the next is requested: the sends between them are answered with SEND_ERROR in
        order."""
        start = 0
        features = 0
        size_max, rules = self.topic.context.options.message_size_max, self.topic.sends
        for index, payload in enumerate(run.payloads):
            found = features_of(payload)
            flags, refused = run.flags, found & REFUSED
            in_one = bool(flags & TRANSACTION or found & OF_TRANSACTION) and in_transaction is not None
            if in_one:
                flags, refused = flags & ~TRANSACTION, refused & ~OF_TRANSACTION
            why = _why_flags(flags) or (why_refused(refused) if refused else "")
            if not why and in_one and in_transaction is not None:
                why = in_transaction(payload)
            if not why and len(payload) > size_max and not run.flags & CHUNK:
                why = _why_size(payload, size_max)
            if not why and rules is not None:
                why = rules.refusal(payload, chunk=bool(run.flags & CHUNK))
            if not why and found & DELAYED:
                why = _why_delay(payload, self.topic.delayed_delivery().max_delay_ms)
            if not why:
                features |= found
                continue
            if start < index:
                yield _accepted_part(run, start, index, features), features
            start, features = index + 1, 0
            self._refuse(run.sequence_ids[index], why)
        if start < len(run.payloads):
            yield _accepted_part(run, start, len(run.payloads), features), features

    def _refuse(self, sequence_id: int, why: str) -> None:
        connection = self.connection
        connection.sends_answered(1)
        connection.log.debug("send refused", topic=self.topic.name.full, producer=self.name, reason=why)
        code = refusal_code(connection.client_version)
        self.after_sends(replies.send_error(self.producer_id, sequence_id, code, why))

    def confirmed(self, run: SendRun, offset: int, ledger_id: int, first_entry_id: int, count: int) -> None:
        """Confirm `count` sends of `run`, from its `offset`, which are durable as entries from `first_entry_id`."""
        connection = self.connection
        connection.sends_answered(count)
        self.answered += count
        if self.life is Life.GONE:
            self._release()
            return
        sequence_ids: Sequence[int] = run.sequence_ids
        highest_ids = run.highest_ids
        if offset or count != len(sequence_ids):
            sequence_ids = sequence_ids[offset : offset + count]
            highest_ids = highest_ids[offset : offset + count] if highest_ids is not None else None
        receipts = self._receipts or self._made_receipts()
        connection.write((receipts.encode(sequence_ids, highest_ids, ledger_id, first_entry_id),))
        if self._deferred:
            self._release()

    def failed(self, run: SendRun, offset: int, message: str) -> None:
        """Fail the sends of `run` from `offset` on, which were not stored, or whose outcome is unknown."""
        count = len(run.sequence_ids) - offset
        self.connection.sends_answered(count)
        self.answered += count
        self._has_failed = True
        if self.life is not Life.GONE and not self.draining:
            for sequence_id in run.sequence_ids[offset:]:
                failure = replies.send_error(self.producer_id, sequence_id, pb.PersistenceError, message)
                self.connection.write((failure,))
        self._release()

    def answer_duplicates(self, run: SendRun) -> None:
        """Confirm sends that were stored before, or are on their way, behind everything sent so far: with the position
        -1:-1. Source: Pulsar's PersistentTopic.publishMessage, which refuses those whose first send is on its way.

        If that fails, they are not answered: the client sends them again with the rest."""
        self.connection.sends_answered(len(run.sequence_ids))
        self.after_sends(self._receipts_with(replies.U64_MAX, run), if_stored=True)

    def confirm_unstored(self, run: SendRun) -> None:
        """Confirm sends to a non-persistent topic, with the position 0:0. Source: Pulsar's
        NonPersistentTopic.publishMessage."""
        count = len(run.sequence_ids)
        self.connection.sends_answered(count)
        self.answered += count
        if self.life is not Life.GONE:
            self.connection.write((self._receipts_with(0, run),))
        self._release()

    def _receipts_with(self, number: int, run: SendRun) -> bytes:
        """Return receipts that all have the same position."""
        highest_ids = run.highest_ids
        receipts = self._receipts or self._made_receipts()
        return b"".join(
            receipts.encode([sequence_id], None if highest_ids is None else [highest_ids[index]], number, number)
            for index, sequence_id in enumerate(run.sequence_ids)
        )

    def after_sends(self, frame: bytes, *, if_stored: bool = False) -> None:
        """Send `frame` after the receipts of everything sent so far, so that answers keep the order of their
        commands. `if_stored`: only if nothing of that failed."""
        if self.answered == self.sent:
            if not (if_stored and self._has_failed):
                self.connection.write((frame,))
        else:
            self.connection.requests_in_flight += 1
            self._defer(frame, if_stored=if_stored)

    def _defer(self, frame: bytes | None, *, if_stored: bool = False) -> None:
        if self._deferred is None:
            self._deferred = []
        self._deferred.append((self.sent, frame, if_stored))

    def _release(self) -> None:
        while self._deferred and self._deferred[0][0] <= self.answered:
            _, frame, if_stored = self._deferred.pop(0)
            if frame is None:
                self.topic.end_producer(self, End.CUT)
            else:
                if not (if_stored and self._has_failed):
                    self.connection.write((frame,))
                self.connection.request_done()

    def drain(self) -> None:
        """Be cut when everything it sent is answered: now, if that is so. What it sends from now on is ignored: its
        client sends it again to the next owner."""
        if self.answered == self.sent:
            self.topic.end_producer(self, End.CUT)
        else:
            self.draining = True
            self._defer(None)


def _accepted_part(run: SendRun, start: int, stop: int, features: int) -> SendRun:
    """Return a part of a run, marked if it has messages of transactions: the id (0, 0) is none for the splitter."""
    part = run.part(start, stop)
    if features & OF_TRANSACTION:
        part.flags |= TRANSACTION
    return part


def _why_flags(flags: int) -> str:
    if flags & TRANSACTION:
        return "transactions are off"
    if flags & MARKER:
        return "markers are for brokers: replication between clusters is not served"
    if flags & SHADOW:
        return "a SEND with a message id is for shadow topics, which are not served"
    return ""


def _why_size(entry: Buffer, size_max: int) -> str:
    """Return why the payload is too large, or an empty text.

    The limit applies to the payload without its metadata. Clients check that before they send, and official consumers
    treat a larger payload as damaged and drop it. Parts of a chunked message are bounded by their frame alone, as in
    consumers."""
    size = len(entry) - metadata_span(entry)[1]
    return f"the payload of {size} bytes is above maxMessageSize={size_max}" if size > size_max else ""


def _why_delay(entry: Buffer, delay_max_ms: int) -> str:
    """Return why the message is delayed by too much, or an empty text.

    Source: Pulsar's PersistentTopic.isExceedMaximumDeliveryDelay."""
    delay_ms = delay_of(entry) if delay_max_ms else 0
    if delay_ms <= delay_max_ms:
        return ""
    return f"the delay of {delay_ms} ms is above the allowed one of {delay_max_ms} ms (delayedDeliveryMaxDelayInMillis)"


class PublishSink:
    """Link from one run of sends to the managed ledger's confirmations; one object per run, not per message."""

    __slots__ = ("_arrived_at", "_done", "_producer", "_run", "_size", "_topic")

    def __init__(self, producer: Producer, run: SendRun, topic: StoringHome[Producer], size: int) -> None:
        self._producer = producer
        self._run = run
        self._topic = topic
        self._size = size
        self._arrived_at = trio.current_time()
        self._done = 0

    def confirmed(self, ledger_id: int, first_entry_id: int, count: int) -> None:
        offset = self._done
        done = self._done = offset + count
        if (published := self._topic.published) is not None:
            published.confirmed(self._arrived_at, trio.current_time(), count, self._topic.context.times.publish)
            published.last_ledger_id, published.last_entry_id = ledger_id, first_entry_id + count - 1
        if done == len(self._run.sequence_ids):
            self._producer.budget.give(self._size)
        self._producer.confirmed(self._run, offset, ledger_id, first_entry_id, count)

    def failed(self, error: Exception) -> None:
        self._producer.budget.give(self._size)
        self._topic.publish_failed(error)
        self._producer.failed(self._run, self._done, str(error))


async def cut_in_next_step(producers: Sequence[Producer]) -> None:
    """Cut off producers after the SEND_ERRORs of this pass, so that the client receives them in order."""
    await trio.lowlevel.checkpoint()
    for producer in producers:
        producer.topic.end_producer(producer, End.CUT)


async def cut_later(waiting: trio.CancelScope, producers: Sequence[Producer], after_s: float) -> None:
    """Cut off pending sends, so that unresponsive bookies do not keep clients from the next owner."""
    with waiting:
        await trio.sleep(after_s)
        for producer in producers:
            producer.topic.end_producer(producer, End.CUT)

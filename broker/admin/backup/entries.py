"""Raw entries of a topic, read for a backup and appended by a restore.

GET      {topic}/quireEntries?ledger=&entry=    entries from there on, about READ_BYTES; none: the end is reached
POST     {topic}/quireEntries?expected=7        body: entries; {"entries":9}, how many the topic has then; 404, 409 the
                                                topic is not being restored, 412 an entry may not be stored, 413, 503
                                                it has not 7 entries

An answer is a run of (ledger id: 8, entry id: 8, size: 4, entry), a body a run of (size: 4, entry), in network byte
order. An entry is stored as it is: frame header, metadata and payload are those of the backup. It is checked as one
that is published: metadata, checksum, size, and what the policies demand.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

import trio
from starlette.responses import Response

from broker.admin.errors import MalformedRequestError
from broker.admin.positions.every import on_topic
from broker.admin.requests import INT64_MAX, AdminCall
from broker.admin.resource import Payload, answer
from broker.errors import MetadataRefusedError, NoRoomError, ServiceNotReadyError, TopicExistsError
from broker.topics.topic import Topic
from managed_ledger.errors import ManagedLedgerError
from managed_ledger.keeping import restored_from
from quire.ledger.position import EARLIEST, Position
from quire.service.web.parameters import WholeNumber
from quire.wire.pulsar.entry_features import CHUNK, MARKER, UNREADABLE, features_of, without_broker_metadata

READ_BYTES: Final = 4 << 20
READ_ENTRIES: Final = 1000
"""Entries that are packed in one step of the event loop."""
BODY_BYTES_MAX: Final = 8 << 20
"""Bytes of a body, beside those of the largest message."""
APPENDED_MAX: Final = 1000
"""Entries of a body: appended together, they hold the event loop for some ms."""
CHECKED_IN_STEP: Final = 100
"""Entries that are checked in one step of the event loop."""
_PLACED: Final = Struct("!qqI")
_SIZE: Final = Struct("!I")
_LEDGER: Final = WholeNumber("ledger", "Ledger of the first entry that is wanted.", -1, INT64_MAX)
_ENTRY: Final = WholeNumber("entry", "Entry id of the first entry that is wanted.", -1, INT64_MAX)
_EXPECTED: Final = WholeNumber("expected", "Number of entries that the topic has.", 0, INT64_MAX, needed=True)


class _Stored:
    """Outcome of an append."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.error: Exception | None = None
        self.done = trio.Event()

    def confirmed(self, ledger_id: int, first_entry_id: int, count: int) -> None:
        self.left -= count
        if self.left == 0:
            self.done.set()

    def failed(self, error: Exception) -> None:
        self.error = error
        self.done.set()


async def read(call: AdminCall) -> Payload:
    ledger, entry = call.whole(_LEDGER), call.whole(_ENTRY)
    start = EARLIEST  # no entry is before the first ledger
    if ledger is not None and ledger >= 0:
        start = Position(ledger, -1 if entry is None else entry)

    async def work(topic: Topic) -> Payload:
        topic.check_open()
        found: list[bytes] = []
        size, position = 0, start
        try:
            while size < READ_BYTES:
                run = await topic.ledger.read(position, READ_ENTRIES, READ_BYTES - size)
                if not run.payloads:
                    break
                for number, payload in enumerate(run.payloads, run.first_entry_id):
                    found += _PLACED.pack(run.ledger_id, number, len(payload)), bytes(payload)
                    size += len(payload) + _PLACED.size
                position = Position(run.ledger_id, run.first_entry_id + len(run.payloads))
        except ManagedLedgerError as error:
            raise ServiceNotReadyError(f"{position} cannot be read: {error}") from error
        return Payload(b"".join(found))

    return await on_topic(call, work)


async def append(call: AdminCall) -> Response:
    expected = call.whole(_EXPECTED) or 0
    message_max = call.administration.options.message_size_max
    entries = unpacked(await call.octets(BODY_BYTES_MAX + message_max))

    async def work(topic: Topic) -> int:
        topic.check_open()
        check_being_restored(topic)
        await _check_policies(topic, entries, await _features(entries, expected, message_max), expected)
        if why := topic.context.no_room():
            raise NoRoomError(why)
        count = entry_count(topic)
        if count != expected or topic.ledger.pending_bytes:
            # A request of a killed client may still be stored: the next one looks again how many entries there are.
            raise ServiceNotReadyError(
                f"{topic.name.full} has {count} entries, not {expected}: is another restore under way?"
            )
        stored = _Stored(len(entries))
        topic.used_at = trio.current_time()
        topic.ledger.append(entries, stored)
        await stored.done.wait()
        if stored.error is not None:
            raise ServiceNotReadyError(f"{topic.name.full}: entries not stored: {stored.error}") from stored.error
        return entry_count(topic)

    return answer({"entries": await on_topic(call, work)})


async def _features(entries: Sequence[bytes], first: int, message_max: int) -> list[int]:
    """Return the features of entries. Raises MetadataRefusedError for one that no producer could publish.

    Entries of transactions, markers and metadata of brokers are those of the backup. `first`: number of the first
    entry."""
    found: list[int] = []
    for index, entry in enumerate(entries):
        features = features_of(entry, check=True)
        if features & UNREADABLE:
            raise MetadataRefusedError(
                f"entry {first + index}: its metadata cannot be read, or its checksum is another"
            )
        if (size := len(without_broker_metadata(entry))) > message_max:
            raise MetadataRefusedError(
                f"entry {first + index} has {size} bytes, more than maxMessageSize, {message_max}"
            )
        found.append(features)
        if index % CHECKED_IN_STEP == 0:
            await trio.lowlevel.checkpoint()
    return found


async def _check_policies(topic: Topic, entries: Sequence[bytes], features: Sequence[int], first: int) -> None:
    """Raise MetadataRefusedError for an entry that the policies of the topic refuse."""
    rules = topic.sends
    if rules is None:
        return
    for index, (entry, has) in enumerate(zip(entries, features, strict=True)):
        if not has & MARKER and (why := rules.refusal(without_broker_metadata(entry), chunk=bool(has & CHUNK))):
            raise MetadataRefusedError(f"entry {first + index} of {topic.name.full}: {why}")
        if index % CHECKED_IN_STEP == 0:
            await trio.lowlevel.checkpoint()


def check_being_restored(topic: Topic) -> None:
    """Raise TopicExistsError if the topic is not being restored."""
    if not restored_from(topic.ledger.properties):
        raise TopicExistsError(f"{topic.name.full} exists and is not being restored")


def entry_count(topic: Topic) -> int:
    """Return the number of confirmed entries."""
    return topic.ledger.index.places().count


def unpacked(body: bytes) -> Sequence[bytes]:
    """Return the entries of a body, at least one. Raises MalformedRequestError.

    >>> unpacked(b"\\0\\0\\0\\2ab\\0\\0\\0\\1c")
    [b'ab', b'c']
    >>> unpacked(b"\\0\\0\\0\\1c" * (APPENDED_MAX + 1))
    Traceback (most recent call last):
    broker.admin.errors.MalformedRequestError: the body has more than 1000 entries
    """
    found: list[bytes] = []
    at = 0
    while at < len(body):
        start = at + _SIZE.size
        size = int.from_bytes(body[at:start])
        at = start + size
        if start > len(body) or at > len(body) or size == 0:
            raise MalformedRequestError("the body is no run of entries with their sizes")
        if len(found) == APPENDED_MAX:
            raise MalformedRequestError(f"the body has more than {APPENDED_MAX} entries")
        found.append(body[start:at])
    if not found:
        raise MalformedRequestError("the body has no entries")
    return found

"""Metadata that the broker puts in front of each entry of a producer: the time of the broker, and the message's index.

    0x0e02 (2)  size (4)  BrokerEntryMetadata: broker_timestamp (1, ms since 1970), index (2)  the entry as it was sent

The index of an entry is that of its last message: a batch of 3 in an empty topic has index 2. It never goes back: on
loading it continues behind that of the last entry, and behind the property `index` of the log, which every change of
the list of ledgers stores, for a log whose entries are all deleted. An index that a failed send was given is not used
again.

Source: Pulsar's AppendIndexMetadataInterceptor, AppendBrokerTimestampMetadataInterceptor and
ManagedLedgerInterceptorImpl.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from struct import Struct
from typing import NamedTuple

from broker.context import Context
from broker.topics.policies import Held
from broker.topics.producer import Producer
from broker.topics.topic import Topic
from managed_ledger.errors import ManagedLedgerReadError, ManagedLedgerUnavailableError
from managed_ledger.ledger_list import LedgerList
from managed_ledger.managed_ledger import AppendSink, ManagedLedger
from quire.service.errors import ConfigError
from quire.wire.pulsar.errors import PulsarWireError
from quire.wire.pulsar.frames import BROKER_ENTRY_MAGIC, encode_varint
from quire.wire.pulsar.metadata import broker_metadata
from quire.wire.pulsar.names import TopicName
from quire.wire.pulsar.splitter import SendRun
from quire.world.doors import Clock

_PACKAGE = "org.apache.pulsar.common.intercept"
INDEX = f"{_PACKAGE}.AppendIndexMetadataInterceptor"
TIMESTAMP = f"{_PACKAGE}.AppendBrokerTimestampMetadataInterceptor"
PROPERTY = "index"
"""Property of a log with the last index that was given."""
_HEAD = Struct("!HI")


class StampKinds(NamedTuple):
    """Parts of the metadata that a broker adds."""

    has_index: bool = False
    has_timestamp: bool = False


def stamp_kinds(interceptors: tuple[str, ...]) -> StampKinds:
    """Return what brokerEntryMetadataInterceptors asks for. Raises ConfigError."""
    for name in interceptors:
        if name not in (INDEX, TIMESTAMP):
            raise ConfigError(f"brokerEntryMetadataInterceptors: {name!a} is neither {INDEX} nor {TIMESTAMP}")
    return StampKinds(INDEX in interceptors, TIMESTAMP in interceptors)


class EntryStamp:
    """Stamp of one log."""

    __slots__ = ("_clock", "_kinds", "index")

    def __init__(self, kinds: StampKinds, clock: Clock, index: int = -1) -> None:
        self._kinds = kinds
        self._clock = clock
        self.index = index
        """Last index that was given; -1: none."""

    def stamp(self, run: SendRun) -> None:
        """Put the metadata in front of the entries of a run."""
        front = b"\x08%b" % encode_varint(self._clock.wall_ms()) if self._kinds.has_timestamp else b""
        stamped: list[memoryview] = []
        for payload, count in zip(run.payloads, run.counts, strict=True):
            packed = front
            if self._kinds.has_index:
                self.index += count
                packed += b"\x10%b" % encode_varint(self.index)
            stamped.append(memoryview(b"".join((_HEAD.pack(BROKER_ENTRY_MAGIC, len(packed)), packed, payload))))
        run.payloads = stamped

    def kept_in(self, value: LedgerList) -> LedgerList:
        """Return a list of ledgers with the last index in its properties."""
        properties = dict(value.properties)
        text = str(max(self.index, index_in(properties)))
        if properties.get(PROPERTY) == text:
            return value
        return replace(value, properties=tuple({**properties, PROPERTY: text}.items()))


def index_in(properties: dict[str, str]) -> int:
    """Return the last index according to the properties of a log; -1 if they do not say."""
    text = properties.get(PROPERTY, "")
    return int(text) if text.isascii() and text.isdecimal() else -1


async def open_stamp(ledger: ManagedLedger, kinds: StampKinds, clock: Clock) -> EntryStamp:
    """Return the stamp of a log that was just opened, to which nothing is appended meanwhile. Raises
    ManagedLedgerError."""
    stamp = EntryStamp(kinds, clock)
    if not kinds.has_index:
        return stamp
    stamp.index = index_in(dict(ledger.properties))
    ledger.keep_in_list(stamp.kept_in)
    last = ledger.last_confirmed
    if last.entry_id >= 0 and ledger.last_entry_of(last.ledger_id) is not None:
        try:
            run = await ledger.read(last, 1, 1)
            found = broker_metadata(run.payloads[0]) if run.payloads else None
        except ManagedLedgerReadError as error:
            raise ManagedLedgerUnavailableError(
                f"index of the last entry of {ledger.name} not read: {error}"
            ) from error
        except PulsarWireError:
            found = None
        if found is not None and found.HasField("index"):
            stamp.index = max(stamp.index, found.index)
    return stamp


class StampingTopic(Topic):
    """Topic whose entries are stored with metadata of the broker."""

    __slots__ = ("stamp",)

    def __init__(
        self,
        context: Context,
        name: TopicName,
        ledger: ManagedLedger,
        close_soon: Callable[[Topic], None],
        policies: Held | None,
        stamp: EntryStamp,
    ) -> None:
        super().__init__(context, name, ledger, close_soon, policies)
        self.stamp = stamp
        self.screen.expect_broker_metadata(keep=context.options.expose_entry_metadata)

    def append(self, producer: Producer, run: SendRun, size: int, sink: AppendSink | None = None) -> None:
        if sink is not None or self.deduplication is None:  # else it comes again, if it is new
            self.stamp.stamp(run)
        super().append(producer, run, size, sink)

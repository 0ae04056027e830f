"""Interface of entry filters. Source: Pulsar's EntryFilter and FilterContext."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from quire.wire.pulsar.metadata import metadata_span
from quire.wire.pulsar.PulsarApi_pb2 import MessageMetadata
from quire.world.doors import Buffer


class FilterResult(Enum):
    """Fate of an entry."""

    ACCEPT = "accept"
    """The next filter decides; after the last one the entry is delivered."""
    REJECT = "reject"
    """The entry is not delivered, and acknowledged in place of the consumers of the subscription."""
    RESCHEDULE = "reschedule"
    """The entry is not delivered now. After dispatcherEntryFilterRescheduledMessageDelay milliseconds it is offered
    again, on a shared subscription maybe to another consumer; later entries may come before it."""


class FilteredEntry(NamedTuple):
    """An entry about to be delivered: a message, a batch, or a part of a chunked message."""

    topic: str
    """Full name, of a partition with its number."""
    subscription: str
    subscription_properties: Mapping[str, str]
    consumer: str
    """Name of the consumer that would get it; empty where a backlog is analyzed."""
    consumer_properties: Mapping[str, str]
    ledger_id: int
    entry_id: int
    metadata: MessageMetadata
    """Metadata of the message or of the batch; those of the messages in a batch are in the payload."""
    stored: Buffer
    """The entry as it is stored."""

    @property
    def payload(self) -> memoryview:
        """Return the payload as the producer sent it: maybe compressed or encrypted, and of a batch all messages."""
        return memoryview(self.stored)[metadata_span(self.stored)[1] :]


class EntryFilter(ABC):
    """A filter, made once per broker, without arguments.

    It runs on the broker's event loop, before each delivery: it may not wait, and everything it takes longer is taken
    from all clients. An entry at which it raises is rescheduled, and the log says so.
    """

    @abstractmethod
    def filter_entry(self, entry: FilteredEntry) -> FilterResult:
        """Decide about an entry. It may be asked again about the same one, after a reconnection for example."""

"""A topic that is being restored from a backup has no clients until it is whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from broker.errors import ServiceNotReadyError
from managed_ledger.keeping import restored_from
from quire.wire.pulsar.names import TopicName


class LogWithProperties(Protocol):
    """Log as far as its properties are concerned."""

    @property
    def properties(self) -> Sequence[tuple[str, str]]: ...


class StoredTopic(Protocol):
    """Topic with a log."""

    @property
    def name(self) -> TopicName: ...

    @property
    def ledger(self) -> LogWithProperties: ...


def check_restored(topic: StoredTopic) -> None:
    """Raise ServiceNotReadyError if the topic is being restored: it has only a part of its entries."""
    if restored_from(topic.ledger.properties):
        raise ServiceNotReadyError(
            f"{topic.name.full} is being restored from a backup: wait, or run `quire admin restore topic` again"
        )

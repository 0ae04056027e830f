"""Demands of the policies of a topic on producers and their messages: encryption, and the size of messages.

A change concerns the next messages. Producers that do not encrypt are disconnected where that is required from now on,
and refused when they come back. Topics of the servers take everything. Source: Pulsar's ServerCnx.handleProducer,
Producer.checkEncryption, AbstractTopic.isExceedMaximumMessageSize.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from broker.config import BrokerOptions
from broker.context import Context
from broker.ends import End
from broker.errors import MetadataRefusedError
from broker.topics.policies import Held
from broker.topics.producer import Producer, SendRules
from broker.topics.system_names import is_system_topic
from broker.topics.topic_policies.catalog import ENCRYPTION_REQUIRED, MAX_MESSAGE_SIZE
from broker.topics.topic_policies.known import value_of
from quire.wire.pulsar.names import TopicName


class Sent(Protocol):
    """Topic of either kind, as its rules use it."""

    sends: SendRules | None

    @property
    def name(self) -> TopicName: ...

    @property
    def context(self) -> Context: ...

    @property
    def policies(self) -> Held | None: ...

    @property
    def producers(self) -> Mapping[str, Producer]: ...

    def end_producer(self, producer: Producer, end: End) -> None:
        """End a producer, as `broker.ends` has it."""


def follow_sends(topic: Sent) -> None:
    """Hold the producers of a topic to what its policies demand now."""
    held = topic.policies
    if held is None or is_system_topic(topic.name):
        return
    topic.sends = held.derived(_rules)
    if topic.sends is not None and topic.sends.encrypted:
        for producer in list(topic.producers.values()):
            if not producer.encrypted:
                topic.end_producer(producer, End.UNLOADED)


def _rules(held: Held) -> SendRules | None:
    encrypted, size = held.value(ENCRYPTION_REQUIRED), held.value(MAX_MESSAGE_SIZE)
    entry_size_max = size if 0 < size < held.defaults.options.message_size_max else 0
    return SendRules(entry_size_max, encrypted) if encrypted or entry_size_max else None


def needs_encryption(held: Held | None, options: BrokerOptions, name: TopicName) -> bool:
    """Return whether producers of a topic have to encrypt."""
    needed = options.encrypted_producers or value_of(held, ENCRYPTION_REQUIRED, options)
    return needed and not is_system_topic(name)


def check_encryption(topic: Sent, encrypted: bool) -> None:
    """Raise MetadataRefusedError if a producer has to encrypt, and does not."""
    if not encrypted and needs_encryption(topic.policies, topic.context.options, topic.name):
        raise MetadataRefusedError(f"Encryption is required in {topic.name.full}")

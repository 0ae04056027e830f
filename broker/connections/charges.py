"""Topics that a client makes, charged to its role and its address; see broker.neighbours.

A topic that does not exist yet is charged before it is made, so attempts that fail for other reasons count too. A
partition is none: it is made with its topic, which is charged once.
"""

from __future__ import annotations

from broker.connections.connection import Connection
from broker.topics.loaded_topics import Topics
from broker.topics.non_persistent.loaded import NonPersistentTopics
from quire.wire.pulsar.names import TopicName


async def charge_topic(connection: Connection, topics: Topics, name: TopicName) -> None:
    """Charge a topic that a producer or consumer is about to make. Raises NotAllowedError, MetadataUnavailableError."""
    neighbour = connection.neighbour
    if neighbour is None or name.partition >= 0 or topics.find(name) is not None or await topics.exists(name):
        return
    neighbour.make_topic()


async def charge_partitioned(
    connection: Connection, topics: Topics, target: Topics | NonPersistentTopics, name: TopicName
) -> None:
    """Charge a topic that is about to be made because its partitions are asked for. `target`: the topics of its kind.
    Raises as `charge_topic`, and TopicNotFoundError."""
    neighbour = connection.neighbour
    if neighbour is None or name.partition >= 0 or await topics.partitioned.get(name):
        return
    rule = await topics.first_use.rule(name)
    if not rule.allow or not rule.made or target.find(name) is not None:
        return
    if isinstance(target, Topics) and await target.exists(name):
        return
    neighbour.make_topic()


def charge_direct(connection: Connection, topics: NonPersistentTopics, name: TopicName) -> None:
    """Charge a non-persistent topic that a producer or consumer is about to make. Raises NotAllowedError."""
    neighbour = connection.neighbour
    if neighbour is not None and name.partition < 0 and topics.find(name) is None:
        neighbour.make_topic()

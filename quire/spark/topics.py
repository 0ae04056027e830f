"""Topics of a query: names, partitions, patterns. Pure; their existence is checked elsewhere.

orders                                     persistent://public/default/orders
acme/shop/orders-partition-3               one partition of a partitioned topic, read by itself
persistent://acme/shop/orders-.*           as a pattern: the namespace stands as it is, the rest is a regular expression
orders-.*                                  as a pattern: of public/default
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from quire.wire.pulsar.errors import InvalidNameError
from quire.wire.pulsar.names import DEFAULT, PERSISTENT, PUBLIC, NamespaceName, TopicName

PARTITION_MARK = "-partition-"


def full_name(text: str) -> str:
    """Return the full name of a topic. Raises ValueError for an invalid one."""
    try:
        name = TopicName.parse(text.strip())
    except InvalidNameError as error:
        raise ValueError(str(error)) from None
    if name.domain != PERSISTENT:
        raise ValueError(f"{name.full} is not persistent: it has no positions to read from")
    return name.full


def partition_names(topic: str, partitions: int) -> list[str]:
    """Return the full names to read for a topic of so many partitions; 0: it is not partitioned, or is itself a
    partition."""
    return [f"{topic}{PARTITION_MARK}{index}" for index in range(partitions)] or [topic]


def partitioned_name(name: str) -> str:
    """Return the topic of a partition (full name); the name itself if it is not a partition."""
    return TopicName.parse(name).partitioned.full


def partition_index(name: str) -> int:
    """Return the number at the end of a partition's name; -1: there is none."""
    return TopicName.parse(name).partition


@dataclass(frozen=True, slots=True)
class TopicsPattern:
    """A namespace, and what the local names of its topics must match as a whole (Python's `re`).

    A partitioned topic is matched by its own name, not by its partitions'. Names that begin with `__` are the broker's
    own; they match only a pattern that begins so too.
    """

    namespace: str
    """tenant/namespace, for the request to the broker."""
    local: str

    @classmethod
    def parse(cls, text: str) -> TopicsPattern:
        """Parse a pattern. Raises ValueError for an invalid one."""
        rest = text.strip().removeprefix(f"{PERSISTENT}://")
        if "://" in rest:
            raise ValueError(f"{text!r} does not begin with {PERSISTENT}://")
        parts = rest.split("/", 2)
        namespace, local = ("/".join(parts[:2]), parts[2]) if len(parts) == 3 else (f"{PUBLIC}/{DEFAULT}", rest)
        try:
            NamespaceName.parse(namespace)
        except InvalidNameError:
            raise ValueError(
                f"{namespace!r} is not one namespace: only the topic's local name may be a pattern"
            ) from None
        if not local:
            raise ValueError("the pattern is empty")
        try:
            re.compile(local)
        except re.error as error:
            raise ValueError(f"{local!r} is not a regular expression: {error}") from None
        return cls(namespace, local)

    def matches(self, name: str) -> bool:
        """Return whether a topic, or the topic of a partition, by its full name, matches."""
        topic = TopicName.parse(name).partitioned
        if topic.domain != PERSISTENT or topic.namespace_path != self.namespace:
            return False
        if topic.local.startswith("__") and not self.local.startswith("__"):
            return False
        return re.fullmatch(self.local, topic.local) is not None

    def topics(self, listed: Iterable[str]) -> list[str]:
        """Return the matching ones of the topics of the namespace (full names, partitions one by one), each partitioned
        one once; sorted."""
        return sorted({partitioned_name(name) for name in listed if self.matches(name)})

"""Where each row goes: its topic, then its partition. Pure, and deterministic: the same rows in the same order go the same ways.

The partition is what the column `__partition` says; else by the hash of the key, as the official clients do it; else, for
a row without a key, each partition in its turn, beginning with another one in each task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quire.client.routing import HashingScheme, partition_of
from quire.spark.errors import SinkError
from quire.spark.sink.columns import KEY, PARTITION, TOPIC, Rows, shown
from quire.wire.pulsar.errors import InvalidNameError
from quire.wire.pulsar.names import PERSISTENT, TopicName

Indexes = Sequence[int]
"""Rows of one target, by their number, ascending."""


class Router:
    """Routes the rows of one task."""

    def __init__(self, topic: str | None, hashing_scheme: HashingScheme, first: int = 0) -> None:
        """`topic`: for every row, whatever its column says; None: the column. `first`: the partition that the first row
        without a key goes to, modulo how many there are. SinkError if `topic` is no name of a topic."""
        self._topic = full_name(topic, "option topic") if topic is not None else None
        self._scheme = hashing_scheme
        self._first = first
        self._names: dict[str, str] = {}
        """Full names by what the column says. One string per topic that the task ever wrote to; so are the others."""
        self._partitions: dict[str, int] = {}
        self._turns: dict[str, int] = {}

    def topics(self, rows: Rows) -> dict[str, Indexes]:
        """The rows of each topic, by full name, in the order in which the topics come. SinkError: a row without a topic."""
        count = len(rows)
        if self._topic is not None:
            return {self._topic: range(count)} if count else {}
        assert rows.topics is not None, "planned without a topic"
        found: dict[str, list[int]] = {}
        for number, name in enumerate(rows.topics):
            indexes = found.get(name)  # type: ignore[arg-type]  # (None is looked up once, and refused)
            if indexes is None:
                if name is None:
                    raise SinkError(
                        f"column {TOPIC} is null in row {number} of its batch (value {shown(rows.values[number])}):"
                        f" a row must say its topic, or the option topic must say it for all"
                    )
                found[name] = indexes = []
            indexes.append(number)
        merged: dict[str, Indexes] = {}
        for name, indexes in found.items():
            full = self._names.get(name)
            if full is None:
                full = self._names[name] = full_name(name, f"column {TOPIC}")
            # (one topic under two spellings)
            merged[full] = sorted([*merged[full], *indexes]) if full in merged else indexes
        return merged

    def unknown(self, topics: Mapping[str, Indexes]) -> list[str]:
        """Those of `topics` whose number of partitions was not told yet."""
        return [topic for topic in topics if topic not in self._partitions]

    @property
    def count(self) -> int:
        """How many topics there were so far."""
        return len(self._partitions)

    def tell(self, topic: str, partitions: int) -> None:
        """`topic` has so many partitions; 0: it is not partitioned. Holds for the rest of the task."""
        self._partitions[topic] = partitions

    def route(self, rows: Rows, topics: Mapping[str, Indexes]) -> dict[str, Indexes]:
        """The rows of each target (a partition, or a topic without partitions), in their order.

        SinkError names the column and the value of a row that cannot go anywhere.
        """
        routed: dict[str, Indexes] = {}
        for topic, indexes in topics.items():
            count = self._partitions[topic]
            if count == 0:
                _no_partition(rows, indexes, topic)
                routed[topic] = indexes
            else:
                for partition, chosen in self._split(rows, indexes, topic, count).items():
                    routed[f"{topic}-partition-{partition}"] = chosen
        return routed

    def _split(self, rows: Rows, indexes: Indexes, topic: str, count: int) -> dict[int, Indexes]:
        partitions, keys = rows.partitions, rows.keys
        if partitions is None and keys is None:
            return self._in_turn(indexes, topic, count)
        by_key = self._by_key(keys, indexes, count) if keys is not None else {}
        turn = self._turns.get(topic, self._first)
        found: dict[int, list[int]] = {}
        for number in indexes:
            given = partitions[number] if partitions is not None else None
            key = keys[number] if keys is not None else None
            if given is not None:
                if not 0 <= given < count:
                    raise SinkError(
                        f"column {PARTITION} is {given} in row {number} of its batch, but {topic} has {count} partitions"
                        f" (0 to {count - 1})"
                    )
                partition = given
            elif key is not None:
                partition = by_key[key]
            else:
                partition = turn % count
                turn += 1
            chosen = found.get(partition)
            if chosen is None:
                found[partition] = [number]
            else:
                chosen.append(number)
        self._turns[topic] = turn
        return dict(found)

    def _in_turn(self, indexes: Indexes, topic: str, count: int) -> dict[int, Indexes]:
        turn = self._turns.get(topic, self._first)
        self._turns[topic] = turn + len(indexes)
        return {(turn + at) % count: indexes[at::count] for at in range(min(count, len(indexes)))}

    def _by_key(self, keys: Sequence[bytes | None], indexes: Indexes, count: int) -> dict[bytes, int]:
        # (a key is hashed once per batch of rows, however often it comes)
        distinct = {keys[number] for number in indexes}
        return {key: self._partition_of(key, count) for key in distinct if key is not None}

    def _partition_of(self, key: bytes, count: int) -> int:
        try:
            return partition_of(key, count, self._scheme)
        except ValueError as error:
            raise SinkError(f"column {KEY}: {shown(key)} cannot be hashed: {error}") from error


def full_name(name: str, what: str) -> str:
    """The full form of a topic's name; SinkError names `what` said it."""
    try:
        parsed = TopicName.parse(name)
    except InvalidNameError as error:
        raise SinkError(f"{what} is {shown(name)}, which is no topic: {error}") from None
    if parsed.domain != PERSISTENT:
        raise SinkError(f"{what} is {shown(name)}: only persistent topics can be written to")
    return parsed.full


def _no_partition(rows: Rows, indexes: Indexes, topic: str) -> None:
    if rows.partitions is None:
        return
    for number in indexes:
        if rows.partitions[number] is not None:
            raise SinkError(
                f"column {PARTITION} is {rows.partitions[number]} in row {number} of its batch, but {topic} is not"
                f" partitioned: leave the column out, or make it null"
            )

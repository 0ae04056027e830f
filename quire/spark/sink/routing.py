"""Routing of rows: to a topic, then to a partition. Pure, and deterministic: the same rows in the same order take the
same routes.

The partition is what the column `__partition` says; else by the hash of the key, as the official clients do it; else,
for a row without a key, each partition in its turn, beginning with another one in each task.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence

from quire.client.routing import HashingScheme, partition_of
from quire.spark.errors import SinkError
from quire.spark.sink.columns import KEY, PARTITION, TOPIC, Rows, shown
from quire.wire.pulsar.errors import InvalidNameError
from quire.wire.pulsar.names import PERSISTENT, TopicName

Indexes = Sequence[int]
"""Row numbers of one target, ascending."""


class Router:
    """Router of the rows of one task."""

    def __init__(
        self, topic: str | None, hashing_scheme: HashingScheme, first: int = 0, *, keys_as_base64: bool = False
    ) -> None:
        """Take the topic of all rows, or None to use their column.

        `first`: partition of the first row without a key, modulo their number. `keys_as_base64`: every key is sent, and
        so hashed, as base64. Raises SinkError if `topic` is not a
        topic name."""
        self._topic = full_name(topic, "option topic") if topic is not None else None
        self._scheme = hashing_scheme
        self._first = first
        self._keys_as_base64 = keys_as_base64
        self._names: dict[str, str] = {}
        """Full names by column value. One string per topic that the task ever wrote to, as in the other maps."""
        self._partitions: dict[str, int] = {}
        self._turns: dict[str, int] = {}

    def topics(self, rows: Rows) -> dict[str, Indexes]:
        """Return the rows of each topic, by full name, in the order in which the topics appear. Raises SinkError: a row
        without a topic."""
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
                        " set it in each row, or set the option topic for all rows"
                    )
                found[name] = indexes = []
            indexes.append(number)
        merged: dict[str, Indexes] = {}
        for name, indexes in found.items():
            full = self._names.get(name)
            if full is None:
                full = self._names[name] = full_name(name, f"column {TOPIC}")
            # one topic in two spellings
            merged[full] = sorted([*merged[full], *indexes]) if full in merged else indexes
        return merged

    def unknown(self, topics: Mapping[str, Indexes]) -> list[str]:
        """Return those of `topics` whose number of partitions is unknown."""
        return [topic for topic in topics if topic not in self._partitions]

    @property
    def count(self) -> int:
        """Return how many topics there were so far."""
        return len(self._partitions)

    def tell(self, topic: str, partitions: int) -> None:
        """Set the number of partitions of `topic` for the rest of the task; 0: it is not partitioned."""
        self._partitions[topic] = partitions

    def route(self, rows: Rows, topics: Mapping[str, Indexes]) -> dict[str, Indexes]:
        """Return the rows of each target (a partition, or a topic without partitions), in their order.

        Raises SinkError with the column and the value of a row that has no target."""
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
                        f"column {PARTITION} is {given} in row {number} of its batch, but {topic} has {count} "
                        "partitions"
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
        # a key is hashed once per batch of rows
        distinct = {keys[number] for number in indexes}
        return {key: self._partition_of(key, count) for key in distinct if key is not None}

    def _partition_of(self, key: bytes, count: int) -> int:
        try:
            sent = b64encode(key).decode() if self._keys_as_base64 else key
            return partition_of(sent, count, self._scheme)
        except ValueError as error:
            raise SinkError(f"column {KEY}: {shown(key)} cannot be hashed: {error}") from error


def full_name(name: str, what: str) -> str:
    """Return the full form of a topic's name. Raises SinkError, naming `what` as its origin."""
    try:
        parsed = TopicName.parse(name)
    except InvalidNameError as error:
        raise SinkError(f"{what} is {shown(name)}, which is not a topic name: {error}") from None
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

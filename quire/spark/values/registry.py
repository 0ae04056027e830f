"""Schemas of topics, as the brokers have them. Blocking; one cache per process.

A schema of a version never changes, so it is requested once per process. The newest one is always requested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quire.client.client import Client
from quire.spark.cluster import Cluster
from quire.spark.errors import OptionError, SchemaError
from quire.spark.options.parse import Options
from quire.spark.topics import partitioned_name
from quire.spark.values.decoding import ValueSchema, shape_of

KNOWN_MAX = 10_000
"""Versions kept per process."""
VERSIONS_BACK_MAX = 100
"""Versions that are looked at, from the newest one backwards, for the one that a query was loaded with."""

_known: dict[tuple[str, str, int], ValueSchema | None] = {}


@dataclass(frozen=True, slots=True)
class ReadSchema:
    """Schema by which a query reads, fixed when it is loaded. Plain data."""

    version: int
    schema: ValueSchema

    @property
    def ddl(self) -> str:
        """Type of the column `value` in Spark's notation."""
        return shape_of(self.schema).ddl


def bare(notation: str) -> str:
    """Return a type in a form in which Spark's two notations are equal.

    >>> bare("STRUCT<`a`: INT>") == bare("struct<a:int>")
    True
    """
    return notation.replace("`", "").replace(" ", "").lower()


class Registry:
    """Questions about the schemas of topics. Close it."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._cluster = Cluster(options)

    def close(self) -> None:
        self._cluster.close()

    def version(self, topic: str, number: int) -> ValueSchema | None:
        """Return a version of a topic's schema; None: there is none."""
        name = partitioned_name(topic)
        key = (self._options.service_url, name, number)
        if key not in _known:
            found = self._ask(name, number)
            if len(_known) >= KNOWN_MAX:
                _known.clear()
            _known[key] = None if found is None else found.schema
        return _known[key]

    def read_schema(self, declared: str | None = None) -> ReadSchema:
        """Return the schema by which the topics of the options are read.

        It is the newest one of the first topic, or the version of the option `schemaVersion`; the newest ones of the
        other topics must have the same type.

        Args:
            declared: type of the column `value` that the query was loaded with, in either notation of Spark: the newest
                version of that type is taken.

        Raises:
            SchemaError: a topic has no schema, types differ, or no version has this type.
        """
        topics = self._topics()
        newest = [self._newest(topic) for topic in topics]
        first, read = topics[0], newest[0]
        for topic, other in zip(topics[1:], newest[1:], strict=True):
            if (other.schema.kind, other.ddl) != (read.schema.kind, read.ddl):
                raise SchemaError(
                    f"the values of {topic} are {other.ddl} ({other.schema.name}), those of {first} {read.ddl}"
                    f" ({read.schema.name}): read the topics one by one, or with decode=none"
                )
        if (number := self._options.decoding.version) is not None:
            read = self._numbered(first, number)
        wanted = None if declared is None else bare(declared)
        if wanted is None or bare(read.ddl) == wanted:
            return read
        for number in range(read.version - 1, max(-1, read.version - 1 - VERSIONS_BACK_MAX), -1):
            found = self.version(first, number)
            if found is not None and bare(shape_of(found).ddl) == wanted:
                return ReadSchema(number, found)
        raise SchemaError(
            f"the column value was declared as {declared}, and no schema of {first} has that type; the one of version"
            f" {read.version} has {read.ddl}: cast it in the query"
        )

    def _newest(self, topic: str) -> ReadSchema:
        found = self._ask(topic, None)
        if found is None:
            raise SchemaError(f"{topic} has no schema by which values could be decoded: read it with decode=none")
        try:
            shape_of(found.schema)
        except SchemaError as error:
            raise SchemaError(
                f"{topic}, schema version {found.version}: {error}; decode=none reads the bytes"
            ) from None
        return found

    def _numbered(self, topic: str, number: int) -> ReadSchema:
        found = self.version(topic, number)
        if found is None:
            raise OptionError("schemaVersion", str(number), f"{topic} has no schema of that version")
        return ReadSchema(number, found)

    def _ask(self, topic: str, number: int | None) -> ReadSchema | None:
        version = b"" if number is None else number.to_bytes(8, "big", signed=True)
        found = self._cluster.ask(lambda client: client.schema(topic, version))
        if found is None:
            return None
        sent, answered = found
        number = int.from_bytes(answered[:8], "big", signed=True) if number is None else number
        return ReadSchema(number, ValueSchema.from_wire(sent))

    def _topics(self) -> Sequence[str]:
        """Return the topics of the options, without partitions; at least one."""
        pattern = self._options.topics_pattern
        if pattern is None:
            return list(dict.fromkeys(partitioned_name(name) for name in self._options.topics))

        async def listed(client: Client) -> list[str]:
            return pattern.topics(await client.topics(pattern.namespace))

        found = self._cluster.ask(listed)
        if not found:
            raise SchemaError(
                "no topic matches topicsPattern yet, so there is no schema to decode by: create one first"
            )
        return found
